//! The optimistic lock again: whoever loses reads again and tries again.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask};
use crate::lab::way::{About, Way};
use crate::lab::ways::optimistic::try_once;

const MOST_TRIES: u64 = 50;

pub struct OptimisticRetry;

impl Way for OptimisticRetry {
    fn about(&self) -> About {
        About {
            name: "optimistic, retried",
            english: "Right, and cheap while few want the same row. In a crowd each round has one winner, and all \
                      others did their work for nothing. A seat ends that with its sale; a balance does not.",
            korean: "같은 행을 원하는 사람이 적을 때는 옳고 싸다. 사람이 몰리면 한 번에 한 명만 이기고 나머지는 \
                     헛일을 한다. 좌석은 팔리면 끝나지만 잔액은 끝나지 않는다.",
        }
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        async move {
            for tried in 1..=MOST_TRIES {
                match try_once(ground, ask).await? {
                    Answer::Busy => tokio::time::sleep(Duration::from_millis(tried)).await,
                    answer => return Ok(answer),
                }
            }
            Ok(Answer::Busy)
        }
        .boxed()
    }
}
