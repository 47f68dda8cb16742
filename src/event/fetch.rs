//! Fetching a snapshot with plain reads. It costs what changed, not what exists: first the versions, then only the parts
//! whose version moved; of a long line only the front and the tail, and all of it at most every two seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;

use crate::base::error::Error;
use crate::base::ids::{Place, SeatNumber};
use crate::base::policy::Policy;
use crate::base::seat::SeatState;
use crate::event::estimate::Pass;
use crate::event::ranks::Ranked;
use crate::event::snapshot::{Held, InForce, Meta, SeatMap, Snapshot, Whole, pace, sample};
use crate::store::redis::keys::{Key, Keys};
use crate::store::redis::reads::{self, Frozen, LineBytes, LinePart, PartsRead, PassesRead, Wanted};

/// A line of up to this many bytes is read as a whole.
const SHORT_LINE: u64 = 64 * 1024;
/// Of a longer one, this many bytes from the head on.
const FRONT: u64 = 16 * 1024;
const WHOLE_EVERY: Duration = Duration::from_secs(2);

/// A snapshot of what is in Redis now, made from the old one and what moved since.
pub async fn fetch(conn: &mut impl ConnectionLike, keys: &Keys, old: Option<&Snapshot>) -> Result<Snapshot, Error> {
    let taken = Instant::now();
    for attempt in 0..3 {
        let (read, has_line) = reads::meta(conn, keys).await?;
        let seen = Meta::parse(&read.meta)?;
        if seen.waiting > 0 && !has_line {
            return Err(Error::Unready);
        }
        let old = old.filter(|old| old.meta.build() == seen.build());
        let wanted = if attempt == 0 { changed(taken, &seen, old) } else { everything() };
        if let Some(old) = old.filter(|_| is_nothing(&wanted)) {
            let now_ms = seen.event_time(read.clock_ms);
            return Ok(Parts::of(old).assemble(taken, now_ms, seen, Some(old)));
        }
        let read = reads::parts(conn, keys, &wanted).await?;
        let meta = Meta::parse(&read.meta.meta)?;
        let same_build = meta.build() == seen.build() && old.is_none_or(|old| old.meta.build() == meta.build());
        if same_build && covers(&wanted, &seen, &meta) {
            let now_ms = meta.event_time(read.meta.clock_ms);
            let parts = old.map_or_else(|| Parts::empty(taken), Parts::of);
            let parts = parts.renewed(keys, taken, &meta, &wanted, read)?;
            return Ok(parts.assemble(taken, now_ms, meta, old));
        }
        // Between the two reads the line was trimmed or rebuilt, or a part moved that was not wanted. Parts of two moments
        // would not fit together, so read everything.
    }
    Err(Error::Unready)
}

/// The parts that moved since the old snapshot.
fn changed(taken: Instant, seen: &Meta, old: Option<&Snapshot>) -> Wanted {
    let Some(old) = old else { return everything() };
    let byte = |place: u64| place.saturating_sub(seen.base) / 8;
    let middle_moved = seen.line_version != old.whole.version;
    let ends_moved = (seen.next, seen.head, seen.waiting) != (old.meta.next, old.meta.head, old.meta.waiting);
    // While lost places may return, servers must know at once which ones did.
    let at_once = seen.gap_to > 0 || taken.duration_since(old.whole.at) >= WHOLE_EVERY;
    let short = byte(seen.next) <= SHORT_LINE;
    let line = if short && (middle_moved || ends_moved) || at_once && middle_moved {
        LinePart::Whole
    } else if ends_moved || seen.line_version != old.meta.line_version {
        // From the old head to where an admission can have reached by now without moving the version.
        let front = byte(old.meta.head.min(seen.head))..byte(seen.head) + FRONT;
        LinePart::Ends { front, tail: byte(old.meta.next) }
    } else {
        LinePart::Nothing
    };
    let seats = seen.seats_version != old.meta.seats_version;
    Wanted {
        line,
        passes: seen.passes_version != old.meta.passes_version,
        seats,
        policy: seen.policy_version != old.meta.policy_version,
        buyers: seats && seen.sold >= seen.seats,
    }
}

fn everything() -> Wanted {
    Wanted { line: LinePart::Whole, passes: true, seats: true, policy: true, buyers: true }
}

fn is_nothing(wanted: &Wanted) -> bool {
    wanted.line == LinePart::Nothing && !wanted.passes && !wanted.seats && !wanted.policy
}

/// Whether everything that moved from `seen` to `now` was wanted.
fn covers(wanted: &Wanted, seen: &Meta, now: &Meta) -> bool {
    let line = |meta: &Meta| (meta.next, meta.head, meta.waiting, meta.line_version);
    (wanted.line != LinePart::Nothing || line(seen) == line(now))
        && (wanted.passes || seen.passes_version == now.passes_version)
        && (wanted.seats || seen.seats_version == now.seats_version)
        && (wanted.policy || seen.policy_version == now.policy_version)
        && (!wanted.seats || wanted.buyers || now.sold < now.seats)
}

/// The parts of a snapshot, carried over or newly read.
struct Parts {
    policy: Arc<Policy>,
    in_force: InForce,
    line: Arc<Ranked>,
    back: Arc<Ranked>,
    passes: Arc<HashMap<Place, Pass>>,
    frozen: Arc<HashMap<Place, Frozen>>,
    seats: Arc<SeatMap>,
    whole: Whole,
}

impl Parts {
    fn empty(taken: Instant) -> Self {
        Self {
            policy: Arc::default(),
            in_force: InForce::default(),
            line: Arc::default(),
            back: Arc::default(),
            passes: Arc::default(),
            frozen: Arc::default(),
            seats: Arc::default(),
            whole: Whole { at: taken, version: 0 },
        }
    }

    fn of(old: &Snapshot) -> Self {
        Self {
            policy: old.policy.clone(),
            in_force: old.in_force,
            line: old.line.clone(),
            back: old.back.clone(),
            passes: old.passes.clone(),
            frozen: old.frozen.clone(),
            seats: old.seats.clone(),
            whole: old.whole,
        }
    }

    /// With the parts that were read in place of the old ones.
    fn renewed(
        mut self,
        keys: &Keys,
        taken: Instant,
        meta: &Meta,
        wanted: &Wanted,
        read: PartsRead,
    ) -> Result<Self, Error> {
        match (read.line, &wanted.line) {
            (Some(LineBytes::Whole { line, back }), _) => {
                self.line = Arc::new(Ranked::new(meta.base, line));
                self.back = Arc::new(Ranked::new(meta.base, back));
                self.whole = Whole { at: taken, version: meta.line_version };
            }
            (Some(LineBytes::Ends { front, tail }), LinePart::Ends { front: range, tail: start }) => {
                let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
                self.line = Arc::new(self.line.patched(&[(at(range.start), &front), (at(*start), &tail)]));
            }
            _ => {}
        }
        if let Some(mut passes) = read.passes {
            self.frozen = Arc::new(passes.frozen.drain(..).collect());
            self.passes = Arc::new(passes_of(passes));
        }
        if let Some(seats) = read.seats {
            let held = |(seat, deadline_ms): &(SeatNumber, u64)| {
                let place = *seats.holders.get(seat)?;
                Some((*seat, Held { place, deadline_ms: *deadline_ms }))
            };
            let holds = seats.hold_ends.iter().filter_map(held).collect();
            let available = seats.states.iter().filter(|state| **state == SeatState::Available).count() as u64;
            let buyers = read.owners.unwrap_or_default().into_values().map(Place).collect();
            self.seats = Arc::new(SeatMap { states: seats.states, holds, available, buyers });
        }
        if let Some(policy) = read.policy {
            self.in_force = InForce::of(&policy);
            let policy = Policy::from_hash(&policy)
                .ok_or_else(|| Error::Internal(format!("{}: the policy is incomplete", keys.get(Key::Policy))))?;
            self.policy = Arc::new(policy);
        }
        Ok(self)
    }

    fn assemble(self, taken: Instant, now_ms: u64, meta: Meta, old: Option<&Snapshot>) -> Snapshot {
        let samples = sample(old.map_or(&[], |old| &old.samples), taken, meta.counter("admitted"));
        Snapshot {
            taken,
            now_ms,
            pace: pace(&samples),
            samples,
            outlook: old.and_then(|old| old.outlook.clone()),
            meta,
            policy: self.policy,
            in_force: self.in_force,
            line: self.line,
            back: self.back,
            passes: self.passes,
            frozen: self.frozen,
            seats: self.seats,
            whole: self.whole,
        }
    }
}

fn passes_of(read: PassesRead) -> HashMap<Place, Pass> {
    let pass = |(place, deadline_ms): (Place, u64)| {
        let limit_ms = read.limits.get(&place.0).copied().unwrap_or(deadline_ms);
        (place, Pass { deadline_ms, limit_ms })
    };
    read.deadlines.into_iter().map(pass).collect()
}
