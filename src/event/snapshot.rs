//! A server's latest atomic copy of an event's state in Redis. Every read is answered from it; `fetch.rs` fetches it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::control::{Reason, State};
use crate::base::error::Error;
use crate::base::ids::{Place, SeatNumber};
use crate::base::policy::Policy;
use crate::base::seat::SeatState;
use crate::event::estimate::{Outlook, Pass, Seen};
use crate::event::ranks::Ranked;
use crate::store::redis::reads::Frozen;

/// A snapshot older than this does not say that something is over.
pub const UNSURE: Duration = Duration::from_secs(2);
/// A snapshot older than this answers nothing.
pub const TOO_OLD: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Snapshot {
    /// Before the first read was sent, so that the age is never too small.
    pub taken: Instant,
    /// Event time, ms: Redis's clock, which for an event never goes back.
    pub now_ms: u64,
    pub meta: Meta,
    pub policy: Arc<Policy>,
    pub in_force: InForce,
    pub line: Arc<Ranked>,
    /// Places of the gap that may not return (again).
    pub back: Arc<Ranked>,
    pub passes: Arc<HashMap<Place, Pass>>,
    /// Places whose order waits, with the deadlines they had before.
    pub frozen: Arc<HashMap<Place, Frozen>>,
    pub seats: Arc<SeatMap>,
    /// People let in per second lately; `None` while unknown.
    pub pace: Option<f64>,
    pub samples: Vec<(Instant, u64)>,
    /// When how many will be let in; `None` while nobody can tell.
    pub outlook: Option<Arc<Outlook>>,
    pub whole: Whole,
}

/// When the line was last read as a whole, and which version that was.
#[derive(Clone, Copy)]
pub struct Whole {
    pub at: Instant,
    pub version: u64,
}

/// Which settings are in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InForce {
    /// Of what operators decided.
    pub version: i64,
    /// Until this event time, ms, people may still poll as under this queue TTL.
    pub slow_until_ms: u64,
    pub slow_ttl_ms: u64,
}

impl InForce {
    /// From the hash in Redis. Servers of an earlier version wrote none of it.
    pub fn of(policy: &HashMap<String, String>) -> Self {
        fn field<T: std::str::FromStr + Default>(policy: &HashMap<String, String>, name: &str) -> T {
            policy.get(name).and_then(|text| text.parse().ok()).unwrap_or_default()
        }
        Self {
            version: field(policy, "version"),
            slow_until_ms: field(policy, "slow_until"),
            slow_ttl_ms: field(policy, "slow_ttl_ms"),
        }
    }
}

/// The hash `meta`, as far as servers need it.
#[derive(Debug, Clone)]
pub struct Meta {
    pub life: String,
    pub state: State,
    /// What an operator says about a pause.
    pub reason: Option<Reason>,
    pub next: u64,
    /// First place after the block that places are taken from.
    pub end: u64,
    pub base: u64,
    pub head: u64,
    pub waiting: u64,
    /// Of those who wait, how many the last admission found absent. It passes them over, and they keep their places.
    pub absent: u64,
    pub slice: u64,
    pub seats: u64,
    pub sold: u64,
    pub gap_from: u64,
    pub gap_to: u64,
    pub now: u64,
    pub skew: i64,
    pub turned: u64,
    pub line_version: u64,
    pub passes_version: u64,
    pub seats_version: u64,
    pub policy_version: u64,
    /// Moves when orders are taken or decided.
    pub orders_version: u64,
    /// Counted since the event began; carried over by a restore.
    pub counters: [u64; 8],
}

/// The counters of `meta`, in the order [`Meta::counters`] has them.
pub const COUNTERS: [&str; 8] =
    ["entered", "admitted", "swept", "left", "returned", "overdue", "sweeps_skipped", "restores"];

impl Meta {
    pub fn parse(hash: &HashMap<String, String>) -> Result<Self, Error> {
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
            state: match hash.get("state") {
                Some(word) => {
                    State::from_word(word).ok_or_else(|| Error::Internal(format!("meta has state {word:?}")))?
                }
                None => return Err(Error::internal("meta has no state")),
            },
            reason: hash.get("reason").and_then(|text| Reason::from_text(text)),
            next: number(hash, "next")?,
            end: number(hash, "end")?,
            base: number(hash, "base")?,
            head: number(hash, "head")?,
            waiting: number(hash, "waiting")?,
            absent: number(hash, "absent")?,
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
            orders_version: number(hash, "orders_version")?,
            counters,
        })
    }

    pub fn counter(&self, name: &str) -> u64 {
        COUNTERS.iter().position(|other| *other == name).and_then(|at| self.counters.get(at)).copied().unwrap_or(0)
    }

    /// What moves when someone's rank, pass, seats or order may have: entering alone does not.
    pub fn news(&self) -> impl PartialEq + use<'_> {
        let versions = (self.line_version, self.passes_version, self.seats_version, self.policy_version);
        (versions, self.orders_version, self.head, self.counter("admitted"), self.sold, self.build())
    }

    /// Which build of the event's keys this is: versions of different builds cannot be compared.
    pub fn build(&self) -> (&str, u64, u64) {
        (&self.life, self.counter("restores"), self.base)
    }

    /// Event time, from Redis's clock.
    pub fn event_time(&self, clock_ms: u64) -> u64 {
        clock_ms.saturating_add_signed(self.skew).max(self.now)
    }
}

/// The state of every seat, and who holds which.
#[derive(Default)]
pub struct SeatMap {
    pub states: Vec<SeatState>,
    pub holds: HashMap<SeatNumber, Held>,
    pub available: u64,
    /// Places that bought. Known only once everything is sold, when it is needed.
    pub buyers: HashSet<Place>,
}

impl SeatMap {
    pub fn is_available(&self, index: usize) -> bool {
        self.states.get(index) == Some(&SeatState::Available)
    }

    pub fn count(&self, wanted: SeatState) -> u64 {
        self.states.iter().filter(|state| **state == wanted).count() as u64
    }

    /// How many seats of this part of the hall are in this state.
    pub fn count_in(&self, part: std::ops::Range<usize>, wanted: impl Fn(SeatState) -> bool) -> usize {
        self.states.get(part).unwrap_or_default().iter().filter(|state| wanted(**state)).count()
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

    /// The longest that someone may wait between two polls: some were told so before the queue TTL became shorter.
    pub fn longest_poll(&self) -> Duration {
        let slow = self.in_force.slow_until_ms > self.now_ms;
        let slow_ttl_ms = if slow { self.in_force.slow_ttl_ms } else { 0 };
        let queue_ttl_ms = self.policy.queue_ttl_ms.max(slow_ttl_ms);
        Policy { queue_ttl_ms, ..(*self.policy).clone() }.longest_poll()
    }

    /// What matters for waiting.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            now_ms: self.now_ms,
            passes: &self.passes,
            policy: &self.policy,
            waiting: self.meta.waiting,
            absent: self.meta.absent,
            // People inside who leave are counted with those of the line, so these are counted by what is missing.
            gave_up: self.meta.counter("entered").saturating_sub(self.meta.counter("admitted") + self.meta.waiting),
            seats_left: self.meta.seats.saturating_sub(self.meta.sold),
            open: self.meta.state == State::Open,
        }
    }

    /// Event time now, by this server's monotonic clock.
    pub fn event_time(&self) -> u64 {
        self.now_ms + u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn sold_out(&self) -> bool {
        self.meta.sold >= self.meta.seats
    }

    /// Whether a place lost by a restore may still come back.
    pub fn may_return(&self, place: Place) -> bool {
        (self.meta.gap_from..self.meta.gap_to).contains(&place.0.into())
            && u64::from(place.0) >= self.meta.base
            && !self.back.contains(place)
    }

    pub fn standing(&self, place: Place) -> Standing {
        let now = self.event_time();
        if let Some(pass) = self.passes.get(&place).filter(|pass| pass.deadline_ms > now) {
            let left_ms = match self.frozen.get(&place) {
                Some(frozen) => frozen.pass_ends.saturating_sub(frozen.at),
                None => pass.deadline_ms - now,
            };
            return Standing::Active { left: Duration::from_millis(left_ms) };
        }
        if self.sold_out() {
            return if self.seats.buyers.contains(&place) { Standing::Over } else { Standing::SoldOut };
        }
        if let Some(later) = u64::from(place.0).checked_sub(self.meta.next) {
            // Newer than this snapshot: behind everyone in it.
            return Standing::Waiting { rank: self.line.count() + later + 1 };
        }
        if self.line.contains(place) {
            return Standing::Waiting { rank: self.line.rank(place) };
        }
        if self.may_return(place) {
            return Standing::Waiting { rank: self.line.rank(place) + 1 };
        }
        Standing::Over
    }

    /// Whether a place is of a block given out after this snapshot: nobody can tell how many stand before it.
    pub fn too_old_for(&self, place: Place) -> bool {
        u64::from(place.0) >= self.meta.end
    }

    /// Identifies a turn of the pulse ring: in another one, everyone has to be heard from again.
    pub fn turn(&self) -> u64 {
        self.meta.turned ^ (self.meta.counter("restores") << 48)
    }

    /// The lowest place that still waits or may return.
    pub fn undecided(&self) -> u64 {
        let head = if self.meta.waiting > 0 { self.meta.head } else { self.meta.next };
        if self.meta.gap_to > 0 { head.min(self.meta.gap_from) } else { head }
    }
}

/// How many were let in so far: about one sample a second for the last minute.
pub fn sample(old: &[(Instant, u64)], at: Instant, admitted: u64) -> Vec<(Instant, u64)> {
    let recent =
        |(then, count): &&(Instant, u64)| at.duration_since(*then) <= Duration::from_secs(60) && *count <= admitted;
    let mut samples: Vec<_> = old.iter().filter(recent).copied().collect();
    if samples.last().is_none_or(|(last, _)| at.duration_since(*last) >= Duration::from_secs(1)) {
        samples.push((at, admitted));
    }
    samples
}

/// People let in per second; `None` during the first five seconds, or while nobody is let in.
pub fn pace(samples: &[(Instant, u64)]) -> Option<f64> {
    let ((first, before), (last, after)) = (samples.first()?, samples.last()?);
    let watched = last.duration_since(*first);
    (watched >= Duration::from_secs(5) && after > before).then(|| (after - before) as f64 / watched.as_secs_f64())
}
