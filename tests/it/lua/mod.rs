//! The scripts, one by one.
