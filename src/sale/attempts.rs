//! When an event is repaired. All callers share one attempt, events that somebody asks about come before all others, and
//! after a failure the next attempt waits.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::base::lock;
use crate::event::per_event::PerEvent;
use crate::store::Stores;

/// Most repairs at once of events that somebody asks about, and of the others. Each takes a database connection or two.
const ASKED_AT_ONCE: usize = 4;
const IDLE_AT_ONCE: usize = 2;
/// The pause after a first failure. Each further one doubles it, up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub struct Attempts {
    events: PerEvent<Mutex<State>>,
    asked: Semaphore,
    idle: Semaphore,
}

/// How an attempt ends, for all its callers.
type Outcome = Shared<BoxFuture<'static, Result<(), Error>>>;

#[derive(Default)]
enum State {
    #[default]
    Well,
    Running {
        outcome: Outcome,
        hurry: Arc<Hurry>,
    },
    /// Every caller gets this error until `next`.
    Failed {
        error: Error,
        times: u32,
        next: Instant,
    },
}

/// Tells an attempt that waits for its turn that somebody asks about its event.
#[derive(Default)]
pub struct Hurry(Notify);

impl Default for Attempts {
    fn default() -> Self {
        let (asked, idle) = (Semaphore::new(ASKED_AT_ONCE), Semaphore::new(IDLE_AT_ONCE));
        Self { events: PerEvent::default(), asked, idle }
    }
}

impl Attempts {
    /// Joins the attempt under way, or begins one with `work`. It goes on even if nobody waits for it. Shortly after a
    /// failure no new one begins, and the answer is that failure.
    pub fn join<F>(&self, stores: &Stores, event: EventId, urgent: bool, work: impl FnOnce(Arc<Hurry>) -> F) -> Outcome
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let entry = self.events.of(event);
        let mut state = lock(&entry);
        let failed = match &*state {
            State::Running { outcome, hurry } => {
                if urgent {
                    hurry.0.notify_one();
                }
                return outcome.clone();
            }
            State::Failed { error, next, .. } if Instant::now() < *next => {
                return futures_util::future::ready(Err(error.clone())).boxed().shared();
            }
            State::Failed { times, .. } => *times,
            State::Well => 0,
        };
        let hurry = Arc::new(Hurry::default());
        if urgent {
            hurry.0.notify_one();
        }
        let (work, ended) = (work(hurry.clone()), entry.clone());
        let task = stores.spawn(async move {
            // An attempt that panics has failed too, and the next one begins afresh.
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| Err(Error::internal("a repair panicked")));
            *lock(&ended) = match &outcome {
                Ok(()) => State::Well,
                Err(error) => {
                    let (error, next) = (error.clone(), Instant::now() + pause(failed));
                    State::Failed { error, times: failed + 1, next }
                }
            };
            outcome
        });
        let outcome = task.map(|ended| ended.unwrap_or_else(|lost| Err(Error::internal(lost)))).boxed().shared();
        *state = State::Running { outcome: outcome.clone(), hurry };
        outcome
    }

    /// Waits for a turn to repair. An event that somebody asks about has its turn before those that nobody asks about.
    pub async fn turn(&self, hurry: &Hurry) -> Result<SemaphorePermit<'_>, Error> {
        let turn = tokio::select! {
            biased;
            () = hurry.0.notified() => {
                // For the next turn of the same attempt.
                hurry.0.notify_one();
                self.asked.acquire().await
            }
            turn = self.idle.acquire() => turn,
        };
        turn.map_err(Error::internal)
    }
}

/// Longer after every failure, and random within limits, so that events and servers do not all come back at once.
fn pause(failed: u32) -> Duration {
    let longest = PAUSE.saturating_mul(1 << failed.min(10)).min(LONGEST_PAUSE);
    let random = getrandom::u32().unwrap_or(u32::MAX / 2) >> 24;
    longest / 2 + longest / 2 * random / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        for failed in 0..40 {
            let longest = PAUSE.saturating_mul(1 << failed.min(10)).min(LONGEST_PAUSE);
            let pauses: std::collections::HashSet<_> = (0..100).map(|_| pause(failed)).collect();
            assert!(pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)), "{failed}: {pauses:?}");
            assert!(pauses.len() > 30, "only {} different pauses", pauses.len());
        }
    }
}
