//! What an event's keys in Redis are to contain when they are built again: from the latest snapshot, if there is one, and
//! from the database.

use std::collections::HashSet;
use std::ops::Range;

use serde::Serialize;

use crate::base::control::{Control, Reason};
use crate::base::error::Error;
use crate::base::ids::{Place, SeatNumber};
use crate::base::policy::Policy;
use crate::base::seat::{SeatChange, SeatState};
use crate::event::estimate::Pass;
use crate::event::ranks::Ranked;
use crate::event::snapshot::{COUNTERS, Held, Meta, Snapshot};
use crate::store::db::events::{Block, LineRow};
use crate::store::redis::scripts::RestoreArgs;

/// Everything to build from.
pub struct Sources<'a> {
    /// Recent enough to rebuild line, passes and holds from.
    pub snapshot: Option<&'a Snapshot>,
    /// The last state this server saw, however old: for settings and counters.
    pub last_seen: Option<&'a Meta>,
    pub row: &'a LineRow,
    /// A fresh block of places.
    pub block: Block,
    /// The latest change of every seat that was ever sold.
    pub changes: &'a [SeatChange],
    /// Places that have an order.
    pub buyers: &'a HashSet<Place>,
    pub seats: usize,
    /// The settings in force under what operators decided.
    pub policy: &'a Policy,
    pub control: &'a Control,
    /// Identifies the configuration.
    pub seed: &'a str,
    /// How long admission waits for lost places to return, ms.
    pub gap_wait: u64,
}

/// The line as it is to be rebuilt.
pub struct RebuiltLine {
    base: u64,
    pub waiting: Ranked,
    back: Ranked,
    /// Places that may have been handed out and are not known to be decided.
    gap: Range<i64>,
}

/// Fields of `meta`, and what the script needs to compute others.
#[derive(Serialize)]
struct MetaFields<'a> {
    base: u64,
    next: i64,
    end: i64,
    block: i64,
    fetch: i32,
    seats: usize,
    gap_from: i64,
    gap_to: i64,
    gap_wait: u64,
    tick: i64,
    state: &'a str,
    reason: String,
    line_version: u64,
    passes_version: u64,
    seats_version: u64,
    #[serde(flatten)]
    counters: std::collections::BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Settings<'a> {
    #[serde(flatten)]
    policy: &'a Policy,
    version: i64,
    seed: &'a str,
    slow_ttl_ms: u64,
    /// How long the slow queue TTL still counts, ms.
    slow_left: u64,
}

/// Place, ms left, ms left to its limit.
type PassLeft = (u32, u64, u64);
/// Seat, place, ms left.
type HoldLeft = (u32, u32, u64);

impl RebuiltLine {
    pub fn new(sources: &Sources) -> Self {
        match sources.snapshot {
            Some(snapshot) => Self::from_snapshot(snapshot, sources.buyers, sources.block.start),
            None => Self::from_row(sources.row, sources.buyers, sources.block.start),
        }
    }

    /// Everyone in the snapshot keeps their place; whoever came after it is in the gap.
    fn from_snapshot(snapshot: &Snapshot, buyers: &HashSet<Place>, block_start: i64) -> Self {
        let meta = &snapshot.meta;
        let gap_from = if meta.gap_to > 0 { meta.gap_from.min(meta.next) } else { meta.next };
        // Nothing in front of the first place that counts takes memory.
        let base = aligned(snapshot.line.first().map_or(gap_from, |first| first.min(gap_from)));
        let waiting = cut(&snapshot.line, base);
        let waiting = with_bits(&waiting, buyers.iter().filter(|place| waiting.contains(**place)), false);
        let back = Self::barred(&cut(&snapshot.back, base), gap_from, buyers);
        // Two losses become one gap. Places given out between them are known, and so have no way back.
        let known = if meta.gap_to > 0 { meta.gap_to..meta.next } else { 0..0 };
        let known: Vec<Place> = known.filter_map(|place| u32::try_from(place).ok().map(Place)).collect();
        let back = with_bits(&back, known.iter(), true);
        Self { base, waiting, back, gap: signed(gap_from)..block_start }
    }

    /// Only the database is left: all places not known to be decided are in the gap.
    fn from_row(row: &LineRow, buyers: &HashSet<Place>, block_start: i64) -> Self {
        // The block may be one whose first places were taken in Redis and told to nobody.
        let undecided = row.undecided.min(block_start);
        let gap_from = u64::try_from(undecided).unwrap_or(0);
        let base = aligned(gap_from);
        let gap = if row.ceiling == 0 { 0..0 } else { undecided..block_start };
        let back = Self::barred(&Ranked::new(base, Vec::new()), gap_from, buyers);
        Self { base, waiting: Ranked::new(base, Vec::new()), back, gap }
    }

    /// Places that may not return: those that returned already, and those with an order.
    fn barred(before: &Ranked, gap_from: u64, buyers: &HashSet<Place>) -> Ranked {
        with_bits(before, buyers.iter().filter(|place| u64::from(place.0) >= gap_from), true)
    }

    /// The arguments of the script that builds the keys.
    pub fn args(&self, sources: &Sources) -> Result<RestoreArgs, Error> {
        let sold: HashSet<SeatNumber> =
            sources.changes.iter().filter(|change| change.state == SeatState::Sold).map(|change| change.seat).collect();
        let settled: Vec<(u32, i64, i64)> = sources
            .changes
            .iter()
            .map(|change| {
                (change.seat.0, change.version, if sold.contains(&change.seat) { change.place.db() } else { -1 })
            })
            .collect();
        let passes = sources.snapshot.map(|snapshot| passes_left(snapshot, sources.buyers)).unwrap_or_default();
        let holds = sources.snapshot.map(|snapshot| holds_left(snapshot, &sold, &passes)).unwrap_or_default();
        Ok(RestoreArgs {
            facts: json(&self.facts(sources))?,
            policy: json(&settings(sources))?,
            line: trimmed(self.waiting.bytes()),
            back: trimmed(self.back.bytes()),
            passes: json(&passes)?,
            holds: json(&holds)?,
            settled: json(&settled)?,
        })
    }

    fn facts<'a>(&self, sources: &Sources<'a>) -> MetaFields<'a> {
        let meta = sources.last_seen;
        let counter = |name: &'static str| {
            let before = meta.map_or(0, |meta| meta.counter(name));
            (name, before + u64::from(name == "restores"))
        };
        MetaFields {
            base: self.base,
            next: sources.block.start,
            end: sources.block.end,
            block: sources.block.start,
            fetch: sources.block.fetch,
            seats: sources.seats,
            gap_from: self.gap.start,
            gap_to: self.gap.end,
            gap_wait: if self.gap.is_empty() { 0 } else { sources.gap_wait },
            tick: sources.snapshot.map_or(0, |snapshot| signed(snapshot.now_ms)).max(sources.row.tick),
            state: sources.control.state.word(),
            reason: Reason::text(sources.control.reason.as_ref()),
            line_version: meta.map_or(1, |meta| meta.line_version + 1),
            passes_version: meta.map_or(1, |meta| meta.passes_version + 1),
            seats_version: meta.map_or(1, |meta| meta.seats_version + 1),
            counters: COUNTERS.into_iter().map(counter).collect(),
        }
    }
}

fn settings<'a>(sources: &Sources<'a>) -> Settings<'a> {
    let before = sources.snapshot.map(|snapshot| {
        let left = snapshot.in_force.slow_until_ms.saturating_sub(snapshot.now_ms);
        let slow_ttl_ms = if left > 0 { snapshot.in_force.slow_ttl_ms } else { 0 };
        // The queue TTL may have become shorter while Redis was away.
        match snapshot.policy.queue_ttl_ms {
            longer if longer > sources.policy.queue_ttl_ms => (slow_ttl_ms.max(longer), left.max(longer)),
            _ => (slow_ttl_ms, left),
        }
    });
    let (slow_ttl_ms, slow_left) = before.unwrap_or_default();
    Settings { policy: sources.policy, version: sources.control.version, seed: sources.seed, slow_ttl_ms, slow_left }
}

/// Passes with the time they had left, but not those of buyers. An order that waits is lost, so the clock of its place goes
/// on.
fn passes_left(snapshot: &Snapshot, buyers: &HashSet<Place>) -> Vec<PassLeft> {
    let left = |deadline: u64| deadline.saturating_sub(snapshot.now_ms);
    let alive = snapshot.passes.iter().filter(|(place, pass)| !buyers.contains(place) && left(pass.deadline_ms) > 0);
    let pass_left = |(place, pass): (&Place, &Pass)| match snapshot.frozen.get(place) {
        Some(was) => (place.0, was.pass_ends.saturating_sub(was.at), was.limit.saturating_sub(was.at)),
        None => (place.0, left(pass.deadline_ms), left(pass.limit_ms)),
    };
    alive.map(pass_left).collect()
}

/// Holds with the time they had left, of seats that are not sold and of visitors who are still inside.
fn holds_left(snapshot: &Snapshot, sold: &HashSet<SeatNumber>, passes: &[PassLeft]) -> Vec<HoldLeft> {
    let inside: HashSet<u32> = passes.iter().map(|(place, _, _)| *place).collect();
    let left = |deadline: u64| deadline.saturating_sub(snapshot.now_ms);
    let alive =
        snapshot.seats.holds.iter().filter(|(seat, held)| {
            !sold.contains(seat) && left(held.deadline_ms) > 0 && inside.contains(&held.place.0)
        });
    let hold_left = |(seat, held): (&SeatNumber, &Held)| {
        let was = snapshot.frozen.get(&held.place);
        let before =
            was.and_then(|was| Some(was.holds.iter().find(|(held, _)| held == seat)?.1.saturating_sub(was.at)));
        (seat.0, held.place.0, before.unwrap_or_else(|| left(held.deadline_ms)))
    };
    alive.map(hold_left).collect()
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(Error::internal)
}

/// The place at which the bitmaps begin if this one is the first that counts: they are made of whole words.
fn aligned(place: u64) -> u64 {
    place / 64 * 64
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Without the places before `base`.
fn cut(bitmap: &Ranked, base: u64) -> Ranked {
    let from = usize::try_from(base.saturating_sub(bitmap.base()) / 8).unwrap_or(usize::MAX);
    Ranked::new(base, bitmap.bytes().get(from..).unwrap_or_default().to_vec())
}

/// A copy with the bits of these places set or cleared.
fn with_bits<'a>(bitmap: &Ranked, places: impl Iterator<Item = &'a Place>, set: bool) -> Ranked {
    let mut bytes = bitmap.bytes().to_vec();
    for place in places {
        let Some(at) = u64::from(place.0).checked_sub(bitmap.base()) else { continue };
        let (index, mask) = ((at / 8) as usize, 0x80_u8 >> (at % 8));
        if bytes.len() <= index {
            bytes.resize(index + 1, 0);
        }
        if let Some(byte) = bytes.get_mut(index) {
            *byte = if set { *byte | mask } else { *byte & !mask };
        }
    }
    Ranked::new(bitmap.base(), bytes)
}

/// Without the zero bytes at the end, which say nothing.
fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..length).unwrap_or_default().to_vec()
}
