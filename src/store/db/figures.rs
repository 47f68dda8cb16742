//! Figures of the last hour.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer};
use diesel_async::RunQueryDsl;
use serde::Serialize;
use tracing::instrument;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::store::db::pool::Conn;
use crate::store::db::schema::figures;

/// The figures of an event at one moment.
#[derive(Debug, Clone)]
pub struct Figures {
    pub event: EventId,
    pub waiting: i64,
    pub inside: i64,
    pub held: i64,
    pub sold: i64,
    pub entered: i64,
    pub admitted: i64,
    pub swept: i64,
}

/// A point of a chart.
#[derive(Debug, Clone, Queryable, Selectable, Serialize, ToSchema)]
#[diesel(table_name = figures)]
pub struct Point {
    pub at: DateTime<Utc>,
    pub waiting: i64,
    pub inside: i64,
    pub held: i64,
    pub sold: i64,
    pub entered: i64,
    pub admitted: i64,
    pub swept: i64,
}

/// Saves a point for each event, unless another server did so in this step of five seconds.
#[instrument(level = "debug", skip_all)]
pub async fn save(conn: &mut Conn, seen: &[Figures]) -> Result<(), Error> {
    let column = |value: fn(&Figures) -> i64| seen.iter().map(value).collect::<Vec<_>>();
    diesel::sql_query(
        "INSERT INTO figures (event_id, at, waiting, inside, held, sold, entered, admitted, swept)
         SELECT seen.event_id, to_timestamp(floor(extract(epoch FROM now()) / 5) * 5),
                seen.waiting, seen.inside, seen.held, seen.sold, seen.entered, seen.admitted, seen.swept
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
              AS seen (event_id, waiting, inside, held, sold, entered, admitted, swept)
         ORDER BY seen.event_id
         ON CONFLICT DO NOTHING",
    )
    .bind::<Array<Integer>, _>(seen.iter().map(|seen| seen.event.db()).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(column(|seen| seen.waiting))
    .bind::<Array<BigInt>, _>(column(|seen| seen.inside))
    .bind::<Array<BigInt>, _>(column(|seen| seen.held))
    .bind::<Array<BigInt>, _>(column(|seen| seen.sold))
    .bind::<Array<BigInt>, _>(column(|seen| seen.entered))
    .bind::<Array<BigInt>, _>(column(|seen| seen.admitted))
    .bind::<Array<BigInt>, _>(column(|seen| seen.swept))
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes points that are older than an hour.
#[instrument(level = "debug", skip_all)]
pub async fn forget_old(conn: &mut Conn) -> Result<(), Error> {
    diesel::sql_query("DELETE FROM figures WHERE at < now() - interval '1 hour'").execute(conn).await?;
    Ok(())
}

/// The points of the last minutes, oldest first.
#[instrument(level = "debug", skip_all)]
pub async fn lately(conn: &mut Conn, event: EventId, minutes: u32) -> Result<Vec<Point>, Error> {
    let since = Utc::now() - chrono::TimeDelta::minutes(minutes.into());
    Ok(figures::table
        .filter(figures::event_id.eq(event.db()).and(figures::at.ge(since)))
        .select(Point::as_select())
        .order(figures::at)
        .load(conn)
        .await?)
}
