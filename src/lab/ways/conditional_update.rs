//! One statement that checks and writes. PostgreSQL locks the row while it does so, and looks again after waiting for it.

use diesel::sql_types::{BigInt, Integer};
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, note};
use crate::lab::way::{About, Way};

pub struct ConditionalUpdate;

impl Way for ConditionalUpdate {
    fn about(&self) -> About {
        About {
            name: "conditional update",
            english: "The rule stands in the statement: SET amount = amount - 1 WHERE amount >= 1. Nothing is read \
                      first, so nothing can be out of date. This is how ZTicket takes money from a balance. A crowd \
                      still needs a connection each.",
            korean: "규칙이 문장 안에 있다: SET amount = amount - 1 WHERE amount >= 1. 먼저 읽지 않으니 낡은 값도 없다. \
                     ZTicket은 잔액을 이렇게 뺀다. 그래도 몰린 사람마다 연결이 하나씩 필요하다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            conn.transaction(async |conn| {
                let update = diesel::sql_query(
                    "UPDATE zticket_lab.items SET amount = amount + $2 WHERE item = $1 AND amount + $2 >= 0",
                );
                let update = update.bind::<Integer, _>(ask.item).bind::<BigInt, _>(ask.by);
                if update.execute(conn).await? == 0 {
                    return Ok(Answer::Refused);
                }
                note(conn, ask).await?;
                Ok(Answer::Done)
            })
            .await
        }
        .boxed()
    }
}
