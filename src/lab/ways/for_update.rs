//! A pessimistic lock: whoever reads the row locks it until the commit, and the others wait.

use diesel::result::Error as DbError;
use diesel::sql_types::Integer;
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, decide_and_write};
use crate::lab::way::{About, Way};

pub struct ForUpdate;

impl Way for ForUpdate {
    fn about(&self) -> About {
        About {
            name: "FOR UPDATE",
            english: "Right, and simple. Everyone waits for the row with a database connection in hand, so a crowd at \
                      one seat takes all connections from everyone else.",
            korean: "옳고 단순하다. 다만 모두가 데이터베이스 연결을 쥔 채 행을 기다리므로, 한 좌석에 몰린 사람들이 \
                     다른 모두의 연결을 차지한다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            let outcome = conn.transaction(async |conn| {
                let read = "SELECT amount, version FROM zticket_lab.items WHERE item = $1 FOR UPDATE";
                let item = diesel::sql_query(read).bind::<Integer, _>(ask.item).get_result(conn).await?;
                match decide_and_write(conn, &item, ask).await? {
                    // A commit would have to reach the disk, because a row lock is written down too.
                    Answer::Refused => Err(DbError::RollbackTransaction),
                    answer => Ok(answer),
                }
            });
            match outcome.await {
                Err(DbError::RollbackTransaction) => Ok(Answer::Refused),
                outcome => Ok(outcome?),
            }
        }
        .boxed()
    }
}
