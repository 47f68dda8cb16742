//! Operators.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::base::error::Error;
use crate::store::db::pool::Conn;
use crate::store::db::schema::operators;

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = operators)]
pub struct OperatorRow {
    pub name: String,
    pub role: String,
    pub key_hash: Vec<u8>,
    pub created_at: DateTime<Utc>,
}

/// By name. There are few.
pub async fn all(conn: &mut Conn) -> Result<Vec<OperatorRow>, Error> {
    Ok(operators::table.select(OperatorRow::as_select()).order(operators::name).load(conn).await?)
}

/// `false`: there is one of that name.
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
pub async fn remove(conn: &mut Conn, name: &str) -> Result<bool, Error> {
    let removed = diesel::delete(operators::table.filter(operators::name.eq(name))).execute(conn).await?;
    Ok(removed == 1)
}
