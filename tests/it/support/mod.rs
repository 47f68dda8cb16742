//! What tests stand on: real servers, and a check at the end that nothing was lost or made up.

pub mod app;
pub mod browser;
pub mod database;
pub mod people;
pub mod proxy;
pub mod redis;

pub use app::{TestApp, Visitor};
pub use people::plan;
pub use proxy::Proxy;
pub use redis::TestRedis;

use std::time::{Duration, Instant};

/// Asks again until it is so. For what happens by itself, in the time it takes; panics after ten seconds.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within ten seconds");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
