//! The events and concerts this server knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio::time::timeout;
use uuid::Uuid;

use crate::base::LONGEST_WAIT;
use crate::base::control::Control;
use crate::base::error::Error;
use crate::base::hall::Hall;
use crate::base::ids::{ConcertId, EventId};
use crate::base::policy::Policy;
use crate::base::token::{Claim, MasterKeys, Token};
use crate::event::facts::{Concert, Facts};
use crate::event::{Event, Seat};
use crate::store::db;
use crate::store::db::pool::{Conn, Pool};

/// Requests about unknown events cause at most one read of the list in this time.
const READ_AT_MOST_EVERY: Duration = Duration::from_secs(1);

pub struct Catalogue {
    db: Pool,
    events: ArcSwap<HashMap<EventId, Arc<Event>>>,
    concerts: ArcSwap<BTreeMap<ConcertId, Arc<Concert>>>,
    /// For requests that name no event.
    default: EventId,
    master: MasterKeys,
    /// Settings of every event where operators decided nothing else.
    configured: Policy,
    reading: Mutex<Option<Reading>>,
}

/// The last time the list of events was read.
struct Reading {
    began: Instant,
    done: bool,
}

impl Catalogue {
    pub fn new(db: Pool, master: MasterKeys, default: EventId, configured: Policy) -> Self {
        let (events, concerts) = (ArcSwap::default(), ArcSwap::default());
        Self { db, events, concerts, default, master, configured, reading: Mutex::new(None) }
    }

    pub fn all(&self) -> Vec<Arc<Event>> {
        self.events.load().values().cloned().collect()
    }

    pub fn known(&self, id: EventId) -> Option<Arc<Event>> {
        self.events.load().get(&id).cloned()
    }

    /// The event with this number. If it is unknown, another server may have made it: then the list is read again.
    pub async fn get(&self, id: EventId) -> Result<Arc<Event>, Error> {
        if let Some(event) = self.known(id) {
            return Ok(event);
        }
        self.read_for_request().await?;
        self.known(id).ok_or(Error::EventNotFound)
    }

    /// In order of their numbers.
    pub fn concerts(&self) -> Arc<BTreeMap<ConcertId, Arc<Concert>>> {
        self.concerts.load_full()
    }

    /// The concert with this number; as with events, an unknown one may be new.
    pub async fn concert(&self, id: ConcertId) -> Result<Arc<Concert>, Error> {
        let known = || self.concerts.load().get(&id).cloned();
        if let Some(concert) = known() {
            return Ok(concert);
        }
        self.read_for_request().await?;
        known().ok_or(Error::ConcertNotFound)
    }

    /// The event for requests that name none. It is always the same one, also when its sale is over.
    pub fn default(&self) -> Result<Arc<Event>, Error> {
        self.known(self.default).ok_or(Error::EventNotFound)
    }

    /// The token written here, with its event. Asks Redis nothing, and the database only if the token names an event that
    /// this server does not know.
    pub async fn token(&self, text: &str) -> Result<(Token, Arc<Event>), Error> {
        let claim = Claim::parse(text).ok_or(Error::TokenNotFound)?;
        let event = match self.get(claim.event()).await {
            Err(Error::EventNotFound) => return Err(Error::TokenNotFound),
            found => found?,
        };
        let token = event.verify(claim).ok_or(Error::TokenNotFound)?;
        Ok((token, event))
    }

    /// Reads the list for requests about something that is not in it. They share a read, and the next one waits a moment,
    /// so that made-up numbers cost little.
    async fn read_for_request(&self) -> Result<(), Error> {
        timeout(LONGEST_WAIT, self.read_together()).await.unwrap_or(Err(Error::TooSlow("the list of events")))
    }

    async fn read_together(&self) -> Result<(), Error> {
        let asked = Instant::now();
        let mut reading = self.reading.lock().await;
        if let Some(last) = reading.as_ref().filter(|last| last.began < asked) {
            tokio::time::sleep_until((last.began + READ_AT_MOST_EVERY).into()).await;
        } else if let Some(last) = reading.as_ref() {
            return if last.done { Ok(()) } else { Err(Error::Stale) };
        }
        self.read(&mut reading).await
    }

    /// Reads the list of events and concerts.
    pub async fn refresh(&self) -> Result<(), Error> {
        let mut reading = self.reading.lock().await;
        self.read(&mut reading).await
    }

    async fn read(&self, reading: &mut Option<Reading>) -> Result<(), Error> {
        let began = Instant::now();
        let outcome = self.read_all().await;
        *reading = Some(Reading { began, done: outcome.is_ok() });
        outcome
    }

    async fn read_all(&self) -> Result<(), Error> {
        let known = self.events.load_full();
        // Before the database is asked: it knows of every block that Redis had then.
        let end = |event: &Arc<Event>| Some(event.snapshot.load().as_ref()?.meta.end);
        let ends: HashMap<EventId, Option<u64>> = known.iter().map(|(id, event)| (*id, end(event))).collect();
        let mut conn = self.db.get().await?;
        // Events first: then the concert of each is among those read after, and with it the booking window.
        let mut rows = db::events::all(&mut conn).await?;
        let concerts =
            db::concerts::all(&mut conn).await?.into_iter().map(|row| (ConcertId(row.id), Concert::from(row)));
        let mut concerts: BTreeMap<ConcertId, Concert> = concerts.collect();
        let controls: HashMap<EventId, Control> = db::controls::all(&mut conn).await?.into_iter().collect();
        rows.sort_by_key(|row| (row.starts_at, row.id));
        let mut events = HashMap::new();
        for row in rows {
            let Ok(id) = EventId::try_from(row.id) else { continue };
            let concert = row.concert_id.and_then(|concert| concerts.get_mut(&ConcertId(concert)));
            let facts = Facts::new(&row, concert.as_deref());
            concert.into_iter().for_each(|concert| concert.dates.push(id));
            let event = match known.get(&id) {
                Some(event) => {
                    event.compare(row.salt, row.ceiling, ends.get(&id).copied().flatten());
                    event.set_facts(facts);
                    event.clone()
                }
                None => Arc::new(self.load(&mut conn, id, row.salt, facts).await?),
            };
            if let Some(control) = controls.get(&id) {
                event.set_control(control);
            }
            events.insert(id, event);
        }
        self.events.store(Arc::new(events));
        self.concerts.store(Arc::new(concerts.into_iter().map(|(id, concert)| (id, Arc::new(concert))).collect()));
        Ok(())
    }

    async fn load(&self, conn: &mut Conn, id: EventId, salt: Uuid, facts: Facts) -> Result<Event, Error> {
        let seats = db::events::seats(conn, id).await?;
        let seats = seats.into_iter().map(|seat| Seat { label: seat.label, price: seat.price }).collect();
        let hall = Hall::new(db::events::sections(conn, id).await?);
        Ok(Event::new(id, seats, hall, salt, &self.master, facts, &self.configured))
    }
}
