//! No lock: read, decide, write, and hope.

use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, PAUSE, read_wait_write};
use crate::lab::way::{About, Way};

pub struct NoLock;

impl Way for NoLock {
    fn about(&self) -> About {
        About {
            name: "no lock",
            english: "Everyone who reads before the first commit sees a free seat, and sells it. A transaction alone \
                      does not help: at PostgreSQL's default level it does not stop others from reading the same row.",
            korean: "첫 커밋 전에 읽은 사람은 모두 빈 좌석을 보고 판다. 트랜잭션만으로는 막을 수 없다. PostgreSQL의 \
                     기본 격리 수준은 다른 사람이 같은 행을 읽는 것을 막지 않는다.",
        }
    }

    fn broken(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            // The bug: when it is written, what was read may no longer be true.
            conn.transaction(async |conn| Ok(read_wait_write(conn, ask, PAUSE).await?)).await
        }
        .boxed()
    }
}
