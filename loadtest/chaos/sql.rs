//! Rows of the database that are compared with the answers visitors got.

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Integer, Text, Uuid as SqlUuid};
use uuid::Uuid;
use zticket_testkit::{Database, Outcome};

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

pub async fn tickets(db: &Database) -> Outcome<Vec<TicketRow>> {
    let sql = "SELECT t.id, t.event_id, t.seat_number, t.price, t.status, o.place
               FROM tickets t JOIN orders o ON o.id = t.order_id";
    db.rows(sql).await
}

pub async fn balances(db: &Database) -> Outcome<Vec<BalanceRow>> {
    db.rows("SELECT id, balance FROM users").await
}
