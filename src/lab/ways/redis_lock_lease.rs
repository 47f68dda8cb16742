//! The lock in Redis with a guessed lease: when work takes longer, the lock ends under it.

use std::time::Duration;

use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::lock::Lock;
use crate::lab::steps::{Answer, Ask, PAUSE, read_wait_write};
use crate::lab::way::{About, Way};

/// Shorter than the work.
const LEASE: Duration = Duration::from_millis(2);

pub struct RedisLockLease;

impl Way for RedisLockLease {
    fn about(&self) -> About {
        About {
            name: "Redis lock, lease too short",
            english: "A lease is a guess at how long the work takes. One slow commit, one pause of the garbage \
                      collector, and two owners are at work. Each of them believes that it has the lock.",
            korean: "리스는 일이 얼마나 걸릴지 어림한 값이다. 커밋이 한 번 느려지거나 GC가 한 번 멈추면 두 소유자가 \
                     동시에 일한다. 둘 다 자기가 락을 쥐었다고 믿는다.",
        }
    }

    fn broken(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let Some(lock) = Lock::take(ground, ask.item, LEASE).await? else { return Ok(Answer::Busy) };
            let outcome = async {
                let mut conn = ground.connection().await?;
                // The bug: slow work, and the lease runs out.
                conn.transaction(async |conn| Ok(read_wait_write(conn, ask, PAUSE).await?)).await
            }
            .await;
            lock.release().await?;
            outcome
        }
        .boxed()
    }
}
