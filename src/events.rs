//! The events this server knows, and what it keeps in memory about each.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;
use uuid::Uuid;

use crate::app::PATIENCE;
use crate::bitmap::Pulses;
use crate::db;
use crate::error::Error;
use crate::hall::Hall;
use crate::ids::{ConcertId, EventId, SeatNumber};
use crate::redis::keys::Keys;
use crate::seats::Picking;
use crate::snapshot::Snapshot;
use crate::token::{Claim, MasterKeys, Signer, Token};

/// An event is kept fresh for so long after someone asked about it.
const HOT: Duration = Duration::from_secs(30);
/// The list of events is read at most so often for who asks about an unknown one.
const MOST_WANTING: usize = 1000;
const REFRESH: Duration = Duration::from_secs(1);

pub struct Event {
    pub id: EventId,
    pub seats: Vec<Seat>,
    pub hall: Hall,
    pub keys: Keys,
    pub pulses: Pulses,
    /// The latest snapshot, however old.
    pub snapshot: ArcSwapOption<Snapshot>,
    /// Told when a snapshot has something new in it for people with a token.
    pub news: watch::Sender<()>,
    /// Taken by whoever fetches a snapshot, so that all who wait share one fetch.
    pub fetching: Mutex<()>,
    /// Room for those who wait for a snapshot: while Redis is away there is no use in a crowd of them.
    pub wanting: Arc<Semaphore>,
    /// Taken by whoever repairs the event in Redis.
    pub repairing: Mutex<()>,
    picking: std::sync::Mutex<Picking>,
    signer: Signer,
    facts: ArcSwap<Facts>,
    asked: AtomicU64,
    prepared: AtomicBool,
}

/// What an operator can change of an event while it is sold.
#[derive(Debug, Clone)]
pub struct Facts {
    pub title: String,
    pub on_sale: bool,
    pub concert: Option<ConcertId>,
    pub starts_at: Option<DateTime<Utc>>,
    /// Until then tickets can be cancelled; `None`: always.
    pub cancel_until: Option<DateTime<Utc>>,
    /// Whether joining the line takes a person, who has one place in it.
    pub one_place_per_person: bool,
    /// `None`: always open.
    pub opens_at: Option<DateTime<Utc>>,
    pub closes_at: Option<DateTime<Utc>>,
}

/// Whether an event can be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Booking {
    NotYet(DateTime<Utc>),
    Open,
    Over,
}

impl Facts {
    fn new(row: &db::events::EventRow, concert: Option<&Concert>) -> Self {
        Self {
            title: row.title.clone(),
            on_sale: row.on_sale,
            concert: row.concert_id.map(ConcertId),
            starts_at: row.starts_at,
            cancel_until: row.cancel_until.or(row.starts_at),
            one_place_per_person: row.one_place_per_person,
            opens_at: concert.map(|concert| concert.opens_at),
            // Nobody joins the line of a performance that has begun.
            closes_at: concert.map(|concert| concert.closes_at).into_iter().chain(row.starts_at).min(),
        }
    }

    pub fn booking(&self, now: DateTime<Utc>) -> Booking {
        match self.opens_at {
            _ if !self.on_sale || self.closes_at.is_some_and(|closes_at| now >= closes_at) => Booking::Over,
            Some(opens_at) if now < opens_at => Booking::NotYet(opens_at),
            _ => Booking::Open,
        }
    }
}

/// A concert, with its dates in order of time.
#[derive(Debug, Clone)]
pub struct Concert {
    pub id: ConcertId,
    pub title: String,
    pub description: String,
    pub opens_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
    pub dates: Vec<EventId>,
}

pub struct Seat {
    pub label: String,
    pub price: i64,
}

impl Event {
    pub fn sign(&self, place: crate::ids::Place) -> Token {
        self.signer.sign(place)
    }

    /// The token written here, if it is a genuine one of this event.
    pub fn open(&self, text: &str) -> Option<Token> {
        let claim = Claim::parse(text).filter(|claim| claim.event() == self.id)?;
        self.signer.open(claim)
    }

    pub fn seat(&self, number: SeatNumber) -> Option<&Seat> {
        self.seats.get(number.index()?)
    }

    pub fn facts(&self) -> Arc<Facts> {
        self.facts.load_full()
    }

    /// Whether it can be booked now, by this server's clock.
    pub fn booking(&self) -> Booking {
        self.facts.load().booking(Utc::now())
    }

    /// What these seats cost together. `None`: the event has no such seat.
    pub fn total(&self, seats: &[SeatNumber]) -> Option<i64> {
        seats.iter().map(|seat| Some(self.seat(*seat)?.price)).sum()
    }

    /// The lowest and the highest price.
    pub fn prices(&self) -> Option<(i64, i64)> {
        let prices = || self.seats.iter().map(|seat| seat.price);
        prices().min().zip(prices().max())
    }

    /// Where the best seats are chosen, by one at a time.
    pub fn picking(&self) -> std::sync::MutexGuard<'_, Picking> {
        self.picking.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Someone asked about it: keep its snapshot fresh.
    pub fn asked(&self) {
        let now = uptime().as_secs() + 1;
        // Written once a second at most: the line of cache stays shared.
        if self.asked.load(Ordering::Relaxed) != now {
            self.asked.store(now, Ordering::Relaxed);
        }
    }

    /// Whether this server has seen it ready, with its settings seeded.
    pub fn prepared(&self) -> bool {
        self.prepared.load(Ordering::Relaxed)
    }

    pub fn set_prepared(&self) {
        self.prepared.store(true, Ordering::Relaxed);
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
    concerts: ArcSwap<BTreeMap<ConcertId, Arc<Concert>>>,
    default: ArcSwapOption<Event>,
    master: MasterKeys,
    reading: Mutex<Option<Reading>>,
}

/// The last time the list of events was read.
struct Reading {
    began: Instant,
    done: bool,
}

impl Catalogue {
    pub fn new(master: MasterKeys) -> Self {
        let (events, concerts) = (ArcSwap::default(), ArcSwap::default());
        Self { events, concerts, default: ArcSwapOption::empty(), master, reading: Mutex::new(None) }
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
        self.ask(pool).await?;
        self.known(id).ok_or(Error::EventNotFound)
    }

    /// In order of their numbers.
    pub fn concerts(&self) -> Arc<BTreeMap<ConcertId, Arc<Concert>>> {
        self.concerts.load_full()
    }

    /// The concert of this number; as with events, an unknown one may be new.
    pub async fn concert(&self, pool: &db::Pool, id: ConcertId) -> Result<Arc<Concert>, Error> {
        let known = || self.concerts.load().get(&id).cloned();
        if let Some(concert) = known() {
            return Ok(concert);
        }
        self.ask(pool).await?;
        known().ok_or(Error::ConcertNotFound)
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

    /// Reads the list of events for who asks about one that is not in it. All who ask share a reading, and the next one
    /// waits a moment, so that made-up numbers cost little.
    async fn ask(&self, pool: &db::Pool) -> Result<(), Error> {
        timeout(PATIENCE, self.ask_together(pool)).await.unwrap_or(Err(Error::TooSlow("the list of events")))
    }

    async fn ask_together(&self, pool: &db::Pool) -> Result<(), Error> {
        let asked = Instant::now();
        let mut reading = self.reading.lock().await;
        if let Some(last) = reading.as_ref().filter(|last| last.began < asked) {
            tokio::time::sleep_until((last.began + REFRESH).into()).await;
        } else if let Some(last) = reading.as_ref() {
            return if last.done { Ok(()) } else { Err(Error::Stale) };
        }
        self.read(pool, &mut reading).await
    }

    /// Reads the list of events.
    pub async fn refresh(&self, pool: &db::Pool) -> Result<(), Error> {
        let mut reading = self.reading.lock().await;
        self.read(pool, &mut reading).await
    }

    async fn read(&self, pool: &db::Pool, reading: &mut Option<Reading>) -> Result<(), Error> {
        let began = Instant::now();
        let outcome = self.read_all(pool).await;
        *reading = Some(Reading { began, done: outcome.is_ok() });
        outcome
    }

    async fn read_all(&self, pool: &db::Pool) -> Result<(), Error> {
        let mut conn = pool.get().await?;
        let known = self.events.load_full();
        let concert = |row: db::concerts::ConcertRow| Concert {
            id: ConcertId(row.id),
            title: row.title,
            description: row.description,
            opens_at: row.opens_at,
            closes_at: row.closes_at,
            dates: Vec::new(),
        };
        // Events first: then the concert of each is among those read after, and with it the booking window.
        let mut rows = db::events::all(&mut conn).await?;
        let mut concerts: BTreeMap<ConcertId, Concert> =
            db::concerts::all(&mut conn).await?.into_iter().map(|row| (ConcertId(row.id), concert(row))).collect();
        rows.sort_by_key(|row| (row.starts_at, row.id));
        let mut events = HashMap::new();
        for row in rows {
            let Ok(id) = EventId::try_from(row.id) else { continue };
            let concert = row.concert_id.and_then(|concert| concerts.get_mut(&ConcertId(concert)));
            let facts = Facts::new(&row, concert.as_deref());
            let event = match known.get(&id) {
                Some(event) => event.clone(),
                None => Arc::new(self.load(&mut conn, id, row.salt, facts.clone()).await?),
            };
            event.facts.store(Arc::new(facts));
            concert.into_iter().for_each(|concert| concert.dates.push(id));
            events.insert(id, event);
        }
        let on_sale = events.values().filter(|event| event.booking() == Booking::Open);
        let default = on_sale.min_by_key(|event| event.id).cloned();
        self.events.store(Arc::new(events));
        self.concerts.store(Arc::new(concerts.into_iter().map(|(id, concert)| (id, Arc::new(concert))).collect()));
        self.default.store(default);
        Ok(())
    }

    async fn load(&self, conn: &mut db::Conn, id: EventId, salt: Uuid, facts: Facts) -> Result<Event, Error> {
        let seats = db::events::seats(conn, id).await?;
        let sections = db::events::sections(conn, id).await?;
        Ok(Event {
            id,
            seats: seats.into_iter().map(|seat| Seat { label: seat.label, price: seat.price }).collect(),
            hall: Hall::new(sections),
            keys: Keys::new(id),
            pulses: Pulses::default(),
            snapshot: ArcSwapOption::empty(),
            news: watch::Sender::new(()),
            fetching: Mutex::new(()),
            wanting: Arc::new(Semaphore::new(MOST_WANTING)),
            repairing: Mutex::new(()),
            picking: std::sync::Mutex::default(),
            signer: Signer::new(id, salt, &self.master),
            facts: ArcSwap::from_pointee(facts),
            asked: AtomicU64::new(0),
            prepared: AtomicBool::new(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn the_booking_window_has_its_opening_and_not_its_closing() {
        let now = Utc::now();
        let minute = TimeDelta::minutes(1);
        let mut facts = Facts {
            title: String::new(),
            on_sale: true,
            concert: None,
            starts_at: None,
            cancel_until: None,
            one_place_per_person: false,
            opens_at: None,
            closes_at: None,
        };
        assert_eq!(facts.booking(now), Booking::Open);
        (facts.opens_at, facts.closes_at) = (Some(now), Some(now + minute));
        assert_eq!(facts.booking(now - TimeDelta::nanoseconds(1)), Booking::NotYet(now));
        assert_eq!(facts.booking(now), Booking::Open);
        assert_eq!(facts.booking(now + minute - TimeDelta::nanoseconds(1)), Booking::Open);
        assert_eq!(facts.booking(now + minute), Booking::Over);
        facts.on_sale = false;
        assert_eq!(facts.booking(now), Booking::Over);
    }
}
