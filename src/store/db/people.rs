//! People, their balances, and the ledger of every movement. The tables call them users.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{OrderId, PersonId};
use crate::store::db::pool::Conn;
use crate::store::db::schema::{ledger, payments, users};

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = users)]
pub struct PersonRow {
    pub id: Uuid,
    pub name: String,
    pub balance: i64,
    pub created_at: DateTime<Utc>,
}

/// A charge that was made.
#[derive(Debug, Clone, Queryable, QueryableByName)]
pub struct ChargeRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = BigInt)]
    pub amount: i64,
    #[diesel(sql_type = BigInt)]
    pub balance: i64,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = ledger)]
pub struct MovementRow {
    pub id: i64,
    pub kind: String,
    pub amount: i64,
    pub balance: i64,
    pub order_id: Option<Uuid>,
    pub ticket_id: Option<Uuid>,
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Clone, QueryableByName)]
#[diesel(table_name = payments)]
pub struct PaymentRow {
    pub order_id: Uuid,
    pub amount: i64,
    pub refunded: i64,
    pub paid_at: DateTime<Utc>,
}

#[instrument(level = "debug", skip_all)]
pub async fn create(conn: &mut Conn, id: PersonId, name: &str) -> Result<PersonRow, Error> {
    Ok(diesel::insert_into(users::table)
        .values((users::id.eq(id.0), users::name.eq(name)))
        .returning(PersonRow::as_returning())
        .get_result(conn)
        .await?)
}

/// People of exactly this name, newest first.
#[instrument(level = "debug", skip_all)]
pub async fn by_name(conn: &mut Conn, name: &str, most: i64) -> Result<Vec<Uuid>, Error> {
    let found = users::table.filter(users::name.eq(name)).select(users::id).order(users::id.desc()).limit(most);
    Ok(found.load(conn).await?)
}

#[instrument(level = "debug", skip_all)]
pub async fn find(conn: &mut Conn, person: PersonId) -> Result<Option<PersonRow>, Error> {
    Ok(users::table.find(person.0).select(PersonRow::as_select()).first(conn).await.optional()?)
}

/// Adds money, once for each key. `None`: the key was used before, or the balance would exceed `highest`.
#[instrument(level = "debug", skip_all)]
pub async fn charge(
    conn: &mut Conn,
    person: PersonId,
    key: &str,
    amount: i64,
    highest: i64,
) -> Result<Option<ChargeRow>, Error> {
    let charged = diesel::sql_query(
        "WITH person AS (
           SELECT id, balance FROM users WHERE id = $1 FOR NO KEY UPDATE
         ),
         entry AS (
           INSERT INTO ledger (user_id, kind, amount, balance, charge_key)
           SELECT id, 'CHARGE', $3, balance + $3, $2 FROM person WHERE balance + $3 <= $4
           ON CONFLICT (user_id, charge_key) DO NOTHING
           RETURNING id, amount, balance, created_at
         ),
         raised AS (
           UPDATE users SET balance = entry.balance FROM entry WHERE users.id = $1
         )
         SELECT id, amount, balance, created_at FROM entry",
    )
    .bind::<SqlUuid, _>(person.0)
    .bind::<Text, _>(key)
    .bind::<BigInt, _>(amount)
    .bind::<BigInt, _>(highest)
    .get_result(conn)
    .await;
    Ok(charged.optional()?)
}

#[instrument(level = "debug", skip_all)]
pub async fn charge_by_key(conn: &mut Conn, person: PersonId, key: &str) -> Result<Option<ChargeRow>, Error> {
    let found = ledger::table
        .filter(ledger::user_id.eq(person.0).and(ledger::charge_key.eq(key)))
        .select((ledger::id, ledger::amount, ledger::balance, ledger::created_at))
        .first(conn)
        .await;
    Ok(found.optional()?)
}

/// Newest first, starting before `cursor`.
#[instrument(level = "debug", skip_all)]
pub async fn movements(conn: &mut Conn, person: PersonId, cursor: i64, most: i64) -> Result<Vec<MovementRow>, Error> {
    Ok(ledger::table
        .filter(ledger::user_id.eq(person.0).and(ledger::id.lt(cursor)))
        .select(MovementRow::as_select())
        .order(ledger::id.desc())
        .limit(most)
        .load(conn)
        .await?)
}

/// Newest first, starting before `cursor`.
#[instrument(level = "debug", skip_all)]
pub async fn payments(
    conn: &mut Conn,
    person: PersonId,
    cursor: Option<OrderId>,
    most: i64,
) -> Result<Vec<PaymentRow>, Error> {
    let newest = diesel::sql_query(
        "SELECT payments.order_id, payments.amount, payments.refunded, payments.paid_at
         FROM orders JOIN payments ON payments.order_id = orders.id
         WHERE orders.user_id = $1
           AND ($2 IS NULL OR (orders.created_at, orders.id) < (SELECT created_at, id FROM orders WHERE id = $2))
         ORDER BY orders.created_at DESC, orders.id DESC LIMIT $3",
    );
    let newest = newest.bind::<SqlUuid, _>(person.0).bind::<Nullable<SqlUuid>, _>(cursor.map(|order| order.0));
    Ok(newest.bind::<BigInt, _>(most).load(conn).await?)
}
