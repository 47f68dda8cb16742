//! Events and their seats.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::{AsyncConnection, RunQueryDsl};
use uuid::Uuid;

use crate::db::Conn;
use crate::db::schema::{events, seats};
use crate::error::Error;
use crate::ids::EventId;

/// Places handed to one life of Redis at a time.
pub const BLOCK: i64 = 1 << 20;

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = events)]
pub struct EventRow {
    pub id: i32,
    pub title: String,
    pub on_sale: bool,
    pub salt: Uuid,
}

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = seats)]
pub struct SeatRow {
    pub label: String,
    pub price: i64,
}

/// What the database knows of a line that Redis lost.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = events)]
pub struct LineRow {
    pub ceiling: i64,
    pub tick: i64,
    pub undecided: i64,
    pub parked: Option<i64>,
}

pub async fn all(conn: &mut Conn) -> Result<Vec<EventRow>, Error> {
    Ok(events::table.select(EventRow::as_select()).order(events::id).load(conn).await?)
}

/// The seats of an event, in order of their numbers: 1, 2, 3 …
pub async fn seats(conn: &mut Conn, event: EventId) -> Result<Vec<SeatRow>, Error> {
    Ok(seats::table
        .filter(seats::event_id.eq(event.db()))
        .select(SeatRow::as_select())
        .order(seats::number)
        .load(conn)
        .await?)
}

pub async fn line(conn: &mut Conn, event: EventId) -> Result<LineRow, Error> {
    Ok(events::table.find(event.db()).select(LineRow::as_select()).first(conn).await?)
}

/// Makes the default event, with free seats A1, A2 … ten to a row, if there is no event at all.
pub async fn create_default(conn: &mut Conn, seat_count: u32) -> Result<bool, Error> {
    let labels: Vec<String> = (0..seat_count).map(label).collect();
    conn.transaction(async |conn| {
        let made = diesel::sql_query(
            "INSERT INTO events (id, title) SELECT 1, 'ZTicket' WHERE NOT EXISTS (SELECT FROM events)
             ON CONFLICT DO NOTHING",
        )
        .execute(conn)
        .await?;
        if made == 0 {
            return Ok(false);
        }
        diesel::sql_query(
            "INSERT INTO seats (event_id, number, label)
             SELECT 1, seat.number, seat.label FROM unnest($1) WITH ORDINALITY AS seat (label, number)",
        )
        .bind::<Array<Text>, _>(labels)
        .execute(conn)
        .await?;
        // So that the first plans made for its seats are good ones.
        diesel::sql_query("ANALYZE seats").execute(conn).await?;
        Ok(true)
    })
    .await
}

/// Ten seats to a row; rows are named like the columns of a spreadsheet: A … Z, AA, AB …
fn label(index: u32) -> String {
    let mut row = index / 10 + 1;
    let mut name = String::new();
    while row > 0 {
        row -= 1;
        name.insert(0, char::from(b'A' + (row % 26) as u8));
        row /= 26;
    }
    format!("{name}{}", index % 10 + 1)
}

/// Takes the next block of places. It is never handed out again, whether it is used or not.
pub async fn take_block(conn: &mut Conn, event: EventId) -> Result<std::ops::Range<i64>, Error> {
    let end: i64 = diesel::update(events::table.find(event.db()))
        .set(events::ceiling.eq(events::ceiling + BLOCK))
        .returning(events::ceiling)
        .get_result(conn)
        .await?;
    Ok(end - BLOCK..end)
}

/// Saves how far the line was seen to be: event time and the lowest place still waiting.
pub async fn save_ticks(conn: &mut Conn, ticks: &[(EventId, i64, i64)]) -> Result<(), Error> {
    let (ids, times): (Vec<i32>, Vec<i64>) = ticks.iter().map(|(event, tick, _)| (event.db(), *tick)).unzip();
    let undecided: Vec<i64> = ticks.iter().map(|(_, _, undecided)| *undecided).collect();
    diesel::sql_query(
        "UPDATE events SET tick = seen.tick, undecided = seen.undecided, parked = NULL
         FROM unnest($1, $2, $3) AS seen (id, tick, undecided)
         WHERE events.id = seen.id AND events.tick < seen.tick",
    )
    .bind::<Array<Integer>, _>(ids)
    .bind::<Array<BigInt>, _>(times)
    .bind::<Array<BigInt>, _>(undecided)
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes the next place at a stop in good order: a Redis that comes back with it lost nobody. `None`: a server runs.
pub async fn park(conn: &mut Conn, event: EventId, next: Option<i64>) -> Result<(), Error> {
    diesel::update(events::table.find(event.db())).set(events::parked.eq(next)).execute(conn).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_labelled_row_by_row() {
        let labels = [
            (0, "A1"),
            (9, "A10"),
            (10, "B1"),
            (49, "E10"),
            (259, "Z10"),
            (260, "AA1"),
            (7019, "ZZ10"),
            (7020, "AAA1"),
        ];
        for (index, expected) in labels {
            assert_eq!(label(index), expected);
        }
    }
}
