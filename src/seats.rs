//! Stage 3: the seat map, and lending seats to people inside.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::app::{App, Lane};
use crate::error::Error;
use crate::events::Event;
use crate::http::gzip;
use crate::ids::{Place, SeatNumber};
use crate::redis::scripts::{Hold, Release, SeatState};
use crate::snapshot::{self, SeatMap, Snapshot, Standing};
use crate::token::Token;

/// Overdue holds freed by one script call.
const EXPIRE_MOST: u64 = 500;
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// More seats than this are not asked for at once, whatever the policy allows.
const LARGEST_PARTY: usize = 50;
/// How often the next best seats are tried when others are faster.
const TRIES: usize = 20;

/// Seats asked for together: at least one, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party(Vec<SeatNumber>);

impl Party {
    pub fn new(seats: Vec<SeatNumber>) -> Result<Self, Error> {
        let refuse = |problem: &str| Err(Error::InvalidRequest(problem.to_owned()));
        if seats.is_empty() {
            return refuse("Name at least one seat.");
        }
        if seats.len() > LARGEST_PARTY {
            return refuse("So many seats cannot be asked for at once.");
        }
        if seats.iter().collect::<BTreeSet<_>>().len() < seats.len() {
            return refuse("Name each seat once.");
        }
        Ok(Self(seats))
    }

    pub fn one(seat: SeatNumber) -> Self {
        Self(vec![seat])
    }

    /// Numbers with commas between, as a form sends them.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let seats: Result<Vec<SeatNumber>, _> = text.split(',').map(str::parse).collect();
        Self::new(seats.map_err(|_| Error::InvalidSeat)?)
    }

    pub fn seats(&self) -> &[SeatNumber] {
        &self.0
    }
}

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
pub struct Rendered {
    json: Bytes,
    gzip: OnceLock<Bytes>,
    etag: String,
}

/// The seat map as one visitor sees it.
pub struct MapView {
    event: Arc<Event>,
    snapshot: Arc<Snapshot>,
    everyones: Arc<Rendered>,
    mine: BTreeSet<SeatNumber>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldSeat {
    pub seat_number: SeatNumber,
    pub label: String,
    pub price: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldSeats {
    pub seat_numbers: Vec<SeatNumber>,
    pub seats: Vec<HeldSeat>,
    pub total: i64,
    pub currency: String,
    pub expires_in_seconds: u64,
}

/// What is wished for where the seats are not chosen one by one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    pub count: u32,
    pub section: Option<String>,
}

/// The seats as the next one to be given the best of them sees them: the latest snapshot, and what this server lent since.
#[derive(Default)]
pub struct Picking {
    seen: Option<Arc<SeatMap>>,
    states: Vec<u8>,
}

#[derive(Debug, Serialize)]
pub struct AvailableCount {
    count: u64,
}

/// The seat map, from memory. It is rendered once for everyone, and again only for who holds a seat.
pub async fn map(app: &Arc<App>, event: &Arc<Event>, place: Option<Place>) -> Result<MapView, Error> {
    let snapshot = snapshot::current(app, event).await?;
    let seats = &snapshot.seats;
    let mine = place.map(|place| seats.held_by(place)).unwrap_or_default();
    let everyones = match seats.rendered.get() {
        Some(rendered) => rendered.clone(),
        None => {
            let rendered = Arc::new(render(event, &snapshot, &BTreeSet::new())?);
            seats.rendered.get_or_init(|| rendered).clone()
        }
    };
    Ok(MapView { event: event.clone(), snapshot, everyones, mine })
}

impl MapView {
    /// Names what is shown: the same name, the same content.
    pub fn etag(&self) -> String {
        let mine = self.mine.iter().map(|seat| format!("-{seat}"));
        std::iter::once(self.everyones.etag.clone()).chain(mine).collect()
    }

    pub fn json(&self, gzip: bool) -> Result<Bytes, Error> {
        if self.mine.is_empty() {
            return self.everyones.bytes(gzip);
        }
        render(&self.event, &self.snapshot, &self.mine)?.bytes(gzip)
    }
}

impl Rendered {
    fn bytes(&self, gzip: bool) -> Result<Bytes, Error> {
        match self.gzip.get() {
            _ if !gzip => Ok(self.json.clone()),
            Some(bytes) => Ok(bytes.clone()),
            None => {
                let bytes = gzip::compress(&self.json)?;
                Ok(self.gzip.get_or_init(|| bytes).clone())
            }
        }
    }
}

fn render(event: &Event, snapshot: &Snapshot, mine: &BTreeSet<SeatNumber>) -> Result<Rendered, Error> {
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
    Ok(Rendered { json: json.into(), gzip: OnceLock::new(), etag })
}

pub async fn available(app: &Arc<App>, event: &Arc<Event>) -> Result<AvailableCount, Error> {
    Ok(AvailableCount { count: snapshot::current(app, event).await?.seats.available })
}

/// Lends seats to a visitor inside, all or none. Asking again for the same gives the same deadline.
pub async fn hold(lane: &Lane, event: &Event, token: Token, party: &Party) -> Result<HeldSeats, Error> {
    event.asked();
    let seats = party.seats();
    let left_ms = match lane.app.scripts.hold(&mut lane.call()?.link, &event.keys, token.place(), 0, seats).await? {
        Hold::Held { left_ms } => left_ms,
        refused => return Err(refusal(refused, seats)),
    };
    let view = |number: &SeatNumber| {
        let seat = event.seat(*number).ok_or(Error::InvalidSeat)?;
        let (seat_number, label, price) = (*number, seat.label.clone(), seat.price);
        Ok(HeldSeat { seat_number, label, price, currency: None, expires_in_seconds: None })
    };
    Ok(HeldSeats {
        seat_numbers: seats.to_vec(),
        seats: seats.iter().map(view).collect::<Result<_, Error>>()?,
        total: event.total(seats).ok_or(Error::InvalidSeat)?,
        currency: lane.app.config.currency.clone(),
        expires_in_seconds: left_ms / 1000,
    })
}

/// As [`hold`], told as one seat.
pub async fn hold_one(lane: &Lane, event: &Event, token: Token, seat: SeatNumber) -> Result<HeldSeat, Error> {
    let HeldSeats { mut seats, currency, expires_in_seconds, .. } = hold(lane, event, token, &Party::one(seat)).await?;
    let seat = seats.pop().ok_or(Error::InvalidSeat)?;
    Ok(HeldSeat { currency: Some(currency), expires_in_seconds: Some(expires_in_seconds), ..seat })
}

/// Lends the best seats that are free next to each other. Who has just that many together gets the same again.
pub async fn best(lane: &Lane, event: &Arc<Event>, token: Token, wish: &Wish) -> Result<HeldSeats, Error> {
    let section = wish.section.as_deref();
    if section.is_some_and(|name| !event.hall.sections.iter().any(|section| section.name == name)) {
        return Err(Error::InvalidRequest("The event has no section of this name.".to_owned()));
    }
    let most = snapshot::current(&lane.app, event).await?.policy.seats_per_pass;
    if wish.count == 0 || u64::from(wish.count) > most {
        return Err(Error::InvalidRequest(format!("count is a number from 1 to {most}.")));
    }
    inside(lane, event, token).await?;
    let count = wish.count as usize;
    for _ in 0..TRIES {
        let snapshot = snapshot::current(&lane.app, event).await?;
        let mine: Vec<SeatNumber> = snapshot.seats.held_by(token.place()).into_iter().collect();
        if mine.len() == count && event.hall.together(&mine) && event.hall.all_in(section, &mine) {
            match hold(lane, event, token, &Party(mine)).await {
                // Given back since, and someone has them.
                Err(Error::SeatsTaken(_)) => {}
                outcome => return outcome,
            }
        }
        let seats = pick(event, &snapshot.seats, section, count).ok_or(Error::NotTogether)?;
        match hold(lane, event, token, &Party(seats.clone())).await {
            // They look free and are not: that stays noted, and the next best are tried.
            Err(Error::SeatsTaken(taken)) => put_back(event, seats, |seat| taken.iter().all(|(gone, _)| gone != seat)),
            Err(error) => {
                put_back(event, seats, |_| true);
                return Err(error);
            }
            held => return held,
        }
    }
    Err(Error::Overloaded("choosing seats"))
}

/// Refuses who is not inside, before anything is noted on their behalf.
async fn inside(lane: &Lane, event: &Arc<Event>, token: Token) -> Result<(), Error> {
    let active = |snapshot: &Snapshot| matches!(snapshot.standing(token.place()), Standing::Active { .. });
    if active(&*snapshot::current(&lane.app, event).await?) || active(&*snapshot::fresh(&lane.app, event).await?) {
        return Ok(());
    }
    Err(Error::NotActive)
}

/// Chooses, and notes that these seats are about to be lent, so that the next one is not sent after them.
fn pick(event: &Event, seats: &Arc<SeatMap>, section: Option<&str>, count: usize) -> Option<Vec<SeatNumber>> {
    let mut picking = event.picking();
    if !picking.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, seats)) {
        *picking = Picking { seen: Some(seats.clone()), states: seats.states.clone() };
    }
    let range = event.hall.best(section, count, |seat| picking.states.get(seat) == Some(&b'a'))?;
    picking.states.get_mut(range.clone())?.fill(b'h');
    Some(range.map(SeatNumber::at).collect())
}

fn put_back(event: &Event, seats: Vec<SeatNumber>, free: impl Fn(&SeatNumber) -> bool) {
    let mut picking = event.picking();
    for at in seats.into_iter().filter(free).filter_map(SeatNumber::index) {
        if let Some(state) = picking.states.get_mut(at) {
            *state = b'a';
        }
    }
}

/// What a refused hold is called outside.
pub fn refusal(hold: Hold, asked: &[SeatNumber]) -> Error {
    match hold {
        Hold::Taken(seats) => Error::SeatsTaken(seats),
        Hold::Yours => Error::SeatsTaken(asked.iter().map(|seat| (*seat, SeatState::Sold)).collect()),
        Hold::NoPass => Error::NotActive,
        Hold::NoSeat(_) => Error::InvalidSeat,
        Hold::TooMany(most) => {
            Error::InvalidRequest(format!("You can hold {most} seats at most. Give one back first."))
        }
        Hold::Held { .. } => Error::Internal("a hold that was granted is no refusal".to_owned()),
    }
}

/// Gives seats back. Doing it again is fine.
pub async fn release(lane: &Lane, event: &Event, token: Token, seats: &[SeatNumber]) -> Result<(), Error> {
    event.asked();
    match lane.app.scripts.release(&mut lane.call()?.link, &event.keys, token.place(), seats).await? {
        Release::Released(_) => Ok(()),
        Release::NotYours(seat, state) => Err(Error::SeatsTaken(vec![(seat, state)])),
        Release::NoSeat(_) => Err(Error::InvalidSeat),
    }
}

/// One round of freeing overdue holds.
pub async fn expire_step(app: &App, event: &Event) -> Result<Duration, Error> {
    let mut conn = app.redis.get().await?;
    loop {
        match app.scripts.expire(&mut conn, &event.keys, EXPIRE_MOST).await {
            Ok(EXPIRE_MOST) => {}
            Ok(_) | Err(Error::Unready) => return Ok(EXPIRE_EVERY),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_party_is_some_seats_each_named_once(seats in vec(0..60_u32, 0..60)) {
            let different = seats.iter().collect::<BTreeSet<_>>().len();
            let fits = (1..=LARGEST_PARTY).contains(&seats.len()) && different == seats.len();
            let text = seats.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let party = Party::new(seats.into_iter().map(SeatNumber).collect()).ok();
            prop_assert_eq!(party.is_some(), fits);
            prop_assert_eq!(Party::parse(&text).ok(), party);
        }

        #[test]
        fn any_text_is_a_party_or_none(text in "[0-9, ]{0,20}|\\PC{0,20}") {
            if let Ok(party) = Party::parse(&text) {
                let written: Vec<String> = party.seats().iter().map(ToString::to_string).collect();
                prop_assert_eq!(written.join(","), text);
            }
        }

        #[test]
        fn any_json_is_a_wish_or_none(count: i64, section in "\\PC{0,20}", more in "\\PC{0,40}") {
            let text = serde_json::json!({ "count": count, "section": section }).to_string();
            let wish = serde_json::from_str::<Wish>(&text).ok();
            prop_assert_eq!(wish.map(|wish| (i64::from(wish.count), wish.section)),
                u32::try_from(count).ok().map(|_| (count, Some(section))));
            prop_assert!(serde_json::from_str::<Wish>(&more).is_err());
        }
    }
}
