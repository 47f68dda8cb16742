//! The pessimistic lock without waiting: whoever finds the row locked gives up.

use diesel::result::{DatabaseErrorKind, Error as DbError};
use diesel::sql_types::Integer;
use diesel_async::{AsyncConnection, RunQueryDsl};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, decide_and_write};
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
                let read = "SELECT amount, version FROM zticket_lab.items WHERE item = $1 FOR UPDATE NOWAIT";
                let item = match diesel::sql_query(read).bind::<Integer, _>(ask.item).get_result(conn).await {
                    // diesel has no kind for "lock not available", and its text comes in the database's language.
                    Err(DbError::DatabaseError(DatabaseErrorKind::Unknown, _)) => return Err(Undone(Answer::Busy)),
                    item => item?,
                };
                match decide_and_write(conn, &item, ask).await? {
                    Answer::Refused => Err(Undone(Answer::Refused)),
                    answer => Ok(answer),
                }
            });
            match outcome.await {
                Err(Undone(answer)) => Ok(answer),
                Err(Failed(error)) => Err(error.into()),
                Ok(answer) => Ok(answer),
            }
        }
        .boxed()
    }
}

/// Why a transaction was rolled back.
enum Rollback {
    Undone(Answer),
    Failed(DbError),
}
use Rollback::{Failed, Undone};

impl From<DbError> for Rollback {
    fn from(error: DbError) -> Self {
        Failed(error)
    }
}
