//! How Redis is reached, and what it must be like. One server and a cluster look the same from here on: a [`Link`] for
//! requests, a [`Pool`] for background loops.

use std::collections::HashMap;
use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool_redis::{PoolError, Runtime, Status};
use prometheus::Histogram;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, InfoDict, IntoConnectionInfo, Pipeline, RedisError, RedisFuture, Value,
    from_redis_value,
};
use socket2::TcpKeepalive;

use crate::base::error::Error;
use crate::store::redis::renewed::Renewed;

/// Longest wait for the reply to a call, including whatever a cluster does to carry it out.
const RESPONSE: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(1);
/// Shorter for a cluster: while it connects to one node, calls to the others may have to wait.
const CLUSTER_CONNECT: Duration = Duration::from_millis(300);
/// A peer that acknowledges nothing for this long is gone.
#[cfg(target_os = "linux")]
const UNTAKEN: Duration = Duration::from_secs(5);
/// How long a connection may be idle before the system probes it.
const QUIET: Duration = Duration::from_secs(30);
/// How often a call is repeated while a slot moves or a node is being replaced.
const REDIRECTS: u32 = 3;
/// Connections for the loops to a single server.
const POOLED: usize = 32;
/// The same for a cluster: each connection reaches all nodes and is shared.
const CLUSTER_POOLED: usize = 4;

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Self::Redis(error.to_string())
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        Self::Redis(error.to_string())
    }
}

/// Where Redis is.
#[derive(Clone)]
pub enum Address {
    Node(Client),
    Cluster(Box<ClusterClient>),
}

impl Address {
    /// One address, or several nodes of a cluster separated by commas.
    pub fn parse(url: &str) -> Result<Self, RedisError> {
        if !url.contains(',') {
            return Client::open(url.into_connection_info()?.set_tcp_settings(tcp())).map(Self::Node);
        }
        let nodes = url.split(',').map(str::trim).filter(|node| !node.is_empty());
        let client = ClusterClient::builder(nodes)
            .connection_timeout(CLUSTER_CONNECT)
            .response_timeout(RESPONSE)
            .retries(REDIRECTS)
            .min_retry_wait(50)
            .max_retry_wait(500)
            .tcp_settings(tcp())
            .build()?;
        Ok(Self::Cluster(Box::new(client)))
    }
}

fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(QUIET));
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNTAKEN);
    settings
}

/// A connection to one server, or one to a cluster.
#[derive(Clone)]
pub enum Connection<N> {
    Node(N),
    Cluster(Renewed<ClusterConnection>),
}

impl<N: ConnectionLike> ConnectionLike for Connection<N> {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Node(node) => node.req_packed_command(cmd),
            Self::Cluster(cluster) => cluster.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Node(node) => node.req_packed_commands(pipeline, offset, count),
            Self::Cluster(cluster) => cluster.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Node(node) => node.get_db(),
            Self::Cluster(cluster) => cluster.get_db(),
        }
    }
}

/// The connection that all requests of a web worker share: calls made together travel together.
pub type Link = Connection<Renewed<ConnectionManager>>;

/// What a loop takes from the pool for a while.
pub type Pooled = Connection<deadpool_redis::Connection>;

/// Connects on first use and again after a fault. A call to a cluster may be re-sent to the node that took over: every
/// script can be repeated. At worst that leaves places that nobody asks about, and they are swept like those of any
/// visitor who went away.
pub fn link(address: &Address) -> Result<Link, Error> {
    match address {
        Address::Node(client) => {
            let config = ConnectionManagerConfig::new()
                .set_response_timeout(Some(RESPONSE))
                .set_connection_timeout(Some(CONNECT))
                .set_number_of_retries(1)
                .set_min_delay(Duration::from_millis(50))
                .set_max_delay(Duration::from_millis(500));
            let client = client.clone();
            // Lazy: made at once, connected on first use.
            let connect = move || ConnectionManager::new_lazy_with_config(client.clone(), config.clone());
            Ok(Link::Node(Renewed::new(connect()?, move || Box::pin(future::ready(connect())))))
        }
        Address::Cluster(client) => Ok(Link::Cluster(shared(client))),
    }
}

/// Connects in the background.
fn shared(client: &ClusterClient) -> Renewed<ClusterConnection> {
    // Repeated here: the connection does not inherit the timeouts of its client.
    let config = ClusterConfig::new().set_response_timeout(RESPONSE).set_connection_timeout(CLUSTER_CONNECT);
    let first = client.get_pending_async_connection_with_config(config.clone());
    let client = client.clone();
    Renewed::new(first, move || {
        let (client, config) = (client.clone(), config.clone());
        Box::pin(async move { client.get_async_connection_with_config(config).await })
    })
}

/// Connections for the background loops. Taking one from a single server costs a round trip, so requests use a [`Link`].
#[derive(Clone)]
pub struct Pool {
    connections: Connections,
    /// Notes how long callers wait for one.
    waits: Option<Histogram>,
}

#[derive(Clone)]
enum Connections {
    Node(deadpool_redis::Pool),
    /// Shared by any number of callers, in turn. A pool that checks a connection before lending it would ask all nodes, and
    /// one dead node would hold up everyone.
    Cluster(Arc<Turns>),
}

struct Turns {
    connections: Vec<Renewed<ClusterConnection>>,
    next: AtomicUsize,
}

pub fn pool(address: &Address) -> Result<Pool, Error> {
    let connections = match address {
        Address::Node(client) => {
            let config =
                AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE)).set_connection_timeout(Some(CONNECT));
            let manager = deadpool_redis::Manager::new_with_config(client.get_connection_info().clone(), config)?;
            let pool = deadpool_redis::Pool::builder(manager)
                .max_size(POOLED)
                .wait_timeout(Some(RESPONSE))
                .create_timeout(Some(CONNECT))
                .recycle_timeout(Some(RESPONSE))
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(Error::internal)?;
            Connections::Node(pool)
        }
        Address::Cluster(client) => {
            let connections = (0..CLUSTER_POOLED).map(|_| shared(client)).collect();
            Connections::Cluster(Arc::new(Turns { connections, next: AtomicUsize::new(0) }))
        }
    };
    Ok(Pool { connections, waits: None })
}

impl Pool {
    pub async fn get(&self) -> Result<Pooled, Error> {
        let asked = Instant::now();
        let got = self.take().await;
        if let Some(waits) = &self.waits {
            waits.observe(asked.elapsed().as_secs_f64());
        }
        got
    }

    pub fn timed(self, waits: Histogram) -> Self {
        Self { waits: Some(waits), ..self }
    }

    /// How many there are and who waits for one; `None` for a cluster, whose connections are shared.
    pub fn status(&self) -> Option<Status> {
        match &self.connections {
            Connections::Node(pool) => Some(pool.status()),
            Connections::Cluster(_) => None,
        }
    }

    async fn take(&self) -> Result<Pooled, Error> {
        match &self.connections {
            Connections::Node(pool) => Ok(Pooled::Node(pool.get().await?)),
            Connections::Cluster(turns) => {
                let turn = turns.next.fetch_add(1, Ordering::Relaxed);
                let connection = turns.connections.get(turn % turns.connections.len().max(1));
                connection.cloned().map(Pooled::Cluster).ok_or_else(|| Error::internal("a pool without connections"))
            }
        }
    }

    /// Its health in a few words.
    pub async fn health(&self) -> Result<String, Error> {
        match &self.connections {
            // Taking a connection from the pool pings it.
            Connections::Node(pool) => {
                drop(pool.get().await?);
                let status = pool.status();
                Ok(format!("answers; {} of {} connections open", status.size, status.max_size))
            }
            Connections::Cluster(_) => {
                let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut self.get().await?).await?;
                let field = |name: &str| {
                    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    line.and_then(|value| value.trim().parse::<u32>().ok()).unwrap_or(0)
                };
                match field("cluster_slots_ok") {
                    0 => Err(Error::Unready),
                    served => {
                        Ok(format!("cluster of {} masters, {served} of 16384 slots served", field("cluster_size")))
                    }
                }
            }
        }
    }
}

/// Checks what the stored data relies on: Redis 7 (script flags), and no eviction.
pub async fn check(pool: &Pool) -> Result<(), Error> {
    for (node, info) in infos(pool).await? {
        let text = |name: &str| info.get::<String>(name).unwrap_or_default();
        let major: u32 = text("redis_version").split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        let wrong = if major < 7 {
            format!("Redis 7.0 or newer is needed, this is {:?}", text("redis_version"))
        } else if text("maxmemory_policy") != "noeviction" {
            format!("Redis must run with maxmemory-policy noeviction, this has {:?}", text("maxmemory_policy"))
        } else if text("cluster_enabled") == "1" && matches!(pool.connections, Connections::Node(_)) {
            "REDIS_URL names one node of a Redis Cluster: name several, with commas between".to_owned()
        } else {
            continue;
        };
        return Err(Error::Internal(if node.is_empty() { wrong } else { format!("{wrong} ({node})") }));
    }
    Ok(())
}

/// `INFO` of each server; a single one has no name.
async fn infos(pool: &Pool) -> Result<HashMap<String, InfoDict>, Error> {
    let info = redis::cmd("INFO");
    match pool.get().await? {
        Pooled::Node(mut node) => Ok(HashMap::from([(String::new(), info.query_async(&mut node).await?)])),
        Pooled::Cluster(cluster) => {
            let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            Ok(from_redis_value(cluster.current().route_command(info, masters).await?).map_err(RedisError::from)?)
        }
    }
}
