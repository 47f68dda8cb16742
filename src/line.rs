//! Stage 1: taking a place in line, asking about it, giving it up; and keeping the line free of who went away.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::app::{App, Lane};
use crate::error::Error;
use crate::events::{Booking, Event};
use crate::ids::{Place, UserId};
use crate::redis::Link;
use crate::redis::gather::{Batch, Gather, Limits};
use crate::redis::scripts::{Enter, Scripts};
use crate::restore;
use crate::snapshot::{self, Snapshot, Standing, State, UNSURE};
use crate::token::Token;

/// Most visitors in one call.
const TOGETHER: usize = 511;

/// Streams are for those who are let in soon; polls further back are far apart and cost less.
const PUSH_UP_TO: u64 = 1000;
const WHO_ENTERS: Error =
    Error::Unauthorized("This line takes one place a person: send your API key as Authorization: Bearer.");

/// The place of someone who entered.
#[derive(Debug, Clone, Copy)]
pub enum Entered {
    New {
        place: Place,
        rank: u64,
    },
    /// This person's place, taken earlier.
    Known(Place),
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
        /// Near enough to the front for an open stream to be worth it.
        push: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        pause: Option<Pause>,
    },
    Active {
        uuid: Token,
        expires_in_seconds: u64,
        /// Another number: the seat map changed.
        seats_version: u64,
        poll_after_ms: u64,
    },
    SoldOut {
        uuid: Token,
        poll_after_ms: u64,
        push: bool,
    },
}

/// An operator stopped letting people in for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pause {
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub struct Estimate {
    pub low: u64,
    pub high: u64,
}

/// Takes the next place in line or, where a person has one place, gives back the one they have.
pub async fn enter(lane: &Lane, event: &Arc<Event>, user: Option<UserId>) -> Result<Status, Error> {
    match event.booking() {
        Booking::Open => {}
        Booking::NotYet(opens_at) => return Err(Error::NotOpen { opens_at }),
        Booking::Over => return Err(Error::EventClosed),
    }
    let member = if event.facts().one_place_per_person { Some(user.ok_or(WHO_ENTERS)?) } else { None };
    match lane.entering(event).ask(member).await? {
        Entered::New { place, rank } => {
            let snapshot = snapshot::current(&lane.app, event).await?;
            Ok(waiting(&snapshot, event.sign(place), rank))
        }
        Entered::Known(place) => {
            let token = event.sign(place);
            match status(&lane.app, event, token).await {
                // The snapshot does not know yet what the script knew.
                Err(Error::TokenExpired) => {
                    snapshot::fresh(&lane.app, event).await?;
                    status(&lane.app, event, token).await
                }
                status => status,
            }
        }
    }
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
    let closed = event.booking() == Booking::Over || snapshot.meta.state == State::Closed;
    if closed && matches!(standing, Standing::Waiting { .. } | Standing::SoldOut) {
        return Err(Error::EventClosed);
    }
    let poll_after_ms = |rank| millis(snapshot.policy.poll_after(rank, token.place().0));
    match standing {
        Standing::Active { left } => Ok(Status::Active {
            uuid: token,
            expires_in_seconds: left.as_secs(),
            seats_version: snapshot.meta.seats_version,
            poll_after_ms: poll_after_ms(1),
        }),
        Standing::Waiting { rank } => {
            event.pulses.mark(token.place());
            Ok(waiting(&snapshot, token, rank))
        }
        Standing::SoldOut => {
            // A cancelled seat goes to the line, so the place is worth keeping.
            event.pulses.mark(token.place());
            let push = snapshot.line.rank(token.place()) <= PUSH_UP_TO;
            Ok(Status::SoldOut { uuid: token, poll_after_ms: poll_after_ms(u64::MAX), push })
        }
        Standing::Over => Err(Error::TokenExpired),
    }
}

/// Gives up place or pass. Doing it again is fine.
pub async fn leave(lane: &Lane, event: &Event, token: Token) -> Result<(), Error> {
    event.asked();
    lane.app.scripts.leave(&mut lane.call()?.link, &event.keys, token.place()).await?;
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
        push: rank <= PUSH_UP_TO,
        pause: (snapshot.meta.state == State::Paused).then(|| Pause { reason: snapshot.meta.reason.clone() }),
    }
}

impl Status {
    pub fn token(&self) -> Token {
        match self {
            Self::Waiting { uuid, .. } | Self::Active { uuid, .. } | Self::SoldOut { uuid, .. } => *uuid,
        }
    }

    /// What is worth being told at once. The rest changes all the time, and can wait for the next time.
    pub fn gist(&self) -> (Option<u64>, Option<u64>, Option<Pause>) {
        match self {
            Self::Waiting { rank, pause, .. } => (Some(*rank), None, pause.clone()),
            Self::Active { seats_version, .. } => (None, Some(*seats_version), None),
            Self::SoldOut { .. } => (None, None, None),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Who enters: a person where each has one place, otherwise anyone.
pub type Entering = Gather<Option<UserId>, Entered>;

/// The loop that takes in the visitors of one worker, as many at once as there are.
pub fn entrance(app: Arc<App>, link: Link, event: Arc<Event>) -> (Entering, impl Future<Output = ()>) {
    let gathered = app.metrics.gathered.with_label_values(&["enter"]);
    // One call at a time: two would only halve the batches.
    let limits = Limits { waiting: app.config.most_entering, together: TOGETHER, at_once: 1 };
    Gather::new("entering", limits, move |batch: Batch<Option<UserId>, Entered>| {
        gathered.observe(batch.len() as f64);
        let (app, mut link, event) = (app.clone(), link.clone(), event.clone());
        async move {
            // Whether persons are asked for can change while visitors arrive.
            let (members, anyone): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(member, _)| member.is_some());
            if !anyone.is_empty() {
                let outcome = enter_together(&app, &event, async |scripts| {
                    scripts.enter(&mut link, &event.keys, anyone.len()).await
                })
                .await;
                answer_newcomers(anyone, outcome);
            }
            if !members.is_empty() {
                let people: Vec<UserId> = members.iter().filter_map(|(member, _)| *member).collect();
                let mut places = Vec::new();
                let outcome = enter_together(&app, &event, async |scripts| {
                    let (outcome, now) = scripts.enter_members(&mut link, &event.keys, &people).await?;
                    places = now;
                    Ok(outcome)
                })
                .await;
                answer_members(members, outcome, &places);
            }
        }
    })
}

/// Those who got in, in order.
struct Newcomers {
    first: Place,
    count: u32,
    first_rank: u64,
}

impl Newcomers {
    fn nth(&self, at: u32) -> Option<Entered> {
        let (place, rank) = (Place(self.first.0.checked_add(at)?), self.first_rank + u64::from(at));
        (at < self.count).then_some(Entered::New { place, rank })
    }
}

/// Nobody there any more to hear the answer: the place is swept like that of anyone who went away.
fn answer_newcomers(batch: Batch<Option<UserId>, Entered>, outcome: Result<Newcomers, Error>) {
    let outcome = outcome.map_err(Arc::new);
    for (at, (_, answer)) in (0..).zip(batch) {
        let entered = match &outcome {
            Ok(newcomers) => newcomers.nth(at).ok_or(Error::QueueFull),
            Err(error) => Err(Error::Shared(error.clone())),
        };
        let _ = answer.send(entered);
    }
}

/// Who has a place is told so, also where newcomers were refused.
fn answer_members(batch: Batch<Option<UserId>, Entered>, outcome: Result<Newcomers, Error>, places: &[Option<Place>]) {
    let outcome = outcome.map_err(Arc::new);
    let places = places.iter().copied().chain(std::iter::repeat(None));
    for ((_, answer), place) in batch.into_iter().zip(places) {
        let entered = match (&outcome, place) {
            (Ok(newcomers), Some(place)) => {
                let at = place.0.checked_sub(newcomers.first.0);
                Ok(at.and_then(|at| newcomers.nth(at)).unwrap_or(Entered::Known(place)))
            }
            (Err(_), Some(place)) => Ok(Entered::Known(place)),
            (Ok(_), None) => Err(Error::QueueFull),
            (Err(error), None) => Err(Error::Shared(error.clone())),
        };
        let _ = answer.send(entered);
    }
}

/// A refusal for want of places is repaired and tried again; a call without an answer is not, because it may have been
/// carried out.
async fn enter_together(
    app: &Arc<App>,
    event: &Arc<Event>,
    mut call: impl AsyncFnMut(&Scripts) -> Result<Enter, Error>,
) -> Result<Newcomers, Error> {
    for _ in 0..3 {
        match call(&app.scripts).await {
            Ok(Enter::Entered { first, count, first_rank }) => return Ok(Newcomers { first, count, first_rank }),
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
pub async fn pulse_step(app: &App, event: &Event) -> Result<Duration, Error> {
    let Some(snapshot) = event.snapshot.load_full() else { return Ok(Duration::from_secs(1)) };
    pulse_event(app, event, &snapshot).await?;
    Ok(snapshot.policy.pulse_interval().min(Duration::from_secs(1)))
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

/// One round of sweeping. The script decides whether it is time; where it is not asked twice in an eighth of a slice, it
/// takes that for time in which nobody served.
pub async fn sweep_step(app: &App, event: &Event) -> Result<Duration, Error> {
    match app.scripts.sweep(&mut app.redis.get().await?, &event.keys).await {
        Ok(_) | Err(Error::Unready) => {}
        Err(error) => return Err(error),
    }
    let snapshot = event.snapshot.load();
    let slice = snapshot.as_ref().map_or(app.config.policy.slice(), |snapshot| snapshot.policy.slice());
    // Where nobody waits, and nobody may come back, it does no harm that the slice starts again.
    let idle = snapshot.as_ref().is_some_and(|snapshot| snapshot.meta.waiting == 0 && snapshot.meta.gap_to == 0);
    let (share, longest) = if idle { (2, Duration::from_secs(20)) } else { (16, Duration::from_secs(2)) };
    Ok((slice / share).clamp(Duration::from_millis(5), longest))
}
