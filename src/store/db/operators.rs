//! Operators.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use tracing::instrument;

use crate::base::error::Error;
use crate::store::db::pool::Conn;
use crate::store::db::schema::{operator_sessions, operators};

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = operators)]
pub struct OperatorRow {
    pub name: String,
    pub role: String,
    pub key_hash: Vec<u8>,
    pub created_at: DateTime<Utc>,
}

/// By name. There are few.
#[instrument(level = "debug", skip_all)]
pub async fn all(conn: &mut Conn) -> Result<Vec<OperatorRow>, Error> {
    Ok(operators::table.select(OperatorRow::as_select()).order(operators::name).load(conn).await?)
}

/// `false`: there is one of that name.
#[instrument(level = "debug", skip_all)]
pub async fn add(conn: &mut Conn, name: &str, role: &str, key_hash: &[u8; 32]) -> Result<bool, Error> {
    let added = diesel::insert_into(operators::table)
        .values((operators::name.eq(name), operators::role.eq(role), operators::key_hash.eq(key_hash.as_slice())))
        .on_conflict(operators::name)
        .do_nothing()
        .execute(conn)
        .await?;
    Ok(added == 1)
}

/// `false`: there is none of that name.
#[instrument(level = "debug", skip_all)]
pub async fn remove(conn: &mut Conn, name: &str) -> Result<bool, Error> {
    let removed = diesel::delete(operators::table.filter(operators::name.eq(name))).execute(conn).await?;
    Ok(removed == 1)
}

/// Signs in. Sessions that are over are forgotten by the way.
#[instrument(level = "debug", skip_all)]
pub async fn begin_session(
    conn: &mut Conn,
    hash: &[u8; 32],
    key_hash: &[u8; 32],
    expires_at: DateTime<Utc>,
) -> Result<(), Error> {
    let over = operator_sessions::table.filter(operator_sessions::expires_at.lt(diesel::dsl::now));
    diesel::delete(over).execute(conn).await?;
    let values = (
        operator_sessions::hash.eq(hash.as_slice()),
        operator_sessions::key_hash.eq(key_hash.as_slice()),
        operator_sessions::expires_at.eq(expires_at),
    );
    diesel::insert_into(operator_sessions::table).values(values).execute(conn).await?;
    Ok(())
}

/// The hash of the key that the session was begun with, while it lasts.
#[instrument(level = "debug", skip_all)]
pub async fn session(conn: &mut Conn, hash: &[u8; 32]) -> Result<Option<Vec<u8>>, Error> {
    let alive =
        operator_sessions::table.find(hash.as_slice()).filter(operator_sessions::expires_at.gt(diesel::dsl::now));
    Ok(alive.select(operator_sessions::key_hash).first(conn).await.optional()?)
}

#[instrument(level = "debug", skip_all)]
pub async fn end_session(conn: &mut Conn, hash: &[u8; 32]) -> Result<(), Error> {
    diesel::delete(operator_sessions::table.find(hash.as_slice())).execute(conn).await?;
    Ok(())
}
