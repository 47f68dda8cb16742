//! Concerts.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, Integer};
use diesel_async::RunQueryDsl;
use tracing::instrument;

use crate::base::error::Error;
use crate::base::ids::ConcertId;
use crate::store::db::pool::Conn;
use crate::store::db::schema::{concerts, events};

#[derive(Debug, Clone, Queryable, Selectable, AsChangeset)]
#[diesel(table_name = concerts)]
pub struct ConcertRow {
    pub id: i32,
    pub title: String,
    pub description: String,
    pub opens_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
}

#[derive(Debug, Insertable)]
#[diesel(table_name = concerts)]
pub struct NewConcert<'a> {
    pub title: &'a str,
    pub description: &'a str,
    pub opens_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
}

#[derive(Debug, Insertable)]
#[diesel(table_name = events)]
pub struct NewDate<'a> {
    pub concert_id: i32,
    pub title: &'a str,
    pub starts_at: DateTime<Utc>,
    pub cancel_until: Option<DateTime<Utc>>,
    pub one_place_per_person: bool,
}

#[instrument(level = "debug", skip_all)]
pub async fn all(conn: &mut Conn) -> Result<Vec<ConcertRow>, Error> {
    Ok(concerts::table.select(ConcertRow::as_select()).order(concerts::id).load(conn).await?)
}

/// One concert, and until the transaction ends nobody else changes it.
#[instrument(level = "debug", skip_all)]
pub async fn find_alone(conn: &mut Conn, id: ConcertId) -> Result<Option<ConcertRow>, Error> {
    let found = concerts::table.find(id.0).select(ConcertRow::as_select()).for_no_key_update().first(conn).await;
    Ok(found.optional()?)
}

#[instrument(level = "debug", skip_all)]
pub async fn save(conn: &mut Conn, concert: &ConcertRow) -> Result<(), Error> {
    diesel::update(concerts::table.find(concert.id)).set(concert).execute(conn).await?;
    Ok(())
}

#[instrument(level = "debug", skip_all)]
pub async fn any(conn: &mut Conn) -> Result<bool, Error> {
    Ok(diesel::select(diesel::dsl::exists(concerts::table.select(concerts::id))).get_result(conn).await?)
}

#[instrument(level = "debug", skip_all)]
pub async fn create(conn: &mut Conn, concert: &NewConcert<'_>) -> Result<ConcertId, Error> {
    let id = diesel::insert_into(concerts::table).values(concert).returning(concerts::id).get_result(conn).await?;
    Ok(ConcertId(id))
}

#[instrument(level = "debug", skip_all)]
pub async fn create_date(conn: &mut Conn, date: &NewDate<'_>) -> Result<i32, Error> {
    Ok(diesel::insert_into(events::table).values(date).returning(events::id).get_result(conn).await?)
}

/// Records when the last seat was sold, for each of these concerts that is sold out for the first time.
#[instrument(level = "debug", skip_all)]
pub async fn note_sold_out(conn: &mut Conn, concerts: &[ConcertId]) -> Result<usize, Error> {
    Ok(diesel::sql_query(
        "UPDATE concerts c SET sold_out_at = (
           SELECT max(t.sold_at) FROM events e JOIN tickets t ON t.event_id = e.id
           WHERE e.concert_id = c.id AND t.status <> 'CANCELLED')
         WHERE c.id = ANY ($1) AND c.sold_out_at IS NULL
           AND EXISTS (SELECT FROM events e JOIN seats s ON s.event_id = e.id WHERE e.concert_id = c.id)
           AND NOT EXISTS (SELECT FROM events e JOIN seats s ON s.event_id = e.id
                           WHERE e.concert_id = c.id AND s.version % 2 = 0)",
    )
    .bind::<Array<Integer>, _>(concerts.iter().map(|concert| concert.0).collect::<Vec<_>>())
    .execute(conn)
    .await?)
}
