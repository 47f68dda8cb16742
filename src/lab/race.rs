//! A race: a crowd asks for the same items at the same moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::base::error::Error;
use crate::lab::ground::{Fault, Ground};
use crate::lab::stats::quantile;
use crate::lab::steps::{Answer, Ask};
use crate::lab::way::Way;

/// What the crowd is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Seats: everyone wants one, and each can be sold once.
    Seats(i32),
    /// The balance of one person, of which half of the crowd takes something and the other half adds something.
    Balance,
}

const BALANCE: i64 = 100_000;
const PAYMENT: i64 = -3000;
const CHARGE: i64 = 1000;

impl Subject {
    fn items(self) -> i32 {
        match self {
            Self::Seats(seats) => seats,
            Self::Balance => 1,
        }
    }

    fn amount(self) -> i64 {
        match self {
            Self::Seats(_) => 1,
            Self::Balance => BALANCE,
        }
    }

    fn ask(self, buyer: i32) -> Ask {
        let by = match self {
            Self::Seats(_) => -1,
            Self::Balance if buyer % 2 == 0 => CHARGE,
            Self::Balance => PAYMENT,
        };
        Ask { item: 1 + buyer % self.items(), buyer, by }
    }
}

/// How one race went.
#[derive(Debug, Default, Clone)]
pub struct Run {
    /// Buyers who were told that it is done, and rows that say so.
    pub done: usize,
    pub rows: usize,
    pub refused: usize,
    /// Turned away because somebody else was at it.
    pub busy: usize,
    pub errors: usize,
    /// One of them.
    pub error: Option<String>,
    /// What is left, less what should be left: money that appeared or vanished.
    pub astray: i64,
    pub wall: Duration,
    answers: Vec<Duration>,
    waits: Vec<Duration>,
}

/// All races of one strategy with one crowd.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub subject: Subject,
    pub buyers: i32,
    pub broken: bool,
    pub runs: Vec<Run>,
}

impl Outcome {
    /// Whether nothing was sold twice, everything was sold, and no money went astray.
    pub fn right(&self, run: &Run) -> bool {
        match self.subject {
            Subject::Seats(seats) => {
                let sold = usize::try_from(seats.min(self.buyers)).unwrap_or(0);
                run.done == sold && run.rows == sold
            }
            Subject::Balance => run.done == run.rows && run.astray == 0,
        }
    }

    /// How many races showed what was expected: a bug of a broken strategy, none of the others.
    pub fn as_expected(&self) -> usize {
        self.runs.iter().filter(|run| self.right(run) != self.broken).count()
    }

    pub fn wall(&self) -> Duration {
        let mut walls: Vec<_> = self.runs.iter().map(|run| run.wall).collect();
        quantile(&mut walls, 0.5)
    }

    /// Until a buyer had an answer.
    pub fn answer(&self, share: f64) -> Duration {
        quantile(&mut self.runs.iter().flat_map(|run| run.answers.clone()).collect::<Vec<_>>(), share)
    }

    /// Until a buyer had a connection to the database; of those who needed one. `None`: nobody did.
    pub fn wait(&self, share: f64) -> Option<Duration> {
        let mut waits: Vec<_> = self.runs.iter().flat_map(|run| run.waits.clone()).collect();
        (!waits.is_empty()).then(|| quantile(&mut waits, share))
    }
}

/// One race. `finished` is told how many have their answer.
pub async fn race(
    ground: &Arc<Ground>,
    way: &Arc<dyn Way>,
    subject: Subject,
    buyers: i32,
    mut finished: impl FnMut(i32),
) -> Result<Run, Fault> {
    ground.lay_out(subject.items(), subject.amount()).await?;
    way.prepare(ground, buyers, subject.items()).await?;
    ground.waits();

    let start = Arc::new(Barrier::new(usize::try_from(buyers).unwrap_or(0) + 1));
    let mut crowd = JoinSet::new();
    for buyer in 1..=buyers {
        let (ground, way, start, ask) = (ground.clone(), way.clone(), start.clone(), subject.ask(buyer));
        crowd.spawn(async move {
            start.wait().await;
            let asked = Instant::now();
            let answer = way.change(&ground, ask).await;
            (answer, asked.elapsed())
        });
    }
    start.wait().await;
    let started = Instant::now();
    let mut run = Run::default();
    let mut had = 0;
    while let Some(one) = crowd.join_next().await {
        let (answer, took) = one.map_err(Error::internal)?;
        run.answers.push(took);
        match answer {
            Ok(Answer::Done) => run.done += 1,
            Ok(Answer::Refused) => run.refused += 1,
            Ok(Answer::Busy) => run.busy += 1,
            Err(error) => {
                run.errors += 1;
                run.error.get_or_insert_with(|| error.to_string());
            }
        }
        had += 1;
        finished(had);
    }
    run.wall = started.elapsed();
    run.waits = ground.waits();
    way.finish(ground).await?;
    let left = ground.left(subject.amount()).await?;
    run.rows = usize::try_from(left.rows).unwrap_or(0);
    run.astray = left.amount - left.expected;
    Ok(run)
}
