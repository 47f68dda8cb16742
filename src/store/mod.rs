//! The two stores: PostgreSQL and Redis, and how requests share them. Knows only `base`.

pub mod db;
pub mod gather;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod redis;

use std::sync::Arc;

use deadpool_redis::Status;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::Instrument;

use crate::base::LONGEST_WAIT;
use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::store::db::pool::Conn;
use crate::store::redis::lane::Lane;
use crate::store::redis::links::{self, Address};
use crate::store::redis::scripts::Scripts;

/// Requests use half of the database connections for queries of their own, so that sales always find one. Further requests
/// wait for their turn, up to this bound; beyond it they are refused at once, because they would wait in vain.
const MOST_QUERIES: usize = 2000;
/// Calls to Redis that the requests of a server may have under way. Redis does tens of thousands a second: more would be
/// answered too late, and done all the same.
const MOST_CALLS: usize = 4000;

/// PostgreSQL and Redis, connected and checked.
pub struct Stores {
    pub db: db::pool::Pool,
    pub redis: links::Pool,
    pub scripts: Scripts,
    pub metrics: Arc<Metrics>,
    address: Address,
    /// Pooled connections live in this runtime: work on them is done here, whichever thread asked for it.
    runtime: Handle,
    /// Room for queries that run or wait, and for those that run.
    queries: Semaphore,
    turns: Arc<Semaphore>,
}

impl Stores {
    /// Connects to both and loads the scripts. `facts`: sales and cancels go to the outbox too.
    pub async fn connect(
        database_url: &str,
        db_connections: usize,
        facts: bool,
        redis_url: &str,
        scripts: Scripts,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Error> {
        let waits = |pool: &str| metrics.pool_wait_seconds.with_label_values(&[pool]);
        let db = db::pool::pool_with(database_url, db_connections, facts)?.timed(waits("postgres"));
        let address = Address::parse(redis_url)?;
        let redis = links::pool(&address)?.timed(waits("redis"));
        links::check(&redis).await?;
        scripts.load(&mut redis.get().await?).await?;
        Ok(Self {
            db,
            redis,
            scripts,
            metrics,
            address,
            runtime: Handle::current(),
            queries: Semaphore::new(MOST_QUERIES),
            turns: Arc::new(Semaphore::new(db_connections / 2)),
        })
    }

    /// A connection to Redis for work in the background that makes many calls at once.
    pub fn lane(&self) -> Result<Lane, Error> {
        Lane::new(&self.address, MOST_CALLS)
    }

    /// Runs work on pooled connections in the background runtime and waits for it, within limits. It goes on to its end
    /// even if the caller goes away.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        // The timer must belong to the background runtime: that of a web worker may be gone before the work is done.
        let work = async move { timeout(LONGEST_WAIT, work).await };
        let done = self.runtime.spawn(work.in_current_span()).await;
        done.map_err(Error::internal)?.unwrap_or(Err(Error::TooSlow("a request")))
    }

    /// The same without waiting for it, and without limits.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Runs a query for a request, when its turn comes.
    pub async fn query<T: Send + 'static>(
        &self,
        ask: impl for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let _room = self.queries.try_acquire().map_err(|_| Error::Overloaded("queries"))?;
        // The caller waits here, so a caller that gives up does not get a turn.
        let turn = timeout(LONGEST_WAIT, self.turns.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| Error::TooSlow("a query"))?;
        let db = self.db.clone();
        self.run(async move {
            let answer = ask(&mut db.get().await?).await;
            drop(turn);
            answer
        })
        .await
    }
}

/// What the web may ask of the stores: connections for its workers, and how the stores are.
#[derive(Clone)]
pub struct Access(Arc<Stores>);

impl Access {
    pub fn new(stores: Arc<Stores>) -> Self {
        Self(stores)
    }

    /// A connection to Redis for one of this many web workers.
    pub fn lane(&self, workers: usize) -> Result<Lane, Error> {
        Lane::new(&self.0.address, MOST_CALLS.div_ceil(workers))
    }

    /// The pools of connections that have a limit, by name.
    pub fn pools(&self) -> Vec<(&'static str, Status)> {
        let redis = self.0.redis.status().map(|status| ("redis", status));
        [("postgres", self.0.db.status())].into_iter().chain(redis).collect()
    }

    /// How PostgreSQL is, in a few words.
    pub async fn postgres_health(&self) -> Result<String, Error> {
        let db = self.0.db.clone();
        self.0.run(async move { db::pool::ping(&db).await }).await?;
        let status = self.0.db.status();
        Ok(format!("answers; {} of {} connections open", status.size, status.max_size))
    }

    /// How Redis is, in a few words.
    pub async fn redis_health(&self) -> Result<String, Error> {
        let redis = self.0.redis.clone();
        self.0.run(async move { redis.health().await }).await
    }
}
