//! What this server did for an event since it started. Totals only rise: readers remember what they saw of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::lock;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// Requests to join, hold or buy that were refused, by the code of the error.
    Refused,
    TicketsSold,
    TicketsCancelled,
    /// Sales and cancels settled in Redis.
    Settled,
    /// Seats whose sale or cancel Redis had forgotten.
    Repaired,
    /// Rebuilt in Redis, by source.
    Restored,
    /// Holds that ran out.
    HoldsOverdue,
    /// People let in, by how that compares with the wait they were first told.
    Estimates,
    /// Seconds that those people waited, and that they were told, together.
    ScoredWait,
    /// The rest is counted in Redis, by all servers together.
    Entered,
    Admitted,
    Swept,
    GaveUp,
    PassesOverdue,
    SweepsSkipped,
}

impl Count {
    /// Whether all servers count it together, in Redis: then it may be large when a server first sees it.
    pub fn in_redis(self) -> bool {
        self >= Self::Entered
    }
}

/// Sums by what is counted, and where that has kinds, by kind.
pub type Totals = BTreeMap<(Count, &'static str), u64>;

#[derive(Default)]
pub struct Tally {
    totals: Mutex<Totals>,
    /// Push streams open on this server.
    pub streams: AtomicI64,
    /// Seats that Redis calls sold and the database does not.
    pub unexplained: AtomicU64,
    /// Whether this server failed to make the event ready in Redis, and has not seen it ready since.
    pub unready: AtomicBool,
    /// Since when this server fails to settle a change.
    unsettled: Mutex<Option<Instant>>,
}

impl Tally {
    pub fn add(&self, what: Count, kind: &'static str, times: u64) {
        *lock(&self.totals).entry((what, kind)).or_default() += times;
    }

    pub fn totals(&self) -> Totals {
        lock(&self.totals).clone()
    }

    /// The total of all kinds.
    pub fn total(&self, what: Count) -> u64 {
        lock(&self.totals).iter().filter(|((counted, _), _)| *counted == what).map(|(_, times)| times).sum()
    }

    /// Counts a refusal, and passes the outcome on.
    pub fn heed<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            self.refused(error);
        }
        outcome
    }

    pub fn refused(&self, error: &Error) {
        let (_, code, _) = error.public();
        self.add(Count::Refused, code, 1);
    }

    /// Notes whether changes wait to be settled because that failed.
    pub fn set_unsettled(&self, unsettled: bool) {
        let mut since = lock(&self.unsettled);
        *since = if unsettled { since.or_else(|| Some(Instant::now())) } else { None };
    }

    pub fn settling_lag(&self) -> Duration {
        lock(&self.unsettled).map_or(Duration::ZERO, |since| since.elapsed())
    }
}
