//! An advisory lock: the database lends out a number, and everyone agrees what it stands for.

use diesel::sql_types::Integer;
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, read_and_write};
use crate::lab::way::{About, Way};

/// The first of two numbers of the lock; the second is the item.
const ITEMS: i32 = 0x6c61_6221;

pub struct AdvisoryLock;

impl Way for AdvisoryLock {
    fn about(&self) -> About {
        About {
            name: "advisory lock",
            english: "Like FOR UPDATE, also where there is no row yet to lock. It ends with the transaction, so nobody \
                      can forget it. It has the same price: everyone waits with a connection in hand.",
            korean: "FOR UPDATE와 같지만 잠글 행이 아직 없어도 된다. 트랜잭션과 함께 풀리므로 잊을 수 없다. 대가도 같다. \
                     모두가 연결을 쥔 채 기다린다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            conn.transaction(async |conn| {
                let lock = diesel::sql_query("SELECT pg_advisory_xact_lock($1, $2)");
                lock.bind::<Integer, _>(ITEMS).bind::<Integer, _>(ask.item).execute(conn).await?;
                Ok(read_and_write(conn, ask).await?)
            })
            .await
        }
        .boxed()
    }
}
