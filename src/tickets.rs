//! Stage 4: selling, and taking back. The seats are held first, then one database statement sells them to whoever can pay;
//! its commit is the sale.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::{DatabaseErrorKind, Error as DbError};
use serde::Serialize;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::app::{App, Lane};
use crate::db;
use crate::db::tickets::{CANCELLED, NewOrder, Sold, TicketRow};
use crate::error::Error;
use crate::events::Event;
use crate::ids::{EventId, OrderId, Place, SeatNumber, TicketId, UserId};
use crate::metrics::Metrics;
use crate::page::{Page, PageOf};
use crate::redis::gather::{Batch, Gather, Limits};
use crate::redis::scripts::{Hold, SeatState};
use crate::seats::{self, Party};
use crate::snapshot::Standing;
use crate::sync::Due;
use crate::token::Token;

/// A hold that is paid for lasts at least this long, so that the sale is written in time.
const TIME_TO_PAY: Duration = Duration::from_secs(10);
/// Most purchases in one statement.
const TOGETHER: usize = 200;
/// A second statement works while the first one waits for its commit to reach the disk.
const AT_ONCE: usize = 2;
const WHO_CANCELS: &str = "A person bought this ticket: send their API key as Authorization: Bearer.";
const WHO_PAYS: &str = "A priced seat is bought by a person: send your API key as Authorization: Bearer.";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    pub ticket_id: TicketId,
    pub order_id: OrderId,
    pub event_id: EventId,
    pub title: String,
    pub starts_at: Option<DateTime<Utc>>,
    pub seat_number: SeatNumber,
    pub label: String,
    pub price: i64,
    pub currency: String,
    /// PAID or CANCELLED. That Redis was told is nothing a buyer needs to see.
    pub status: &'static str,
    pub sold_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<DateTime<Utc>>,
}

/// The tickets of one purchase.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    pub order_id: OrderId,
    pub status: &'static str,
    pub total: i64,
    pub currency: String,
    pub tickets: Vec<Ticket>,
}

impl Ticket {
    fn new(app: &App, event: &Event, row: TicketRow) -> Self {
        let facts = event.facts();
        Self {
            ticket_id: TicketId(row.id),
            order_id: OrderId(row.order_id),
            event_id: event.id,
            title: facts.title.clone(),
            starts_at: facts.starts_at,
            seat_number: SeatNumber(row.seat_number.cast_unsigned()),
            label: row.label,
            price: row.price,
            currency: app.config.currency.clone(),
            status: if row.status == CANCELLED { "CANCELLED" } else { "PAID" },
            sold_at: row.sold_at,
            cancelled_at: row.cancelled_at,
        }
    }
}

impl Order {
    /// `None` of no tickets.
    pub fn of(tickets: Vec<Ticket>) -> Option<Self> {
        let first = tickets.first()?;
        Some(Self {
            order_id: first.order_id,
            status: "PAID",
            total: tickets.iter().map(|ticket| ticket.price).sum(),
            currency: first.currency.clone(),
            tickets,
        })
    }
}

/// Something to be sold, and until when that may be tried.
#[derive(Clone)]
pub struct Sale {
    order: NewOrder,
    deadline: Instant,
}

/// Who asks about a ticket: the place that bought it, or the person.
pub struct Buyer {
    pub tokens: Vec<Token>,
    pub user: Option<UserId>,
    /// The event named in the path, if one is.
    pub event: Option<EventId>,
}

impl Buyer {
    fn owns(&self, row: &TicketRow) -> bool {
        let by_token = |token: Token| token.event().db() == row.event_id && token.place().db() == row.place;
        let mine =
            self.tokens.iter().copied().any(by_token) || self.user.is_some_and(|user| row.user_id == Some(user.0));
        mine && self.event.is_none_or(|event| event.db() == row.event_id)
    }
}

/// Sells seats to a visitor inside, all or none, holding first what is not held yet. The same request again gives the
/// same tickets, also when hold and pass are gone.
pub async fn buy(
    lane: &Lane,
    event: &Arc<Event>,
    token: Token,
    user: Option<UserId>,
    party: &Party,
) -> Result<Vec<Ticket>, Error> {
    event.asked();
    if event.total(party.seats()).ok_or(Error::InvalidSeat)? > 0 && user.is_none() {
        return Err(Error::Unauthorized(WHO_PAYS));
    }
    let asked = Instant::now();
    let at_least = u64::try_from(TIME_TO_PAY.as_millis()).unwrap_or(u64::MAX);
    let hold =
        lane.app.scripts.hold(&mut lane.call()?.link, &event.keys, token.place(), at_least, party.seats()).await?;
    match hold {
        Hold::Held { left_ms } => {
            let order = NewOrder {
                id: OrderId(Uuid::now_v7()),
                event: event.id,
                place: token.place(),
                token: token.uuid(),
                user,
                seats: party.seats().iter().map(|seat| (TicketId(Uuid::now_v7()), *seat)).collect(),
            };
            let deadline = asked + Duration::from_millis(left_ms);
            sell(lane, event, token, party, Sale { order, deadline }).await
        }
        Hold::Yours => owned(&lane.app, event, token, party).await?.ok_or_else(|| sold(party.seats())),
        Hold::NoPass if bought_before(event, token) => {
            owned(&lane.app, event, token, party).await?.ok_or(Error::NotActive)
        }
        refused => Err(seats::refusal(refused, party.seats())),
    }
}

fn sold(seats: &[SeatNumber]) -> Error {
    Error::SeatsTaken(seats.iter().map(|seat| (*seat, SeatState::Sold)).collect())
}

async fn sell(lane: &Lane, event: &Arc<Event>, token: Token, party: &Party, sale: Sale) -> Result<Vec<Ticket>, Error> {
    let (app, facts) = (&lane.app, event.facts());
    let order_id = sale.order.id;
    match app.seller.ask(sale).await {
        Ok(Sold::Sold(rows)) => {
            let ticket = |row: db::tickets::SoldRow| Ticket {
                ticket_id: row.id,
                order_id,
                event_id: event.id,
                title: facts.title.clone(),
                starts_at: facts.starts_at,
                seat_number: row.seat,
                label: event.seat(row.seat).map(|seat| seat.label.clone()).unwrap_or_default(),
                price: row.price,
                currency: app.config.currency.clone(),
                status: "PAID",
                sold_at: row.sold_at,
                cancelled_at: None,
            };
            Ok(rows.into_iter().map(ticket).collect())
        }
        // The hold stays: there is time to charge and pay again.
        Ok(Sold::TooPoor { balance, total }) => Err(Error::InsufficientBalance { balance, total }),
        Ok(Sold::Refused) => match owned(app, event, token, party).await? {
            Some(tickets) => Ok(tickets),
            None => Err(outrun(lane, event, token, party).await?),
        },
        Err(error) => {
            if was_refused(&error) {
                give_back(lane, event, token, party.seats()).await;
            }
            Err(error)
        }
    }
}

/// Someone else's sale was written first: says which seats are gone, and lets go of the others.
async fn outrun(lane: &Lane, event: &Event, token: Token, party: &Party) -> Result<Error, Error> {
    let (pool, id, seats) = (lane.app.db.clone(), event.id, party.seats().to_vec());
    let gone = lane.app.query(async move { db::tickets::sold_among(&mut pool.get().await?, id, &seats).await }).await?;
    let rest: Vec<SeatNumber> = party.seats().iter().filter(|seat| !gone.contains(seat)).copied().collect();
    if !rest.is_empty() {
        give_back(lane, event, token, &rest).await;
    }
    Ok(sold(if gone.is_empty() { party.seats() } else { &gone }))
}

/// Nothing was sold, so the hold can go. If that fails too, its deadline frees the seats.
async fn give_back(lane: &Lane, event: &Event, token: Token, seats: &[SeatNumber]) {
    if let Err(error) = seats::release(lane, event, token, seats).await {
        tracing::debug!(%error, "a hold is left to run out");
    }
}

/// Whether the database answered, with a no. Without an answer nobody knows, and a repeat finds out.
fn was_refused(error: &Error) -> bool {
    match error {
        Error::Database(_) => true,
        Error::Shared(error) => was_refused(error),
        _ => false,
    }
}

/// Whether a place without a pass may have bought: a waiting one has not.
fn bought_before(event: &Event, token: Token) -> bool {
    let snapshot = event.snapshot.load_full();
    !snapshot.is_some_and(|snapshot| matches!(snapshot.standing(token.place()), Standing::Waiting { .. }))
}

/// The tickets this place has for these seats. `NotActive` if its one order was for other seats.
async fn owned(app: &App, event: &Event, token: Token, party: &Party) -> Result<Option<Vec<Ticket>>, Error> {
    let rows = by_place(app, event, token.place()).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let own = |seat: &SeatNumber| {
        let row = rows.iter().find(|row| row.seat_number == seat.db() && row.status != CANCELLED)?;
        Some(Ticket::new(app, event, row.clone()))
    };
    let own: Option<Vec<Ticket>> = party.seats().iter().map(own).collect();
    own.map(Some).ok_or(Error::NotActive)
}

/// A ticket, for its buyer.
pub async fn find(app: &App, buyer: &Buyer, id: TicketId) -> Result<Ticket, Error> {
    let row = own_row(app, buyer, id).await?;
    let event = event_of(app, &row).await?;
    Ok(Ticket::new(app, &event, row))
}

/// A ticket with all tickets of its order, for its buyer.
pub async fn with_order(app: &App, buyer: &Buyer, id: TicketId) -> Result<(Ticket, Vec<Ticket>), Error> {
    let row = own_row(app, buyer, id).await?;
    let event = event_of(app, &row).await?;
    let place = Place::from_db(row.place).ok_or(Error::TicketNotFound)?;
    let order = by_place(app, &event, place).await?;
    let order = order.into_iter().map(|row| Ticket::new(app, &event, row)).collect();
    Ok((Ticket::new(app, &event, row), order))
}

/// What a place bought.
pub async fn of_place(app: &App, event: &Event, token: Token) -> Result<Vec<Ticket>, Error> {
    let rows = by_place(app, event, token.place()).await?;
    Ok(rows.into_iter().map(|row| Ticket::new(app, event, row)).collect())
}

async fn by_place(app: &App, event: &Event, place: Place) -> Result<Vec<TicketRow>, Error> {
    let (pool, id) = (app.db.clone(), event.id);
    app.query(async move { db::tickets::by_place(&mut pool.get().await?, id, place).await }).await
}

async fn own_row(app: &App, buyer: &Buyer, id: TicketId) -> Result<TicketRow, Error> {
    let pool = app.db.clone();
    let row = app.query(async move { db::tickets::by_id(&mut pool.get().await?, id).await }).await?;
    row.filter(|row| buyer.owns(row)).ok_or(Error::TicketNotFound)
}

async fn event_of(app: &App, row: &TicketRow) -> Result<Arc<Event>, Error> {
    let id = EventId::try_from(row.event_id).map_err(|_| Error::TicketNotFound)?;
    app.events.get(&app.db, id).await
}

/// Takes a ticket back, for its buyer: money back, seat on sale again. Doing it again changes nothing more.
pub async fn cancel(app: &App, buyer: &Buyer, id: TicketId) -> Result<Ticket, Error> {
    let row = own_row(app, buyer, id).await?;
    let event = event_of(app, &row).await?;
    if row.user_id.is_some() && buyer.user.map(|user| user.0) != row.user_id {
        return Err(Error::Unauthorized(WHO_CANCELS));
    }
    if row.status == CANCELLED {
        return Ok(Ticket::new(app, &event, row));
    }
    let pool = app.db.clone();
    let done = app.query(async move { db::tickets::cancel(&mut pool.get().await?, id).await }).await?;
    let row = own_row(app, buyer, id).await?;
    if done {
        app.metrics.tickets_cancelled.with_label_values(&[&event.id.to_string()]).inc();
        if let Some(due) = Due::cancelled(&row) {
            let _ = app.unsettled.send(vec![due]);
        }
    } else if row.status != CANCELLED {
        return Err(Error::CancelTooLate { until: event.facts().cancel_until.unwrap_or_default() });
    }
    Ok(Ticket::new(app, &event, row))
}

/// The tickets of a person, newest first.
pub async fn of_user(app: &App, user: UserId, page: &Page) -> Result<PageOf<Ticket>, Error> {
    let (pool, cursor, most) = (app.db.clone(), page.before_uuid()?, page.most());
    let rows = app.query(async move { db::tickets::by_user(&mut pool.get().await?, user, cursor, most).await }).await?;
    let mut tickets = Vec::with_capacity(rows.len());
    for row in rows {
        let event = event_of(app, &row).await?;
        tickets.push(Ticket::new(app, &event, row));
    }
    Ok(page.of(tickets, |ticket| ticket.ticket_id.to_string()))
}

/// The loop that sells: purchases that arrive together share one statement and one commit.
pub fn seller(
    waiting: usize,
    pool: db::Pool,
    metrics: Arc<Metrics>,
    unsettled: mpsc::UnboundedSender<Vec<Due>>,
) -> (Gather<Sale, Sold>, impl Future<Output = ()>) {
    let gathered = metrics.gathered.with_label_values(&["sell"]);
    let limits = Limits { waiting, together: TOGETHER, at_once: AT_ONCE };
    Gather::new("buying", limits, move |mut batch: Batch<Sale, Sold>| {
        gathered.observe(batch.len() as f64);
        let (pool, metrics, unsettled) = (pool.clone(), metrics.clone(), unsettled.clone());
        async move {
            while !batch.is_empty() {
                let (together, later) = without_conflicts(batch);
                sell_together(&pool, &metrics, &unsettled, together).await;
                batch = later;
            }
        }
    })
}

/// Splits off whoever wants a seat of, or is the same visitor or person as, someone earlier in the batch: one statement
/// could not tell them apart.
fn without_conflicts(batch: Batch<Sale, Sold>) -> (Batch<Sale, Sold>, Batch<Sale, Sold>) {
    let (mut seats, mut places, mut people) = (HashSet::new(), HashSet::new(), HashSet::new());
    batch.into_iter().partition(|(sale, _)| {
        let order = &sale.order;
        let wanted = || order.seats.iter().map(|(_, seat)| (order.event, *seat));
        let place = (order.event, order.place);
        let clash = wanted().any(|seat| seats.contains(&seat))
            || places.contains(&place)
            || order.user.is_some_and(|user| people.contains(&user));
        if !clash {
            seats.extend(wanted());
            places.insert(place);
            people.extend(order.user);
        }
        !clash
    })
}

async fn sell_together(
    pool: &db::Pool,
    metrics: &Metrics,
    unsettled: &mpsc::UnboundedSender<Vec<Due>>,
    batch: Batch<Sale, Sold>,
) {
    let now = Instant::now();
    // No insert is sent after the deadline of its hold.
    let (batch, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(sale, _)| sale.deadline > now);
    late.into_iter().for_each(|(_, answer)| drop(answer.send(Err(Error::NotActive))));
    let asked: Vec<NewOrder> = batch.iter().map(|(sale, _)| sale.order.clone()).collect();
    for ((sale, answer), outcome) in batch.into_iter().zip(insert(pool, &asked).await) {
        if let Ok(Sold::Sold(rows)) = &outcome {
            let event = sale.order.event.to_string();
            metrics.tickets_sold.with_label_values(&[&event]).inc_by(rows.len() as u64);
            // The channel lives as long as the server; what it misses the sync sweep finds.
            let _ = unsettled.send(rows.iter().map(|row| Due::sold(&sale.order, row)).collect());
        }
        let _ = answer.send(outcome);
    }
}

/// Sells what can be sold, and says for each order how it went. If someone else sold at the same moment, each is tried
/// alone.
async fn insert(pool: &db::Pool, asked: &[NewOrder]) -> Vec<Result<Sold, Error>> {
    let for_all = |error: Error| {
        let error = Arc::new(error);
        asked.iter().map(|_| Err(Error::Shared(error.clone()))).collect()
    };
    if asked.is_empty() {
        return Vec::new();
    }
    let mut conn = match pool.get().await {
        Ok(conn) => conn,
        Err(error) => return for_all(error.into()),
    };
    let conflict = |error: &DbError| {
        matches!(
            error,
            DbError::DatabaseError(DatabaseErrorKind::UniqueViolation | DatabaseErrorKind::SerializationFailure, _)
        )
    };
    match db::tickets::sell(&mut conn, asked).await {
        Err(error) if conflict(&error) => {
            let mut sold = Vec::with_capacity(asked.len());
            for one in asked {
                match db::tickets::sell(&mut conn, std::slice::from_ref(one)).await {
                    Ok(outcome) => sold.extend(outcome.into_iter().map(Ok)),
                    Err(error) if conflict(&error) => sold.push(Ok(Sold::Refused)),
                    Err(error) => sold.push(Err(fault(error))),
                }
            }
            sold
        }
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) => for_all(fault(error)),
    }
}

/// Tells a no of the database from anything else, after which nobody knows whether the commit happened: a connection
/// can go away after it as well as before.
fn fault(error: DbError) -> Error {
    use DatabaseErrorKind as Kind;
    let refused = matches!(
        error,
        DbError::DatabaseError(
            Kind::CheckViolation | Kind::NotNullViolation | Kind::ForeignKeyViolation | Kind::ReadOnlyTransaction,
            _
        )
    );
    if refused { Error::Database(error) } else { Error::OutcomeUnknown(error.to_string()) }
}
