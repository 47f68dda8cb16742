//! Advisory locks: what one server at a time may do.

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::pooled_connection::deadpool::Object;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use tracing::instrument;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::store::db::pool::{Conn, Pool};

/// Whoever makes the example concerts holds it.
pub const SEED_LOCK: i64 = 0x007a_7469_636c;

/// The sole right to repair an event, on a connection of its own. If it is dropped rather than given back, because the
/// work was abandoned halfway, the connection is closed, and the lock ends with it.
pub struct Alone {
    conn: Option<Conn>,
    key: i64,
}

impl Alone {
    /// `None`: another server has it.
    #[instrument(level = "debug", skip_all)]
    pub async fn with(pool: &Pool, event: EventId) -> Result<Option<Self>, Error> {
        let key = key(event);
        let mut alone = Self { conn: Some(pool.get().await?), key };
        if try_lock(alone.conn()?, key).await? {
            return Ok(Some(alone));
        }
        // Back to the pool: there is no lock to end.
        drop(alone.conn.take());
        Ok(None)
    }

    pub fn conn(&mut self) -> Result<&mut Conn, Error> {
        self.conn.as_mut().ok_or_else(|| Error::internal("a lock without a connection"))
    }

    #[instrument(level = "debug", skip_all)]
    pub async fn give_back(mut self) -> Result<(), Error> {
        let key = self.key;
        diesel::sql_query("SELECT pg_advisory_unlock($1)").bind::<BigInt, _>(key).execute(self.conn()?).await?;
        // Back to the pool.
        drop(self.conn.take());
        Ok(())
    }
}

/// Closes the connection of the server that has that right, if it has asked the database nothing for four seconds. Such a
/// server is frozen: its connection stays open, and no other server could repair.
#[instrument(level = "debug", skip_all)]
pub async fn oust(pool: &Pool, event: EventId) -> Result<(), Error> {
    diesel::sql_query(
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
         WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
           AND state = 'idle' AND state_change < now() - interval '4 seconds'
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND classid::bigint = $1 >> 32 AND objid::bigint = $1 & 4294967295 AND objsubid = 1",
    )
    .bind::<BigInt, _>(key(event))
    .execute(&mut pool.get().await?)
    .await?;
    Ok(())
}

fn key(event: EventId) -> i64 {
    i64::from(event.get()) | (0x7a74 << 32)
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.conn.take().map(Object::take);
    }
}

#[derive(QueryableByName)]
struct Flag {
    #[diesel(sql_type = Bool)]
    flag: bool,
}

#[instrument(level = "debug", skip_all)]
pub async fn try_lock(conn: &mut AsyncPgConnection, key: i64) -> Result<bool, Error> {
    let row: Flag =
        diesel::sql_query("SELECT pg_try_advisory_lock($1) AS flag").bind::<BigInt, _>(key).get_result(conn).await?;
    Ok(row.flag)
}

/// Waits for a lock that ends with the transaction.
#[instrument(level = "debug", skip_all)]
pub async fn lock_until_commit(conn: &mut AsyncPgConnection, key: i64) -> Result<(), Error> {
    diesel::sql_query("SELECT pg_advisory_xact_lock($1)").bind::<BigInt, _>(key).execute(conn).await?;
    Ok(())
}
