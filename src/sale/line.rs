//! Stage 1: taking a place in line, asking about it, giving it up; and dropping visitors who went away.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::base::control::{Reason, State};
use crate::base::error::Error;
use crate::base::ids::PersonId;
use crate::base::policy::Policy;
use crate::base::token::Token;
use crate::event::Event;
use crate::event::estimate::Range;
use crate::event::facts::Booking;
use crate::event::pulses::Bundle;
use crate::event::snapshot::{Snapshot, Standing, UNSURE};
use crate::sale::entrance::{Entered, Entrance};
use crate::sale::views::{Seen, Views};
use crate::store::Stores;
use crate::store::redis::lane::Lane;

/// Streams are for visitors who will be let in soon; polls further back are far apart and cost less.
const PUSH_UP_TO: u64 = 1000;
const PERSON_NEEDED: Error =
    Error::Unauthorized("This line takes one place a person: send your API key as Authorization: Bearer.");

pub struct Line {
    stores: Arc<Stores>,
    views: Arc<Views>,
    /// Until an event's own settings are known.
    policy: Policy,
}

/// Where a token stands, as its owner reads it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueStatus)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    #[serde(rename_all = "camelCase")]
    Waiting {
        #[schema(value_type = Uuid, example = "00000200-0000-800b-bf4f-4e79db2f800d")]
        uuid: Token,
        /// From 1.
        rank: u64,
        ahead_count: u64,
        waiting_count: u64,
        seats_left: u64,
        /// A range, or null while nobody can tell.
        #[schema(required)]
        estimated_wait_seconds: Option<Estimate>,
        poll_after_ms: u64,
        /// Whether the place is near enough to the front for an open stream.
        push: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        pause: Option<Pause>,
    },
    #[serde(rename_all = "camelCase")]
    Active {
        #[schema(value_type = Uuid, example = "00000200-0000-800b-bf4f-4e79db2f800d")]
        uuid: Token,
        expires_in_seconds: u64,
        /// A different number means that the seat map changed.
        seats_version: u64,
        poll_after_ms: u64,
    },
    #[serde(rename_all = "camelCase")]
    SoldOut {
        #[schema(value_type = Uuid, example = "00000200-0000-800b-bf4f-4e79db2f800d")]
        uuid: Token,
        poll_after_ms: u64,
        push: bool,
    },
}

/// An operator stopped letting people in for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Pause {
    #[schema(required)]
    pub reason: Option<Reason>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Estimate {
    pub low: u64,
    pub high: u64,
}

impl Line {
    pub fn new(stores: Arc<Stores>, views: Arc<Views>, policy: Policy) -> Self {
        Self { stores, views, policy }
    }

    /// Takes the next place in line. Where a person has one place, returns the one they have.
    pub async fn enter(
        &self,
        entrance: &Entrance,
        event: &Arc<Event>,
        person: Option<PersonId>,
    ) -> Result<Status, Error> {
        event.tally.heed(self.take_place(entrance, event, person).await)
    }

    async fn take_place(
        &self,
        entrance: &Entrance,
        event: &Arc<Event>,
        person: Option<PersonId>,
    ) -> Result<Status, Error> {
        match event.booking() {
            Booking::Open => {}
            Booking::NotYet(opens_at) => return Err(Error::NotOpen { opens_at }),
            Booking::Over => return Err(Error::EventClosed),
        }
        event.check_database()?;
        let person = if event.facts().one_place_per_person { Some(person.ok_or(PERSON_NEEDED)?) } else { None };
        if person.is_none() {
            self.refuse_early(event)?;
        }
        match entrance.enter(event, person).await? {
            Entered::New { place, rank } => {
                let snapshot = self.views.current(event).await?;
                Ok(waiting(event, &snapshot, event.sign(place), rank))
            }
            Entered::Known(place) => {
                let token = event.sign(place);
                match self.status(event, token).await {
                    // The snapshot does not know yet what the script knew.
                    Err(Error::TokenExpired) => {
                        self.views.fresh(event).await?;
                        self.status(event, token).await
                    }
                    status => status,
                }
            }
        }
    }

    /// Refuses what the script would refuse, without asking it: after a sell-out, a crowd keeps trying.
    fn refuse_early(&self, event: &Event) -> Result<(), Error> {
        event.asked();
        match event.snapshot.load_full().filter(|snapshot| snapshot.age() <= UNSURE) {
            Some(snapshot) if snapshot.meta.state == State::Closed => Err(Error::EventClosed),
            Some(snapshot) if snapshot.sold_out() => Err(Error::SoldOut),
            _ => Ok(()),
        }
    }

    /// Where a token stands, from memory. Asking is a sign of life.
    pub async fn status(&self, event: &Arc<Event>, token: Token) -> Result<Status, Error> {
        let Seen { mut snapshot, bought } = self.views.seen_by(event, token.place()).await?;
        if !bought.is_empty() {
            return Err(Error::TokenExpired);
        }
        let mut standing = snapshot.standing(token.place());
        let final_word = matches!(standing, Standing::Over | Standing::SoldOut);
        if final_word && snapshot.age() > UNSURE || snapshot.too_old_for(token.place()) {
            // Old news must not say that something is over, nor a rank that nobody knows.
            snapshot = self.views.fresh(event).await?;
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
                Ok(waiting(event, &snapshot, token, rank))
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
    pub async fn leave(&self, lane: &Lane, event: &Event, token: Token) -> Result<(), Error> {
        event.asked();
        self.stores.scripts.leave(&mut lane.call()?.link, &event.keys, token.place()).await?;
        event.own_writes.note(token.place());
        Ok(())
    }

    /// One round of telling Redis which waiting visitors are alive.
    pub async fn pulse_step(&self, event: &Event) -> Result<Duration, Error> {
        let Some(snapshot) = event.snapshot.load_full() else { return Ok(Duration::from_secs(1)) };
        let turn = snapshot.turn();
        let due = event.pulses.due(turn, &(snapshot.meta.gap_from..snapshot.meta.gap_to));
        if !due.is_empty() {
            let sent = self.send_pulses(event, turn, due).await;
            event.pulses.set_held_up(sent.is_err());
            sent?;
        }
        Ok(snapshot.policy.pulse_interval().min(Duration::from_secs(1)))
    }

    async fn send_pulses(&self, event: &Event, turn: u64, due: Vec<Bundle>) -> Result<(), Error> {
        let mut conn = self.stores.redis.get().await?;
        for bundle in due {
            let (from, dense, places) = (bundle.from, &bundle.dense, &bundle.places);
            self.stores.scripts.pulse(&mut conn, &event.keys, from, dense, places).await?;
            event.pulses.arrived(turn, &bundle);
        }
        Ok(())
    }

    /// One round of sweeping. The script decides whether it is time. If nobody asks for an eighth of a slice, it takes that
    /// for time in which nobody served. While pulses are held up here, nobody may be swept for want of them.
    pub async fn sweep_step(&self, event: &Event) -> Result<Duration, Error> {
        if event.pulses.held_up() {
            return Ok(self.policy.pulse_interval());
        }
        match self.stores.scripts.sweep(&mut self.stores.redis.get().await?, &event.keys).await {
            Ok(_) | Err(Error::Unready) => {}
            Err(error) => return Err(error),
        }
        let snapshot = event.snapshot.load();
        let slice = snapshot.as_ref().map_or(self.policy.slice(), |snapshot| snapshot.policy.slice());
        // If nobody waits and nobody may return, it does no harm that the slice starts over.
        let idle = snapshot.as_ref().is_some_and(|snapshot| snapshot.meta.waiting == 0 && snapshot.meta.gap_to == 0);
        let (share, longest) = if idle { (2, Duration::from_secs(20)) } else { (16, Duration::from_secs(2)) };
        Ok((slice / share).clamp(Duration::from_millis(5), longest))
    }
}

fn waiting(event: &Event, snapshot: &Snapshot, token: Token, rank: u64) -> Status {
    let range = snapshot.outlook.as_ref().and_then(|outlook| outlook.range(rank));
    if let Some(range) = range {
        event.scores.shown(token.place(), snapshot.now_ms, range);
    }
    Status::Waiting {
        uuid: token,
        rank,
        ahead_count: rank - 1,
        waiting_count: snapshot.meta.waiting.max(rank),
        seats_left: snapshot.meta.seats.saturating_sub(snapshot.meta.sold),
        estimated_wait_seconds: range.map(|Range { low, high }| Estimate { low, high }),
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

    /// What is worth a push at once. The rest changes all the time and can wait.
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
