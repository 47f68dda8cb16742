//! What must be told outside. Whoever changes something writes a message in the same transaction (`sql/sell.sql`,
//! `sql/cancel.sql`), if the settings of the connection say that somebody wants to know.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde_json::Value;
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::store::db::pool::Conn;
use crate::store::db::schema::outbox;

/// Facts about orders go this way.
pub const KAFKA: &str = "kafka";

/// One server at a time sends, so that messages of one key stay in order.
const SENDER_LOCK: i64 = 0x7a74_6f75_7462;

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = outbox)]
pub struct Letter {
    pub id: i64,
    pub message_id: Uuid,
    pub key: String,
    pub body: Value,
    pub created_at: DateTime<Utc>,
}

/// Whether this server may send until the end of the transaction.
#[instrument(level = "debug", skip_all)]
pub async fn may_send(conn: &mut AsyncPgConnection) -> Result<bool, Error> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Bool)]
        free: bool,
    }
    let lock = diesel::sql_query("SELECT pg_try_advisory_xact_lock($1) AS free").bind::<BigInt, _>(SENDER_LOCK);
    let row: Row = lock.get_result(conn).await?;
    Ok(row.free)
}

/// The oldest messages that wait.
#[instrument(level = "debug", skip_all)]
pub async fn oldest(conn: &mut AsyncPgConnection, channel: &str, most: i64) -> Result<Vec<Letter>, Error> {
    let waiting = outbox::table.filter(outbox::channel.eq(channel)).filter(outbox::problem.is_null());
    Ok(waiting.order(outbox::id).limit(most).select(Letter::as_select()).load(conn).await?)
}

#[instrument(level = "debug", skip_all)]
pub async fn sent(conn: &mut AsyncPgConnection, letters: &[i64]) -> Result<(), Error> {
    diesel::delete(outbox::table.filter(outbox::id.eq_any(letters))).execute(conn).await?;
    Ok(())
}

#[instrument(level = "debug", skip_all)]
pub async fn give_up(conn: &mut AsyncPgConnection, letter: i64, problem: &str) -> Result<(), Error> {
    let letter = outbox::table.filter(outbox::id.eq(letter));
    diesel::update(letter).set(outbox::problem.eq(problem)).execute(conn).await?;
    Ok(())
}

/// How many messages wait on this way, and for how many seconds the oldest has.
#[instrument(level = "debug", skip_all)]
pub async fn waiting(conn: &mut Conn, channel: &str) -> Result<(i64, f64), Error> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = BigInt)]
        count: i64,
        #[diesel(sql_type = Double)]
        seconds: f64,
    }
    let row: Row = diesel::sql_query(
        "SELECT count(*) AS count, coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 AS seconds
         FROM outbox WHERE channel = $1 AND problem IS NULL",
    )
    .bind::<Text, _>(channel)
    .get_result(conn)
    .await?;
    Ok((row.count, row.seconds))
}
