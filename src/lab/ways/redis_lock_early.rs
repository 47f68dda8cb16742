//! The lock in Redis with one mistake: unlocked before the commit, as happens when the lock is taken inside a transaction
//! that something else commits.

use std::time::Duration;

use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::lock::Lock;
use crate::lab::steps::{Answer, Ask, PAUSE, read_and_write};
use crate::lab::way::{About, Way};

const LEASE: Duration = Duration::from_secs(2);

pub struct RedisLockEarly;

impl Way for RedisLockEarly {
    fn about(&self) -> About {
        About {
            name: "Redis lock, unlocked before the commit",
            english: "Between unlocking and the commit, the next owner reads the old row, and sells again. A lock that \
                      an annotation puts around a method inside a transaction does just that.",
            korean: "락을 푼 뒤 커밋하기 전에 다음 소유자가 옛 행을 읽고 또 판다. 트랜잭션 안의 메서드에 \
                     애너테이션으로 건 락이 바로 이렇게 동작한다.",
        }
    }

    fn broken(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            conn.transaction(async |conn| {
                let Some(lock) = Lock::take(ground, ask.item, LEASE).await? else { return Ok(Answer::Busy) };
                let outcome = read_and_write(conn, ask).await;
                lock.release().await?;
                // The bug: nobody else can see yet what was written.
                tokio::time::sleep(PAUSE).await;
                Ok(outcome?)
            })
            .await
        }
        .boxed()
    }
}
