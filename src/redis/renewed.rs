//! Connections that are replaced when a call on them is not answered in time: it may be one that nobody will ever answer
//! again, and that the system takes for open all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, Pipeline, RedisError, RedisFuture, Value};

/// To one server. Cloning it gives the same connection.
#[derive(Clone)]
pub struct Renewed(Arc<Inner>);

struct Inner {
    client: Client,
    config: ConnectionManagerConfig,
    manager: ArcSwap<ConnectionManager>,
}

impl Renewed {
    /// Connects on first use.
    pub fn new(client: Client, config: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self(Arc::new(Inner { client, config, manager: ArcSwap::from_pointee(manager) })))
    }
}

impl Inner {
    /// Of many calls that were not answered together, the first has the connection replaced.
    fn look<T>(&self, used: &Arc<ConnectionManager>, outcome: &Result<T, RedisError>) {
        if outcome.as_ref().is_err_and(RedisError::is_timeout) {
            let fresh = ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone());
            if let Ok(fresh) = fresh {
                self.manager.compare_and_swap(used, Arc::new(fresh));
            }
        }
    }
}

impl ConnectionLike for Renewed {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let manager = self.0.manager.load_full();
            let outcome = manager.as_ref().clone().send_packed_command(cmd).await;
            self.0.look(&manager, &outcome);
            outcome
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let manager = self.0.manager.load_full();
            let outcome = manager.as_ref().clone().send_packed_commands(pipeline, offset, count).await;
            self.0.look(&manager, &outcome);
            outcome
        })
    }

    fn get_db(&self) -> i64 {
        self.0.manager.load().get_db()
    }
}

/// To all nodes of a cluster. The next connection is made beside the one in use, so that whoever has to do with nodes that
/// are well does not wait for it. Cloning it gives the same connection.
#[derive(Clone)]
pub struct RenewedCluster(Arc<ClusterInner>);

struct ClusterInner {
    client: ClusterClient,
    config: ClusterConfig,
    current: ArcSwap<ClusterConnection>,
    renewing: AtomicBool,
}

impl RenewedCluster {
    /// Connects in the background.
    pub fn new(client: ClusterClient, config: ClusterConfig) -> Self {
        let current = client.get_pending_async_connection_with_config(config.clone());
        let renewing = AtomicBool::new(false);
        Self(Arc::new(ClusterInner { client, config, current: ArcSwap::from_pointee(current), renewing }))
    }

    /// The connection as it is now.
    pub fn current(&self) -> ClusterConnection {
        self.0.current.load().as_ref().clone()
    }

    /// A node that was frozen is only found to be replaced by another one by whoever asks anew.
    fn look<T>(&self, outcome: &Result<T, RedisError>) {
        if !outcome.as_ref().is_err_and(RedisError::is_timeout) || self.0.renewing.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = self.0.clone();
        tokio::spawn(async move {
            if let Ok(fresh) = inner.client.get_async_connection_with_config(inner.config.clone()).await {
                inner.current.store(Arc::new(fresh));
            }
            inner.renewing.store(false, Ordering::Relaxed);
        });
    }
}

impl ConnectionLike for RenewedCluster {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let outcome = self.current().req_packed_command(cmd).await;
            self.look(&outcome);
            outcome
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let outcome = self.current().req_packed_commands(pipeline, offset, count).await;
            self.look(&outcome);
            outcome
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
