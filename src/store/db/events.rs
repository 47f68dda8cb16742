//! Events and their seats.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::{AsyncConnection, RunQueryDsl};
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::hall::Layout;
use crate::base::ids::{EventId, Fetched};
use crate::store::db::pool::Conn;
use crate::store::db::schema::{events, seats, sections};

/// Redis gets places in blocks. The first one of a life is small, so that a life that ends early leaves few places
/// unused; each one that is used up is followed by a larger one.
pub const SMALLEST_BLOCK: i64 = 1 << 14;
pub const LARGEST_BLOCK: i64 = 1 << 20;
/// A token has 32 bits for a place.
pub const PLACES: i64 = 1 << 32;

/// A block of places, as it was fetched.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct Block {
    #[diesel(sql_type = BigInt, column_name = block_start)]
    pub start: i64,
    #[diesel(sql_type = BigInt, column_name = block_end)]
    pub end: i64,
    #[diesel(sql_type = Integer, column_name = block_fetch)]
    pub fetch: i32,
}

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = events)]
pub struct EventRow {
    pub id: i32,
    pub title: String,
    pub on_sale: bool,
    pub salt: Uuid,
    /// First place that was never handed to Redis.
    pub ceiling: i64,
    pub concert_id: Option<i32>,
    pub starts_at: Option<DateTime<Utc>>,
    pub cancel_until: Option<DateTime<Utc>>,
    pub one_place_per_person: bool,
}

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = seats)]
pub struct SeatRow {
    pub label: String,
    pub price: i64,
}

/// What the database knows about a line that Redis lost.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = events)]
pub struct LineRow {
    pub ceiling: i64,
    pub tick: i64,
    pub undecided: i64,
    pub parked: Option<i64>,
}

#[instrument(level = "debug", skip_all)]
pub async fn all(conn: &mut Conn) -> Result<Vec<EventRow>, Error> {
    Ok(events::table.select(EventRow::as_select()).order(events::id).load(conn).await?)
}

/// One event, and until the transaction ends nobody else changes it.
#[instrument(level = "debug", skip_all)]
pub async fn find_alone(conn: &mut Conn, id: EventId) -> Result<Option<EventRow>, Error> {
    let found = events::table.find(id.db()).select(EventRow::as_select()).for_no_key_update().first(conn).await;
    Ok(found.optional()?)
}

/// Saves what an operator can change.
#[instrument(level = "debug", skip_all)]
pub async fn save(conn: &mut Conn, event: &EventRow) -> Result<(), Error> {
    let changes = (
        events::title.eq(&event.title),
        events::on_sale.eq(event.on_sale),
        events::starts_at.eq(event.starts_at),
        events::cancel_until.eq(event.cancel_until),
        events::one_place_per_person.eq(event.one_place_per_person),
    );
    diesel::update(events::table.find(event.id)).set(changes).execute(conn).await?;
    Ok(())
}

/// The seats of an event, in order of their numbers: 1, 2, 3 …
#[instrument(level = "debug", skip_all)]
pub async fn seats(conn: &mut Conn, event: EventId) -> Result<Vec<SeatRow>, Error> {
    Ok(seats::table
        .filter(seats::event_id.eq(event.db()))
        .select(SeatRow::as_select())
        .order(seats::number)
        .load(conn)
        .await?)
}

#[instrument(level = "debug", skip_all)]
pub async fn line(conn: &mut Conn, event: EventId) -> Result<LineRow, Error> {
    Ok(events::table.find(event.db()).select(LineRow::as_select()).first(conn).await?)
}

/// The sections of an event from the stage back: name, and seats in each row.
#[instrument(level = "debug", skip_all)]
pub async fn sections(conn: &mut Conn, event: EventId) -> Result<Vec<(String, Vec<usize>)>, Error> {
    let rows: Vec<(String, Vec<Option<i32>>)> = sections::table
        .filter(sections::event_id.eq(event.db()))
        .select((sections::name, sections::row_lengths))
        .order(sections::number)
        .load(conn)
        .await?;
    let length = |length: i32| usize::try_from(length).unwrap_or(0);
    Ok(rows.into_iter().map(|(name, rows)| (name, rows.into_iter().flatten().map(length).collect())).collect())
}

/// Makes the default event with this hall, if there is no event at all.
#[instrument(level = "debug", skip_all)]
pub async fn create_default(conn: &mut Conn, layout: &Layout) -> Result<bool, Error> {
    conn.transaction(async |conn| {
        let made = diesel::sql_query(
            "INSERT INTO events (id, title) SELECT 1, 'ZTicket' WHERE NOT EXISTS (SELECT FROM events)
             ON CONFLICT DO NOTHING",
        )
        .execute(conn)
        .await?;
        if made == 1 {
            furnish(conn, 1, layout).await?;
        }
        Ok(made == 1)
    })
    .await
}

/// Adds sections and seats to an event that has none.
#[instrument(level = "debug", skip_all)]
pub async fn furnish(conn: &mut Conn, event: i32, layout: &Layout) -> Result<(), Error> {
    for (number, section) in (1..).zip(layout.sections()) {
        let rows: Vec<i32> = section.rows.iter().map(|length| length.cast_signed()).collect();
        let values = (
            sections::event_id.eq(event),
            sections::number.eq(number),
            sections::name.eq(&section.name),
            sections::row_lengths.eq(rows),
        );
        diesel::insert_into(sections::table).values(values).execute(conn).await?;
    }
    let (labels, prices): (Vec<String>, Vec<i64>) = layout.seats().unzip();
    diesel::sql_query(
        "INSERT INTO seats (event_id, number, label, price)
         SELECT $1, seat.number, seat.label, seat.price
         FROM unnest($2, $3) WITH ORDINALITY AS seat (label, price, number)",
    )
    .bind::<Integer, _>(event)
    .bind::<Array<Text>, _>(labels)
    .bind::<Array<BigInt>, _>(prices)
    .execute(conn)
    .await?;
    // So that the first query plans for its seats are good.
    diesel::sql_query("ANALYZE seats").execute(conn).await?;
    Ok(())
}

/// Fetches a block of places for Redis. The newest block is fetched again if none of its places was given out and Redis
/// does not have it (`known_end` is the end of the block that Redis, or a copy of it, has). Otherwise the next `size`
/// places are taken, which were never handed out before; fewer or none where the last place is near. A database that
/// knows of fewer places than Redis hands out none: they would be given out twice.
#[instrument(level = "debug", skip_all)]
pub async fn fetch_block(conn: &mut Conn, event: EventId, known_end: i64, size: i64) -> Result<Block, Error> {
    // On the right-hand side, columns have their old values.
    let again = "(NOT block_used AND block_end = ceiling AND block_start >= $2)";
    let sql = format!(
        "UPDATE events SET
           block_start = CASE WHEN {again} THEN block_start ELSE ceiling END,
           block_end = CASE WHEN {again} THEN block_end ELSE least(ceiling + $3, {PLACES}) END,
           ceiling = CASE WHEN {again} THEN ceiling ELSE least(ceiling + $3, {PLACES}) END,
           block_fetch = CASE WHEN {again} THEN block_fetch + 1 ELSE 1 END,
           block_used = false
         WHERE id = $1 AND ceiling >= $2 RETURNING block_start, block_end, block_fetch"
    );
    let block = diesel::sql_query(sql)
        .bind::<Integer, _>(event.db())
        .bind::<BigInt, _>(known_end)
        .bind::<BigInt, _>(size)
        .get_result(conn)
        .await;
    block.optional()?.ok_or(Error::DatabaseBehind)
}

/// Records that places of a block are given out, so that it is never fetched again. `false`: they may not be, because the
/// block was fetched again, or replaced, since Redis got it.
#[instrument(level = "debug", skip_all)]
pub async fn use_block(conn: &mut Conn, event: EventId, fetched: Fetched) -> Result<bool, Error> {
    let same = events::block_start.eq(fetched.start).and(events::block_fetch.eq(fetched.fetch));
    let marked = diesel::update(events::table.find(event.db()).filter(same)).set(events::block_used.eq(true));
    Ok(marked.execute(conn).await? == 1)
}

/// What a server saw of an event, to rebuild it from if nothing else is left.
pub struct Tick {
    pub event: EventId,
    /// Event time, ms.
    pub time: i64,
    /// The lowest place still waiting.
    pub undecided: i64,
}

/// Saves what servers saw, where it is newer than what is saved. Locks the events in order.
#[instrument(level = "debug", skip_all)]
pub async fn save_ticks(conn: &mut Conn, ticks: &[Tick]) -> Result<(), Error> {
    diesel::sql_query(
        "WITH seen AS (SELECT * FROM unnest($1, $2, $3) AS seen (id, tick, undecided)),
         older AS (
           SELECT e.id FROM events e JOIN seen ON seen.id = e.id AND e.tick < seen.tick
           ORDER BY e.id FOR NO KEY UPDATE OF e
         )
         UPDATE events SET tick = seen.tick, undecided = seen.undecided, parked = NULL
         FROM seen JOIN older ON older.id = seen.id
         WHERE events.id = seen.id AND events.tick < seen.tick",
    )
    .bind::<Array<Integer>, _>(ticks.iter().map(|tick| tick.event.db()).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(ticks.iter().map(|tick| tick.time).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(ticks.iter().map(|tick| tick.undecided).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the next place at a clean stop: a Redis that comes back with it lost nobody. `None`: a server is running.
#[instrument(level = "debug", skip_all)]
pub async fn park(conn: &mut Conn, event: EventId, next: Option<i64>) -> Result<(), Error> {
    let other = events::parked.is_distinct_from(next);
    diesel::update(events::table.find(event.db()).filter(other)).set(events::parked.eq(next)).execute(conn).await?;
    Ok(())
}

/// After the database was restored from a backup: tokens signed until now are no longer genuine, and places are handed out
/// from `known_end` on, above everything that Redis has seen. Returns from where.
#[instrument(level = "debug", skip_all)]
pub async fn begin_anew(conn: &mut Conn, event: EventId, known_end: i64) -> Result<i64, Error> {
    let row: Ceiling = diesel::sql_query(
        "UPDATE events SET salt = gen_random_uuid(), ceiling = greatest(ceiling, $2), undecided = greatest(ceiling, $2),
           block_start = greatest(ceiling, $2), block_end = greatest(ceiling, $2), block_used = true, parked = NULL
         WHERE id = $1 RETURNING ceiling",
    )
    .bind::<Integer, _>(event.db())
    .bind::<BigInt, _>(known_end)
    .get_result(conn)
    .await?;
    Ok(row.ceiling)
}

#[derive(QueryableByName)]
struct Ceiling {
    #[diesel(sql_type = BigInt)]
    ceiling: i64,
}
