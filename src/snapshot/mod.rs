//! What every read is answered from: a server's latest atomic copy of an event's state in Redis.
//!
//! How it is fetched is in `fetch.rs`.

mod fetch;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::app::App;
use crate::bitmap::Ranked;
use crate::error::Error;
use crate::events::Event;
use crate::ids::{Place, SeatNumber};
use crate::policy::Policy;
use crate::restore;

/// Older than this, a snapshot is not asked whether something is over.
pub const UNSURE: Duration = Duration::from_secs(2);
/// Older than this, it is not answered from at all.
pub const TOO_OLD: Duration = Duration::from_secs(10);
/// How long a request waits for a new one.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Snapshot {
    /// Before the first read was sent: the age is never told too small.
    pub taken: Instant,
    /// Event time, ms: Redis's clock, which for an event never goes back.
    pub now_ms: u64,
    pub meta: Meta,
    pub policy: Arc<Policy>,
    pub line: Arc<Ranked>,
    /// Places of the gap that may not return (again).
    pub back: Arc<Ranked>,
    pub passes: Arc<HashMap<Place, Pass>>,
    pub seats: Arc<SeatMap>,
    /// People let in per second lately; `None` while unknown.
    pub pace: Option<f64>,
    samples: Vec<(Instant, u64)>,
    whole: Whole,
}

/// When the line was last read as a whole, and which version that was.
#[derive(Clone, Copy)]
struct Whole {
    at: Instant,
    version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    pub deadline_ms: u64,
    pub limit_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open,
    Paused,
    Closed,
}

/// The hash `meta`, as far as servers need it.
#[derive(Debug, Clone)]
pub struct Meta {
    pub life: String,
    pub state: State,
    /// What an operator says about a pause.
    pub reason: String,
    pub next: u32,
    /// First place after the block that places are taken from.
    pub end: u32,
    pub base: u32,
    pub head: u32,
    pub waiting: u64,
    pub slice: u64,
    pub seats: u64,
    pub sold: u64,
    pub gap_from: u32,
    pub gap_to: u32,
    pub now: u64,
    pub skew: i64,
    pub turned: u64,
    pub line_version: u64,
    pub passes_version: u64,
    pub seats_version: u64,
    pub policy_version: u64,
    /// Counted since the event began; carried over by a restore.
    pub counters: [u64; 8],
}

/// The counters of `meta`, in the order [`Meta::counters`] has them.
pub const COUNTERS: [&str; 8] =
    ["entered", "admitted", "swept", "left", "returned", "overdue", "sweeps_skipped", "restores"];

impl Meta {
    fn parse(hash: &HashMap<String, String>) -> Result<Self, Error> {
        if hash.is_empty() {
            return Err(Error::Unready);
        }
        fn number<T: std::str::FromStr + Default>(hash: &HashMap<String, String>, name: &str) -> Result<T, Error> {
            match hash.get(name) {
                None => Ok(T::default()),
                Some(text) => text.parse().map_err(|_| Error::Internal(format!("meta has {name} {text:?}"))),
            }
        }
        let mut counters = [0; 8];
        for (counter, name) in counters.iter_mut().zip(COUNTERS) {
            *counter = number(hash, name)?;
        }
        Ok(Self {
            life: hash.get("life").cloned().unwrap_or_default(),
            state: match hash.get("state").map(String::as_str) {
                Some("open") => State::Open,
                Some("paused") => State::Paused,
                Some("closed") => State::Closed,
                other => return Err(Error::Internal(format!("meta has state {other:?}"))),
            },
            reason: hash.get("reason").cloned().unwrap_or_default(),
            next: number(hash, "next")?,
            end: number::<u64>(hash, "end")?.try_into().unwrap_or(u32::MAX),
            base: number(hash, "base")?,
            head: number(hash, "head")?,
            waiting: number(hash, "waiting")?,
            slice: number(hash, "slice")?,
            seats: number(hash, "seats")?,
            sold: number(hash, "sold")?,
            gap_from: number(hash, "gap_from")?,
            gap_to: number(hash, "gap_to")?,
            now: number(hash, "now")?,
            skew: number(hash, "skew")?,
            turned: number(hash, "turned")?,
            line_version: number(hash, "line_version")?,
            passes_version: number(hash, "passes_version")?,
            seats_version: number(hash, "seats_version")?,
            policy_version: number(hash, "policy_version")?,
            counters,
        })
    }

    pub fn counter(&self, name: &str) -> u64 {
        COUNTERS.iter().position(|other| *other == name).and_then(|at| self.counters.get(at)).copied().unwrap_or(0)
    }

    /// What moves when someone's rank, pass or seats may have: entering alone does not.
    fn news(&self) -> impl PartialEq + use<'_> {
        let versions = (self.line_version, self.passes_version, self.seats_version, self.policy_version);
        (versions, self.head, self.counter("admitted"), self.sold, self.build())
    }

    /// Which build of the event's keys this is: versions of another one say nothing.
    fn build(&self) -> (&str, u64, u32) {
        (&self.life, self.counter("restores"), self.base)
    }

    /// Event time, from Redis's clock.
    fn event_time(&self, clock: (u64, u64)) -> u64 {
        let clock = clock.0 * 1000 + clock.1 / 1000;
        clock.saturating_add_signed(self.skew).max(self.now)
    }
}

/// Seats, one byte each as in Redis, and who holds which.
#[derive(Default)]
pub struct SeatMap {
    pub states: Vec<u8>,
    pub holds: HashMap<SeatNumber, Held>,
    pub available: u64,
    /// Places that bought: known once everything is sold, when it is needed.
    pub buyers: HashSet<Place>,
    /// The map as everyone sees it, rendered by the first who asks.
    pub rendered: std::sync::OnceLock<Arc<crate::seats::Rendered>>,
}

impl SeatMap {
    pub fn held(&self) -> u64 {
        self.states.iter().filter(|state| **state == b'h').count() as u64
    }

    /// The seats a place holds.
    pub fn held_by(&self, place: Place) -> BTreeSet<SeatNumber> {
        self.holds.iter().filter(|(_, held)| held.place == place).map(|(seat, _)| *seat).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub place: Place,
    pub deadline_ms: u64,
}

/// What an event's token means right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Active {
        left: Duration,
    },
    Waiting {
        rank: u64,
    },
    SoldOut,
    /// Left, swept, ran out, or bought.
    Over,
}

impl Snapshot {
    pub fn age(&self) -> Duration {
        self.taken.elapsed()
    }

    /// Event time now, by this server's monotonic clock.
    pub fn event_time(&self) -> u64 {
        self.now_ms + u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX)
    }

    /// As if the line had last been read as a whole that much earlier.
    pub fn read_longer_ago(&mut self, by: Duration) {
        self.whole.at -= by;
    }

    pub fn sold_out(&self) -> bool {
        self.meta.sold >= self.meta.seats
    }

    /// Whether a place lost by a restore may still come back.
    pub fn may_return(&self, place: Place) -> bool {
        (self.meta.gap_from..self.meta.gap_to).contains(&place.0)
            && place.0 >= self.meta.base
            && !self.back.contains(place)
    }

    pub fn standing(&self, place: Place) -> Standing {
        let now = self.event_time();
        if let Some(pass) = self.passes.get(&place).filter(|pass| pass.deadline_ms > now) {
            return Standing::Active { left: Duration::from_millis(pass.deadline_ms - now) };
        }
        if self.sold_out() {
            return if self.seats.buyers.contains(&place) { Standing::Over } else { Standing::SoldOut };
        }
        if place.0 >= self.meta.next {
            // Newer than this snapshot: behind everyone in it.
            return Standing::Waiting { rank: self.line.count() + u64::from(place.0 - self.meta.next) + 1 };
        }
        if self.line.contains(place) {
            return Standing::Waiting { rank: self.line.rank(place) };
        }
        if self.may_return(place) {
            return Standing::Waiting { rank: self.line.rank(place) + 1 };
        }
        Standing::Over
    }

    /// Whether a place is of a block given out after this snapshot: how many stand before it cannot be told.
    pub fn too_old_for(&self, place: Place) -> bool {
        place.0 >= self.meta.end
    }

    /// Identifies a turn of the pulse ring: another one means that everyone has to be heard from again.
    pub fn turn(&self) -> u64 {
        self.meta.turned ^ (self.meta.counter("restores") << 48)
    }

    /// The lowest place that still waits, or could come back to.
    pub fn undecided(&self) -> u32 {
        let head = if self.meta.waiting > 0 { self.meta.head } else { self.meta.next };
        if self.meta.gap_to > 0 { head.min(self.meta.gap_from) } else { head }
    }
}

/// A snapshot to answer from: the latest one or, if that is too old, one fetched now.
pub async fn current(app: &Arc<App>, event: &Arc<Event>) -> Result<Arc<Snapshot>, Error> {
    event.asked();
    match event.snapshot.load_full() {
        Some(snapshot) if snapshot.age() <= TOO_OLD => Ok(snapshot),
        _ => fresh(app, event).await,
    }
}

/// A snapshot taken from now on, shared by all who wait for one.
pub async fn fresh(app: &Arc<App>, event: &Arc<Event>) -> Result<Arc<Snapshot>, Error> {
    let since = Instant::now();
    let waiting = event.wanting.clone().try_acquire_owned().map_err(|_| Error::Stale)?;
    let (app, event) = (app.clone(), event.clone());
    let (runtime, work) = (app.runtime.clone(), async move {
        let _waiting = waiting;
        match refresh(&app, &event, since).await {
            // Made a moment ago, or lost by Redis.
            Err(Error::Unready) => {
                restore::ready(&app, &event).await?;
                refresh(&app, &event, Instant::now()).await
            }
            outcome => outcome,
        }
    });
    match tokio::time::timeout(PATIENCE, runtime.spawn(work)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(failed)) => Err(Error::Internal(failed.to_string())),
        Err(_) => Err(Error::Stale),
    }
}

/// Fetches a snapshot and keeps it, unless someone else did so since `since`.
pub async fn refresh(app: &App, event: &Event, since: Instant) -> Result<Arc<Snapshot>, Error> {
    let _fetching = event.fetching.lock().await;
    let old = event.snapshot.load_full();
    if let Some(snapshot) = old.as_ref().filter(|snapshot| snapshot.taken >= since) {
        return Ok(snapshot.clone());
    }
    let mut conn = app.redis.get().await?;
    let snapshot = Arc::new(fetch::fetch(&mut conn, event, old.as_deref()).await?);
    event.snapshot.store(Some(snapshot.clone()));
    if old.is_none_or(|old| old.meta.news() != snapshot.meta.news()) {
        event.news.send_replace(());
    }
    app.metrics.observe(event.id, &snapshot);
    Ok(snapshot)
}

/// How many were let in so far, about once a second for the last minute.
fn sample(old: &[(Instant, u64)], at: Instant, admitted: u64) -> Vec<(Instant, u64)> {
    let recent =
        |(then, count): &&(Instant, u64)| at.duration_since(*then) <= Duration::from_secs(60) && *count <= admitted;
    let mut samples: Vec<_> = old.iter().filter(recent).copied().collect();
    if samples.last().is_none_or(|(last, _)| at.duration_since(*last) >= Duration::from_secs(1)) {
        samples.push((at, admitted));
    }
    samples
}

/// People let in per second; `None` until it was watched for five seconds, or while nobody is let in.
fn pace(samples: &[(Instant, u64)]) -> Option<f64> {
    let ((first, before), (last, after)) = (samples.first()?, samples.last()?);
    let watched = last.duration_since(*first);
    (watched >= Duration::from_secs(5) && after > before).then(|| (after - before) as f64 / watched.as_secs_f64())
}
