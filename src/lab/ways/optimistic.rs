//! An optimistic lock: a version column. A write counts only if the version is still the one that was read.

use diesel::sql_types::{BigInt, Integer};
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, note, read};
use crate::lab::way::{About, Way};

pub struct Optimistic;

impl Way for Optimistic {
    fn about(&self) -> About {
        About {
            name: "optimistic",
            english: "One write wins, and nobody waits longer than for its commit. Everyone who read the same version is turned away, \
                      also where there was enough for all: on a balance, payments fail for no reason that the payer \
                      could see.",
            korean: "한 쓰기만 성공하고, 그 커밋보다 오래 기다리는 사람은 없다. 같은 버전을 읽은 나머지는 남은 수량이 충분해도 \
                     모두 거절된다. 잔액에서는 결제한 사람이 이유를 알 수 없는 실패가 된다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        try_once(ground, ask).boxed()
    }
}

/// `Busy`: somebody else wrote since the item was read.
pub async fn try_once(ground: &Ground, ask: Ask) -> Result<Answer, Fault> {
    let mut conn = ground.connection().await?;
    conn.transaction(async |conn| {
        let item = read(conn, ask.item).await?;
        let Some(after) = item.after(ask.by) else { return Ok(Answer::Refused) };
        let update = diesel::sql_query(
            "UPDATE zticket_lab.items SET amount = $2, version = version + 1 WHERE item = $1 AND version = $3",
        );
        let update = update.bind::<Integer, _>(ask.item).bind::<BigInt, _>(after).bind::<Integer, _>(item.version);
        if update.execute(conn).await? == 0 {
            return Ok(Answer::Busy);
        }
        note(conn, ask).await?;
        Ok(Answer::Done)
    })
    .await
}
