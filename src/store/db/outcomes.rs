//! What became of orders that were accepted first and written later. A sale writes its own row (`sql/sell.sql`); the others
//! are written here.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Double, Jsonb, Nullable, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use serde_json::Value;
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::OrderId;
use crate::store::db::pool::Conn;
use crate::store::db::schema::outcomes;

/// How long it is known how an order ended.
pub const KEPT: Duration = Duration::from_secs(3600);

/// How an order ended that sold nothing itself.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub order: OrderId,
    pub why: Why,
}

#[derive(Debug, Clone)]
pub enum Why {
    /// As its buyer reads it.
    Failed(Value),
    /// The place had bought the same before, under this number.
    SameAs(OrderId),
}

/// Writes outcomes down, where nothing is decided yet. Returns the orders for which this one counts. A sale that is about
/// to commit is waited for.
#[instrument(level = "debug", skip_all)]
pub async fn write(conn: &mut Conn, decided: &[Outcome]) -> Result<Vec<OrderId>, Error> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = SqlUuid)]
        order_id: Uuid,
    }
    let problem = |one: &Outcome| match &one.why {
        Why::Failed(problem) => Some(problem.clone()),
        Why::SameAs(_) => None,
    };
    let same_as = |one: &Outcome| match one.why {
        Why::SameAs(order) => Some(order.0),
        Why::Failed(_) => None,
    };
    let rows: Vec<Row> = diesel::sql_query(
        "INSERT INTO outcomes (order_id, problem, same_as)
         SELECT new.order_id, new.problem, new.same_as FROM unnest($1, $2, $3) AS new (order_id, problem, same_as)
         WHERE NOT EXISTS (SELECT FROM orders WHERE orders.id = new.order_id)
         ORDER BY new.order_id
         ON CONFLICT (order_id) DO NOTHING RETURNING order_id",
    )
    .bind::<Array<SqlUuid>, _>(decided.iter().map(|one| one.order.0).collect::<Vec<_>>())
    .bind::<Array<Nullable<Jsonb>>, _>(decided.iter().map(problem).collect::<Vec<_>>())
    .bind::<Array<Nullable<SqlUuid>>, _>(decided.iter().map(same_as).collect::<Vec<_>>())
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| OrderId(row.order_id)).collect())
}

/// How these orders ended, where that is known. Those that were sold are in `orders`.
#[instrument(level = "debug", skip_all)]
pub async fn find(conn: &mut Conn, orders: &[OrderId]) -> Result<Vec<Outcome>, Error> {
    let ids: Vec<Uuid> = orders.iter().map(|order| order.0).collect();
    let rows: Vec<(Uuid, Option<Value>, Option<Uuid>)> = outcomes::table
        .filter(outcomes::order_id.eq_any(ids))
        .select((outcomes::order_id, outcomes::problem, outcomes::same_as))
        .load(conn)
        .await?;
    let outcome = |(order, problem, same_as): (Uuid, Option<Value>, Option<Uuid>)| {
        let why = problem.map(Why::Failed).or(same_as.map(|order| Why::SameAs(OrderId(order))))?;
        Some(Outcome { order: OrderId(order), why })
    };
    Ok(rows.into_iter().filter_map(outcome).collect())
}

/// Deletes what is older, the oldest first, at most this many. Returns how many that were.
#[instrument(level = "debug", skip_all)]
pub async fn forget_old(conn: &mut Conn, most: usize) -> Result<usize, Error> {
    let forgotten = diesel::sql_query(
        "DELETE FROM outcomes WHERE order_id IN (
            SELECT order_id FROM outcomes WHERE decided_at < now() - make_interval(secs => $1)
            ORDER BY decided_at LIMIT $2
            FOR UPDATE SKIP LOCKED
        )",
    )
    .bind::<Double, _>(KEPT.as_secs_f64())
    .bind::<BigInt, _>(i64::try_from(most).unwrap_or(i64::MAX))
    .execute(conn)
    .await?;
    Ok(forgotten)
}
