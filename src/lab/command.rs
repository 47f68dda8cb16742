//! `zticket lab`: runs the strategies and the lines, and tells what came of it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};

use crate::lab::crowd::measure;
use crate::lab::ground::{Fault, Ground};
use crate::lab::line::Line;
use crate::lab::lines::{
    bitmap::Bitmap, sorted_set::SortedSet, sorted_set_gathered::SortedSetGathered, sorted_set_lua::SortedSetLua,
    table::Table,
};
use crate::lab::page::page;
use crate::lab::race::{Outcome, Subject, race};
use crate::lab::report::Report;
use crate::lab::stats::grouped;
use crate::lab::way::Way;
use crate::lab::ways::{
    advisory_lock::AdvisoryLock, broker::Broker, conditional_update::ConditionalUpdate, for_update::ForUpdate,
    for_update_nowait::ForUpdateNowait, no_lock::NoLock, optimistic::Optimistic, optimistic_retry::OptimisticRetry,
    redis_lock::RedisLock, redis_lock_early::RedisLockEarly, redis_lock_lease::RedisLockLease,
    serializable::Serializable, unique_insert::UniqueInsert, zticket::ZTicket,
};

#[derive(Debug, clap::Args)]
pub struct Lab {
    /// Buyers who ask at the same moment, one race for each number
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "30,1000", value_parser = clap::value_parser!(i32).range(2..=100_000))]
    pub buyers: Vec<i32>,
    /// Seats that they want
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub seats: i32,
    /// How often each race is run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// People in the waiting lines that are compared
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10000,1000000", value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub waiting: Vec<u32>,
    /// How long each line is polled, and entered
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Only this part
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<Part>,
    /// Also write the report as a page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Seats,
    Balance,
    Lines,
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the lab: {0}")]
    Fault(#[from] Fault),
    #[error("the report could not be written: {0}")]
    Output(#[from] std::io::Error),
    #[error("{0}")]
    Wrong(String),
}

fn ways() -> Vec<Arc<dyn Way>> {
    vec![
        Arc::new(NoLock),
        Arc::new(Optimistic),
        Arc::new(OptimisticRetry),
        Arc::new(ForUpdate),
        Arc::new(ForUpdateNowait),
        Arc::new(AdvisoryLock),
        Arc::new(Serializable),
        Arc::new(RedisLock),
        Arc::new(RedisLockEarly),
        Arc::new(RedisLockLease),
        Arc::new(ConditionalUpdate),
        Arc::new(UniqueInsert),
        Arc::new(Broker::default()),
        Arc::new(ZTicket),
    ]
}

fn lines() -> Vec<Arc<dyn Line>> {
    vec![
        Arc::new(Table),
        Arc::new(SortedSet),
        Arc::new(SortedSetLua),
        Arc::new(SortedSetGathered::default()),
        Arc::new(Bitmap::default()),
    ]
}

/// Everything but what is written goes to stderr. Fails if a strategy that should be right was not.
pub async fn run(
    lab: &Lab,
    database_url: &str,
    connections: usize,
    redis_url: &str,
    mut out: impl Write,
) -> Result<(), Failure> {
    let ground = Arc::new(Ground::new(database_url, connections, redis_url).await?);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut report = Report::default();
    let examined = tokio::select! {
        examined = examine(lab, &ground, connections, &mut report) => examined,
        _ = interrupt.recv() => Err(Failure::Wrong("interrupted".to_owned())),
        _ = terminate.recv() => Err(Failure::Wrong("interrupted".to_owned())),
    };
    let removed = ground.remove().await;
    // What was found out until then is told in any case.
    write!(out, "{}", report.text())?;
    out.flush()?;
    examined?;
    removed?;
    if let Some(file) = &lab.html {
        std::fs::write(file, page(&report).into_string())?;
    }
    match report.failures().as_slice() {
        [] => Ok(()),
        failures => Err(Failure::Wrong(failures.join("; "))),
    }
}

async fn examine(lab: &Lab, ground: &Arc<Ground>, connections: usize, report: &mut Report) -> Result<(), Failure> {
    let wanted = |part: Part| lab.only.is_empty() || lab.only.contains(&part);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    report.setting = format!("{cores} cores, {connections} database connections.");
    for (part, subject) in [(Part::Seats, Subject::Seats(lab.seats)), (Part::Balance, Subject::Balance)] {
        if !wanted(part) {
            continue;
        }
        for buyers in &lab.buyers {
            for way in ways().iter().filter(|way| part == Part::Seats || way.counts()) {
                let what = format!("{}, {} buyers", way.about().name, grouped(buyers.unsigned_abs().into()));
                let progress = Progress::new(&what, i64::from(*buyers) * i64::from(lab.runs));
                let mut outcome = Outcome { subject, buyers: *buyers, broken: way.broken(), runs: Vec::new() };
                for run in 0..lab.runs {
                    let before = i64::from(run) * i64::from(*buyers);
                    let finished = |buyers: i32| progress.at(before + i64::from(buyers));
                    outcome.runs.push(race(ground, way, subject, *buyers, finished).await?);
                }
                progress.end();
                report.races.push((way.about(), outcome));
            }
        }
    }
    if wanted(Part::Lines) {
        for line in lines() {
            let mut measured = Vec::new();
            for people in &lab.waiting {
                let what = format!("{}, {} people", line.about().name, grouped(u64::from(*people)));
                let progress = Progress::new(&what, 1);
                measured.push(measure(ground, &line, *people, Duration::from_secs(lab.seconds)).await?);
                progress.end();
            }
            report.lines.push((line.about(), measured));
        }
    }
    Ok(())
}

/// How far a race is: a bar in a terminal, a line in a file.
struct Progress {
    what: String,
    all: i64,
    terminal: bool,
}

impl Progress {
    const WIDTH: i64 = 24;

    fn new(what: &str, all: i64) -> Self {
        let progress = Self { what: what.to_owned(), all: all.max(1), terminal: std::io::stderr().is_terminal() };
        progress.draw(0);
        progress
    }

    /// A bar is drawn when it grows.
    fn at(&self, done: i64) {
        let bars = |done: i64| done * Self::WIDTH / self.all;
        if bars(done) != bars(done - 1) {
            self.draw(bars(done));
        }
    }

    fn draw(&self, bars: i64) {
        if self.terminal {
            let bars = usize::try_from(bars).unwrap_or(0);
            let room = usize::try_from(Self::WIDTH).unwrap_or(0).saturating_sub(bars);
            eprint!("\r\x1b[K{}{} {}", "█".repeat(bars), "░".repeat(room), self.what);
        }
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        } else {
            eprintln!("lab: {}", self.what);
        }
    }
}
