//! Where the lab works: a schema in PostgreSQL, and keys in Redis.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::QueryableByName;
use diesel::result::Error as DbError;
use diesel::sql_types::{BigInt, Integer};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use futures_util::future::try_join_all;
use redis::{AsyncCommands, RedisError};

use crate::base::error::Error;
use crate::base::lock;
use crate::base::metrics::Metrics;
use crate::store::db::locks::try_lock;
use crate::store::db::pool::{self, Conn, Pool};
use crate::store::redis::keys::Keys;
use crate::store::redis::links::{self, Address, Link};
use crate::store::redis::scripts::Scripts;

/// One lab at a time: all of them use the same schema and keys, so that a lab that was killed leaves nothing for ever.
const LAB_LOCK: i64 = 0x007a_7469_636d;
const TABLES: &str = "
    DROP SCHEMA IF EXISTS zticket_lab CASCADE;
    CREATE SCHEMA zticket_lab;
    -- What there is: a seat has an amount of one, a balance any.
    CREATE TABLE zticket_lab.items (item int PRIMARY KEY, amount bigint NOT NULL, version int NOT NULL DEFAULT 0);
    -- What was done: a ticket, a payment, a charge.
    CREATE TABLE zticket_lab.changes (item int NOT NULL, buyer int NOT NULL, by bigint NOT NULL);
    -- The same for items that can be sold once.
    CREATE TABLE zticket_lab.sales (item int PRIMARY KEY, buyer int NOT NULL);
    -- The line as a table.
    CREATE TABLE zticket_lab.line (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now());
";

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Database(#[from] DbError),
    #[error("{0}")]
    Store(#[from] Error),
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        Self::Store(error.into())
    }
}

/// What a race left in the database.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct Left {
    #[diesel(sql_type = BigInt)]
    pub rows: i64,
    /// The amounts that are left, and what should be left according to the rows.
    #[diesel(sql_type = BigInt)]
    pub amount: i64,
    #[diesel(sql_type = BigInt)]
    pub expected: i64,
}

pub struct Ground {
    pub db: Pool,
    pub scripts: Arc<Scripts>,
    pub link: Link,
    /// Of an event that strategies and lines of ZTicket use.
    pub keys: Keys,
    /// How long attempts waited for a connection to the database.
    waits: Mutex<Vec<Duration>>,
    /// Holds the lock.
    _alone: Conn,
}

impl Ground {
    pub async fn new(database_url: &str, connections: usize, redis_url: &str) -> Result<Self, Fault> {
        // One more for the lock.
        let db = pool::pool(database_url, connections + 1)?;
        let mut alone = db.get().await?;
        if !try_lock(&mut alone, LAB_LOCK).await? {
            return Err(Error::internal("another lab runs on this database; wait for its end").into());
        }
        let mut link = links::link(&Address::parse(redis_url)?)?;
        let scripts = Scripts::new(Arc::new(Metrics::new().map_err(Error::internal)?));
        Scripts::load(&scripts, &mut link).await?;
        let (scripts, keys) = (Arc::new(scripts), Keys::lab());
        let ground = Self { db, scripts, link, keys, waits: Mutex::default(), _alone: alone };
        ground.clear_redis().await?;
        ground.connection().await?.batch_execute(TABLES).await?;
        // A crowd finds all connections open, as it does at a server that has run for a while.
        drop(try_join_all((0..connections).map(|_| ground.connection())).await?);
        ground.waits();
        Ok(ground)
    }

    /// Removes all that the lab made.
    pub async fn remove(&self) -> Result<(), Fault> {
        self.clear_redis().await?;
        self.connection().await?.batch_execute("DROP SCHEMA IF EXISTS zticket_lab CASCADE").await?;
        Ok(())
    }

    /// Locks end by themselves, after two seconds at most.
    pub async fn clear_redis(&self) -> Result<(), Fault> {
        let mut link = self.link.clone();
        for key in self.keys.all().iter().map(String::as_str).chain(LabKey::ALL.map(LabKey::name)) {
            let _: () = link.unlink(key).await?;
        }
        Ok(())
    }

    /// What a key takes up in Redis, estimated from a sample of its members.
    pub async fn memory(&self, key: &str) -> Result<u64, Fault> {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(1000);
        Ok(usage.query_async::<Option<u64>>(&mut self.link.clone()).await?.unwrap_or(0))
    }

    /// A connection to the database. How long it took is noted.
    pub async fn connection(&self) -> Result<Conn, Fault> {
        let asked = Instant::now();
        let conn = self.db.get().await;
        lock(&self.waits).push(asked.elapsed());
        Ok(conn?)
    }

    /// How long attempts waited for a connection since this was asked last.
    pub fn waits(&self) -> Vec<Duration> {
        std::mem::take(&mut *lock(&self.waits))
    }

    /// So many items, each with this amount, and nothing done yet.
    pub async fn lay_out(&self, items: i32, amount: i64) -> Result<(), Fault> {
        let mut conn = self.connection().await?;
        conn.batch_execute("TRUNCATE zticket_lab.items, zticket_lab.changes, zticket_lab.sales").await?;
        diesel::sql_query("INSERT INTO zticket_lab.items (item, amount) SELECT i, $2 FROM generate_series(1, $1) i")
            .bind::<Integer, _>(items)
            .bind::<BigInt, _>(amount)
            .execute(&mut conn)
            .await?;
        self.clear_redis().await
    }

    /// What is left of items that had `amount` each.
    pub async fn left(&self, amount: i64) -> Result<Left, Fault> {
        let query = diesel::sql_query(
            "SELECT (SELECT count(*) FROM zticket_lab.changes) + (SELECT count(*) FROM zticket_lab.sales) AS rows,
                    (SELECT sum(amount)::bigint FROM zticket_lab.items) AS amount,
                    (SELECT count(*) * $1 FROM zticket_lab.items)
                      + coalesce((SELECT sum(by) FROM zticket_lab.changes), 0)::bigint AS expected",
        );
        Ok(query.bind::<BigInt, _>(amount).get_result(&mut self.connection().await?).await?)
    }
}

/// Keys of the lab beside those of its event, all in one slot of a cluster.
#[derive(Debug, Clone, Copy)]
pub enum LabKey {
    Requests,
    Line,
    Seen,
    Next,
}

impl LabKey {
    const ALL: [Self; 4] = [Self::Requests, Self::Line, Self::Seen, Self::Next];

    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "zt1:{lab}:lab:requests",
            Self::Line => "zt1:{lab}:lab:line",
            Self::Seen => "zt1:{lab}:lab:seen",
            Self::Next => "zt1:{lab}:lab:next",
        }
    }
}
