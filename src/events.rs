//! The events this server knows, and what it keeps in memory about each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Mutex;

use crate::bitmap::Pulses;
use crate::db;
use crate::error::Error;
use crate::ids::{EventId, SeatNumber};
use crate::redis::keys::Keys;
use crate::snapshot::Snapshot;
use crate::token::{Claim, MasterKeys, Signer, Token};

/// An event is kept fresh for so long after someone asked about it.
const HOT: Duration = Duration::from_secs(30);
/// The list of events is read again at most so often when an unknown one is asked for.
const REFRESH: Duration = Duration::from_secs(1);

pub struct Event {
    pub id: EventId,
    pub title: String,
    pub seats: Vec<Seat>,
    pub keys: Keys,
    pub pulses: Pulses,
    /// The latest snapshot, however old.
    pub snapshot: ArcSwapOption<Snapshot>,
    /// Taken by whoever fetches a snapshot, so that all who wait share one fetch.
    pub fetching: Mutex<()>,
    /// Taken by whoever repairs the event in Redis.
    pub repairing: Mutex<()>,
    signer: Signer,
    on_sale: AtomicBool,
    asked: AtomicU64,
}

pub struct Seat {
    pub label: String,
    pub price: i64,
}

impl Event {
    pub fn sign(&self, place: crate::ids::Place) -> Token {
        self.signer.sign(place)
    }

    pub fn seat(&self, number: SeatNumber) -> Option<&Seat> {
        self.seats.get(number.index()?)
    }

    pub fn on_sale(&self) -> bool {
        self.on_sale.load(Ordering::Relaxed)
    }

    /// Someone asked about it: keep its snapshot fresh.
    pub fn asked(&self) {
        let now = uptime().as_secs() + 1;
        // Written once a second at most: the line of cache stays shared.
        if self.asked.load(Ordering::Relaxed) != now {
            self.asked.store(now, Ordering::Relaxed);
        }
    }

    pub fn hot(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked != 0 && uptime().as_secs() + 1 - asked <= HOT.as_secs()
    }
}

/// Since the first call.
fn uptime() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

pub struct Catalogue {
    events: ArcSwap<HashMap<EventId, Arc<Event>>>,
    default: ArcSwapOption<Event>,
    master: MasterKeys,
    refreshed: Mutex<Option<Instant>>,
}

impl Catalogue {
    pub fn new(master: MasterKeys) -> Self {
        Self { events: ArcSwap::default(), default: ArcSwapOption::empty(), master, refreshed: Mutex::new(None) }
    }

    pub fn all(&self) -> Vec<Arc<Event>> {
        self.events.load().values().cloned().collect()
    }

    pub fn known(&self, id: EventId) -> Option<Arc<Event>> {
        self.events.load().get(&id).cloned()
    }

    /// The event of this number. An unknown one may have been made by another server: then the list is read again.
    pub async fn get(&self, pool: &db::Pool, id: EventId) -> Result<Arc<Event>, Error> {
        if let Some(event) = self.known(id) {
            return Ok(event);
        }
        self.refresh(pool, REFRESH).await?;
        self.known(id).ok_or(Error::EventNotFound)
    }

    /// The event requests are about that name none: the lowest number on sale.
    pub fn default(&self) -> Result<Arc<Event>, Error> {
        self.default.load_full().ok_or(Error::EventNotFound)
    }

    /// The token written here, with its event. Nothing is asked of Redis, and of the database only where the token
    /// names an event this server has not heard of.
    pub async fn open(&self, pool: &db::Pool, text: &str) -> Result<(Token, Arc<Event>), Error> {
        let claim = Claim::parse(text).ok_or(Error::TokenNotFound)?;
        let event = match self.get(pool, claim.event()).await {
            Err(Error::EventNotFound) => return Err(Error::TokenNotFound),
            found => found?,
        };
        let token = event.signer.open(claim).ok_or(Error::TokenNotFound)?;
        Ok((token, event))
    }

    /// Reads the list of events, unless that was done less than `at_most_every` ago.
    pub async fn refresh(&self, pool: &db::Pool, at_most_every: Duration) -> Result<(), Error> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < at_most_every) {
            return Ok(());
        }
        let mut conn = pool.get().await?;
        let known = self.events.load_full();
        let mut events = HashMap::new();
        for row in db::events::all(&mut conn).await? {
            let Ok(id) = EventId::try_from(row.id) else { continue };
            let event = match known.get(&id) {
                Some(event) => event.clone(),
                None => Arc::new(self.load(&mut conn, id, &row).await?),
            };
            event.on_sale.store(row.on_sale, Ordering::Relaxed);
            events.insert(id, event);
        }
        let default = events.values().filter(|event| event.on_sale()).min_by_key(|event| event.id).cloned();
        self.events.store(Arc::new(events));
        self.default.store(default);
        *refreshed = Some(Instant::now());
        Ok(())
    }

    async fn load(&self, conn: &mut db::Conn, id: EventId, row: &db::events::EventRow) -> Result<Event, Error> {
        let seats = db::events::seats(conn, id).await?;
        Ok(Event {
            id,
            title: row.title.clone(),
            seats: seats.into_iter().map(|seat| Seat { label: seat.label, price: seat.price }).collect(),
            keys: Keys::new(id),
            pulses: Pulses::default(),
            snapshot: ArcSwapOption::empty(),
            fetching: Mutex::new(()),
            repairing: Mutex::new(()),
            signer: Signer::new(id, row.salt, &self.master),
            on_sale: AtomicBool::new(row.on_sale),
            asked: AtomicU64::new(0),
        })
    }
}
