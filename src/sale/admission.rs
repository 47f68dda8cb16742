//! Stage 2: letting people in. The script decides who and when; any number of servers may ask.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::event::Event;
use crate::event::facts::Booking;
use crate::sale::restore::Restorer;
use crate::store::Stores;
use crate::store::redis::scripts::Admit;

/// How soon to ask again about an event that is being repaired.
const REPAIRING: Duration = Duration::from_millis(100);

const LONGEST_REST: Duration = Duration::from_secs(1);

pub struct Admission {
    stores: Arc<Stores>,
    restorer: Arc<Restorer>,
    /// How often to ask, until the event's own settings are known.
    every: Duration,
}

impl Admission {
    pub fn new(stores: Arc<Stores>, restorer: Arc<Restorer>, every: Duration) -> Self {
        Self { stores, restorer, every }
    }

    /// One round. Returns when the next one is due.
    pub async fn step(&self, event: &Arc<Event>) -> Result<Duration, Error> {
        let snapshot = event.snapshot.load_full();
        let interval = snapshot.map_or(self.every, |snapshot| Duration::from_millis(snapshot.policy.interval_ms));
        // An operator may shorten it at any time, and the script knows when it is time.
        let interval = interval.min(LONGEST_REST);
        if event.booking() == Booking::Over || event.check_database().is_err() {
            // People inside keep their passes; nobody else gets in.
            return Ok(interval);
        }
        match self.stores.scripts.admit(&mut self.stores.redis.get().await?, &event.keys).await {
            Ok(Admit::Admitted(count)) => {
                tracing::debug!(event = %event.id, count, "let in");
                Ok(interval)
            }
            Ok(Admit::Paused) => Ok(interval),
            // Another server was first: ask again when the interval is over, not a whole one later.
            Ok(Admit::Skipped(wait_ms)) => Ok(Duration::from_millis(wait_ms).min(LONGEST_REST)),
            Ok(Admit::Stale) | Err(Error::Unready) => {
                self.restorer.in_background(event);
                Ok(REPAIRING)
            }
            Err(error) => Err(error),
        }
    }
}
