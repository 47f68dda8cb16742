//! Stage 3: lending seats to people inside.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::{PersonId, SeatNumber};
use crate::base::lock;
use crate::base::seat::SeatState;
use crate::base::token::Token;
use crate::event::Event;
use crate::event::per_event::PerEvent;
use crate::event::snapshot::{SeatMap, Snapshot, Standing};
use crate::event::tally::Count;
use crate::sale::views::Views;
use crate::store::Stores;
use crate::store::redis::lane::Lane;
use crate::store::redis::scripts::{Hold, Holder, Release};

/// Overdue holds freed by one script call.
const EXPIRE_MOST: u64 = 500;
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Most seats in one request, whatever the policy allows.
const LARGEST_PARTY: usize = 50;
/// How often the next best seats are tried when others are faster.
const TRIES: usize = 20;
const PERSON_NEEDED: Error =
    Error::Unauthorized("Only a person can hold and buy this seat: send your API key as Authorization: Bearer.");

pub struct Seats {
    stores: Arc<Stores>,
    views: Arc<Views>,
    currency: String,
    /// Where the best seats of each event are chosen, one request at a time.
    picking: PerEvent<Mutex<Picking>>,
}

/// The seats of an event as the next choice sees them: the latest snapshot, and what this server lent since.
#[derive(Default)]
struct Picking {
    seen: Option<Arc<SeatMap>>,
    states: Vec<SeatState>,
}

/// Who holds and buys: a place, and the person who is signed in.
#[derive(Debug, Clone, Copy)]
pub struct Guest {
    pub token: Token,
    pub person: Option<PersonId>,
}

/// The seats of one request: at least one, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party(Vec<SeatNumber>);

impl Party {
    pub fn new(seats: Vec<SeatNumber>) -> Result<Self, Error> {
        let refuse = |problem: &str| Err(Error::InvalidRequest(problem.to_owned()));
        if seats.is_empty() {
            return refuse("Name at least one seat.");
        }
        if seats.len() > LARGEST_PARTY {
            return refuse("That is too many seats for one request.");
        }
        if seats.iter().collect::<BTreeSet<_>>().len() < seats.len() {
            return refuse("Name each seat once.");
        }
        Ok(Self(seats))
    }

    pub fn one(seat: SeatNumber) -> Self {
        Self(vec![seat])
    }

    /// Numbers separated by commas, as a form sends them.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let seats: Result<Vec<SeatNumber>, _> = text.split(',').map(str::parse).collect();
        Self::new(seats.map_err(|_| Error::InvalidSeat)?)
    }

    pub fn seats(&self) -> &[SeatNumber] {
        &self.0
    }
}

#[derive(Debug, Serialize, ToSchema)]
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

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldSeats {
    pub seat_numbers: Vec<SeatNumber>,
    pub seats: Vec<HeldSeat>,
    pub total: i64,
    pub currency: String,
    pub expires_in_seconds: u64,
}

/// How many seats next to each other, and where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// At most as many as one pass may hold.
    #[schema(minimum = 1, maximum = 50, example = 2)]
    pub count: u32,
    /// Its name; not given: any section.
    #[schema(example = "R")]
    pub section: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AvailableCount {
    count: u64,
}

impl Seats {
    pub fn new(stores: Arc<Stores>, views: Arc<Views>, currency: String) -> Self {
        Self { stores, views, currency, picking: PerEvent::default() }
    }

    pub async fn available(&self, event: &Arc<Event>) -> Result<AvailableCount, Error> {
        Ok(AvailableCount { count: self.views.current(event).await?.seats.available })
    }

    /// Lends seats to a guest inside, all or none, for at least this long. The one call that does.
    pub async fn lend(
        &self,
        lane: &Lane,
        event: &Event,
        guest: Guest,
        party: &Party,
        at_least: Duration,
    ) -> Result<Hold, Error> {
        check_person(event, guest.person, party)?;
        event.asked();
        event.check_database()?;
        let at_least_ms = u64::try_from(at_least.as_millis()).unwrap_or(u64::MAX);
        let scripts = &self.stores.scripts;
        let holder = Holder { place: guest.token.place(), person: guest.person, seats: party.seats() };
        let lent = scripts.hold(&mut lane.call()?.link, &event.keys, at_least_ms, &holder).await;
        event.own_writes.note(holder.place);
        lent
    }

    /// Holds seats for a visitor inside, all or none. Asking again for the same gives the same deadline.
    pub async fn hold(&self, lane: &Lane, event: &Event, guest: Guest, party: &Party) -> Result<HeldSeats, Error> {
        event.tally.heed(self.hold_party(lane, event, guest, party).await)
    }

    async fn hold_party(&self, lane: &Lane, event: &Event, guest: Guest, party: &Party) -> Result<HeldSeats, Error> {
        let left_ms = match self.lend(lane, event, guest, party, Duration::ZERO).await? {
            Hold::Held { left_ms } => left_ms,
            refused => return Err(refusal(refused, party)),
        };
        let seats = party.seats();
        let view = |number: &SeatNumber| {
            let seat = event.seat(*number).ok_or(Error::InvalidSeat)?;
            let (seat_number, label, price) = (*number, seat.label.clone(), seat.price);
            Ok(HeldSeat { seat_number, label, price, currency: None, expires_in_seconds: None })
        };
        Ok(HeldSeats {
            seat_numbers: seats.to_vec(),
            seats: seats.iter().map(view).collect::<Result<_, Error>>()?,
            total: event.total(seats).ok_or(Error::InvalidSeat)?,
            currency: self.currency.clone(),
            expires_in_seconds: left_ms / 1000,
        })
    }

    /// As [`Seats::hold`], answered as one seat.
    pub async fn hold_one(
        &self,
        lane: &Lane,
        event: &Event,
        guest: Guest,
        seat: SeatNumber,
    ) -> Result<HeldSeat, Error> {
        let held = self.hold(lane, event, guest, &Party::one(seat)).await?;
        let HeldSeats { mut seats, currency, expires_in_seconds, .. } = held;
        let seat = seats.pop().ok_or(Error::InvalidSeat)?;
        Ok(HeldSeat { currency: Some(currency), expires_in_seconds: Some(expires_in_seconds), ..seat })
    }

    /// Holds the best seats that are free next to each other. A visitor who holds exactly that many together gets the same
    /// again.
    pub async fn best(&self, lane: &Lane, event: &Arc<Event>, guest: Guest, wish: &Wish) -> Result<HeldSeats, Error> {
        event.tally.heed(self.hold_best(lane, event, guest, wish).await)
    }

    async fn hold_best(&self, lane: &Lane, event: &Arc<Event>, guest: Guest, wish: &Wish) -> Result<HeldSeats, Error> {
        let token = guest.token;
        let section = wish.section.as_deref();
        if section.is_some_and(|name| !event.hall.sections.iter().any(|section| section.name == name)) {
            return Err(Error::InvalidRequest("The event has no section with this name.".to_owned()));
        }
        let most = self.views.current(event).await?.policy.seats_per_pass;
        if wish.count == 0 || u64::from(wish.count) > most {
            return Err(Error::InvalidRequest(format!("count is a number from 1 to {most}.")));
        }
        self.check_inside(event, token).await?;
        let count = wish.count as usize;
        for _ in 0..TRIES {
            let snapshot = self.views.seen_by(event, token.place()).await?.snapshot;
            let mine: Vec<SeatNumber> = snapshot.seats.held_by(token.place()).into_iter().collect();
            if mine.len() == count && event.hall.together(&mine) && event.hall.all_in(section, &mine) {
                match self.hold_party(lane, event, guest, &Party(mine)).await {
                    // Given back since, and someone else has them.
                    Err(Error::SeatsTaken(_)) => {}
                    outcome => return outcome,
                }
            }
            let seats = self.pick(event, &snapshot.seats, section, count).ok_or(Error::NotTogether)?;
            match self.hold_party(lane, event, guest, &Party(seats.clone())).await {
                // They look free and are not: that stays noted, and the next best are tried.
                Err(Error::SeatsTaken(taken)) => {
                    self.put_back(event, seats, |seat| taken.iter().all(|(gone, _)| gone != seat));
                }
                Err(error) => {
                    self.put_back(event, seats, |_| true);
                    return Err(error);
                }
                held => return held,
            }
        }
        Err(Error::Overloaded("choosing seats"))
    }

    /// Refuses visitors who are not inside, before anything is noted on their behalf.
    async fn check_inside(&self, event: &Arc<Event>, token: Token) -> Result<(), Error> {
        let active = |snapshot: &Snapshot| matches!(snapshot.standing(token.place()), Standing::Active { .. });
        if active(&*self.views.current(event).await?) || active(&*self.views.fresh(event).await?) {
            return Ok(());
        }
        Err(Error::NotActive)
    }

    /// Chooses seats, and notes that they are about to be lent, so that the next choice avoids them.
    fn pick(
        &self,
        event: &Event,
        seats: &Arc<SeatMap>,
        section: Option<&str>,
        count: usize,
    ) -> Option<Vec<SeatNumber>> {
        let picking = self.picking.of(event.id);
        let mut picking = lock(&picking);
        if !picking.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, seats)) {
            *picking = Picking { seen: Some(seats.clone()), states: seats.states.clone() };
        }
        let free = |seat: usize| picking.states.get(seat) == Some(&SeatState::Available);
        let range = event.hall.best(section, count, free)?;
        picking.states.get_mut(range.clone())?.fill(SeatState::Held);
        Some(range.map(SeatNumber::at).collect())
    }

    fn put_back(&self, event: &Event, seats: Vec<SeatNumber>, free: impl Fn(&SeatNumber) -> bool) {
        let picking = self.picking.of(event.id);
        let mut picking = lock(&picking);
        for at in seats.into_iter().filter(free).filter_map(SeatNumber::index) {
            if let Some(state) = picking.states.get_mut(at) {
                *state = SeatState::Available;
            }
        }
    }

    /// Gives seats back. Doing it again is fine.
    pub async fn release(&self, lane: &Lane, event: &Event, token: Token, seats: &[SeatNumber]) -> Result<(), Error> {
        event.asked();
        let released = self.stores.scripts.release(&mut lane.call()?.link, &event.keys, token.place(), seats).await;
        event.own_writes.note(token.place());
        match released? {
            Release::Released(_) => Ok(()),
            Release::NotYours(seat, state) => Err(Error::SeatsTaken(vec![(seat, state)])),
            Release::NoSeat(_) => Err(Error::InvalidSeat),
        }
    }

    /// One round of freeing overdue holds.
    pub async fn expire_step(&self, event: &Event) -> Result<Duration, Error> {
        let mut conn = self.stores.redis.get().await?;
        loop {
            match self.stores.scripts.expire(&mut conn, &event.keys, EXPIRE_MOST).await {
                Ok(ended) => {
                    event.tally.add(Count::HoldsOverdue, "", ended);
                    if ended < EXPIRE_MOST {
                        return Ok(EXPIRE_EVERY);
                    }
                }
                Err(Error::Unready) => return Ok(EXPIRE_EVERY),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Only a person can hold and buy a priced seat, or any seat of an event that counts the tickets of people.
pub fn check_person(event: &Event, person: Option<PersonId>, party: &Party) -> Result<(), Error> {
    let priced = event.total(party.seats()).ok_or(Error::InvalidSeat)? > 0;
    let counted = event.tickets_per_person() > 0;
    if (priced || counted) && person.is_none() { Err(PERSON_NEEDED) } else { Ok(()) }
}

/// What a refused hold is called outside.
pub fn refusal(hold: Hold, party: &Party) -> Error {
    match hold {
        Hold::Taken(seats) => Error::SeatsTaken(seats),
        Hold::Yours => sold(party.seats()),
        Hold::Another => Error::PlaceOfAnother,
        Hold::NoPass => Error::NotActive,
        Hold::NoSeat(_) => Error::InvalidSeat,
        Hold::TooMany(most) => {
            Error::InvalidRequest(format!("You can hold {most} seats at most. Give one back first."))
        }
        Hold::Held { .. } => Error::internal("a granted hold is not a refusal"),
    }
}

/// All of these are sold.
pub fn sold(seats: &[SeatNumber]) -> Error {
    Error::SeatsTaken(seats.iter().map(|seat| (*seat, SeatState::Sold)).collect())
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
