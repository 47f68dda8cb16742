//! Fetching a snapshot with plain reads. It costs what changed, not what exists: first the versions, then only the parts
//! whose version moved; of a long line only the front and the tail, and all of it at most every two seconds.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::Pipeline;
use redis::aio::ConnectionLike;

use super::{Held, Meta, Pass, SeatMap, Snapshot, Whole, pace, sample};
use crate::bitmap::Ranked;
use crate::error::Error;
use crate::events::Event;
use crate::ids::{Place, SeatNumber};
use crate::policy::Policy;
use crate::redis::keys::Key;

/// Up to so many bytes a line is read as a whole.
const SHORT_LINE: u64 = 64 * 1024;
/// Of a longer one, so many bytes from the head on.
const FRONT: u64 = 16 * 1024;
const WHOLE_EVERY: Duration = Duration::from_secs(2);

type Clock = (u64, u64);
type Hash = HashMap<String, String>;

/// A snapshot of what is in Redis now, made from the old one and what moved since.
pub async fn fetch(conn: &mut impl ConnectionLike, event: &Event, old: Option<&Snapshot>) -> Result<Snapshot, Error> {
    let key = |key: Key| event.keys.get(key);
    let taken = Instant::now();
    for attempt in 0..3 {
        let mut first = redis::pipe();
        first.atomic().cmd("TIME").hgetall(key(Key::Meta)).exists(key(Key::Line));
        let (clock, hash, has_line): (Clock, Hash, bool) = first.query_async(conn).await?;
        let seen = Meta::parse(&hash)?;
        if seen.waiting > 0 && !has_line {
            return Err(Error::Unready);
        }
        let old = old.filter(|old| old.meta.build() == seen.build());
        let wanted = if attempt == 0 { Wanted::new(taken, &seen, old) } else { Wanted::everything(&seen) };
        if let Some(old) = old.filter(|_| wanted.nothing()) {
            let now_ms = seen.event_time(clock);
            let parts = Parts::of(old);
            return Ok(parts.assemble(taken, now_ms, seen, Some(old)));
        }
        if let Some(snapshot) = fetch_parts(conn, event, old, &seen, &wanted, taken).await? {
            return Ok(snapshot);
        }
        // Between the two reads the line was trimmed or rebuilt, or something moved that was not asked for: parts of two
        // moments would not fit together. So look again, at everything.
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
        let Some(old) = old else { return Self::everything(seen) };
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

    fn everything(seen: &Meta) -> Self {
        Self { base: seen.base, line: LinePart::Whole, passes: true, seats: true, policy: true, buyers: true }
    }

    /// Whether whatever moved from `seen` to `now` was asked for.
    fn covers(&self, seen: &Meta, now: &Meta) -> bool {
        let line = |meta: &Meta| (meta.next, meta.head, meta.waiting, meta.line_version);
        (!matches!(self.line, LinePart::Unchanged) || line(seen) == line(now))
            && (self.passes || seen.passes_version == now.passes_version)
            && (self.seats || seen.seats_version == now.seats_version)
            && (self.policy || seen.policy_version == now.policy_version)
            && (!self.seats || self.buyers || now.sold < now.seats)
    }

    fn nothing(&self) -> bool {
        matches!(self.line, LinePart::Unchanged) && !self.passes && !self.seats && !self.policy
    }
}

/// `None`: the keys were rebuilt since `wanted` was made, or something else moved.
async fn fetch_parts(
    conn: &mut impl ConnectionLike,
    event: &Event,
    old: Option<&Snapshot>,
    seen: &Meta,
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
    let same_build = meta.build() == seen.build() && old.is_none_or(|old| old.meta.build() == meta.build());
    if meta.base != wanted.base || !same_build || !wanted.covers(seen, &meta) {
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
            rendered: OnceLock::new(),
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
