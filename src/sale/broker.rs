//! Where accepted orders wait until they are written.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::base::lock;
use crate::base::request::Request;
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::store::Stores;
use crate::store::redis::lane::Lane;
use crate::store::redis::scripts::{Take, Taken};

/// Keeps orders in the order they came, at least those for the same seat. What was taken comes again until it is done, also
/// to another server if this one dies.
pub trait Broker: Send + Sync {
    /// Whether orders wait in the stream of their event, where the script puts them that accepts them.
    fn in_redis(&self) -> bool;

    /// Begins to receive orders.
    fn start(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Keeps an accepted order. Once this has succeeded, it is not lost. To keep it again does no harm.
    fn keep<'a>(&'a self, event: &'a Event, request: &'a Request) -> BoxFuture<'a, Result<(), Error>>;

    /// The same for an order that waits long and may never have reached the broker. Does nothing if it was sent lately.
    fn keep_again<'a>(&'a self, event: &'a Event, request: &'a Request) -> BoxFuture<'a, Result<(), Error>>;

    /// The oldest orders of an event.
    fn take<'a>(&'a self, event: &'a Event, most: usize) -> BoxFuture<'a, Result<Take, Error>>;

    /// These are decided, and Redis knows.
    fn done(&self, event: EventId, orders: &[&Taken]);

    /// This server takes no more.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// After this time without a word from its writer, another server writes the orders of an event. Longer than a round of a
/// writer may take: two that write the same orders do no harm, but twice the work.
const LEASE: Duration = Duration::from_secs(20);
/// How often to ask whether another writer is done.
const AFTER_BUSY: Duration = Duration::from_millis(100);

/// A stream in Redis for each event. One server at a time takes from it: it has a lease.
pub struct Streams {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    lane: Lane,
    /// What this server is called in leases.
    name: String,
    /// Events whose orders this server writes.
    writing: Mutex<HashSet<EventId>>,
    /// Events whose orders another server writes, and when to ask again.
    busy: Mutex<HashMap<EventId, Instant>>,
}

impl Streams {
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>) -> Result<Self, Error> {
        Ok(Self {
            lane: stores.lane()?,
            stores,
            catalogue,
            name: Uuid::now_v7().to_string(),
            writing: Mutex::default(),
            busy: Mutex::default(),
        })
    }

    async fn take(&self, event: &Event, most: usize) -> Result<Take, Error> {
        self.stores.scripts.take(&mut self.lane.call()?.link, &event.keys, &self.name, LEASE, most).await
    }
}

impl Broker for Streams {
    fn in_redis(&self) -> bool {
        true
    }

    fn start(&self) -> BoxFuture<'_, Result<(), Error>> {
        async { Ok(()) }.boxed()
    }

    /// The script that accepts an order has put it into the stream.
    fn keep<'a>(&'a self, _: &'a Event, _: &'a Request) -> BoxFuture<'a, Result<(), Error>> {
        async { Ok(()) }.boxed()
    }

    fn keep_again<'a>(&'a self, _: &'a Event, _: &'a Request) -> BoxFuture<'a, Result<(), Error>> {
        async { Ok(()) }.boxed()
    }

    fn take<'a>(&'a self, event: &'a Event, most: usize) -> BoxFuture<'a, Result<Take, Error>> {
        async move {
            let busy = lock(&self.busy).get(&event.id).map(|until| until.saturating_duration_since(Instant::now()));
            if let Some(left) = busy.filter(|left| !left.is_zero()) {
                return Ok(Take::Busy { left });
            }
            let taken = self.take(event, most).await;
            match &taken {
                Ok(Take::Taken(_)) => drop(lock(&self.writing).insert(event.id)),
                Ok(Take::Busy { left }) => {
                    let wait = AFTER_BUSY.min(*left);
                    lock(&self.busy).insert(event.id, Instant::now() + wait);
                    return Ok(Take::Busy { left: wait });
                }
                Ok(Take::None) => drop(lock(&self.writing).remove(&event.id)),
                Err(_) => {}
            }
            taken
        }
        .boxed()
    }

    /// The script that tells Redis took them out of the stream.
    fn done(&self, _: EventId, _: &[&Taken]) {}

    /// Lets other servers write at once.
    fn stop(&self) -> BoxFuture<'_, ()> {
        async move {
            let events: Vec<EventId> = lock(&self.writing).drain().collect();
            let stop = |event: Arc<Event>| async move { self.take(&event, 0).await };
            let stops = events.into_iter().filter_map(|event| self.catalogue.known(event)).map(stop);
            for stopped in join_all(stops).await {
                if let Err(error) = stopped {
                    tracing::debug!(%error, "the lease of a writer is left to run out");
                }
            }
        }
        .boxed()
    }
}
