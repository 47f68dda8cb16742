//! A lock in Redis, done with care: an owner's token, a limit to waiting, a watchdog that renews the lease while work goes
//! on, and unlocked after the commit.

use std::time::Duration;

use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::lock::Lock;
use crate::lab::steps::{Answer, Ask, read_and_write};
use crate::lab::way::{About, Way};

/// How long a dead owner keeps the others waiting.
const LEASE: Duration = Duration::from_secs(2);

pub struct RedisLock;

impl Way for RedisLock {
    fn about(&self) -> About {
        About {
            name: "Redis lock",
            english: "Right as long as the watchdog is: an owner that is frozen for longer than the lease still writes \
                      when it wakes. It keeps the crowd away from the database, but everyone still does all of the \
                      work, one after the other, and those at the end give up. This one is asked again and again; \
                      one that wakes its waiters is quicker.",
            korean: "워치독이 살아 있는 동안은 옳다. 리스보다 오래 멈춘 소유자는 깨어나서 그대로 쓴다. 사람들을 \
                     데이터베이스에서 떼어 놓지만, 모두가 차례로 같은 일을 다 하고, 뒤에 선 사람은 포기한다. \
                     이 락은 거듭 물어보는 방식이고, 기다리는 쪽을 깨워 주는 락은 더 빠르다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let Some(lock) = Lock::take(ground, ask.item, LEASE).await? else { return Ok(Answer::Busy) };
            let watchdog = lock.watch();
            let outcome = async {
                let mut conn = ground.connection().await?;
                conn.transaction(async |conn| Ok(read_and_write(conn, ask).await?)).await
            }
            .await;
            // After the commit.
            drop(watchdog);
            if let Err(error) = lock.release().await {
                // What is sold is sold. The lease ends the lock.
                tracing::debug!(%error, "a lock is left to its lease");
            }
            outcome
        }
        .boxed()
    }
}
