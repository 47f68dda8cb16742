//! Waiting for what can be observed, with an end.

use std::time::{Duration, Instant};

use crate::Outcome;

/// Longest wait for a program to start, answer or stop.
pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Asks again until there is an answer. An error ends the wait at once.
pub async fn within<T>(patience: Duration, what: &str, mut ask: impl AsyncFnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = ask().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("{what}: not within {patience:?}").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// For tests: asks again until there is an answer, and panics after ten seconds.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    match within(Duration::from_secs(10), what, async || Ok(ask().await)).await {
        Ok(found) => found,
        Err(error) => panic!("{error}"),
    }
}
