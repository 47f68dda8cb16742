//! Stage 4: selling. The seat is held first, then one database statement sells it; its commit is the sale.

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
use crate::db::tickets::{CANCELLED, NewTicket, SoldRow, TicketRow};
use crate::error::Error;
use crate::events::Event;
use crate::ids::{EventId, SeatNumber, TicketId};
use crate::metrics::Metrics;
use crate::redis::gather::{Batch, Gather, Limits};
use crate::redis::scripts::Hold;
use crate::seats;
use crate::snapshot::Standing;
use crate::sync::Due;
use crate::token::Token;

/// A hold that is paid for lasts at least this long, so that the sale is written in time.
const TIME_TO_PAY: Duration = Duration::from_secs(10);
/// Per server. A second statement works while the first one waits for its commit to reach the disk.
const SELLING: Limits = Limits { waiting: 10_000, together: 200, at_once: 2 };

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    ticket_id: TicketId,
    event_id: i32,
    seat_number: i32,
    label: String,
    price: i64,
    /// PAID or CANCELLED. That Redis was told is nothing a buyer needs to see.
    status: &'static str,
    sold_at: DateTime<Utc>,
}

impl From<TicketRow> for Ticket {
    fn from(row: TicketRow) -> Self {
        Self {
            ticket_id: TicketId(row.id),
            event_id: row.event_id,
            seat_number: row.seat_number,
            label: row.label,
            price: row.price,
            status: if row.status == CANCELLED { "CANCELLED" } else { "PAID" },
            sold_at: row.sold_at,
        }
    }
}

/// Something to be sold, and until when that may be tried.
#[derive(Clone)]
pub struct Sale {
    ticket: NewTicket,
    deadline: Instant,
}

/// How that went. `Refused`: the seat is sold, or the place has its order.
pub enum Sold {
    Sold(SoldRow),
    Refused,
}

/// Sells a seat to a visitor inside, holding it first if it is not held yet. The same request again gives the same
/// ticket, also when hold and pass are gone.
pub async fn buy(lane: &Lane, event: &Arc<Event>, token: Token, seat: SeatNumber) -> Result<Ticket, Error> {
    event.asked();
    let asked = Instant::now();
    let at_least = u64::try_from(TIME_TO_PAY.as_millis()).unwrap_or(u64::MAX);
    let hold = lane.app.scripts.hold(&mut lane.link(), &event.keys, token.place(), at_least, &[seat]).await?;
    match hold {
        Hold::Held { left_ms } => {
            let ticket = NewTicket {
                id: TicketId(Uuid::now_v7()),
                event: event.id,
                place: token.place(),
                seat,
                token: token.uuid(),
            };
            let deadline = asked + Duration::from_millis(left_ms);
            sell(lane, event, token, Sale { ticket, deadline }).await
        }
        Hold::Yours => owned(&lane.app, event.id, token, seat).await?.ok_or(Error::SeatSold),
        Hold::NoPass if bought_before(event, token) => {
            owned(&lane.app, event.id, token, seat).await?.ok_or(Error::NotActive)
        }
        refused => Err(seats::refusal(refused)),
    }
}

async fn sell(lane: &Lane, event: &Event, token: Token, sale: Sale) -> Result<Ticket, Error> {
    let seat = sale.ticket.seat;
    match lane.app.seller.ask(sale).await {
        Ok(Sold::Sold(row)) => Ok(Ticket {
            ticket_id: TicketId(row.id),
            event_id: event.id.db(),
            seat_number: seat.db(),
            label: event.seat(seat).map(|seat| seat.label.clone()).unwrap_or_default(),
            price: row.price,
            status: "PAID",
            sold_at: row.sold_at,
        }),
        Ok(Sold::Refused) => match owned(&lane.app, event.id, token, seat).await? {
            Some(ticket) => Ok(ticket),
            None => {
                give_back(lane, event, token, seat).await;
                Err(Error::SeatSold)
            }
        },
        Err(error) => {
            if was_refused(&error) {
                give_back(lane, event, token, seat).await;
            }
            Err(error)
        }
    }
}

/// The database said no: nothing was sold, so the hold can go. If that fails too, its deadline frees the seat.
async fn give_back(lane: &Lane, event: &Event, token: Token, seat: SeatNumber) {
    if let Err(error) = seats::release(lane, event, token, seat).await {
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

/// The ticket this place has for this seat. `NotActive` if its one order was for other seats.
async fn owned(app: &App, event: EventId, token: Token, seat: SeatNumber) -> Result<Option<Ticket>, Error> {
    let pool = app.db.clone();
    let rows =
        app.run(async move { db::tickets::by_place(&mut pool.get().await?, event, token.place()).await }).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let own = rows.into_iter().find(|row| row.seat_number == seat.db() && row.status != CANCELLED);
    own.map(|row| Some(row.into())).ok_or(Error::NotActive)
}

/// A ticket, for its buyer.
pub async fn find(app: &App, token: Token, id: TicketId) -> Result<Ticket, Error> {
    let pool = app.db.clone();
    let row = app.run(async move { db::tickets::by_id(&mut pool.get().await?, id).await }).await?;
    row.filter(|row| row.event_id == token.event().db() && row.place == token.place().db())
        .map(Ticket::from)
        .ok_or(Error::TicketNotFound)
}

/// The loop that sells: purchases that arrive together share one statement and one commit.
pub fn seller(
    pool: db::Pool,
    metrics: Arc<Metrics>,
    unsettled: mpsc::UnboundedSender<Due>,
) -> (Gather<Sale, Sold>, impl Future<Output = ()>) {
    let gathered = metrics.gathered.with_label_values(&["sell"]);
    Gather::new("buying", SELLING, move |mut batch: Batch<Sale, Sold>| {
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

/// Splits off whoever wants the same seat as, or is the same visitor as, someone earlier in the batch: one statement
/// could not tell them apart.
fn without_conflicts(batch: Batch<Sale, Sold>) -> (Batch<Sale, Sold>, Batch<Sale, Sold>) {
    let (mut seats, mut places) = (HashSet::new(), HashSet::new());
    batch.into_iter().partition(|(sale, _)| {
        let ticket = &sale.ticket;
        let (seat, place) = (seats.insert((ticket.event, ticket.seat)), places.insert((ticket.event, ticket.place)));
        seat && place
    })
}

async fn sell_together(
    pool: &db::Pool,
    metrics: &Metrics,
    unsettled: &mpsc::UnboundedSender<Due>,
    batch: Batch<Sale, Sold>,
) {
    let now = Instant::now();
    // No insert is sent after the deadline of its hold.
    let (batch, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(sale, _)| sale.deadline > now);
    late.into_iter().for_each(|(_, answer)| drop(answer.send(Err(Error::NotActive))));
    let asked: Vec<NewTicket> = batch.iter().map(|(sale, _)| sale.ticket.clone()).collect();
    match insert(pool, &asked).await {
        Ok(sold) => {
            for ((sale, answer), row) in batch.into_iter().zip(sold) {
                if let Some(row) = &row {
                    let event = sale.ticket.event.to_string();
                    metrics.tickets_sold.with_label_values(&[&event]).inc();
                    // The channel lives as long as the server; what it misses the sync sweep finds.
                    let _ = unsettled.send(Due::sold(&sale.ticket, row));
                }
                let _ = answer.send(Ok(row.map_or(Sold::Refused, Sold::Sold)));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for (_, answer) in batch {
                let _ = answer.send(Err(Error::Shared(error.clone())));
            }
        }
    }
}

/// Sells what can be sold; `None` for who was refused. If someone else sold at the same moment, each is tried alone.
async fn insert(pool: &db::Pool, asked: &[NewTicket]) -> Result<Vec<Option<SoldRow>>, Error> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let mut conn = pool.get().await?;
    let conflict = |error: &DbError| {
        matches!(
            error,
            DbError::DatabaseError(DatabaseErrorKind::UniqueViolation | DatabaseErrorKind::SerializationFailure, _)
        )
    };
    match db::tickets::sell(&mut conn, asked).await {
        Ok(rows) => Ok(in_order(asked, rows)),
        Err(error) if conflict(&error) => {
            let mut sold = Vec::with_capacity(asked.len());
            for one in asked {
                match db::tickets::sell(&mut conn, std::slice::from_ref(one)).await {
                    Ok(rows) => sold.extend(in_order(std::slice::from_ref(one), rows)),
                    Err(error) if conflict(&error) => sold.push(None),
                    Err(error) => return Err(fault(error)),
                }
            }
            Ok(sold)
        }
        Err(error) => Err(fault(error)),
    }
}

fn in_order(asked: &[NewTicket], rows: Vec<SoldRow>) -> Vec<Option<SoldRow>> {
    asked.iter().map(|ticket| rows.iter().find(|row| row.id == ticket.id.0).cloned()).collect()
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
