//! Snapshots to answer requests from: kept fresh while someone asks, and repaired where Redis lost the event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::event::Event;
use crate::event::snapshot::{Snapshot, TOO_OLD};
use crate::sale::restore::Restorer;
use crate::store::Stores;

/// How long a request waits for a new snapshot.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(1);

pub struct Views {
    stores: Arc<Stores>,
    restorer: Arc<Restorer>,
    /// How often snapshots are renewed.
    every: Duration,
}

impl Views {
    pub fn new(stores: Arc<Stores>, restorer: Arc<Restorer>, every: Duration) -> Self {
        Self { stores, restorer, every }
    }

    /// The latest snapshot or, if that is too old, one fetched now.
    pub async fn current(&self, event: &Arc<Event>) -> Result<Arc<Snapshot>, Error> {
        event.asked();
        match event.snapshot.load_full() {
            Some(snapshot) if snapshot.age() <= TOO_OLD => Ok(snapshot),
            _ => self.fresh(event).await,
        }
    }

    /// A snapshot taken from now on, shared by all requests that wait for one.
    pub async fn fresh(&self, event: &Arc<Event>) -> Result<Arc<Snapshot>, Error> {
        let since = Instant::now();
        let room = event.snapshot_room.clone().try_acquire_owned().map_err(|_| Error::Stale)?;
        let (stores, restorer, event) = (self.stores.clone(), self.restorer.clone(), event.clone());
        let fetch = self.stores.run(async move {
            let _room = room;
            match event.refresh(&stores, since).await {
                // It is new, or Redis lost it.
                Err(Error::Unready) => {
                    restorer.ready(&event).await?;
                    event.refresh(&stores, Instant::now()).await
                }
                outcome => outcome,
            }
        });
        tokio::time::timeout(SNAPSHOT_WAIT, fetch).await.unwrap_or(Err(Error::Stale))
    }

    /// Renews the snapshot of an event someone asks about.
    pub async fn step(&self, event: &Arc<Event>) -> Result<Duration, Error> {
        let now = Instant::now();
        if event.hot() {
            match event.refresh(&self.stores, now).await {
                Err(Error::Unready) => self.restorer.in_background(event),
                outcome => drop(outcome?),
            }
        }
        Ok(self.every.saturating_sub(now.elapsed()))
    }
}
