//! Plain questions to the database, past the wire.

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Integer, Text, Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use uuid::Uuid;

use crate::Outcome;

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// A ticket as the database has it.
#[derive(QueryableByName, Clone)]
pub struct TicketRow {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Integer)]
    pub event_id: i32,
    #[diesel(sql_type = Integer)]
    pub seat_number: i32,
    #[diesel(sql_type = BigInt)]
    pub price: i64,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = BigInt)]
    pub place: i64,
}

#[derive(QueryableByName)]
pub struct BalanceRow {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = BigInt)]
    pub balance: i64,
}

async fn connect(url: &str) -> Outcome<AsyncPgConnection> {
    Ok(AsyncPgConnection::establish(url).await?)
}

/// The one number a query answers; name it `n`.
pub async fn number(url: &str, sql: &str) -> Outcome<i64> {
    let row: Number = diesel::sql_query(sql).get_result(&mut connect(url).await?).await?;
    Ok(row.n)
}

pub async fn numbers(url: &str, sql: &str) -> Outcome<Vec<i64>> {
    let rows: Vec<Number> = diesel::sql_query(sql).load(&mut connect(url).await?).await?;
    Ok(rows.into_iter().map(|row| row.n).collect())
}

pub async fn execute(url: &str, sql: &str) -> Outcome<()> {
    Ok(connect(url).await?.batch_execute(sql).await?)
}

pub async fn tickets(url: &str) -> Outcome<Vec<TicketRow>> {
    let sql = "SELECT t.id, t.event_id, t.seat_number, t.price, t.status, o.place
               FROM tickets t JOIN orders o ON o.id = t.order_id";
    Ok(diesel::sql_query(sql).load(&mut connect(url).await?).await?)
}

pub async fn balances(url: &str) -> Outcome<Vec<BalanceRow>> {
    Ok(diesel::sql_query("SELECT id, balance FROM users").load(&mut connect(url).await?).await?)
}
