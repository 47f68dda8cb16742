//! Advisory locks: what one server at a time may do.

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::pooled_connection::deadpool::Object;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::store::db::pool::Pool;

/// Whoever makes the example concerts holds it.
pub const SEED_LOCK: i64 = 0x007a_7469_636c;

/// Runs `work` while no other server does the same for this event; `None` if another one is at it.
pub async fn alone<T>(
    pool: &Pool,
    event: EventId,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    // The lock ends with the session, and that with this value, also where the work is abandoned halfway.
    let mut conn = Object::take(pool.get().await?);
    let key = i64::from(event.get()) | (0x7a74 << 32);
    if !try_lock(&mut conn, key).await? {
        return Ok(None);
    }
    work.await.map(Some)
}

#[derive(QueryableByName)]
struct Flag {
    #[diesel(sql_type = Bool)]
    flag: bool,
}

pub async fn try_lock(conn: &mut AsyncPgConnection, key: i64) -> Result<bool, Error> {
    let row: Flag =
        diesel::sql_query("SELECT pg_try_advisory_lock($1) AS flag").bind::<BigInt, _>(key).get_result(conn).await?;
    Ok(row.flag)
}

/// Waits for a lock that ends with the transaction.
pub async fn lock_until_commit(conn: &mut AsyncPgConnection, key: i64) -> Result<(), Error> {
    diesel::sql_query("SELECT pg_advisory_xact_lock($1)").bind::<BigInt, _>(key).execute(conn).await?;
    Ok(())
}
