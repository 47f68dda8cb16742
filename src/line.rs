//! Stage 1: taking a place in line, asking about it, giving it up; and keeping the line free of who went away.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::app::{App, Lane};
use crate::error::Error;
use crate::events::Event;
use crate::ids::Place;
use crate::policy::Policy;
use crate::redis::Link;
use crate::redis::gather::{Batch, Gather, Limits};
use crate::redis::scripts::Enter;
use crate::restore;
use crate::snapshot::{self, Snapshot, Standing, UNSURE};
use crate::token::Token;
use crate::workers::each_event;

/// Per web worker. One call at a time: two would only halve the batches.
const ENTERING: Limits = Limits { waiting: 50_000, together: 511, at_once: 1 };

/// A place that was just taken.
#[derive(Debug, Clone, Copy)]
pub struct Entered {
    place: Place,
    rank: u64,
}

/// What a visitor is told about a token.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum Status {
    Waiting {
        uuid: Token,
        /// From 1.
        rank: u64,
        ahead_count: u64,
        waiting_count: u64,
        seats_left: u64,
        /// A range, or null while the pace is not known.
        estimated_wait_seconds: Option<Estimate>,
        poll_after_ms: u64,
    },
    Active {
        uuid: Token,
        expires_in_seconds: u64,
        poll_after_ms: u64,
    },
    SoldOut {
        uuid: Token,
        poll_after_ms: u64,
    },
}

#[derive(Debug, Serialize)]
pub struct Estimate {
    low: u64,
    high: u64,
}

/// Takes the next place in line.
pub async fn enter(lane: &Lane, event: &Arc<Event>) -> Result<Status, Error> {
    if !event.on_sale() {
        return Err(Error::EventClosed);
    }
    let Entered { place, rank } = lane.entering(event).ask(()).await?;
    let snapshot = snapshot::current(&lane.app, event).await?;
    Ok(waiting(&snapshot, event.sign(place), rank))
}

/// Where a token stands, from memory. Asking is a sign of life.
pub async fn status(app: &Arc<App>, event: &Arc<Event>, token: Token) -> Result<Status, Error> {
    let mut snapshot = snapshot::current(app, event).await?;
    let mut standing = snapshot.standing(token.place());
    let final_word = matches!(standing, Standing::Over | Standing::SoldOut);
    if final_word && snapshot.age() > UNSURE || snapshot.too_old_for(token.place()) {
        // That something is over is not said on old news, nor a rank that is not known.
        snapshot = snapshot::fresh(app, event).await?;
        standing = snapshot.standing(token.place());
    }
    let poll_after_ms = |rank| millis(snapshot.policy.poll_after(rank, token.place().0));
    match standing {
        Standing::Active { left } => {
            Ok(Status::Active { uuid: token, expires_in_seconds: left.as_secs(), poll_after_ms: poll_after_ms(1) })
        }
        Standing::Waiting { rank } => {
            event.pulses.mark(token.place());
            Ok(waiting(&snapshot, token, rank))
        }
        Standing::SoldOut => {
            // A cancelled seat goes to the line, so the place is worth keeping.
            event.pulses.mark(token.place());
            Ok(Status::SoldOut { uuid: token, poll_after_ms: poll_after_ms(u64::MAX) })
        }
        Standing::Over => Err(Error::TokenExpired),
    }
}

/// Gives up place or pass. Doing it again is fine.
pub async fn leave(lane: &Lane, event: &Event, token: Token) -> Result<(), Error> {
    event.asked();
    lane.app.scripts.leave(&mut lane.link(), &event.keys, token.place()).await?;
    Ok(())
}

fn waiting(snapshot: &Snapshot, token: Token, rank: u64) -> Status {
    Status::Waiting {
        uuid: token,
        rank,
        ahead_count: rank - 1,
        waiting_count: snapshot.meta.waiting.max(rank),
        seats_left: snapshot.meta.seats.saturating_sub(snapshot.meta.sold),
        estimated_wait_seconds: snapshot.pace.map(|pace| {
            // The pace of the last minute, give or take: people buy faster or slower than those before them.
            let seconds = rank as f64 / pace;
            Estimate { low: (seconds * 0.7) as u64, high: (seconds * 1.5).ceil() as u64 + 1 }
        }),
        poll_after_ms: millis(snapshot.policy.poll_after(rank, token.place().0)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The loop that takes in the visitors of one worker, as many at once as there are.
pub fn entrance(app: Arc<App>, link: Link, event: Arc<Event>) -> (Gather<(), Entered>, impl Future<Output = ()>) {
    let gathered = app.metrics.gathered.with_label_values(&["enter"]);
    Gather::new("entering", ENTERING, move |batch: Batch<(), Entered>| {
        gathered.observe(batch.len() as f64);
        let (app, mut link, event) = (app.clone(), link.clone(), event.clone());
        async move {
            let outcome = enter_together(&app, &mut link, &event, batch.len()).await.map_err(Arc::new);
            for (at, ((), answer)) in (0..).zip(batch) {
                let entered = match &outcome {
                    Ok((first, count, rank)) if at < *count => {
                        Ok(Entered { place: Place(first.0 + at), rank: rank + u64::from(at) })
                    }
                    Ok(_) => Err(Error::QueueFull),
                    Err(error) => Err(Error::Shared(error.clone())),
                };
                // Nobody there any more: the place is swept like that of anyone who went away.
                let _ = answer.send(entered);
            }
        }
    })
}

/// First place, how many got in, first rank. A refusal for want of places is repaired and tried again; a call without
/// an answer is not, because it may have been carried out.
async fn enter_together(
    app: &Arc<App>,
    link: &mut Link,
    event: &Arc<Event>,
    count: usize,
) -> Result<(Place, u32, u64), Error> {
    for _ in 0..3 {
        match app.scripts.enter(link, &event.keys, count).await {
            Ok(Enter::Entered { first, count, first_rank }) => return Ok((first, count, first_rank)),
            Ok(Enter::Full) => return Err(Error::QueueFull),
            Ok(Enter::Closed) => return Err(Error::EventClosed),
            Ok(Enter::SoldOut) => return Err(Error::SoldOut),
            Ok(Enter::Stale | Enter::NeedBlock) | Err(Error::Unready) => {
                let (app_, event_) = (app.clone(), event.clone());
                app.run(async move { restore::ready(&app_, &event_).await }).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::Unready)
}

/// One round of telling Redis who was heard from.
pub async fn pulse_step(app: &App) -> Result<Duration, Error> {
    each_event(app, Duration::from_secs(1), |event| async move {
        let Some(snapshot) = event.snapshot.load_full() else { return Ok(Duration::MAX) };
        pulse_event(app, &event, &snapshot).await?;
        Ok(snapshot.policy.pulse_interval())
    })
    .await
}

async fn pulse_event(app: &App, event: &Event, snapshot: &Snapshot) -> Result<(), Error> {
    let turn = snapshot.turn();
    let due = event.pulses.due(turn, &(snapshot.meta.gap_from..snapshot.meta.gap_to));
    if due.is_empty() {
        return Ok(());
    }
    let mut conn = app.redis.get().await?;
    for bundle in due {
        app.scripts.pulse(&mut conn, &event.keys, bundle.from, &bundle.dense, &bundle.places).await?;
        event.pulses.arrived(turn, &bundle);
    }
    Ok(())
}

/// One round of sweeping. The script decides whether it is time; it has to be asked at least once a slice.
pub async fn sweep_step(app: &App) -> Result<Duration, Error> {
    fn often(policy: &Policy) -> Duration {
        (policy.slice() / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }
    each_event(app, often(&app.config.policy), |event| async move {
        match app.scripts.sweep(&mut app.redis.get().await?, &event.keys).await {
            Ok(_) | Err(Error::Unready) => {}
            Err(error) => return Err(error),
        }
        Ok(event.snapshot.load_full().map_or(Duration::MAX, |snapshot| often(&snapshot.policy)))
    })
    .await
}
