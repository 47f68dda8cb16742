//! The steps that strategies are made of.

use std::time::Duration;

use diesel::QueryableByName;
use diesel::result::Error as DbError;
use diesel::sql_types::{BigInt, Integer};
use diesel_async::RunQueryDsl;

use crate::store::db::pool::Conn;

/// How long a broken strategy stops where its bug is. Without this the bug shows now and then; with it, in every run.
pub const PAUSE: Duration = Duration::from_millis(5);

/// What one of the crowd wants: an amount of an item taken away or added, and never less than nothing left.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub item: i32,
    pub buyer: i32,
    /// Negative: taken away.
    pub by: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Too little is left.
    Refused,
    /// Somebody else was at it, and the strategy gave up.
    Busy,
}

#[derive(Debug, QueryableByName)]
pub struct Item {
    #[diesel(sql_type = BigInt)]
    pub amount: i64,
    #[diesel(sql_type = Integer)]
    pub version: i32,
}

impl Item {
    /// The amount after a change; `None` if too little is left for it.
    pub fn after(&self, by: i64) -> Option<i64> {
        Some(self.amount + by).filter(|amount| *amount >= 0)
    }
}

/// Read, decide, write. Right only if nobody else is at the item until the commit.
pub async fn read_and_write(conn: &mut Conn, ask: Ask) -> Result<Answer, DbError> {
    read_wait_write(conn, ask, Duration::ZERO).await
}

/// The same with a pause before the write, in which what was read may become untrue.
pub async fn read_wait_write(conn: &mut Conn, ask: Ask, pause: Duration) -> Result<Answer, DbError> {
    let item = read(conn, ask.item).await?;
    if !pause.is_zero() && item.after(ask.by).is_some() {
        tokio::time::sleep(pause).await;
    }
    decide_and_write(conn, &item, ask).await
}

pub async fn read(conn: &mut Conn, item: i32) -> Result<Item, DbError> {
    let query = diesel::sql_query("SELECT amount, version FROM zticket_lab.items WHERE item = $1");
    query.bind::<Integer, _>(item).get_result(conn).await
}

/// Decides and writes, of an item that was read.
pub async fn decide_and_write(conn: &mut Conn, item: &Item, ask: Ask) -> Result<Answer, DbError> {
    let Some(after) = item.after(ask.by) else { return Ok(Answer::Refused) };
    write(conn, ask.item, after).await?;
    note(conn, ask).await?;
    Ok(Answer::Done)
}

/// Writes the amount that was computed from what was read.
pub async fn write(conn: &mut Conn, item: i32, amount: i64) -> Result<(), DbError> {
    let query = diesel::sql_query("UPDATE zticket_lab.items SET amount = $2, version = version + 1 WHERE item = $1");
    query.bind::<Integer, _>(item).bind::<BigInt, _>(amount).execute(conn).await?;
    Ok(())
}

/// Writes what was done for whom: a ticket, a payment, a charge.
pub async fn note(conn: &mut Conn, ask: Ask) -> Result<(), DbError> {
    let query = diesel::sql_query("INSERT INTO zticket_lab.changes (item, buyer, by) VALUES ($1, $2, $3)");
    query.bind::<Integer, _>(ask.item).bind::<Integer, _>(ask.buyer).bind::<BigInt, _>(ask.by).execute(conn).await?;
    Ok(())
}
