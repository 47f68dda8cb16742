//! Stage 2: letting people in. The script decides who and when; any number of servers may ask.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::error::Error;
use crate::events::{Booking, Event};
use crate::redis::scripts::Admit;
use crate::restore;

/// How soon to ask again about an event that is being repaired.
const REPAIRING: Duration = Duration::from_millis(100);

/// One round. Returns when the next one is due.
pub async fn step(app: &Arc<App>, event: &Arc<Event>) -> Result<Duration, Error> {
    let snapshot = event.snapshot.load_full();
    let interval_ms = snapshot.map_or(app.config.policy.interval_ms, |snapshot| snapshot.policy.interval_ms);
    let interval = Duration::from_millis(interval_ms);
    if event.booking() == Booking::Over {
        // Who is inside has the time of the pass; nobody else gets in.
        return Ok(interval);
    }
    match app.scripts.admit(&mut app.redis.get().await?, &event.keys).await {
        Ok(Admit::Admitted(count)) => {
            tracing::debug!(event = %event.id, count, "let in");
            Ok(interval)
        }
        Ok(Admit::Paused) => Ok(interval),
        // Another server was first: ask again when the interval is over, not a whole one later.
        Ok(Admit::Skipped(wait_ms)) => Ok(Duration::from_millis(wait_ms)),
        Ok(Admit::Stale) | Err(Error::Unready) => {
            restore::in_background(app, event);
            Ok(REPAIRING)
        }
        Err(error) => Err(error),
    }
}
