//! The loops. Each repeats a step of its stage, which says when it wants to run next; tests call the steps themselves.
//! Any number of servers may run them: the scripts decide, not a leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::error::Error;
use crate::events::Event;
use crate::{admission, limits, line, rankings, restore, seats, snapshot, sync};

/// After a failed round.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How often the list of events is read.
const CATALOGUE_EVERY: Duration = Duration::from_secs(5);

pub struct Workers {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

pub fn start(app: &Arc<App>) -> Workers {
    let (stop, stopped) = watch::channel(false);
    let tasks = vec![
        spawn(app, &stopped, "snapshot", |app| Box::pin(snapshot_step(app))),
        spawn(app, &stopped, "pulse", |app| Box::pin(line::pulse_step(app))),
        spawn(app, &stopped, "sweep", |app| Box::pin(line::sweep_step(app))),
        spawn(app, &stopped, "admission", |app| Box::pin(admission::step(app))),
        spawn(app, &stopped, "expire", |app| Box::pin(seats::expire_step(app))),
        spawn(app, &stopped, "sync", |app| Box::pin(sync::step(app))),
        spawn(app, &stopped, "audit", |app| Box::pin(sync::audit_step(app))),
        spawn(app, &stopped, "rankings", |app| Box::pin(rankings::step(app))),
        spawn(app, &stopped, "tick", |app| Box::pin(restore::tick_step(app))),
        spawn(app, &stopped, "limits", |app| Box::pin(limits::step(app))),
        spawn(app, &stopped, "catalogue", |app| Box::pin(catalogue_step(app))),
    ];
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

/// Does something for every event at once. One that fails does not keep the others from it: its error is returned when
/// all are done. Returns the shortest of the waits asked for, or `longest`.
pub async fn each_event<F>(app: &App, longest: Duration, step: impl Fn(Arc<Event>) -> F) -> Result<Duration, Error>
where
    F: Future<Output = Result<Duration, Error>>,
{
    let waits = join_all(app.events.all().into_iter().map(step)).await;
    waits.into_iter().try_fold(longest, |shortest, wait| Ok(shortest.min(wait?)))
}

/// Renews the snapshots of all events someone asks about.
pub async fn snapshot_step(app: &Arc<App>) -> Result<Duration, Error> {
    let now = Instant::now();
    let interval = app.config.snapshot_interval;
    each_event(app, interval, |event| async move {
        if event.hot() {
            match snapshot::refresh(app, &event, now).await {
                Err(Error::Unready) => restore::in_background(app, &event),
                outcome => drop(outcome?),
            }
        }
        Ok(interval)
    })
    .await?;
    Ok(interval.saturating_sub(now.elapsed()))
}

/// Learns of events made since, and makes them ready.
pub async fn catalogue_step(app: &Arc<App>) -> Result<Duration, Error> {
    let known: Vec<_> = app.events.all().iter().map(|event| event.id).collect();
    app.events.refresh(&app.db).await?;
    for event in app.events.all().iter().filter(|event| !known.contains(&event.id)) {
        restore::ready(app, event).await?;
        restore::seed(app, event).await?;
    }
    Ok(CATALOGUE_EVERY)
}

/// One round of a loop. Returns how long to wait until the next.
type Step = for<'a> fn(&'a Arc<App>) -> BoxFuture<'a, Result<Duration, Error>>;

fn spawn(app: &Arc<App>, stopped: &watch::Receiver<bool>, name: &'static str, step: Step) -> JoinHandle<()> {
    let (app, mut stopped) = (app.clone(), stopped.clone());
    tokio::spawn(async move {
        let mut failing = false;
        while !*stopped.borrow() {
            let wait = match step(&app).await {
                Ok(wait) => {
                    if failing {
                        tracing::info!(worker = name, "works again");
                    }
                    failing = false;
                    wait
                }
                Err(error) => {
                    app.metrics.worker_errors.with_label_values(&[name]).inc();
                    if !failing {
                        tracing::warn!(worker = name, %error, "a round failed, trying again every second");
                    }
                    failing = true;
                    AFTER_FAILURE
                }
            };
            let _ = tokio::time::timeout(wait, stopped.changed()).await;
        }
    })
}
