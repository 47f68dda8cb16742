//! A visitor's way through a sale, a file a stage. Each stage owns its state and is given what it needs.
//!
//! 1 `line` (visitors join it through an `entrance`), 2 `admission`, 3 `seats`, 4 `tickets` (written by `seller`, brought to
//! Redis by `settle`) and `orders` (those that are accepted first wait in a `broker`,
//! and `writer` gives them to `seller`), 5 `restore`, which makes an event ready in Redis as `rebuild` plans it and `attempts` schedules it; `blocks` knows whether its places may be told to visitors. `views` has the snapshots
//! they answer from.

pub mod admission;
pub mod attempts;
pub mod blocks;
pub mod broker;
pub mod control;
pub mod entrance;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod line;
pub mod orders;
pub mod rebuild;
pub mod restore;
pub mod seats;
pub mod seller;
pub mod settle;
pub mod tickets;
pub mod views;
pub mod writer;
