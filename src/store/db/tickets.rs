//! Tickets, with their orders.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DbError};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{EventId, OrderId, PersonId, Place, SeatNumber, TicketId};
use crate::store::db::pool::Conn;
use crate::store::db::schema::{orders, person_tickets, tickets};

pub const CANCELLED: &str = "CANCELLED";
/// The rule of the database that nobody has more tickets of an event than they may.
pub const LIMIT: &str = "person_tickets_within_limit";

#[derive(Debug, Clone, Queryable)]
pub struct TicketRow {
    pub id: Uuid,
    pub order_id: Uuid,
    pub user_id: Option<Uuid>,
    pub event_id: i32,
    pub place: i64,
    pub seat_number: i32,
    pub price: i64,
    pub seat_version: i64,
    pub status: String,
    pub sold_at: DateTime<Utc>,
    pub cancelled_at: Option<DateTime<Utc>>,
    /// The token it was bought with.
    pub queue_token: Uuid,
}

#[diesel::dsl::auto_type]
fn with_order() -> _ {
    tickets::table.inner_join(orders::table)
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
        tickets::price,
        tickets::seat_version,
        tickets::status,
        tickets::sold_at,
        tickets::cancelled_at,
        tickets::queue_token,
    )
}

#[instrument(level = "debug", skip_all)]
pub async fn by_id(conn: &mut Conn, id: TicketId) -> Result<Option<TicketRow>, Error> {
    let found = with_order().filter(tickets::id.eq(id.0)).select(columns()).first(conn).await;
    Ok(found.optional()?)
}

/// The tickets of a place's order, if it has one.
#[instrument(level = "debug", skip_all)]
pub async fn by_place(conn: &mut Conn, event: EventId, place: Place) -> Result<Vec<TicketRow>, Error> {
    Ok(with_order()
        .filter(orders::event_id.eq(event.db()).and(orders::place.eq(place.db())))
        .select(columns())
        .order(tickets::seat_number)
        .load(conn)
        .await?)
}

/// The tickets of a person, newest first, starting before `cursor`.
#[instrument(level = "debug", skip_all)]
pub async fn by_person(conn: &mut Conn, person: PersonId, cursor: Uuid, most: i64) -> Result<Vec<TicketRow>, Error> {
    Ok(with_order()
        .filter(orders::user_id.eq(person.0).and(tickets::id.lt(cursor)))
        .select(columns())
        .order(tickets::id.desc())
        .limit(most)
        .load(conn)
        .await?)
}

/// The tickets of these orders.
#[instrument(level = "debug", skip_all)]
pub async fn by_orders(conn: &mut Conn, orders: &[OrderId]) -> Result<Vec<TicketRow>, Error> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.0).collect();
    Ok(with_order()
        .filter(tickets::order_id.eq_any(ids))
        .select(columns())
        .order((tickets::order_id, tickets::seat_number))
        .load(conn)
        .await?)
}

/// The orders of a person, newest first, after `cursor`.
#[instrument(level = "debug", skip_all)]
pub async fn orders_of(
    conn: &mut Conn,
    person: PersonId,
    cursor: Option<OrderId>,
    most: i64,
) -> Result<Vec<OrderId>, Error> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = SqlUuid)]
        id: Uuid,
    }
    let newest = diesel::sql_query(
        "SELECT id FROM orders WHERE user_id = $1
           AND ($2 IS NULL OR (created_at, id) < (SELECT created_at, id FROM orders WHERE id = $2))
         ORDER BY created_at DESC, id DESC LIMIT $3",
    );
    let newest = newest.bind::<SqlUuid, _>(person.0).bind::<Nullable<SqlUuid>, _>(cursor.map(|order| order.0));
    let rows: Vec<Row> = newest.bind::<BigInt, _>(most).load(conn).await?;
    Ok(rows.into_iter().map(|row| OrderId(row.id)).collect())
}

/// The ticket of a seat, if it is sold.
#[instrument(level = "debug", skip_all)]
pub async fn by_seat(conn: &mut Conn, event: EventId, seat: SeatNumber) -> Result<Option<TicketRow>, Error> {
    let found = with_order()
        .filter(tickets::event_id.eq(event.db()).and(tickets::seat_number.eq(seat.db())))
        .filter(tickets::status.ne(CANCELLED))
        .select(columns())
        .first(conn)
        .await;
    Ok(found.optional()?)
}

/// Which of these seats of an event are sold.
#[instrument(level = "debug", skip_all)]
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

/// Tickets that these places of these events bought without a person. May have those of some other combination of them too.
#[instrument(level = "debug", skip_all)]
pub async fn of_nobody(conn: &mut Conn, events: &[i32], places: &[i64]) -> Result<Vec<TicketRow>, Error> {
    let bought = with_order()
        .filter(orders::event_id.eq_any(events).and(orders::place.eq_any(places)).and(orders::user_id.is_null()));
    Ok(bought.select(columns()).order(tickets::id.desc()).load(conn).await?)
}

/// How claiming an order went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    Done,
    /// It is somebody's already.
    Gone,
    /// The person would have too many tickets of the event, and has this many.
    TooMany {
        owned: u32,
    },
}

/// Gives an order that nobody in particular bought to a person: see `sql/claim.sql`.
#[instrument(level = "debug", skip_all)]
pub async fn claim(conn: &mut Conn, order: OrderId, person: PersonId, most: Option<i32>) -> Result<Claimed, Error> {
    let claim = diesel::sql_query(include_str!("sql/claim.sql")).bind::<SqlUuid, _>(order.0);
    match claim.bind::<SqlUuid, _>(person.0).bind::<Nullable<Integer>, _>(most).execute(conn).await {
        Ok(0) => Ok(Claimed::Gone),
        Ok(_) => Ok(Claimed::Done),
        Err(DbError::DatabaseError(DatabaseErrorKind::CheckViolation, info))
            if info.constraint_name() == Some(LIMIT) =>
        {
            let has = person_tickets::table
                .inner_join(orders::table.on(orders::event_id.eq(person_tickets::event_id)))
                .filter(orders::id.eq(order.0).and(person_tickets::user_id.eq(person.0)))
                .select(person_tickets::living);
            let owned: Option<i32> = has.first(conn).await.optional()?;
            Ok(Claimed::TooMany { owned: owned.unwrap_or(0).cast_unsigned() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes a ticket back: see `sql/cancel.sql`. Returns whether it did; if not, the ticket's row says why.
#[instrument(level = "debug", skip_all)]
pub async fn cancel(conn: &mut Conn, id: TicketId, after_deadline: bool) -> Result<bool, Error> {
    let cancel = diesel::sql_query(include_str!("sql/cancel.sql"));
    let cancelled = cancel.bind::<SqlUuid, _>(id.0).bind::<Bool, _>(after_deadline).execute(conn).await?;
    Ok(cancelled == 1)
}
