//! A crowd in a line: how much each way to keep a line can take, and what a longer line costs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::base::error::Error;
use crate::lab::ground::{Fault, Ground};
use crate::lab::line::Line;

/// People who ask at the same time.
const AT_ONCE: u64 = 64;

/// What one line can do at one length.
#[derive(Debug, Clone)]
pub struct Measured {
    pub people: u32,
    pub polls_a_second: f64,
    pub entries_a_second: f64,
    pub bytes_a_person: f64,
    /// Requests that failed, most of them because no connection to the database came free in time.
    pub failed: u64,
}

/// What people got done, and how often they failed.
struct Done {
    a_second: f64,
    failed: u64,
}

pub async fn measure(
    ground: &Arc<Ground>,
    line: &Arc<dyn Line>,
    people: u32,
    time: Duration,
) -> Result<Measured, Fault> {
    line.fill(ground, people).await?;
    for place in [1, u64::from(people).div_ceil(2), u64::from(people)] {
        let rank = line.poll(ground, place).await?;
        if rank != place {
            return Err(Error::internal(format!("{}: place {place} has rank {rank}", line.about().name)).into());
        }
    }
    let bytes_a_person = line.bytes(ground).await? as f64 / f64::from(people);
    let polls = each(ground, line, time, move |ground, line, number| async move {
        // A large odd step visits all places in no order that a cache could like.
        let place = 1 + number.wrapping_mul(2_654_435_761) % u64::from(people);
        line.poll(&ground, place).await
    })
    .await?;
    let entries = each(ground, line, time, |ground, line, _| async move { line.enter(&ground).await }).await?;
    line.finish(ground).await?;
    Ok(Measured {
        people,
        polls_a_second: polls.a_second,
        entries_a_second: entries.a_second,
        bytes_a_person,
        failed: polls.failed + entries.failed,
    })
}

/// How often a second people can do this, each again and again with numbers of their own.
async fn each<F>(
    ground: &Arc<Ground>,
    line: &Arc<dyn Line>,
    time: Duration,
    act: impl Fn(Arc<Ground>, Arc<dyn Line>, u64) -> F + Copy + Send + 'static,
) -> Result<Done, Fault>
where
    F: Future<Output = Result<u64, Fault>> + Send,
{
    let mut crowd = JoinSet::new();
    let started = Instant::now();
    for person in 0..AT_ONCE {
        let (ground, line) = (ground.clone(), line.clone());
        crowd.spawn(async move {
            let (mut acts, mut failed) = (0, 0);
            while started.elapsed() < time {
                let done = act(ground.clone(), line.clone(), person + (acts + failed) * AT_ONCE).await;
                if done.is_ok() {
                    acts += 1
                } else {
                    failed += 1
                }
                // What never waits would keep its thread to itself.
                tokio::task::coop::consume_budget().await;
            }
            (acts, failed)
        });
    }
    let (mut acts, mut failed) = (0, 0);
    while let Some(one) = crowd.join_next().await {
        let (more, failures) = one.map_err(Error::internal)?;
        acts += more;
        failed += failures;
    }
    Ok(Done { a_second: acts as f64 / started.elapsed().as_secs_f64(), failed })
}
