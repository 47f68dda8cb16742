//! The loops. Each repeats a step of its stage, which says when it wants to run next; tests call the steps themselves. Any
//! number of servers may run them: the scripts decide, not a leader. Every event has loops of its own, so that one whose
//! part of Redis is away holds up no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, pending};
use prometheus::Counter;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::base::error::Error;
use crate::event::Event;
use crate::server::parts::Parts;

/// After a failed round.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A round that takes longer hangs on something that does not answer, and is abandoned.
const LONGEST_ROUND: Duration = Duration::from_secs(15);
/// How often the list of events is read.
const CATALOGUE_EVERY: Duration = Duration::from_secs(5);
/// How often Redis is told what it missed of operators' decisions.
const CONTROLS_EVERY: Duration = Duration::from_secs(1);
/// How soon a new event gets its loops.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// One round of a loop. Returns how long to wait until the next.
type Round = BoxFuture<'static, Result<Duration, Error>>;

/// The name of a loop, and its rounds.
type OfServer = (&'static str, fn(Arc<Parts>) -> Round);
type OfEvent = (&'static str, fn(Arc<Parts>, Arc<Event>) -> Round);

/// The loop that is woken by each order that is accepted here.
const ORDERS: OfEvent = ("orders", |parts, event| Box::pin(async move { parts.writer.step(&event).await }));

const OF_SERVER: &[OfServer] = &[
    ("settle", |parts| Box::pin(async move { parts.settler.step().await })),
    ("rankings", |parts| Box::pin(async move { parts.rankings.step().await })),
    ("tick", |parts| Box::pin(async move { parts.restorer.tick_step().await })),
    ("limits", |parts| Box::pin(async move { parts.site.limits.step().await })),
    ("controls", |parts| Box::pin(async move { parts.controls.catch_up().await.map(|()| CONTROLS_EVERY) })),
    ("figures", |parts| Box::pin(async move { parts.history.step().await })),
    ("outcomes", |parts| Box::pin(async move { parts.site.orders.forget_step().await })),
    ("outbox", |parts| Box::pin(async move { parts.outbox.step().await })),
    ("catalogue", |parts| Box::pin(async move { catalogue_step(&parts).await })),
];

const OF_EVENT: &[OfEvent] = &[
    ("snapshot", |parts, event| Box::pin(async move { parts.views.step(&event).await })),
    ("pulse", |parts, event| Box::pin(async move { parts.line.pulse_step(&event).await })),
    ("sweep", |parts, event| Box::pin(async move { parts.line.sweep_step(&event).await })),
    ("admission", |parts, event| Box::pin(async move { parts.admission.step(&event).await })),
    ("expire", |parts, event| Box::pin(async move { parts.seats.expire_step(&event).await })),
    ("audit", |parts, event| Box::pin(async move { parts.settler.audit_step(&event).await })),
];

/// The running loops.
pub struct Loops {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Loops {
    pub fn start(parts: &Arc<Parts>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = vec![tokio::spawn(of_events(parts.clone(), stopped.clone()))];
        for (name, step) in OF_SERVER {
            let (kind, parts) = (Kind::new(parts, name), parts.clone());
            tasks.push(tokio::spawn(kind.repeat(stopped.clone(), None, move || step(parts.clone()))));
        }
        Self { stop, tasks }
    }

    /// Lets every loop finish its round.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        join_all(self.tasks).await;
    }

    pub fn abort(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Gives every event its loops, also those made later.
async fn of_events(parts: Arc<Parts>, mut stopped: watch::Receiver<bool>) {
    let kinds: Vec<_> = OF_EVENT.iter().map(|(name, step)| (Kind::new(&parts, name), *step)).collect();
    let (orders, write) = (Kind::new(&parts, ORDERS.0), ORDERS.1);
    let mut known = HashSet::new();
    let mut loops = JoinSet::new();
    while !*stopped.borrow() {
        for event in parts.catalogue.all().into_iter().filter(|event| known.insert(event.id)) {
            for (kind, step) in &kinds {
                let (parts, event, step) = (parts.clone(), event.clone(), *step);
                loops.spawn(kind.clone().repeat(stopped.clone(), None, move || step(parts.clone(), event.clone())));
            }
            let (parts, wake) = (parts.clone(), Some(event.clone()));
            loops.spawn(orders.clone().repeat(stopped.clone(), wake, move || write(parts.clone(), event.clone())));
        }
        let _ = timeout(NOTICED_WITHIN, stopped.changed()).await;
    }
    while loops.join_next().await.is_some() {}
}

/// A kind of loop. Of many that fail at once, one line is logged.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    /// Rounds that failed.
    errors: Counter,
    failing: Arc<AtomicUsize>,
}

impl Kind {
    fn new(parts: &Arc<Parts>, name: &'static str) -> Self {
        // It begins at 0, so that a rate shows the first failure.
        let errors = parts.stores.metrics.worker_errors.with_label_values(&[name]);
        Self { name, errors, failing: Arc::default() }
    }

    /// `wake`: an order of this event ends the wait.
    async fn repeat(self, mut stopped: watch::Receiver<bool>, wake: Option<Arc<Event>>, round: impl Fn() -> Round) {
        let mut failed = false;
        while !*stopped.borrow() {
            let outcome = timeout(LONGEST_ROUND, round()).await.unwrap_or(Err(Error::TooSlow(self.name)));
            let wait = match outcome {
                Ok(wait) => {
                    if std::mem::take(&mut failed) && self.failing.fetch_sub(1, Ordering::Relaxed) == 1 {
                        tracing::info!(worker = self.name, "works again");
                    }
                    wait
                }
                Err(error) => {
                    self.errors.inc();
                    if !std::mem::replace(&mut failed, true) && self.failing.fetch_add(1, Ordering::Relaxed) == 0 {
                        tracing::warn!(worker = self.name, %error, "a round failed, trying again every second");
                    }
                    AFTER_FAILURE
                }
            };
            let woken = async {
                // After a failure nothing ends the wait: it is there to let the stores recover.
                match wake.as_ref().filter(|_| !failed) {
                    Some(event) => event.order_waits.notified().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = timeout(wait, stopped.changed()) => {}
                () = woken => {}
            }
        }
    }
}

/// Learns of new events, and makes them ready.
pub async fn catalogue_step(parts: &Parts) -> Result<Duration, Error> {
    parts.catalogue.refresh().await?;
    let prepared = parts.restorer.prepare_all(CATALOGUE_EVERY).await;
    prepared.failed.into_iter().next().map_or(Ok(CATALOGUE_EVERY), Err)
}
