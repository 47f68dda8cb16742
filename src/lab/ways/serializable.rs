//! Serializable transactions: the database finds out that two of them could not have run one after the other, ends one, and
//! that one is tried again.

use std::time::Duration;

use diesel::result::{DatabaseErrorKind, Error as DbError};
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask, read_and_write};
use crate::lab::way::{About, Way};

const MOST_TRIES: u64 = 50;

pub struct Serializable;

impl Way for Serializable {
    fn about(&self) -> About {
        About {
            name: "serializable, retried",
            english: "Right without a thought about locks, also for rules over many rows. The price is the same as for \
                      the optimistic lock: in a crowd, most of the work is done to be thrown away.",
            korean: "락을 생각하지 않아도 옳고, 여러 행에 걸친 규칙에도 통한다. 대가는 낙관적 락과 같다. 사람이 몰리면 \
                     일의 대부분이 버려진다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            for tried in 1..=MOST_TRIES {
                match try_once(ground, ask).await {
                    Err(Fault::Database(DbError::DatabaseError(DatabaseErrorKind::SerializationFailure, _))) => {
                        tokio::time::sleep(Duration::from_millis(tried)).await;
                    }
                    outcome => return outcome,
                }
            }
            Ok(Answer::Busy)
        }
        .boxed()
    }
}

async fn try_once(ground: &Ground, ask: Ask) -> Result<Answer, Fault> {
    let mut conn = ground.connection().await?;
    conn.transaction(async |conn| {
        conn.batch_execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await?;
        Ok(read_and_write(conn, ask).await?)
    })
    .await
}
