//! Orders and tickets: what was sold.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Integer, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use uuid::Uuid;

use crate::db::Conn;
use crate::db::schema::{orders, seats, tickets};
use crate::error::Error;
use crate::ids::{EventId, Place, SeatNumber, TicketId};

/// A purchase to be written: one seat for one place.
#[derive(Debug, Clone)]
pub struct NewTicket {
    pub id: TicketId,
    pub event: EventId,
    pub place: Place,
    pub seat: SeatNumber,
    pub token: Uuid,
}

#[derive(Debug, Clone, Queryable)]
pub struct TicketRow {
    pub id: Uuid,
    pub event_id: i32,
    pub place: i64,
    pub seat_number: i32,
    pub label: String,
    pub price: i64,
    pub seat_version: i64,
    pub status: String,
    pub sold_at: DateTime<Utc>,
}

/// A sale that was just committed.
#[derive(Debug, Clone, Queryable)]
pub struct SoldRow {
    pub id: Uuid,
    pub seat_version: i64,
    pub price: i64,
    pub sold_at: DateTime<Utc>,
}

/// A sale or cancel that Redis may not know of.
#[derive(Debug, Clone, Queryable)]
pub struct UnsettledRow {
    pub id: Uuid,
    pub event_id: i32,
    pub seat_number: i32,
    pub seat_version: i64,
    pub status: String,
    pub place: i64,
}

pub const CANCELLED: &str = "CANCELLED";

/// Sells to many at once, in one statement and so one commit. Returns the sales made; who is missing among them was
/// refused: the seat is sold (its version is odd), or the place has its order. No seat and no place may be asked for
/// twice in one call.
pub async fn sell(conn: &mut Conn, asked: &[NewTicket]) -> QueryResult<Vec<SoldRow>> {
    Sell {
        tickets: asked.iter().map(|ticket| ticket.id.0).collect(),
        orders: asked.iter().map(|_| Uuid::now_v7()).collect(),
        events: asked.iter().map(|ticket| ticket.event.db()).collect(),
        places: asked.iter().map(|ticket| ticket.place.db()).collect(),
        seats: asked.iter().map(|ticket| ticket.seat.db()).collect(),
        tokens: asked.iter().map(|ticket| ticket.token).collect(),
    }
    .load(conn)
    .await
}

/// A statement of its own kind, because only then is it prepared once per connection.
#[derive(QueryId)]
struct Sell {
    tickets: Vec<Uuid>,
    orders: Vec<Uuid>,
    events: Vec<i32>,
    places: Vec<i64>,
    seats: Vec<i32>,
    tokens: Vec<Uuid>,
}

impl Query for Sell {
    type SqlType = (SqlUuid, BigInt, BigInt, Timestamptz);
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
        out.push_sql(
            ") AS asked (ticket_id, order_id, event_id, place, seat_number, token)),
             locked AS (
               SELECT s.event_id, s.number, asked.ticket_id, asked.order_id, asked.place
               FROM seats s JOIN asked ON s.event_id = asked.event_id AND s.number = asked.seat_number
               WHERE s.version % 2 = 0
               ORDER BY s.event_id, s.number FOR UPDATE OF s
             ),
             ordered AS (
               INSERT INTO orders (id, event_id, place) SELECT order_id, event_id, place FROM locked
               ON CONFLICT (event_id, place) DO NOTHING
               RETURNING id
             ),
             versioned AS (
               UPDATE seats s SET version = s.version + 1
               FROM locked JOIN ordered ON ordered.id = locked.order_id
               WHERE s.event_id = locked.event_id AND s.number = locked.number
               RETURNING locked.ticket_id, s.version, s.price
             )
             INSERT INTO tickets (id, order_id, event_id, seat_number, seat_version, price, queue_token)
             SELECT asked.ticket_id, asked.order_id, asked.event_id, asked.seat_number,
                    versioned.version, versioned.price, asked.token
             FROM asked JOIN versioned ON versioned.ticket_id = asked.ticket_id
             RETURNING id, seat_version, price, sold_at",
        );
        Ok(())
    }
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
        tickets::event_id,
        orders::place,
        tickets::seat_number,
        seats::label,
        tickets::price,
        tickets::seat_version,
        tickets::status,
        tickets::sold_at,
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

/// Oldest first, so that nothing waits forever.
pub async fn unsettled(conn: &mut Conn, most: i64) -> Result<Vec<UnsettledRow>, Error> {
    Ok(tickets::table
        .inner_join(orders::table)
        .filter(tickets::settled_at.is_null())
        .select((
            tickets::id,
            tickets::event_id,
            tickets::seat_number,
            tickets::seat_version,
            tickets::status,
            orders::place,
        ))
        .order(tickets::sold_at)
        .limit(most)
        .load(conn)
        .await?)
}

/// Notes that Redis was told, of exactly these versions: a cancel that came in between stays unsettled.
pub async fn mark_settled(conn: &mut Conn, settled: &[(Uuid, i64)]) -> Result<(), Error> {
    let (ids, versions): (Vec<Uuid>, Vec<i64>) = settled.iter().copied().unzip();
    diesel::sql_query(
        "UPDATE tickets SET settled_at = now(), status = CASE status WHEN 'PAID' THEN 'SYNCED' ELSE status END
         FROM unnest($1, $2) AS told (id, version)
         WHERE tickets.id = told.id AND tickets.seat_version = told.version AND tickets.settled_at IS NULL",
    )
    .bind::<Array<SqlUuid>, _>(ids)
    .bind::<Array<BigInt>, _>(versions)
    .execute(conn)
    .await?;
    Ok(())
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
