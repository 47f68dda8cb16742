//! Stage 3: the seat map, and lending seats to people inside.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::app::{App, Lane};
use crate::error::Error;
use crate::events::Event;
use crate::ids::{Place, SeatNumber};
use crate::redis::scripts::{Hold, Release, SeatState};
use crate::snapshot::{self, Snapshot};
use crate::token::Token;
use crate::workers::each_event;

/// Overdue holds freed by one script call.
const EXPIRE_MOST: u64 = 500;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatView<'a> {
    seat_number: SeatNumber,
    label: &'a str,
    status: &'static str,
    price: i64,
    mine: bool,
}

/// A seat map ready to be sent.
#[derive(Clone)]
pub struct Rendered {
    pub json: Bytes,
    pub etag: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldSeat {
    seat_number: SeatNumber,
    expires_in_seconds: u64,
}

#[derive(Debug, Serialize)]
pub struct AvailableCount {
    count: u64,
}

/// The seat map, from memory. It is rendered once for everyone, and again only for who holds a seat.
pub async fn map(app: &Arc<App>, event: &Arc<Event>, place: Option<Place>) -> Result<Rendered, Error> {
    let snapshot = snapshot::current(app, event).await?;
    let seats = &snapshot.seats;
    let mine: HashSet<SeatNumber> =
        seats.holds.iter().filter(|(_, held)| Some(held.place) == place).map(|(seat, _)| *seat).collect();
    if !mine.is_empty() {
        return render(event, &snapshot, &mine);
    }
    if let Some(rendered) = seats.rendered.get() {
        return Ok(rendered.clone());
    }
    let rendered = render(event, &snapshot, &mine)?;
    Ok(seats.rendered.get_or_init(|| rendered).clone())
}

fn render(event: &Event, snapshot: &Snapshot, mine: &HashSet<SeatNumber>) -> Result<Rendered, Error> {
    let seats = event.seats.iter().zip(&snapshot.seats.states).enumerate();
    let views: Vec<SeatView> = seats
        .map(|(index, (seat, state))| SeatView {
            seat_number: SeatNumber::at(index),
            label: &seat.label,
            status: match state {
                b'a' => "available",
                b'h' => "held",
                _ => "sold",
            },
            price: seat.price,
            mine: mine.contains(&SeatNumber::at(index)),
        })
        .collect();
    let json = serde_json::to_vec(&views).map_err(|error| Error::Internal(error.to_string()))?;
    let hash = blake3::hash(&json).to_hex();
    let etag = hash.as_str().chars().take(24).collect();
    Ok(Rendered { json: json.into(), etag })
}

pub async fn available(app: &Arc<App>, event: &Arc<Event>) -> Result<AvailableCount, Error> {
    Ok(AvailableCount { count: snapshot::current(app, event).await?.seats.available })
}

/// Lends a seat to a visitor inside. Asking again for the same seat gives the same deadline.
pub async fn hold(lane: &Lane, event: &Event, token: Token, seat: SeatNumber) -> Result<HeldSeat, Error> {
    event.asked();
    match lane.app.scripts.hold(&mut lane.link(), &event.keys, token.place(), 0, &[seat]).await? {
        Hold::Held { left_ms } => Ok(HeldSeat { seat_number: seat, expires_in_seconds: left_ms / 1000 }),
        refused => Err(refusal(refused)),
    }
}

/// What a refused hold is called outside.
pub fn refusal(hold: Hold) -> Error {
    match hold {
        Hold::Taken(seats) if seats.iter().any(|(_, state)| *state == SeatState::Sold) => Error::SeatSold,
        Hold::Taken(_) => Error::SeatHeld,
        Hold::Yours => Error::SeatSold,
        Hold::NoPass => Error::NotActive,
        Hold::NoSeat(_) => Error::InvalidSeat,
        Hold::TooMany(most) => {
            Error::InvalidRequest(format!("You can hold {most} seats at most. Give one back first."))
        }
        Hold::Held { .. } => Error::Internal("a hold that was granted is no refusal".to_owned()),
    }
}

/// Gives a seat back. Doing it again is fine.
pub async fn release(lane: &Lane, event: &Event, token: Token, seat: SeatNumber) -> Result<(), Error> {
    event.asked();
    match lane.app.scripts.release(&mut lane.link(), &event.keys, token.place(), &[seat]).await? {
        Release::Released(_) => Ok(()),
        Release::NotYours(_, SeatState::Held) => Err(Error::SeatHeld),
        Release::NotYours(_, SeatState::Sold) => Err(Error::SeatSold),
        Release::NoSeat(_) => Err(Error::InvalidSeat),
    }
}

/// One round of freeing overdue holds.
pub async fn expire_step(app: &App) -> Result<Duration, Error> {
    const EVERY: Duration = Duration::from_secs(1);
    each_event(app, EVERY, |event| async move {
        let mut conn = app.redis.get().await?;
        loop {
            match app.scripts.expire(&mut conn, &event.keys, EXPIRE_MOST).await {
                Ok(EXPIRE_MOST) => {}
                Ok(_) | Err(Error::Unready) => return Ok(EVERY),
                Err(error) => return Err(error),
            }
        }
    })
    .await
}
