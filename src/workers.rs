//! The loops. Each repeats a step of its stage, which says when it wants to run next; tests call the steps themselves.
//! Any number of servers may run them: the scripts decide, not a leader. Every event has loops of its own, so that one
//! whose part of Redis is away holds up no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::app::App;
use crate::error::Error;
use crate::events::Event;
use crate::{admission, limits, line, rankings, restore, seats, snapshot, sync};

/// After a failed round.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A round that takes longer hangs on something that does not answer: it is given up.
const LONGEST_ROUND: Duration = Duration::from_secs(15);
/// How often the list of events is read.
const CATALOGUE_EVERY: Duration = Duration::from_secs(5);
/// How soon an event that was heard of gets its loops.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// One round of a loop. Returns how long to wait until the next.
type Round = BoxFuture<'static, Result<Duration, Error>>;

/// The name of a loop, and its rounds.
type OfTheHouse = (&'static str, fn(Arc<App>) -> Round);
type OfAnEvent = (&'static str, fn(Arc<App>, Arc<Event>) -> Round);

const OF_THE_HOUSE: &[OfTheHouse] = &[
    ("sync", |app| Box::pin(async move { sync::step(&app).await })),
    ("rankings", |app| Box::pin(async move { rankings::step(&app).await })),
    ("tick", |app| Box::pin(async move { restore::tick_step(&app).await })),
    ("limits", |app| Box::pin(async move { limits::step(&app).await })),
    ("catalogue", |app| Box::pin(async move { catalogue_step(&app).await })),
];

const OF_AN_EVENT: &[OfAnEvent] = &[
    ("snapshot", |app, event| Box::pin(async move { snapshot_step(&app, &event).await })),
    ("pulse", |app, event| Box::pin(async move { line::pulse_step(&app, &event).await })),
    ("sweep", |app, event| Box::pin(async move { line::sweep_step(&app, &event).await })),
    ("admission", |app, event| Box::pin(async move { admission::step(&app, &event).await })),
    ("expire", |app, event| Box::pin(async move { seats::expire_step(&app, &event).await })),
    ("audit", |app, event| Box::pin(async move { sync::audit_step(&app, &event).await })),
];

pub struct Workers {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

pub fn start(app: &Arc<App>) -> Workers {
    let (stop, stopped) = watch::channel(false);
    let mut tasks = vec![tokio::spawn(of_events(app.clone(), stopped.clone()))];
    for (name, step) in OF_THE_HOUSE {
        let (kind, app_) = (Kind::new(app, name), app.clone());
        tasks.push(tokio::spawn(kind.repeat(stopped.clone(), move || step(app_.clone()))));
    }
    Workers { stop, tasks }
}

impl Workers {
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
async fn of_events(app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let kinds: Vec<_> = OF_AN_EVENT.iter().map(|(name, step)| (Kind::new(&app, name), *step)).collect();
    let mut known = HashSet::new();
    let mut loops = JoinSet::new();
    while !*stopped.borrow() {
        for event in app.events.all().into_iter().filter(|event| known.insert(event.id)) {
            for (kind, step) in &kinds {
                let (app, event, step) = (app.clone(), event.clone(), *step);
                loops.spawn(kind.clone().repeat(stopped.clone(), move || step(app.clone(), event.clone())));
            }
        }
        let _ = timeout(NOTICED_WITHIN, stopped.changed()).await;
    }
    while loops.join_next().await.is_some() {}
}

/// A kind of loop. Of many that fail at once, one line is written.
#[derive(Clone)]
struct Kind {
    app: Arc<App>,
    name: &'static str,
    failing: Arc<AtomicUsize>,
}

impl Kind {
    fn new(app: &Arc<App>, name: &'static str) -> Self {
        Self { app: app.clone(), name, failing: Arc::default() }
    }

    async fn repeat(self, mut stopped: watch::Receiver<bool>, round: impl Fn() -> Round) {
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
                    self.app.metrics.worker_errors.with_label_values(&[self.name]).inc();
                    if !std::mem::replace(&mut failed, true) && self.failing.fetch_add(1, Ordering::Relaxed) == 0 {
                        tracing::warn!(worker = self.name, %error, "a round failed, trying again every second");
                    }
                    AFTER_FAILURE
                }
            };
            let _ = timeout(wait, stopped.changed()).await;
        }
    }
}

/// Renews the snapshot of an event someone asks about.
async fn snapshot_step(app: &Arc<App>, event: &Arc<Event>) -> Result<Duration, Error> {
    let now = Instant::now();
    if event.hot() {
        match snapshot::refresh(app, event, now).await {
            Err(Error::Unready) => restore::in_background(app, event),
            outcome => drop(outcome?),
        }
    }
    Ok(app.config.snapshot_interval.saturating_sub(now.elapsed()))
}

/// Learns of events made since, and makes them ready.
pub async fn catalogue_step(app: &Arc<App>) -> Result<Duration, Error> {
    app.events.refresh(&app.db).await?;
    prepare(app).await.into_iter().collect::<Result<(), _>>()?;
    Ok(CATALOGUE_EVERY)
}

/// Makes all events ready that are not yet, each by itself: one whose part of Redis is away is left for the next time.
pub async fn prepare(app: &Arc<App>) -> Vec<Result<(), Error>> {
    let events = app.events.all();
    join_all(events.iter().filter(|event| !event.prepared()).map(|event| restore::prepare(app, event))).await
}
