//! How often something was refused in the last hour, and why.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer, Text};
use diesel_async::RunQueryDsl;
use tracing::instrument;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::store::db::pool::Conn;

/// What one server refused since it last said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub event: EventId,
    pub reason: &'static str,
    pub times: u64,
}

#[derive(Debug, QueryableByName)]
pub struct RefusedRow {
    #[diesel(sql_type = Integer)]
    pub event_id: i32,
    #[diesel(sql_type = Text)]
    pub reason: String,
    #[diesel(sql_type = BigInt)]
    pub times: i64,
}

/// Adds to what other servers refused in this minute.
#[instrument(level = "debug", skip_all)]
pub async fn add(conn: &mut Conn, refused: &[Refused]) -> Result<(), Error> {
    diesel::sql_query(
        "INSERT INTO refusals (event_id, minute, reason, times)
         SELECT new.event_id, date_trunc('minute', now()), new.reason, new.times
         FROM unnest($1, $2, $3) AS new (event_id, reason, times)
         ORDER BY new.event_id, new.reason
         ON CONFLICT (event_id, minute, reason) DO UPDATE SET times = refusals.times + excluded.times",
    )
    .bind::<Array<Integer>, _>(refused.iter().map(|one| one.event.db()).collect::<Vec<_>>())
    .bind::<Array<Text>, _>(refused.iter().map(|one| one.reason).collect::<Vec<_>>())
    .bind::<Array<BigInt>, _>(
        refused.iter().map(|one| i64::try_from(one.times).unwrap_or(i64::MAX)).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes what is older than an hour.
#[instrument(level = "debug", skip_all)]
pub async fn forget_old(conn: &mut Conn) -> Result<(), Error> {
    diesel::sql_query("DELETE FROM refusals WHERE minute < now() - interval '1 hour'").execute(conn).await?;
    Ok(())
}

/// The sums of the last hour for these events.
#[instrument(level = "debug", skip_all)]
pub async fn lately(conn: &mut Conn, events: &[EventId]) -> Result<Vec<RefusedRow>, Error> {
    Ok(diesel::sql_query(
        "SELECT event_id, reason, sum(times)::bigint AS times FROM refusals
         WHERE event_id = ANY($1) AND minute >= now() - interval '1 hour' GROUP BY event_id, reason",
    )
    .bind::<Array<Integer>, _>(events.iter().map(|event| event.db()).collect::<Vec<_>>())
    .load(conn)
    .await?)
}
