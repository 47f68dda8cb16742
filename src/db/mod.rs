//! PostgreSQL: the pool, the migrations, and one file of queries per table. Rules and transactions live in the stage
//! that owns them.

pub mod concerts;
pub mod events;
mod impatient;
pub mod rankings;
#[rustfmt::skip]
pub mod schema;
pub mod signing_keys;
pub mod tickets;
pub mod users;

use std::time::Duration;

use diesel::sql_types::{BigInt, Bool};
use diesel::{ConnectionError, QueryableByName};
use diesel_async::pooled_connection::deadpool::{Hook, Object, Pool as DeadPool};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};
use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use futures_util::FutureExt;
use tokio::runtime::Handle;

use crate::db::impatient::Silence;
use crate::error::Error;
use crate::ids::EventId;

pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

pub type Pool = DeadPool<AsyncPgConnection>;
pub type Conn = Object<AsyncPgConnection>;

const WAIT: Duration = Duration::from_secs(2);
/// A new connection costs a process over there, and the proof of a password here.
const CONNECT: Duration = Duration::from_secs(5);
/// A little longer than the database itself lets a statement take: after that it is not slow, it is silent.
const ANSWER: Duration = Duration::from_secs(6);
/// A migration may have a large table to write anew.
const LONGEST_MIGRATION: Duration = Duration::from_secs(3600);
/// The lock servers that start together take turns by while they migrate.
const MIGRATION_LOCK: i64 = 0x007a_7469_636b;
/// The lock of whoever makes the example concerts.
pub const SEED_LOCK: i64 = 0x007a_7469_636c;

/// Connections live in the runtime this is called in, whoever asks for them.
pub fn pool(url: &str, size: usize) -> Result<Pool, Error> {
    let runtime = Handle::current();
    let silence = Silence::default();
    let known = silence.clone();
    let mut config = ManagerConfig::default();
    // A broken connection is found out by its first use and then replaced; asking beforehand costs every caller.
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |url| {
        let (runtime, url, silence) = (runtime.clone(), url.to_owned(), silence.clone());
        async move {
            let connected = runtime.spawn(async move { connect(&url, silence).await }).await;
            connected.unwrap_or_else(|failed| Err(ConnectionError::BadConnection(failed.to_string())))
        }
        .boxed()
    });
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new_with_config(url, config);
    DeadPool::builder(manager)
        .max_size(size)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(CONNECT))
        .recycle_timeout(Some(WAIT))
        .pre_recycle(Hook::sync_fn(move |_, metrics| known.allows(metrics.created)))
        .runtime(deadpool_redis::Runtime::Tokio1)
        .build()
        .map_err(|error| Error::Internal(error.to_string()))
}

async fn connect(url: &str, silence: Silence) -> Result<AsyncPgConnection, ConnectionError> {
    let mut conn = impatient::connect(url, CONNECT, ANSWER, silence).await?;
    conn.batch_execute("SET statement_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'")
        .await
        .map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(conn)
}

/// Brings the database up to date. Servers that start together take turns.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    let away = |error: ConnectionError| Error::DatabasePool(error.to_string());
    // The lock goes with this connection.
    let mut conn = connect(url, Silence::default()).await.map_err(away)?;
    while !try_lock(&mut conn, MIGRATION_LOCK).await? {
        tracing::info!("another server migrates the database, waiting for it");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut looking = AsyncMigrationHarness::new(conn);
    let pending = looking.has_pending_migration(MIGRATIONS);
    if !pending.map_err(|error| Error::DatabasePool(error.to_string()))? {
        return Ok(Vec::new());
    }
    let migrating = impatient::connect(url, CONNECT, LONGEST_MIGRATION, Silence::default()).await.map_err(away)?;
    let mut harness = AsyncMigrationHarness::new(migrating);
    let applied = harness.run_pending_migrations(MIGRATIONS).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(applied.iter().map(ToString::to_string).collect())
}

/// Runs `work` while no other server does the same for this event; `None` if another one is at it.
pub async fn alone<T>(
    pool: &Pool,
    event: EventId,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    // The lock goes with the session, which goes with this value, also where the work is given up halfway.
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

async fn try_lock(conn: &mut AsyncPgConnection, key: i64) -> Result<bool, Error> {
    let row: Flag =
        diesel::sql_query("SELECT pg_try_advisory_lock($1) AS flag").bind::<BigInt, _>(key).get_result(conn).await?;
    Ok(row.flag)
}

/// Waits for a lock that goes with the transaction.
pub async fn lock_until_commit(conn: &mut AsyncPgConnection, key: i64) -> Result<(), Error> {
    diesel::sql_query("SELECT pg_advisory_xact_lock($1)").bind::<BigInt, _>(key).execute(conn).await?;
    Ok(())
}

/// One round trip, to see that the database answers.
pub async fn ping(pool: &Pool) -> Result<(), Error> {
    pool.get().await?.batch_execute("SELECT 1").await?;
    Ok(())
}
