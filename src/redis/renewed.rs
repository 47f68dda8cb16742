//! A connection to one server that is replaced when a call on it is not answered in time: it may be one that nobody will
//! ever answer again, and that the system takes for open all the same.

use std::sync::Arc;

use arc_swap::ArcSwap;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, Pipeline, RedisError, RedisFuture, Value};

/// Cloning it gives the same connection.
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
