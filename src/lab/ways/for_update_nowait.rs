//! The pessimistic lock without waiting: whoever finds the row locked gives up.

use diesel::result::{DatabaseErrorKind, Error as DbError};
use diesel::sql_types::Integer;
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, read_and_write};
use crate::lab::way::{About, Way};

pub struct ForUpdateNowait;

impl Way for ForUpdateNowait {
    fn about(&self) -> About {
        About {
            name: "FOR UPDATE NOWAIT",
            english: "Right, and connections come back at once. For a seat that is a fair answer: somebody else is \
                      buying it. For a balance it turns payments away that would have been fine a moment later.",
            korean: "옳고, 연결을 바로 돌려준다. 좌석이라면 맞는 답이다. 다른 사람이 사는 중이기 때문이다. 잔액이라면 \
                     조금만 기다리면 되었을 결제를 거절한다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            let outcome = conn.transaction(async |conn| {
                let lock = diesel::sql_query("SELECT FROM zticket_lab.items WHERE item = $1 FOR UPDATE NOWAIT");
                lock.bind::<Integer, _>(ask.item).execute(conn).await?;
                read_and_write(conn, ask).await
            });
            match outcome.await {
                Err(DbError::DatabaseError(DatabaseErrorKind::Unknown, info)) if is_locked(info.message()) => {
                    Ok(Answer::Busy)
                }
                outcome => Ok(outcome?),
            }
        }
        .boxed()
    }
}

/// diesel has no kind for error 55P03, lock not available.
fn is_locked(message: &str) -> bool {
    message.starts_with("could not obtain lock")
}
