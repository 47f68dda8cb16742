//! What a server knows about each event: facts from the database, and its latest copy of the state in Redis. Knows the
//! stores.

pub mod catalogue;
pub mod estimate;
pub mod facts;
pub mod fetch;
pub mod own_writes;
pub mod per_event;
pub mod pulses;
pub mod ranks;
pub mod scores;
pub mod scrape;
pub mod snapshot;
pub mod tally;

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use chrono::Utc;
use tokio::sync::{Mutex, Notify, Semaphore, watch};
use uuid::Uuid;

use crate::base::control::Control;
use crate::base::error::Error;
use crate::base::hall::Hall;
use crate::base::ids::{EventId, OrderId, Place, SeatNumber};
use crate::base::order_number::OrderNumber;
use crate::base::policy::Policy;
use crate::base::token::{Claim, MasterKeys, Signer, Token};
use crate::event::estimate::{Estimator, Outlook, Seen};
use crate::event::facts::{Booking, Facts};
use crate::event::own_writes::OwnWrites;
use crate::event::pulses::Pulses;
use crate::event::scores::Scores;
use crate::event::snapshot::{Snapshot, UNSURE};
use crate::event::tally::Tally;
use crate::store::Stores;
use crate::store::redis::keys::Keys;

/// How long an event is kept fresh after someone asked about it.
const HOT: Duration = Duration::from_secs(30);
const LOOK_AHEAD_EVERY_MS: u64 = 1000;
/// Most requests that wait for a snapshot of one event: while Redis is away, a crowd of them would wait in vain.
const MOST_REQUESTS: usize = 1000;

pub struct Event {
    pub id: EventId,
    pub seats: Vec<Seat>,
    /// Whether any of them costs something.
    pub priced: bool,
    /// In force where operators decided nothing else.
    pub configured: Policy,
    pub hall: Hall,
    pub keys: Keys,
    pub pulses: Pulses,
    pub own_writes: OwnWrites,
    pub scores: Scores,
    pub tally: Tally,
    /// The latest snapshot, however old.
    pub snapshot: ArcSwapOption<Snapshot>,
    /// Changes when a snapshot has something new for visitors with a token.
    pub news: watch::Sender<()>,
    /// Says that an order waits to be written.
    pub order_waits: Notify,
    /// Room for requests that wait for a snapshot.
    pub snapshot_room: Arc<Semaphore>,
    /// Held during a fetch, so that all waiting requests share it.
    fetching: Mutex<Foresight>,
    salt: Uuid,
    signer: Signer,
    facts: ArcSwap<Facts>,
    control: ArcSwap<Control>,
    /// The version of what operators decided that this server knows to be in force.
    in_force: AtomicI64,
    asked: AtomicU64,
    /// What the database lost that Redis knows of: [`Lost`] as bits.
    lost: AtomicU8,
}

/// What a database that was restored from a backup, or promoted in a failover, may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    Places = 1,
    Sales = 2,
}

pub struct Seat {
    pub label: String,
    pub price: i64,
}

impl Event {
    pub fn new(
        id: EventId,
        seats: Vec<Seat>,
        hall: Hall,
        salt: Uuid,
        master: &MasterKeys,
        facts: Facts,
        configured: &Policy,
    ) -> Self {
        let priced = seats.iter().any(|seat| seat.price > 0);
        Self {
            id,
            priced,
            configured: configured.where_seats_are(priced),
            seats,
            hall,
            keys: Keys::new(id),
            pulses: Pulses::default(),
            own_writes: OwnWrites::default(),
            scores: Scores::default(),
            tally: Tally::default(),
            snapshot: ArcSwapOption::empty(),
            news: watch::Sender::new(()),
            order_waits: Notify::new(),
            snapshot_room: Arc::new(Semaphore::new(MOST_REQUESTS)),
            fetching: Mutex::default(),
            salt,
            signer: Signer::new(id, salt, master),
            facts: ArcSwap::from_pointee(facts),
            control: ArcSwap::default(),
            in_force: AtomicI64::new(0),
            asked: AtomicU64::new(0),
            lost: AtomicU8::new(0),
        }
    }

    /// Compares what Redis knows with what the database knew afterwards. A database that knows of fewer places, or signs
    /// tokens with another salt, was restored from a backup.
    pub fn compare(&self, salt: Uuid, ceiling: i64, known_end: Option<u64>) {
        if salt != self.salt {
            self.set_lost(Lost::Places, true);
        } else if let Some(end) = known_end {
            self.set_lost(Lost::Places, i64::try_from(end).unwrap_or(i64::MAX) > ceiling);
        }
    }

    /// Notes that the database lost something, or has it again.
    pub fn set_lost(&self, what: Lost, lost: bool) {
        let bit = what as u8;
        let before = if lost {
            self.lost.fetch_or(bit, Ordering::Relaxed)
        } else {
            self.lost.fetch_and(!bit, Ordering::Relaxed)
        };
        if lost && before == 0 {
            tracing::error!(event = %self.id, ?what, "{}", Error::DatabaseBehind);
        }
    }

    /// Refuses to hand out places or seats that the database may hand out again.
    pub fn check_database(&self) -> Result<(), Error> {
        if self.lost.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Error::DatabaseBehind) }
    }

    /// Whether nothing can be sold until Redis or the database is repaired.
    pub fn needs_repair(&self) -> bool {
        self.check_database().is_err() || self.tally.unready.load(Ordering::Relaxed)
    }

    pub fn sign(&self, place: Place) -> Token {
        self.signer.sign(place)
    }

    /// The token, if it is a genuine one of this event.
    pub fn verify(&self, claim: Claim) -> Option<Token> {
        self.signer.verify(claim)
    }

    /// The token written here, if it is a genuine one of this event.
    pub fn token(&self, text: &str) -> Option<Token> {
        self.verify(Claim::parse(text)?)
    }

    /// A number for an order that this place asks for now.
    pub fn new_order(&self, place: Place) -> OrderId {
        self.order_at(place, now_ms())
    }

    /// The same for another moment.
    pub fn order_at(&self, place: Place, now_ms: u64) -> OrderId {
        self.signer.order(place, now_ms)
    }

    /// What the number of an order says, and how old it is. `None`: it is none of ours.
    pub fn order(&self, id: OrderId) -> Option<(OrderNumber, Duration)> {
        let number = self.signer.verify_order(id)?;
        Some((number, number.age(now_ms())))
    }

    pub fn seat(&self, number: SeatNumber) -> Option<&Seat> {
        self.seats.get(number.index()?)
    }

    pub fn facts(&self) -> Arc<Facts> {
        self.facts.load_full()
    }

    pub fn set_facts(&self, facts: Facts) {
        self.facts.store(Arc::new(facts));
    }

    /// What operators decided, as far as this server knows.
    pub fn control(&self) -> Arc<Control> {
        self.control.load_full()
    }

    /// Takes a decision of operators, unless it knows a newer one.
    pub fn set_control(&self, control: &Control) {
        self.control
            .rcu(|known| if known.version < control.version { Arc::new(control.clone()) } else { known.clone() });
    }

    /// Notes that Redis has this version of what operators decided, or a newer one.
    pub fn set_in_force(&self, version: i64) {
        self.in_force.fetch_max(version, Ordering::Relaxed);
    }

    /// Whether Redis may lack what operators decided. A fresh snapshot knows best: Redis may have lost it since.
    pub fn lacks_control(&self) -> bool {
        let snapshot = self.snapshot.load();
        let seen = snapshot.as_ref().filter(|snapshot| snapshot.age() <= UNSURE).map(|seen| seen.in_force.version);
        self.control.load().version > seen.unwrap_or_else(|| self.in_force.load(Ordering::Relaxed))
    }

    /// Whether it can be booked now, by this server's clock.
    pub fn booking(&self) -> Booking {
        self.facts.load().booking(Utc::now())
    }

    /// The price of these seats together. `None`: the event has no such seat.
    pub fn total(&self, seats: &[SeatNumber]) -> Option<i64> {
        seats.iter().map(|seat| Some(self.seat(*seat)?.price)).sum()
    }

    /// The settings in force under what operators decided. A configuration that came later may not go with it: then the
    /// rules between settings win.
    pub fn policy_under(&self, control: &Control) -> Policy {
        control.overrides.over(&self.configured).reconciled()
    }

    /// How many tickets one person may have; 0: any number.
    pub fn tickets_per_person(&self) -> u64 {
        let in_force = self.snapshot.load().as_ref().map(|snapshot| snapshot.policy.tickets_per_person);
        in_force.unwrap_or_else(|| self.policy_under(&self.control()).tickets_per_person)
    }

    /// The lowest and the highest price.
    pub fn prices(&self) -> Option<(i64, i64)> {
        let prices = || self.seats.iter().map(|seat| seat.price);
        prices().min().zip(prices().max())
    }

    /// Someone asked about it: keep its snapshot fresh.
    pub fn asked(&self) {
        let now = uptime().as_secs() + 1;
        // Written at most once a second, so that the cache line stays shared.
        if self.asked.load(Ordering::Relaxed) != now {
            if !self.hot() {
                // Orders that another server accepted may wait.
                self.order_waits.notify_one();
            }
            self.asked.store(now, Ordering::Relaxed);
        }
    }

    pub fn hot(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked != 0 && uptime().as_secs() + 1 - asked <= HOT.as_secs()
    }

    /// When how many would be let in under other settings.
    pub async fn outlook_under(&self, policy: &Policy) -> Option<Outlook> {
        let snapshot = self.snapshot.load_full()?;
        let foresight = self.fetching.lock().await;
        foresight.estimator.clone().outlook_under(&Seen { policy, ..snapshot.seen() })
    }

    /// Fetches a snapshot and keeps it, unless another caller did so since `since`.
    pub async fn refresh(&self, stores: &Stores, since: Instant) -> Result<Arc<Snapshot>, Error> {
        let mut foresight = self.fetching.lock().await;
        let old = self.snapshot.load_full();
        if let Some(snapshot) = old.as_ref().filter(|snapshot| snapshot.taken >= since) {
            return Ok(snapshot.clone());
        }
        let mut conn = stores.redis.get().await?;
        let mut snapshot = fetch::fetch(&mut conn, &self.keys, old.as_deref()).await?;
        if foresight.is_due(snapshot.now_ms) {
            snapshot.outlook = foresight.estimator.observe(&snapshot.seen()).map(Arc::new);
            self.scores.judge(&snapshot, &self.tally);
        }
        let snapshot = Arc::new(snapshot);
        self.snapshot.store(Some(snapshot.clone()));
        // Whichever server made it ready.
        self.tally.unready.store(false, Ordering::Relaxed);
        self.own_writes.forget(&snapshot);
        if old.is_none_or(|old| old.meta.news() != snapshot.meta.news()) {
            self.news.send_replace(());
        }
        Ok(snapshot)
    }
}

/// Looks ahead about once a second of event time.
#[derive(Default)]
struct Foresight {
    estimator: Estimator,
    last_ms: u64,
}

impl Foresight {
    fn is_due(&mut self, now_ms: u64) -> bool {
        let due = now_ms.saturating_sub(self.last_ms) >= LOOK_AHEAD_EVERY_MS;
        if due {
            self.last_ms = now_ms;
        }
        due
    }
}

fn now_ms() -> u64 {
    u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0)
}

/// Since the first call.
fn uptime() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
