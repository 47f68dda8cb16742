//! Orders and tickets: what was sold.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use uuid::Uuid;

use crate::db::Conn;
use crate::db::schema::{orders, seats, tickets};
use crate::error::Error;
use crate::ids::{EventId, OrderId, Place, SeatNumber, TicketId, UserId};

/// A purchase to be written: all of its seats, or none.
#[derive(Debug, Clone)]
pub struct NewOrder {
    pub id: OrderId,
    pub event: EventId,
    pub place: Place,
    pub token: Uuid,
    /// Who pays, which free seats do not need.
    pub user: Option<UserId>,
    pub seats: Vec<(TicketId, SeatNumber)>,
}

#[derive(Debug, Clone, Queryable)]
pub struct TicketRow {
    pub id: Uuid,
    pub order_id: Uuid,
    pub user_id: Option<Uuid>,
    pub event_id: i32,
    pub place: i64,
    pub seat_number: i32,
    pub label: String,
    pub price: i64,
    pub seat_version: i64,
    pub status: String,
    pub sold_at: DateTime<Utc>,
    pub cancelled_at: Option<DateTime<Utc>>,
}

/// A ticket that was just committed.
#[derive(Debug, Clone)]
pub struct SoldRow {
    pub id: TicketId,
    pub seat: SeatNumber,
    pub seat_version: i64,
    pub price: i64,
    pub sold_at: DateTime<Utc>,
}

/// How an order went.
#[derive(Debug, Clone)]
pub enum Sold {
    Sold(Vec<SoldRow>),
    /// A seat is sold, or the place has its order.
    Refused,
    /// Nothing else was in the way: so much is the balance, so much is asked.
    TooPoor {
        balance: i64,
        total: i64,
    },
}

/// A sale or cancel that Redis may not know of.
#[derive(Debug, Clone, Queryable)]
pub struct UnsettledRow {
    pub id: Uuid,
    pub order_id: Uuid,
    pub event_id: i32,
    pub seat_number: i32,
    pub seat_version: i64,
    pub status: String,
    pub place: i64,
}

pub const CANCELLED: &str = "CANCELLED";

/// Sells to many at once, in one statement and so one commit: locks the seats that are unsold (their version is even),
/// adds up parties of which every seat is, locks the people who pay, and for who can pay writes order, payment, ledger,
/// seats and tickets. The answers are in the order of `asked`. No seat, place or person may be asked for twice in one
/// call.
pub async fn sell(conn: &mut Conn, asked: &[NewOrder]) -> QueryResult<Vec<Sold>> {
    let seats = || asked.iter().flat_map(|order| order.seats.iter().map(move |seat| (order, seat)));
    let rows: Vec<AnswerRow> = Sell {
        tickets: seats().map(|(_, (ticket, _))| ticket.0).collect(),
        orders: seats().map(|(order, _)| order.id.0).collect(),
        events: seats().map(|(order, _)| order.event.db()).collect(),
        places: seats().map(|(order, _)| order.place.db()).collect(),
        seats: seats().map(|(_, (_, seat))| seat.db()).collect(),
        tokens: seats().map(|(order, _)| order.token).collect(),
        users: seats().map(|(order, _)| order.user.map(|user| user.0)).collect(),
        parties: seats().map(|(order, _)| i64::try_from(order.seats.len()).unwrap_or(i64::MAX)).collect(),
    }
    .load(conn)
    .await?;
    let rows: HashMap<Uuid, AnswerRow> = rows.into_iter().map(|row| (row.0, row)).collect();
    Ok(asked.iter().map(|order| how_it_went(order, &rows)).collect())
}

/// Ticket, seat version, price, time of sale, total and balance: all but the first null where they do not apply.
type AnswerRow = (Uuid, Option<i64>, Option<i64>, Option<DateTime<Utc>>, Option<i64>, Option<i64>);

fn how_it_went(order: &NewOrder, rows: &HashMap<Uuid, AnswerRow>) -> Sold {
    let sold = |(id, seat): &(TicketId, SeatNumber)| match rows.get(&id.0) {
        Some((_, Some(seat_version), Some(price), Some(sold_at), ..)) => {
            Some(SoldRow { id: *id, seat: *seat, seat_version: *seat_version, price: *price, sold_at: *sold_at })
        }
        _ => None,
    };
    if let Some(tickets) = order.seats.iter().map(sold).collect() {
        return Sold::Sold(tickets);
    }
    match order.seats.as_slice().first().and_then(|(id, _)| rows.get(&id.0)) {
        Some((.., Some(total), Some(balance))) if balance < total => Sold::TooPoor { balance: *balance, total: *total },
        _ => Sold::Refused,
    }
}

/// A statement of its own kind, because only then is it prepared once per connection. One entry per seat in each list.
#[derive(QueryId)]
struct Sell {
    tickets: Vec<Uuid>,
    orders: Vec<Uuid>,
    events: Vec<i32>,
    places: Vec<i64>,
    seats: Vec<i32>,
    tokens: Vec<Uuid>,
    users: Vec<Option<Uuid>>,
    parties: Vec<i64>,
}

impl Query for Sell {
    type SqlType =
        (SqlUuid, Nullable<BigInt>, Nullable<BigInt>, Nullable<Timestamptz>, Nullable<BigInt>, Nullable<BigInt>);
}

impl QueryFragment<Pg> for Sell {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("WITH asked AS (SELECT * FROM unnest(");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.tickets)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.orders)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Integer>, _>(&self.events)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.places)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Integer>, _>(&self.seats)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.tokens)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<SqlUuid>>, _>(&self.users)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.parties)?;
        out.push_sql(
            ") AS asked (ticket_id, order_id, event_id, place, seat_number, token, user_id, seats)),
             locked AS (
               SELECT s.event_id, s.number, s.price, asked.ticket_id, asked.order_id, asked.place, asked.user_id,
                      asked.seats
               FROM seats s JOIN asked ON s.event_id = asked.event_id AND s.number = asked.seat_number
               WHERE s.version % 2 = 0
               ORDER BY s.event_id, s.number FOR UPDATE OF s
             ),
             party AS (
               SELECT order_id, event_id, place, user_id, sum(price)::bigint AS total
               FROM locked GROUP BY order_id, event_id, place, user_id HAVING count(*) = max(seats)
             ),
             payer AS (
               SELECT u.id, u.balance FROM users u
               WHERE u.id = ANY (ARRAY(SELECT user_id FROM party WHERE total > 0))
               ORDER BY u.id FOR NO KEY UPDATE OF u
             ),
             bill AS (
               SELECT party.*, payer.balance FROM party LEFT JOIN payer ON payer.id = party.user_id
             ),
             ordered AS (
               INSERT INTO orders (id, event_id, place, user_id)
               SELECT order_id, event_id, place, user_id FROM bill WHERE total = 0 OR balance >= total
               ORDER BY event_id, place
               ON CONFLICT (event_id, place) DO NOTHING
               RETURNING id
             ),
             debited AS (
               UPDATE users u SET balance = u.balance - bill.total
               FROM bill JOIN ordered ON ordered.id = bill.order_id
               WHERE u.id = bill.user_id AND bill.total > 0
               RETURNING u.id, u.balance, bill.order_id, bill.total
             ),
             paid AS (
               INSERT INTO payments (order_id, user_id, amount) SELECT order_id, id, total FROM debited
             ),
             booked AS (
               INSERT INTO ledger (user_id, kind, amount, balance, order_id)
               SELECT id, 'PAYMENT', -total, balance, order_id FROM debited
             ),
             versioned AS (
               UPDATE seats s SET version = s.version + 1
               FROM locked JOIN ordered ON ordered.id = locked.order_id
               WHERE s.event_id = locked.event_id AND s.number = locked.number
               RETURNING locked.ticket_id, s.version, s.price
             ),
             sold AS (
               INSERT INTO tickets (id, order_id, event_id, seat_number, seat_version, price, queue_token)
               SELECT asked.ticket_id, asked.order_id, asked.event_id, asked.seat_number,
                      versioned.version, versioned.price, asked.token
               FROM asked JOIN versioned ON versioned.ticket_id = asked.ticket_id
               RETURNING id, seat_version, price, sold_at
             )
             SELECT asked.ticket_id, sold.seat_version, sold.price, sold.sold_at, bill.total, bill.balance
             FROM asked LEFT JOIN sold ON sold.id = asked.ticket_id LEFT JOIN bill ON bill.order_id = asked.order_id",
        );
        Ok(())
    }
}

/// Takes a ticket back if it is not yet and the event's deadline is not over: the seat is on sale again, and what was
/// paid for it returns to who paid. Locks the seat before the person, as a sale does. Whether it was done; if not, the ticket's row says why.
pub async fn cancel(conn: &mut Conn, id: TicketId) -> Result<bool, Error> {
    let cancelled = diesel::sql_query(
        "WITH cancelled AS (
           UPDATE tickets t SET status = 'CANCELLED', seat_version = t.seat_version + 1, cancelled_at = now(),
                                settled_at = NULL
           FROM events e
           WHERE t.id = $1 AND t.status <> 'CANCELLED' AND e.id = t.event_id
             AND now() < coalesce(e.cancel_until, e.starts_at, 'infinity')
           RETURNING t.id, t.order_id, t.event_id, t.seat_number, t.seat_version, t.price
         ),
         freed AS (
           UPDATE seats s SET version = cancelled.seat_version FROM cancelled
           WHERE s.event_id = cancelled.event_id AND s.number = cancelled.seat_number
           RETURNING cancelled.id, cancelled.order_id, cancelled.price
         ),
         refunded AS (
           UPDATE payments p SET refunded = p.refunded + freed.price FROM freed
           WHERE p.order_id = freed.order_id AND freed.price > 0
           RETURNING p.user_id, freed.price, freed.order_id, freed.id
         ),
         credited AS (
           UPDATE users u SET balance = u.balance + refunded.price FROM refunded WHERE u.id = refunded.user_id
           RETURNING u.id, u.balance, refunded.price, refunded.order_id, refunded.id AS ticket_id
         ),
         booked AS (
           INSERT INTO ledger (user_id, kind, amount, balance, order_id, ticket_id)
           SELECT id, 'REFUND', price, balance, order_id, ticket_id FROM credited
         )
         SELECT id FROM cancelled",
    )
    .bind::<SqlUuid, _>(id.0)
    .execute(conn)
    .await?;
    Ok(cancelled == 1)
}

#[diesel::dsl::auto_type]
fn with_order_and_seat() -> _ {
    let on_seat = seats::event_id.eq(tickets::event_id).and(seats::number.eq(tickets::seat_number));
    tickets::table.inner_join(orders::table).inner_join(seats::table.on(on_seat))
}

/// The fields of [`TicketRow`].
#[diesel::dsl::auto_type]
fn columns() -> _ {
    (
        tickets::id,
        tickets::order_id,
        orders::user_id,
        tickets::event_id,
        orders::place,
        tickets::seat_number,
        seats::label,
        tickets::price,
        tickets::seat_version,
        tickets::status,
        tickets::sold_at,
        tickets::cancelled_at,
    )
}

pub async fn by_id(conn: &mut Conn, id: TicketId) -> Result<Option<TicketRow>, Error> {
    let found = with_order_and_seat().filter(tickets::id.eq(id.0)).select(columns()).first(conn).await;
    Ok(found.optional()?)
}

/// The tickets of a place's order, if it has one.
pub async fn by_place(conn: &mut Conn, event: EventId, place: Place) -> Result<Vec<TicketRow>, Error> {
    Ok(with_order_and_seat()
        .filter(orders::event_id.eq(event.db()).and(orders::place.eq(place.db())))
        .select(columns())
        .order(tickets::seat_number)
        .load(conn)
        .await?)
}

/// The tickets of a person, newest first, from before `cursor` on.
pub async fn by_user(conn: &mut Conn, user: UserId, cursor: Uuid, most: i64) -> Result<Vec<TicketRow>, Error> {
    Ok(with_order_and_seat()
        .filter(orders::user_id.eq(user.0).and(tickets::id.lt(cursor)))
        .select(columns())
        .order(tickets::id.desc())
        .limit(most)
        .load(conn)
        .await?)
}

/// Which of these seats of an event are sold.
pub async fn sold_among(conn: &mut Conn, event: EventId, asked: &[SeatNumber]) -> Result<Vec<SeatNumber>, Error> {
    let numbers: Vec<i32> = asked.iter().map(|seat| seat.db()).collect();
    let sold: Vec<i32> = tickets::table
        .filter(tickets::event_id.eq(event.db()).and(tickets::seat_number.eq_any(numbers)))
        .filter(tickets::status.ne(CANCELLED))
        .select(tickets::seat_number)
        .order(tickets::seat_number)
        .load(conn)
        .await?;
    Ok(sold.into_iter().filter_map(|seat| u32::try_from(seat).ok().map(SeatNumber)).collect())
}

/// Oldest first, so that nothing waits forever, and seats of an order together.
pub async fn unsettled(conn: &mut Conn, but_of: &[EventId], most: i64) -> Result<Vec<UnsettledRow>, Error> {
    let but_of: Vec<i32> = but_of.iter().map(|event| event.db()).collect();
    Ok(tickets::table
        .inner_join(orders::table)
        .filter(tickets::settled_at.is_null())
        .filter(tickets::event_id.ne_all(but_of))
        .select((
            tickets::id,
            tickets::order_id,
            tickets::event_id,
            tickets::seat_number,
            tickets::seat_version,
            tickets::status,
            orders::place,
        ))
        .order((tickets::sold_at, tickets::order_id))
        .limit(most)
        .load(conn)
        .await?)
}

/// Notes that Redis was told, of exactly these versions: a cancel that came in between stays unsettled.
pub async fn mark_settled(conn: &mut Conn, settled: &[(Uuid, i64)]) -> Result<(), Error> {
    let (ids, versions) = settled.iter().copied().unzip();
    MarkSettled { ids, versions }.execute(conn).await?;
    Ok(())
}

/// The disk is not waited for: if this is lost, Redis is told once more.
#[derive(QueryId)]
struct MarkSettled {
    ids: Vec<Uuid>,
    versions: Vec<i64>,
}

impl QueryFragment<Pg> for MarkSettled {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "WITH at_once AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
             told AS (
               SELECT t.id, t.seat_version FROM tickets t JOIN unnest(",
        );
        out.push_bind_param::<Array<SqlUuid>, _>(&self.ids)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.versions)?;
        out.push_sql(
            ") AS told (id, version) ON t.id = told.id
               WHERE t.seat_version = told.version AND t.settled_at IS NULL
               ORDER BY t.id FOR NO KEY UPDATE OF t
             )
             UPDATE tickets SET settled_at = now(), status = CASE status WHEN 'PAID' THEN 'SYNCED' ELSE status END
             FROM told, at_once WHERE tickets.id = told.id AND tickets.seat_version = told.seat_version",
        );
        Ok(())
    }
}

/// The last word on every seat of an event that was ever sold: number, version, status, place of the buyer.
pub async fn last_words(conn: &mut Conn, event: EventId) -> Result<Vec<(i32, i64, String, i64)>, Error> {
    Ok(tickets::table
        .inner_join(orders::table)
        .filter(tickets::event_id.eq(event.db()))
        .distinct_on(tickets::seat_number)
        .order((tickets::seat_number, tickets::seat_version.desc()))
        .select((tickets::seat_number, tickets::seat_version, tickets::status, orders::place))
        .load(conn)
        .await?)
}

/// Places that bought: they have had their turn.
pub async fn buyers(conn: &mut Conn, event: EventId) -> Result<Vec<i64>, Error> {
    Ok(orders::table.filter(orders::event_id.eq(event.db())).select(orders::place).load(conn).await?)
}
