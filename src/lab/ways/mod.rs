//! The strategies, one a file.

pub mod advisory_lock;
pub mod broker;
pub mod conditional_update;
pub mod for_update;
pub mod for_update_nowait;
pub mod no_lock;
pub mod optimistic;
pub mod optimistic_retry;
pub mod redis_lock;
pub mod redis_lock_early;
pub mod redis_lock_lease;
pub mod serializable;
pub mod unique_insert;
pub mod zticket;
