//! Words and rules without I/O. Knows no other layer.

pub mod error;
pub mod hall;
pub mod ids;
pub mod metrics;
pub mod paging;
pub mod policy;
pub mod quiet;
pub mod seal;
pub mod seat;
pub mod token;

use std::time::Duration;

/// Longest a request waits for work that it shares with others.
pub const LONGEST_WAIT: Duration = Duration::from_secs(15);
