//! Words and rules without I/O. Knows no other layer.

pub mod control;
pub mod error;
pub mod hall;
pub mod ids;
pub mod kafka_address;
pub mod keys;
pub mod metrics;
pub mod order_number;
pub mod paging;
pub mod policy;
pub mod quiet;
pub mod recent;
pub mod request;
pub mod seal;
pub mod seat;
pub mod session;
pub mod token;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest a request waits for work that it shares with others.
pub const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Locks a mutex. What it guards stays whole if a thread panics, so that does not spoil it for the others.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
