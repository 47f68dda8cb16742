//! The lines, one a file.

pub mod bitmap;
pub mod sorted_set;
pub mod sorted_set_gathered;
pub mod sorted_set_lua;
pub mod table;
