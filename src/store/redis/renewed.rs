//! Connections that are replaced when a call on them times out: such a connection may be dead although the system still
//! takes it for open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, Value};

/// A clone is the same connection.
pub struct Renewed<C>(Arc<Inner<C>>);

struct Inner<C> {
    current: ArcSwap<C>,
    connect: Box<dyn Fn() -> RedisFuture<'static, C> + Send + Sync>,
    renewing: AtomicBool,
}

impl<C> Clone for Renewed<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Clone + Send + Sync + 'static> Renewed<C> {
    pub fn new(first: C, connect: impl Fn() -> RedisFuture<'static, C> + Send + Sync + 'static) -> Self {
        let (current, connect) = (ArcSwap::from_pointee(first), Box::new(connect));
        Self(Arc::new(Inner { current, connect, renewing: AtomicBool::new(false) }))
    }

    /// The connection as it is now.
    pub fn current(&self) -> C {
        self.0.current.load().as_ref().clone()
    }

    async fn call<T>(&self, send: impl AsyncFnOnce(&mut C) -> Result<T, RedisError>) -> Result<T, RedisError> {
        let used = self.0.current.load_full();
        let outcome = send(&mut used.as_ref().clone()).await;
        if outcome.as_ref().is_err_and(RedisError::is_timeout) {
            self.renew(&used);
        }
        outcome
    }

    /// Of many calls that time out together, the first replaces the connection. The new one is made beside the old one, so
    /// callers of healthy nodes do not wait.
    fn renew(&self, used: &Arc<C>) {
        if !Arc::ptr_eq(&self.0.current.load(), used) || self.0.renewing.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = self.0.clone();
        tokio::spawn(async move {
            if let Ok(fresh) = (inner.connect)().await {
                inner.current.store(Arc::new(fresh));
            }
            inner.renewing.store(false, Ordering::Relaxed);
        });
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> ConnectionLike for Renewed<C> {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.call(async move |connection: &mut C| connection.req_packed_command(cmd).await))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let send = async move |connection: &mut C| connection.req_packed_commands(pipeline, offset, count).await;
        Box::pin(self.call(send))
    }

    fn get_db(&self) -> i64 {
        self.0.current.load().get_db()
    }
}
