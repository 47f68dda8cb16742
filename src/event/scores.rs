//! Whether people were let in within the time they were told. A server remembers the first range it showed to a sample of
//! the line, and looks each second who of them is inside.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::ids::Place;
use crate::base::lock;
use crate::event::estimate::Range;
use crate::event::snapshot::Snapshot;
use crate::event::tally::{Count, Tally};

/// Most places that are watched at a time.
const MOST: usize = 10_000;
/// With more people waiting, every second, fourth, eighth … place is watched.
const ALL_UP_TO: u64 = 5000;

#[derive(Default)]
pub struct Scores {
    shown: Mutex<HashMap<Place, Shown>>,
    /// Places with one of these bits are not watched.
    skip: AtomicU32,
    within: AtomicU64,
    judged: AtomicU64,
}

struct Shown {
    /// Event time, ms.
    at_ms: u64,
    range: Range,
}

impl Scores {
    /// Someone was told how long it will take. The first time counts.
    pub fn shown(&self, place: Place, at_ms: u64, range: Range) {
        if place.0 & self.skip.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut shown = lock(&self.shown);
        if shown.len() < MOST {
            shown.entry(place).or_insert(Shown { at_ms, range });
        }
    }

    /// Judges those who are inside by now, and forgets those who gave up.
    pub fn judge(&self, snapshot: &Snapshot, tally: &Tally) {
        let every = (snapshot.meta.waiting / ALL_UP_TO + 1).next_power_of_two();
        self.skip.store(u32::try_from(every - 1).unwrap_or(u32::MAX), Ordering::Relaxed);
        let mut outcomes: HashMap<&'static str, u64> = HashMap::new();
        let mut waits = [("low", 0), ("high", 0), ("real", 0)];
        lock(&self.shown).retain(|place, shown| {
            if !snapshot.passes.contains_key(place) {
                return snapshot.line.contains(*place) || u64::from(place.0) >= snapshot.meta.next;
            }
            let waited = snapshot.now_ms.saturating_sub(shown.at_ms) / 1000;
            let outcome = match waited {
                _ if waited < shown.range.low => "early",
                _ if waited > shown.range.high => "late",
                _ => "within",
            };
            *outcomes.entry(outcome).or_default() += 1;
            for ((_, sum), seconds) in waits.iter_mut().zip([shown.range.low, shown.range.high, waited]) {
                *sum += seconds;
            }
            false
        });
        if !outcomes.is_empty() {
            for (wait, seconds) in waits {
                tally.add(Count::ScoredWait, wait, seconds);
            }
        }
        for (outcome, count) in outcomes {
            tally.add(Count::Estimates, outcome, count);
            self.judged.fetch_add(count, Ordering::Relaxed);
            if outcome == "within" {
                self.within.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// The share that was let in within the time first told; `None` before anyone was.
    pub fn share(&self) -> Option<f64> {
        let judged = self.judged.load(Ordering::Relaxed);
        (judged > 0).then(|| self.within.load(Ordering::Relaxed) as f64 / judged as f64)
    }
}
