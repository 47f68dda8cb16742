//! The lab: the known ways to sell one seat to one of many, and to keep a line, run on the real stores with its cost and its
//! bug. It stands apart from what the server does, in a schema and under keys of its own, which it removes at the end.
//!
//! To the lab a seat is an item with an amount of one, and a balance an item with more. So each strategy is written once,
//! in a small file in `ways`, and races on both.

pub mod background;
pub mod command;
pub mod crowd;
pub mod event;
pub mod ground;
pub mod line;
pub mod lines;
pub mod lock;
pub mod page;
pub mod race;
pub mod report;
pub mod stats;
pub mod steps;
pub mod way;
pub mod ways;
