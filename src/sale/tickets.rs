//! Stage 4: selling, and taking back. The seats are held first; then one database statement sells them to buyers who can
//! pay, and its commit is the sale.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{EventId, OrderId, PersonId, Place, SeatNumber, TicketId};
use crate::base::paging::{Page, PageOf};
use crate::base::token::{Claim, Token};
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::event::snapshot::Standing;
use crate::event::tally::Count;
use crate::sale::seats::{Guest, Party, Seats, refusal, sold};
use crate::sale::seller::{Sale, Seller};
use crate::sale::settle::Settler;
use crate::store::db::audit_log::Entry;
use crate::store::db::changes::Unsettled;
use crate::store::db::sell::{NewOrder, Sold};
use crate::store::db::tickets::{CANCELLED, Claimed, TicketRow};
use crate::store::redis::lane::Lane;
use crate::store::redis::scripts::Hold;
use crate::store::{Stores, db};

/// A hold that is being paid for lasts at least this long, so that the sale is written in time.
pub const TIME_TO_PAY: Duration = Duration::from_secs(10);
const WHO_CLAIMS: Error = Error::Unauthorized("Sign in to keep a ticket with your account.");
const OF_A_PERSON: Error =
    Error::Unauthorized("A person bought this ticket: send their API key as Authorization: Bearer.");

pub struct Tickets {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    seats: Arc<Seats>,
    settler: Arc<Settler>,
    seller: Seller,
    currency: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    pub ticket_id: TicketId,
    pub order_id: OrderId,
    pub event_id: EventId,
    pub title: String,
    #[schema(required)]
    pub starts_at: Option<DateTime<Utc>>,
    pub seat_number: SeatNumber,
    pub label: String,
    pub price: i64,
    pub currency: String,
    pub status: TicketStatus,
    pub sold_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<DateTime<Utc>>,
}

/// What became of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketStatus {
    Paid,
    Cancelled,
}

/// The tickets of one purchase.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    pub order_id: OrderId,
    pub status: TicketStatus,
    pub total: i64,
    pub currency: String,
    pub tickets: Vec<Ticket>,
}

impl Order {
    /// `None` of no tickets.
    pub fn of(tickets: Vec<Ticket>) -> Option<Self> {
        let first = tickets.first()?;
        Some(Self {
            order_id: first.order_id,
            status: TicketStatus::Paid,
            total: tickets.iter().map(|ticket| ticket.price).sum(),
            currency: first.currency.clone(),
            tickets,
        })
    }
}

/// A ticket as its page shows it.
pub struct Shown {
    pub ticket: Ticket,
    /// All tickets of its order.
    pub order: Vec<Ticket>,
    pub event: Arc<Event>,
    /// Whether it was bought without signing in.
    pub nobodys: bool,
}

/// A caller who asks about a ticket: as the place that bought it, or as the person.
pub struct Buyer {
    /// Unchecked: a ticket knows the token it was bought with, also when such tokens are no longer genuine.
    pub claims: Vec<Claim>,
    pub person: Option<PersonId>,
    /// The event named in the path, if one is.
    pub event: Option<EventId>,
}

/// Who wants which seats, and the number of their order.
#[derive(Clone, Copy)]
pub struct Purchase<'a> {
    pub order: OrderId,
    pub guest: Guest,
    pub party: &'a Party,
}

impl<'a> Purchase<'a> {
    /// One that is written at once.
    pub fn new(guest: Guest, party: &'a Party) -> Self {
        Self { order: OrderId(Uuid::now_v7()), guest, party }
    }
}

impl Tickets {
    pub fn new(
        stores: Arc<Stores>,
        catalogue: Arc<Catalogue>,
        seats: Arc<Seats>,
        settler: Arc<Settler>,
        seller: Seller,
        currency: String,
    ) -> Self {
        Self { stores, catalogue, seats, settler, seller, currency }
    }

    /// Sells seats to a visitor inside, all or none, and holds first what is not held yet. The same request again gives the
    /// same tickets, also when hold and pass are gone.
    pub async fn buy(&self, lane: &Lane, event: &Arc<Event>, purchase: &Purchase<'_>) -> Result<Vec<Ticket>, Error> {
        event.tally.heed(self.buy_party(lane, event, purchase).await)
    }

    async fn buy_party(&self, lane: &Lane, event: &Arc<Event>, purchase: &Purchase<'_>) -> Result<Vec<Ticket>, Error> {
        let asked = Instant::now();
        let hold = self.seats.lend(lane, event, purchase.guest, purchase.party, TIME_TO_PAY).await?;
        self.sell_held(lane, event, purchase, hold, asked).await
    }

    /// Sells seats that a hold was asked for at `asked`, with this answer.
    pub async fn sell_held(
        &self,
        lane: &Lane,
        event: &Arc<Event>,
        purchase: &Purchase<'_>,
        hold: Hold,
        asked: Instant,
    ) -> Result<Vec<Ticket>, Error> {
        let Purchase { order, guest: guest @ Guest { token, person }, party } = *purchase;
        match hold {
            Hold::Held { left_ms } => {
                let order = NewOrder {
                    id: order,
                    event: event.id,
                    place: token.place(),
                    token: token.uuid(),
                    person,
                    seats: party.seats().iter().map(|seat| (TicketId(Uuid::now_v7()), *seat)).collect(),
                    most: u32::try_from(event.tickets_per_person()).ok().filter(|most| *most > 0),
                };
                let deadline = asked + Duration::from_millis(left_ms);
                self.sell(lane, event, guest, party, Sale { event: event.clone(), order, deadline }).await
            }
            Hold::Yours => self.owned(event, guest, party).await?.ok_or_else(|| sold(party.seats())),
            Hold::NoPass => self.bought_before(event, guest, party).await?.ok_or(Error::NotActive),
            refused => Err(refusal(refused, party)),
        }
    }

    /// What a place without a pass has for these seats.
    pub async fn bought_before(
        &self,
        event: &Event,
        guest: Guest,
        party: &Party,
    ) -> Result<Option<Vec<Ticket>>, Error> {
        if may_have_bought(event, guest.token) { self.owned(event, guest, party).await } else { Ok(None) }
    }

    async fn sell(
        &self,
        lane: &Lane,
        event: &Arc<Event>,
        guest: Guest,
        party: &Party,
        sale: Sale,
    ) -> Result<Vec<Ticket>, Error> {
        let token = guest.token;
        match self.seller.sell(sale).await {
            Ok(Sold::Sold(rows)) => {
                event.own_writes.bought(token.place(), party.seats());
                Ok(rows.into_iter().map(|row| self.ticket(event, row)).collect())
            }
            // The hold stays: fewer of the seats can be bought.
            Ok(Sold::TooMany { limit, owned }) => Err(Error::TicketLimit { limit, owned }),
            // The hold stays: there is time to charge and pay again.
            Ok(Sold::TooPoor { balance, total }) => Err(Error::InsufficientBalance { balance, total }),
            Ok(Sold::Refused) => match self.owned(event, guest, party).await? {
                Some(tickets) => Ok(tickets),
                None => Err(self.outrun(lane, event, token, party).await?),
            },
            // Nobody else's sale was in the way, and trying again soon does not help.
            Err(error @ Error::SaleRefused(_)) => {
                self.give_back(lane, event, token, party.seats()).await;
                Err(error)
            }
            // The database did not answer, so nobody knows: the hold stays, and a repeat finds out.
            Err(error) => Err(error),
        }
    }

    /// Someone else's sale was written first: says which seats are gone, and gives back the others. If none is gone, it was the
    /// buyer who took the order back, and the hold stays.
    async fn outrun(&self, lane: &Lane, event: &Event, token: Token, party: &Party) -> Result<Error, Error> {
        let (id, seats) = (event.id, party.seats().to_vec());
        let gone = self
            .stores
            .query(move |conn| async move { db::tickets::sold_among(conn, id, &seats).await }.boxed())
            .await?;
        let rest: Vec<SeatNumber> = party.seats().iter().filter(|seat| !gone.contains(seat)).copied().collect();
        if !gone.is_empty() && !rest.is_empty() {
            self.give_back(lane, event, token, &rest).await;
        }
        Ok(sold(if gone.is_empty() { party.seats() } else { &gone }))
    }

    /// Nothing was sold, so the hold can go. If that fails too, its deadline frees the seats.
    async fn give_back(&self, lane: &Lane, event: &Event, token: Token, seats: &[SeatNumber]) {
        if let Err(error) = self.seats.release(lane, event, token, seats).await {
            tracing::debug!(%error, "a hold is left to expire");
        }
    }

    /// The tickets this place has for these seats. `NotActive` if its one order was for other seats. A person's tickets are
    /// not shown to another one who has the token.
    async fn owned(&self, event: &Event, guest: Guest, party: &Party) -> Result<Option<Vec<Ticket>>, Error> {
        let rows = self.by_place(event, guest.token.place()).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        if first.user_id.is_some() && first.user_id != guest.person.map(|person| person.0) {
            return Err(Error::PlaceOfAnother);
        }
        let own = |seat: &SeatNumber| {
            let row = rows.iter().find(|row| row.seat_number == seat.db() && row.status != CANCELLED)?;
            Some(self.ticket(event, row.clone()))
        };
        let own: Option<Vec<Ticket>> = party.seats().iter().map(own).collect();
        own.map(Some).ok_or(Error::NotActive)
    }

    /// A ticket, for its buyer.
    pub async fn find(&self, buyer: &Buyer, id: TicketId) -> Result<Ticket, Error> {
        let row = self.own_row(buyer, id).await?;
        let event = self.event_of(&row).await?;
        Ok(self.ticket(&event, row))
    }

    /// A ticket with all tickets of its order and its event, for its buyer.
    pub async fn with_order(&self, buyer: &Buyer, id: TicketId) -> Result<Shown, Error> {
        let row = self.own_row(buyer, id).await?;
        let nobodys = row.user_id.is_none();
        let event = self.event_of(&row).await?;
        let place = Place::from_db(row.place).ok_or(Error::TicketNotFound)?;
        let order = self.by_place(&event, place).await?;
        let order = order.into_iter().map(|row| self.ticket(&event, row)).collect();
        Ok(Shown { ticket: self.ticket(&event, row), order, event, nobodys })
    }

    /// Gives the order of a ticket that was bought without signing in to the person who has its token now.
    pub async fn claim(&self, buyer: &Buyer, id: TicketId) -> Result<(), Error> {
        let person = buyer.person.ok_or(WHO_CLAIMS)?;
        let row = self.own_row(buyer, id).await?;
        if row.user_id.is_some() {
            return Ok(());
        }
        let limit = u32::try_from(self.event_of(&row).await?.tickets_per_person()).unwrap_or(u32::MAX);
        let most = i32::try_from(limit).ok().filter(|most| *most > 0);
        let order = OrderId(row.order_id);
        match self.stores.query(move |conn| db::tickets::claim(conn, order, person, most).boxed()).await? {
            Claimed::Done => Ok(()),
            Claimed::Gone => Err(Error::TicketNotFound),
            Claimed::TooMany { owned } => Err(Error::TicketLimit { limit, owned }),
        }
    }

    /// What a guest bought. The token alone does not show what a person bought.
    pub async fn of_guest(&self, event: &Event, guest: Guest) -> Result<Vec<Ticket>, Error> {
        let mut rows = self.by_place(event, guest.token.place()).await?;
        rows.retain(|row| row.user_id.is_none() || row.user_id == guest.person.map(|person| person.0));
        Ok(rows.into_iter().map(|row| self.ticket(event, row)).collect())
    }

    /// What these places bought without a person, newest first. Claims that are not genuine have nothing.
    pub async fn of_claims(&self, claims: &[Claim]) -> Result<Vec<Ticket>, Error> {
        let genuine = |claim: &Claim| self.catalogue.known(claim.event())?.verify(*claim);
        let places: Vec<(i32, i64)> =
            claims.iter().filter_map(genuine).map(|token| (token.event().db(), token.place().db())).collect();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let (events, numbers): (Vec<i32>, Vec<i64>) = places.iter().copied().unzip();
        let mut rows = self
            .stores
            .query(move |conn| async move { db::tickets::of_nobody(conn, &events, &numbers).await }.boxed())
            .await?;
        rows.retain(|row| places.contains(&(row.event_id, row.place)));
        let mut tickets = Vec::with_capacity(rows.len());
        for row in rows {
            let event = self.event_of(&row).await?;
            tickets.push(self.ticket(&event, row));
        }
        Ok(tickets)
    }

    /// The tickets of a person, newest first.
    pub async fn of_person(&self, person: PersonId, page: &Page) -> Result<PageOf<Ticket>, Error> {
        let (cursor, most) = (page.before_uuid()?, page.most());
        let rows = self.stores.query(move |conn| db::tickets::by_person(conn, person, cursor, most).boxed()).await?;
        let mut tickets = Vec::with_capacity(rows.len());
        for row in rows {
            let event = self.event_of(&row).await?;
            tickets.push(self.ticket(&event, row));
        }
        Ok(page.of(tickets, |ticket| ticket.ticket_id.to_string()))
    }

    /// Takes a ticket back, for its buyer: money back, seat on sale again. Doing it again changes nothing more.
    pub async fn cancel(&self, buyer: &Buyer, id: TicketId) -> Result<Ticket, Error> {
        let row = self.own_row(buyer, id).await?;
        let event = self.event_of(&row).await?;
        if row.status == CANCELLED {
            return Ok(self.ticket(&event, row));
        }
        let done = self.stores.query(move |conn| db::tickets::cancel(conn, id, false).boxed()).await?;
        let row = self.own_row(buyer, id).await?;
        if done {
            self.cancelled(&event, &row);
        } else if row.status != CANCELLED {
            return Err(Error::CancelTooLate { until: event.facts().cancel_until.unwrap_or_default() });
        }
        Ok(self.ticket(&event, row))
    }

    /// A ticket, for the house, with the person who bought it.
    pub async fn look_up(&self, id: TicketId) -> Result<Option<(Ticket, Option<PersonId>)>, Error> {
        match self.row(id).await? {
            Some(row) => self.told(row).await.map(Some),
            None => Ok(None),
        }
    }

    /// The ticket of a sold seat, for the house.
    pub async fn of_seat(&self, event: EventId, seat: SeatNumber) -> Result<Option<(Ticket, Option<PersonId>)>, Error> {
        match self.stores.query(move |conn| db::tickets::by_seat(conn, event, seat).boxed()).await? {
            Some(row) => self.told(row).await.map(Some),
            None => Ok(None),
        }
    }

    async fn told(&self, row: TicketRow) -> Result<(Ticket, Option<PersonId>), Error> {
        let person = row.user_id.map(PersonId);
        let event = self.event_of(&row).await?;
        Ok((self.ticket(&event, row), person))
    }

    /// Takes a ticket back for the house, whatever the deadline. `by` and `why` go into the audit log.
    pub async fn take_back(&self, by: &str, id: TicketId, why: &str) -> Result<Ticket, Error> {
        let row = self.row(id).await?.ok_or(Error::TicketNotFound)?;
        let event = self.event_of(&row).await?;
        let entry = Entry {
            who: by.to_owned(),
            action: "cancel ticket",
            event: Some(event.id),
            before: Some(
                json!({ "ticketId": id, "seatNumber": row.seat_number, "price": row.price, "status": "PAID" }),
            ),
            after: Some(json!({ "ticketId": id, "status": "CANCELLED", "why": why })),
        };
        let done = self
            .stores
            .query(move |conn| {
                async move {
                    conn.transaction(async |conn| {
                        let done = db::tickets::cancel(conn, id, true).await?;
                        if done {
                            db::audit_log::write(conn, &entry).await?;
                        }
                        Ok::<_, Error>(done)
                    })
                    .await
                }
                .boxed()
            })
            .await?;
        let row = self.row(id).await?.ok_or(Error::TicketNotFound)?;
        if done {
            self.cancelled(&event, &row);
        }
        Ok(self.ticket(&event, row))
    }

    /// After a ticket was taken back: its buyer sees it at once, and the seat is on sale again.
    fn cancelled(&self, event: &Event, row: &TicketRow) {
        event.tally.add(Count::TicketsCancelled, "", 1);
        if let Some(place) = Place::from_db(row.place) {
            event.own_writes.cancelled(place, SeatNumber(row.seat_number.cast_unsigned()));
        }
        if let Some(unsettled) = Unsettled::of(row) {
            self.settler.submit(vec![unsettled]);
        }
    }

    async fn row(&self, id: TicketId) -> Result<Option<TicketRow>, Error> {
        self.stores.query(move |conn| db::tickets::by_id(conn, id).boxed()).await
    }

    async fn by_place(&self, event: &Event, place: Place) -> Result<Vec<TicketRow>, Error> {
        let id = event.id;
        self.stores.query(move |conn| db::tickets::by_place(conn, id, place).boxed()).await
    }

    async fn own_row(&self, buyer: &Buyer, id: TicketId) -> Result<TicketRow, Error> {
        let row = self.row(id).await?.ok_or(Error::TicketNotFound)?;
        match self.owns(buyer, &row) {
            true => Ok(row),
            false if self.has_token(buyer, &row) => Err(OF_A_PERSON),
            false => Err(Error::TicketNotFound),
        }
    }

    /// Whether a ticket is the buyer's: what a person bought is for that person, and a token opens what nobody in particular
    /// bought.
    pub fn owns(&self, buyer: &Buyer, row: &TicketRow) -> bool {
        match row.user_id.map(PersonId) {
            Some(person) => buyer.person == Some(person) && buyer.event.is_none_or(|event| event.db() == row.event_id),
            None => self.has_token(buyer, row),
        }
    }

    /// Whether the buyer has the token it was bought with.
    fn has_token(&self, buyer: &Buyer, row: &TicketRow) -> bool {
        let same_place = |claim: Claim| {
            let token = self.catalogue.known(claim.event())?.verify(claim)?;
            Some(token.event().db() == row.event_id && token.place().db() == row.place)
        };
        let by_token = |claim: &Claim| claim.uuid() == row.queue_token || same_place(*claim).unwrap_or(false);
        buyer.event.is_none_or(|event| event.db() == row.event_id) && buyer.claims.iter().any(by_token)
    }

    pub async fn event_of(&self, row: &TicketRow) -> Result<Arc<Event>, Error> {
        let id = EventId::try_from(row.event_id).map_err(|_| Error::TicketNotFound)?;
        self.catalogue.get(id).await
    }

    pub fn ticket(&self, event: &Event, row: TicketRow) -> Ticket {
        let facts = event.facts();
        let seat_number = SeatNumber(row.seat_number.cast_unsigned());
        Ticket {
            ticket_id: TicketId(row.id),
            order_id: OrderId(row.order_id),
            event_id: event.id,
            title: facts.title.clone(),
            starts_at: facts.starts_at,
            seat_number,
            label: event.seat(seat_number).map(|seat| seat.label.clone()).unwrap_or_default(),
            price: row.price,
            currency: self.currency.clone(),
            status: if row.status == CANCELLED { TicketStatus::Cancelled } else { TicketStatus::Paid },
            sold_at: row.sold_at,
            cancelled_at: row.cancelled_at,
        }
    }
}

/// Whether a place without a pass may have bought: a waiting one has not.
fn may_have_bought(event: &Event, token: Token) -> bool {
    let snapshot = event.snapshot.load_full();
    !snapshot.is_some_and(|snapshot| matches!(snapshot.standing(token.place()), Standing::Waiting { .. }))
}
