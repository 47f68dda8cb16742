//! Redis: how it is reached, and what it must be like. What is written there is in `scripts.rs` only.

pub mod gather;
pub mod keys;
pub mod scripts;

use std::time::Duration;

use deadpool_redis::{Config, Pool, Runtime};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, InfoDict};

use crate::error::Error;

/// No call is waited for longer than this.
const RESPONSE: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(1);

/// The connection a web worker shares among all its requests: calls made together travel together.
pub type Link = ConnectionManager;

/// For the loops in the background. Taking a connection costs a round trip, so requests use a [`Link`].
pub fn pool(url: &str) -> Result<Pool, Error> {
    let mut config = Config::from_url(url);
    let mut pool = deadpool_redis::PoolConfig::new(32);
    pool.timeouts.wait = Some(RESPONSE);
    pool.timeouts.create = Some(CONNECT);
    pool.timeouts.recycle = Some(RESPONSE);
    config.pool = Some(pool);
    config.create_pool(Some(Runtime::Tokio1)).map_err(|error| Error::Internal(error.to_string()))
}

/// Connects on first use and again after a fault. A call that failed is never sent again by itself.
pub fn link(client: &Client) -> Result<Link, Error> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(RESPONSE))
        .set_connection_timeout(Some(CONNECT))
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500));
    Ok(ConnectionManager::new_lazy_with_config(client.clone(), config)?)
}

/// What the stored shape relies on: Redis 7 (script flags), and that nothing is evicted.
pub async fn check(pool: &Pool) -> Result<(), Error> {
    let mut conn = pool.get().await?;
    let (server, memory): (InfoDict, InfoDict) =
        redis::pipe().cmd("INFO").arg("server").cmd("INFO").arg("memory").query_async(&mut conn).await?;
    let version: String = server.get("redis_version").unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    if major < 7 {
        return Err(Error::Internal(format!("Redis 7.0 or newer is needed, this is {version:?}")));
    }
    let policy: String = memory.get("maxmemory_policy").unwrap_or_default();
    if policy != "noeviction" {
        return Err(Error::Internal(format!("Redis must run with maxmemory-policy noeviction, this has {policy:?}")));
    }
    Ok(())
}
