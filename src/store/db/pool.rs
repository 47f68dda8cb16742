//! Connections to PostgreSQL.

use std::time::{Duration, Instant};

use deadpool_redis::Status;
use diesel::ConnectionError;
use diesel_async::pooled_connection::deadpool::{Hook, Object, Pool as DeadPool, PoolError};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use futures_util::FutureExt;
use prometheus::Histogram;
use tokio::runtime::Handle;

use crate::base::error::Error;
use crate::store::db::impatient::{self, Silence};

pub type Conn = Object<AsyncPgConnection>;

/// Connections that are lent to one caller at a time.
#[derive(Clone)]
pub struct Pool {
    connections: DeadPool<AsyncPgConnection>,
    /// Notes how long callers wait for one.
    waits: Option<Histogram>,
}

impl Pool {
    pub async fn get(&self) -> Result<Conn, Error> {
        let asked = Instant::now();
        let got = self.connections.get().await;
        if let Some(waits) = &self.waits {
            waits.observe(asked.elapsed().as_secs_f64());
        }
        Ok(got?)
    }

    pub fn timed(self, waits: Histogram) -> Self {
        Self { waits: Some(waits), ..self }
    }

    pub fn status(&self) -> Status {
        self.connections.status()
    }
}

/// Closes a connection that broke. In the pool it would look well until its end is noticed.
pub fn discard(conn: Conn) {
    drop(Object::take(conn));
}

const WAIT: Duration = Duration::from_secs(2);
/// A new connection costs a process over there, and the proof of a password here.
pub const CONNECT: Duration = Duration::from_secs(5);
/// A little longer than the database itself allows a statement: after that it is not slow but silent.
const ANSWER: Duration = Duration::from_secs(6);

/// Every query on a large table has an index. Statements are prepared once per connection, also while tables are small:
/// without the third setting such a plan would read the whole table for as long as the connection lives.
const SETTINGS: &str =
    "SET statement_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'; SET enable_seqscan = off";

impl From<diesel::result::Error> for Error {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error.to_string())
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        Self::DatabaseAway(error.to_string())
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        Self::DatabaseAway(error.to_string())
    }
}

/// What the outbox is to tell: the statements that sell and cancel ask for this setting.
const FACTS: &str = "; SET zticket.facts = 'on'";

/// Connections live in the runtime this is called in, whichever thread asks for them.
pub fn pool(url: &str, size: usize) -> Result<Pool, Error> {
    pool_with(url, size, false)
}

/// `facts`: what is sold and cancelled on these connections goes to the outbox too.
pub fn pool_with(url: &str, size: usize, facts: bool) -> Result<Pool, Error> {
    let settings = if facts { format!("{SETTINGS}{FACTS}") } else { SETTINGS.to_owned() };
    let runtime = Handle::current();
    let silence = Silence::default();
    let known = silence.clone();
    let mut config = ManagerConfig::default();
    // The first use of a broken connection finds out, and it is replaced; checking beforehand would cost every caller.
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |url| {
        let (runtime, url, silence) = (runtime.clone(), url.to_owned(), silence.clone());
        let settings = settings.clone();
        async move {
            let connected = runtime.spawn(async move { connect_with(&url, silence, &settings).await }).await;
            connected.unwrap_or_else(|failed| Err(ConnectionError::BadConnection(failed.to_string())))
        }
        .boxed()
    });
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new_with_config(url, config);
    let connections = DeadPool::builder(manager)
        .max_size(size)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(CONNECT))
        .recycle_timeout(Some(WAIT))
        .pre_recycle(Hook::sync_fn(move |_, metrics| known.allows(metrics.created)))
        .runtime(deadpool_redis::Runtime::Tokio1)
        .build()
        .map_err(Error::internal)?;
    Ok(Pool { connections, waits: None })
}

pub async fn connect(url: &str, silence: Silence) -> Result<AsyncPgConnection, ConnectionError> {
    connect_with(url, silence, SETTINGS).await
}

async fn connect_with(url: &str, silence: Silence, settings: &str) -> Result<AsyncPgConnection, ConnectionError> {
    let mut conn = impatient::connect(url, CONNECT, ANSWER, silence).await?;
    conn.batch_execute(settings).await.map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(conn)
}

/// One round trip, to see whether the database answers.
pub async fn ping(pool: &Pool) -> Result<(), Error> {
    pool.get().await?.batch_execute("SELECT 1").await?;
    Ok(())
}
