//! Sales and cancels as Redis has to learn them: what is not settled yet, and the latest change of every seat.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Integer, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{EventId, OrderId, Place, SeatNumber, TicketId};
use crate::base::seat::{SeatChange, SeatState};
use crate::store::db::pool::Conn;
use crate::store::db::schema::{orders, tickets};
use crate::store::db::statement::Statement;
use crate::store::db::tickets::{CANCELLED, TicketRow};

/// A change that Redis may not know of.
#[derive(Debug, Clone)]
pub struct Unsettled {
    pub ticket: TicketId,
    pub order: OrderId,
    pub event: EventId,
    pub change: SeatChange,
}

impl Unsettled {
    /// `None`: a number in the row is out of range.
    pub fn of(row: &TicketRow) -> Option<Self> {
        Some(Self {
            ticket: TicketId(row.id),
            order: OrderId(row.order_id),
            event: EventId::try_from(row.event_id).ok()?,
            change: change(row.seat_number, row.seat_version, &row.status, row.place)?,
        })
    }
}

fn change(seat: i32, version: i64, status: &str, place: i64) -> Option<SeatChange> {
    Some(SeatChange {
        seat: SeatNumber(u32::try_from(seat).ok()?),
        version,
        state: if status == CANCELLED { SeatState::Available } else { SeatState::Sold },
        place: Place::from_db(place)?,
    })
}

/// Oldest first, so that nothing waits forever, and the seats of an order together. Returns also whether there may be more.
#[instrument(level = "debug", skip_all)]
pub async fn unsettled(conn: &mut Conn, except: &[EventId], most: usize) -> Result<(Vec<Unsettled>, bool), Error> {
    let except: Vec<i32> = except.iter().map(|event| event.db()).collect();
    type Row = (Uuid, Uuid, i32, i32, i64, String, i64);
    let rows: Vec<Row> = tickets::table
        .inner_join(orders::table)
        .filter(tickets::settled_at.is_null())
        .filter(tickets::event_id.ne_all(except))
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
        .limit(i64::try_from(most).unwrap_or(i64::MAX))
        .load(conn)
        .await?;
    let typed = |(ticket, order, event, seat, version, status, place): Row| {
        let event = EventId::try_from(event).ok()?;
        let change = change(seat, version, &status, place)?;
        Some(Unsettled { ticket: TicketId(ticket), order: OrderId(order), event, change })
    };
    let more = rows.len() == most;
    Ok((rows.into_iter().filter_map(typed).collect(), more))
}

/// Records that Redis knows exactly these changes.
#[instrument(level = "debug", skip_all)]
pub async fn mark_settled(conn: &mut Conn, settled: &[Unsettled]) -> Result<(), Error> {
    let (ids, versions) = settled.iter().map(|one| (one.ticket.0, one.change.version)).unzip();
    MarkSettled { ids, versions }.execute(conn).await?;
    Ok(())
}

#[derive(QueryId)]
struct MarkSettled {
    ids: Vec<Uuid>,
    versions: Vec<i64>,
}

impl QueryFragment<Pg> for MarkSettled {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut sql = Statement::new(include_str!("sql/mark_settled.sql"));
        sql.write_to_value(&mut out);
        out.push_bind_param::<Array<SqlUuid>, _>(&self.ids)?;
        sql.write_to_value(&mut out);
        out.push_bind_param::<Array<BigInt>, _>(&self.versions)?;
        sql.write_rest(&mut out);
        Ok(())
    }
}

/// The latest change of every seat of an event that was ever sold.
#[instrument(level = "debug", skip_all)]
pub async fn latest(conn: &mut Conn, event: EventId) -> Result<Vec<SeatChange>, Error> {
    // A server of an earlier version sold without noting the place.
    let buyer = "coalesce(s.place, (SELECT o.place FROM tickets t JOIN orders o ON o.id = t.order_id
                 WHERE t.event_id = s.event_id AND t.seat_number = s.number AND t.status <> 'CANCELLED'), 4294967295)";
    let sql = format!(
        "SELECT number, version, {buyer} AS place FROM seats s WHERE event_id = $1 AND version > 0 ORDER BY number"
    );
    let rows: Vec<SeatRow> = diesel::sql_query(sql).bind::<Integer, _>(event.db()).load(conn).await?;
    let change = |row: SeatRow| {
        Some(SeatChange {
            seat: SeatNumber(u32::try_from(row.number).ok()?),
            version: row.version,
            state: if row.version % 2 == 1 { SeatState::Sold } else { SeatState::Available },
            place: Place::from_db(row.place)?,
        })
    };
    Ok(rows.into_iter().filter_map(change).collect())
}

/// Gives a seat a later version, and its ticket if it is sold. `false`: somebody changed the seat since. Locks the ticket
/// before the seat, as a cancel does.
#[instrument(level = "debug", skip_all)]
pub async fn raise(conn: &mut Conn, event: EventId, seen: &SeatChange, version: i64) -> Result<bool, Error> {
    let raised = diesel::sql_query(
        "WITH ticket AS (
           UPDATE tickets SET seat_version = $4
           WHERE event_id = $1 AND seat_number = $2 AND seat_version = $3 AND status <> 'CANCELLED'
           RETURNING id
         )
         UPDATE seats SET version = $4 FROM (SELECT count(*) FROM ticket) AS ticket_first
         WHERE event_id = $1 AND number = $2 AND version = $3",
    )
    .bind::<Integer, _>(event.db())
    .bind::<Integer, _>(seen.seat.db())
    .bind::<BigInt, _>(seen.version)
    .bind::<BigInt, _>(version)
    .execute(conn)
    .await?;
    Ok(raised == 1)
}

#[derive(QueryableByName)]
struct SeatRow {
    #[diesel(sql_type = Integer)]
    number: i32,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = BigInt)]
    place: i64,
}

/// Places from this one on that bought: they have had their turn.
#[instrument(level = "debug", skip_all)]
pub async fn buyers(conn: &mut Conn, event: EventId, from: i64) -> Result<Vec<Place>, Error> {
    let places: Vec<i64> = orders::table
        .filter(orders::event_id.eq(event.db()).and(orders::place.ge(from)))
        .select(orders::place)
        .load(conn)
        .await?;
    Ok(places.into_iter().filter_map(Place::from_db).collect())
}
