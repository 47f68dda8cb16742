//! Stage 2: letting people in. The script decides who and when; any number of servers may ask.

use std::time::Duration;

use crate::app::App;
use crate::error::Error;
use crate::events::Event;
use crate::redis::scripts::Admit;
use crate::restore;

/// One round over all events. Returns when the next one is due.
pub async fn step(app: &App) -> Result<Duration, Error> {
    let mut wait = Duration::from_millis(app.config.policy.interval_ms);
    for event in app.events.all() {
        wait = wait.min(admit(app, &event).await?);
    }
    Ok(wait.max(Duration::from_millis(1)))
}

async fn admit(app: &App, event: &Event) -> Result<Duration, Error> {
    let interval = event.snapshot.load().as_ref().map_or(app.config.policy.interval_ms, |s| s.policy.interval_ms);
    let interval = Duration::from_millis(interval);
    let admit = app.scripts.admit(&mut app.redis.get().await?, &event.keys).await;
    match admit {
        Ok(Admit::Admitted(0) | Admit::Paused) => Ok(interval),
        Ok(Admit::Admitted(count)) => {
            tracing::debug!(event = %event.id, count, "let in");
            Ok(interval)
        }
        // Another server was first: ask again when the interval is over, not a whole one later.
        Ok(Admit::Skipped(wait_ms)) => Ok(Duration::from_millis(wait_ms)),
        Ok(Admit::Stale) | Err(Error::Unready) => {
            restore::ready(app, event).await?;
            Ok(Duration::ZERO)
        }
        Err(error) => Err(error),
    }
}
