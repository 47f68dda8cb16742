//! Snapshots to answer requests from: kept fresh while someone asks, and repaired where Redis lost the event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::ids::{Place, SeatNumber};
use crate::event::Event;
use crate::event::own_writes::Unseen;
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

/// An event as the owner of a place sees it.
pub struct Seen {
    pub snapshot: Arc<Snapshot>,
    /// Seats they bought, which the snapshot does not show as sold yet.
    pub bought: Vec<SeatNumber>,
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

    /// The same for the owner of a place, who sees what they did through this server at once.
    pub async fn seen_by(&self, event: &Arc<Event>, place: Place) -> Result<Seen, Error> {
        let snapshot = self.current(event).await?;
        let Unseen { stale, bought } = event.own_writes.unseen(place, &snapshot);
        if !stale {
            return Ok(Seen { snapshot, bought });
        }
        // While Redis does not answer, the last snapshot has to do.
        let snapshot = self.fresh(event).await.unwrap_or(snapshot);
        let bought = event.own_writes.unseen(place, &snapshot).bought;
        Ok(Seen { snapshot, bought })
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
