//! What every read is answered from: a server's latest atomic copy of an event's state in Redis.
//!
//! It is fetched with MULTI/EXEC of plain reads and costs what changed, not what exists: first the versions, then only
//! the parts whose version moved; of a long line only the front and the tail, and all of it at most every two seconds.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Pipeline;
use redis::aio::ConnectionLike;

use crate::app::App;
use crate::bitmap::Ranked;
use crate::error::Error;
use crate::events::Event;
use crate::ids::{Place, SeatNumber};
use crate::policy::Policy;
use crate::redis::keys::Key;

/// Older than this, a snapshot is not asked whether something is over.
pub const UNSURE: Duration = Duration::from_secs(2);
/// Older than this, it is not answered from at all.
pub const TOO_OLD: Duration = Duration::from_secs(10);
/// How long a request waits for a new one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Up to so many bytes a line is read as a whole.
const SHORT_LINE: u64 = 64 * 1024;
/// Of a longer one, so many bytes from the head on.
const FRONT: u64 = 16 * 1024;
const WHOLE_EVERY: Duration = Duration::from_secs(2);

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
    pub rendered: std::sync::OnceLock<crate::seats::Rendered>,
}

impl SeatMap {
    pub fn held(&self) -> u64 {
        self.states.iter().filter(|state| **state == b'h').count() as u64
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
    let (app, event) = (app.clone(), event.clone());
    let (runtime, work) = (app.runtime.clone(), async move { refresh(&app, &event, since).await });
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
    let snapshot = Arc::new(fetch(&mut conn, event, old.as_deref()).await?);
    event.snapshot.store(Some(snapshot.clone()));
    app.metrics.observe(event.id, &snapshot);
    Ok(snapshot)
}

type Clock = (u64, u64);
type Hash = HashMap<String, String>;

async fn fetch(conn: &mut impl ConnectionLike, event: &Event, old: Option<&Snapshot>) -> Result<Snapshot, Error> {
    let key = |key: Key| event.keys.get(key);
    let taken = Instant::now();
    for _ in 0..3 {
        let mut first = redis::pipe();
        first.atomic().cmd("TIME").hgetall(key(Key::Meta)).exists(key(Key::Line));
        let (clock, hash, has_line): (Clock, Hash, bool) = first.query_async(conn).await?;
        let seen = Meta::parse(&hash)?;
        if seen.waiting > 0 && !has_line {
            return Err(Error::Unready);
        }
        let old = old.filter(|old| old.meta.build() == seen.build());
        let wanted = Wanted::new(taken, &seen, old);
        if let Some(old) = old.filter(|_| wanted.nothing()) {
            let now_ms = seen.event_time(clock);
            let parts = Parts::of(old);
            return Ok(parts.assemble(taken, now_ms, seen, Some(old)));
        }
        if let Some(snapshot) = fetch_parts(conn, event, old, &wanted, taken).await? {
            return Ok(snapshot);
        }
        // The line was trimmed or rebuilt between the two reads: the offsets are off, so look again.
    }
    Err(Error::Unready)
}

/// Which parts have to be read.
struct Wanted {
    base: u32,
    line: LinePart,
    passes: bool,
    seats: bool,
    policy: bool,
    buyers: bool,
}

enum LinePart {
    Unchanged,
    Whole,
    /// Bytes around the head, and from the last known tail on.
    Ends {
        front: Range<u64>,
        tail: u64,
    },
}

impl Wanted {
    fn new(taken: Instant, seen: &Meta, old: Option<&Snapshot>) -> Self {
        let sold_out = seen.sold >= seen.seats;
        let Some(old) = old else {
            return Self {
                base: seen.base,
                line: LinePart::Whole,
                passes: true,
                seats: true,
                policy: true,
                buyers: sold_out,
            };
        };
        let byte = |place: u32| u64::from(place.saturating_sub(seen.base)) / 8;
        let middle_moved = seen.line_version != old.whole.version;
        let ends_moved = (seen.next, seen.head, seen.waiting) != (old.meta.next, old.meta.head, old.meta.waiting);
        // While lost places may return it has to be known at once who did.
        let at_once = seen.gap_to > 0 || taken.duration_since(old.whole.at) >= WHOLE_EVERY;
        let short = byte(seen.next) <= SHORT_LINE;
        let line = if short && (middle_moved || ends_moved) || at_once && middle_moved {
            LinePart::Whole
        } else if ends_moved || seen.line_version != old.meta.line_version {
            // From where the head was to where an admission now can have reached without moving the version.
            let front = byte(old.meta.head.min(seen.head))..byte(seen.head) + FRONT;
            LinePart::Ends { front, tail: byte(old.meta.next) }
        } else {
            LinePart::Unchanged
        };
        let seats = seen.seats_version != old.meta.seats_version;
        Self {
            base: seen.base,
            line,
            passes: seen.passes_version != old.meta.passes_version,
            seats,
            policy: seen.policy_version != old.meta.policy_version,
            buyers: seats && sold_out,
        }
    }

    fn nothing(&self) -> bool {
        matches!(self.line, LinePart::Unchanged) && !self.passes && !self.seats && !self.policy
    }
}

/// `None`: the keys were rebuilt since `wanted` was made.
async fn fetch_parts(
    conn: &mut impl ConnectionLike,
    event: &Event,
    old: Option<&Snapshot>,
    wanted: &Wanted,
    taken: Instant,
) -> Result<Option<Snapshot>, Error> {
    let key = |key: Key| event.keys.get(key);
    let (front, tail) = match &wanted.line {
        LinePart::Unchanged => (0..0, 0..0),
        LinePart::Whole => (0..u64::MAX, 0..0),
        LinePart::Ends { front, tail } => (front.clone(), *tail..u64::MAX),
    };
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("TIME").hgetall(key(Key::Meta));
    range(&mut pipe, key(Key::Line), &front);
    range(&mut pipe, key(Key::Line), &tail);
    range(&mut pipe, key(Key::Back), &(0..if matches!(wanted.line, LinePart::Whole) { u64::MAX } else { 0 }));
    zset_if(&mut pipe, key(Key::Passes), wanted.passes);
    hash_if(&mut pipe, key(Key::Limits), wanted.passes);
    range(&mut pipe, key(Key::Seats), &(0..if wanted.seats { u64::MAX } else { 0 }));
    zset_if(&mut pipe, key(Key::HoldEnds), wanted.seats);
    hash_if(&mut pipe, key(Key::Policy), wanted.policy);
    hash_if(&mut pipe, key(Key::Owners), wanted.buyers);
    #[expect(clippy::type_complexity, reason = "one reply per read above, in order")]
    let (clock, hash, front_bytes, tail_bytes, back, passes, limits, states, ends, policy, owners): (
        Clock,
        Hash,
        Vec<u8>,
        Vec<u8>,
        Vec<u8>,
        Vec<(u32, f64)>,
        Option<HashMap<u32, u64>>,
        Vec<u8>,
        Vec<(u32, f64)>,
        Option<Hash>,
        Option<HashMap<u32, u32>>,
    ) = pipe.query_async(conn).await?;

    let meta = Meta::parse(&hash)?;
    if meta.base != wanted.base || old.is_some_and(|old| old.meta.build() != meta.build()) {
        return Ok(None);
    }
    let mut parts = old.map_or_else(|| Parts::empty(taken), Parts::of);
    match &wanted.line {
        LinePart::Unchanged => {}
        LinePart::Whole => {
            parts.line = Arc::new(Ranked::new(meta.base, front_bytes));
            parts.back = Arc::new(Ranked::new(meta.base, back));
            parts.whole = Whole { at: taken, version: meta.line_version };
        }
        LinePart::Ends { front, tail } => {
            let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
            parts.line = Arc::new(parts.line.patched(&[(at(front.start), &front_bytes), (at(*tail), &tail_bytes)]));
        }
    }
    if wanted.passes {
        let limits = limits.unwrap_or_default();
        let pass = |(place, deadline): (u32, f64)| {
            let deadline_ms = deadline as u64;
            let limit_ms = limits.get(&place).copied().unwrap_or(deadline_ms);
            (Place(place), Pass { deadline_ms, limit_ms })
        };
        parts.passes = Arc::new(passes.into_iter().map(pass).collect());
    }
    if wanted.seats {
        let buyers = owners.unwrap_or_default().into_values().map(Place).collect();
        let holds = holders(conn, event, old, ends).await?;
        parts.seats = Arc::new(SeatMap {
            available: states.iter().filter(|state| **state == b'a').count() as u64,
            states,
            holds,
            buyers,
            rendered: std::sync::OnceLock::new(),
        });
    }
    if let Some(policy) = policy {
        let policy = Policy::from_hash(&policy)
            .ok_or_else(|| Error::Internal(format!("the policy of event {} is incomplete", event.id)))?;
        parts.policy = Arc::new(policy);
    }
    let now_ms = meta.event_time(clock);
    Ok(Some(parts.assemble(taken, now_ms, meta, old)))
}

/// A part that is not wanted is asked for as an empty range: the shape of the reply stays the same.
fn range(pipe: &mut Pipeline, key: &str, bytes: &Range<u64>) {
    let end = match bytes.end {
        u64::MAX => -1,
        end => i64::try_from(end).unwrap_or(i64::MAX) - 1,
    };
    // An end before the start is an empty range; -1 alone would mean the last byte.
    let (start, end) = if bytes.end <= bytes.start { (1, 0) } else { (i64::try_from(bytes.start).unwrap_or(0), end) };
    pipe.cmd("GETRANGE").arg(key).arg(start).arg(end);
}

fn zset_if(pipe: &mut Pipeline, key: &str, wanted: bool) {
    let (start, end) = if wanted { (0, -1) } else { (1, 0) };
    pipe.zrange_withscores(key, start, end);
}

fn hash_if(pipe: &mut Pipeline, key: &str, wanted: bool) {
    if wanted {
        pipe.hgetall(key);
    } else {
        pipe.cmd("HGET").arg(key).arg("");
    }
}

/// Who holds the seats. Owners already known are not asked for again: a hold is told by its seat and deadline.
async fn holders(
    conn: &mut impl ConnectionLike,
    event: &Event,
    old: Option<&Snapshot>,
    ends: Vec<(u32, f64)>,
) -> Result<HashMap<SeatNumber, Held>, Error> {
    let mut holds = HashMap::new();
    let mut unknown = Vec::new();
    for (seat, deadline) in ends {
        let (seat, deadline_ms) = (SeatNumber(seat), deadline as u64);
        match old.and_then(|old| old.seats.holds.get(&seat)).filter(|held| held.deadline_ms == deadline_ms) {
            Some(held) => drop(holds.insert(seat, *held)),
            None => unknown.push((seat, deadline_ms)),
        }
    }
    if !unknown.is_empty() {
        let mut ask = redis::cmd("HMGET");
        ask.arg(event.keys.get(Key::Owners));
        ask.arg(unknown.iter().map(|(seat, _)| seat.0).collect::<Vec<_>>());
        let owners: Vec<Option<u32>> = ask.query_async(conn).await?;
        // A seat without an owner was given back a moment ago.
        for ((seat, deadline_ms), owner) in unknown.into_iter().zip(owners) {
            if let Some(place) = owner.map(Place) {
                holds.insert(seat, Held { place, deadline_ms });
            }
        }
    }
    Ok(holds)
}

/// The parts of a snapshot, carried over or read anew.
struct Parts {
    policy: Arc<Policy>,
    line: Arc<Ranked>,
    back: Arc<Ranked>,
    passes: Arc<HashMap<Place, Pass>>,
    seats: Arc<SeatMap>,
    whole: Whole,
}

impl Parts {
    fn empty(taken: Instant) -> Self {
        Self {
            policy: Arc::default(),
            line: Arc::default(),
            back: Arc::default(),
            passes: Arc::default(),
            seats: Arc::default(),
            whole: Whole { at: taken, version: 0 },
        }
    }

    fn of(old: &Snapshot) -> Self {
        Self {
            policy: old.policy.clone(),
            line: old.line.clone(),
            back: old.back.clone(),
            passes: old.passes.clone(),
            seats: old.seats.clone(),
            whole: old.whole,
        }
    }

    fn assemble(self, taken: Instant, now_ms: u64, meta: Meta, old: Option<&Snapshot>) -> Snapshot {
        let samples = sample(old.map_or(&[], |old| &old.samples), taken, meta.counter("admitted"));
        Snapshot {
            taken,
            now_ms,
            pace: pace(&samples),
            samples,
            meta,
            policy: self.policy,
            line: self.line,
            back: self.back,
            passes: self.passes,
            seats: self.seats,
            whole: self.whole,
        }
    }
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
