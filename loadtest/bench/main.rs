//! `make bench`: how fast ZTicket is, beside its ceiling, the obvious way, and PostgreSQL alone. Everything is started
//! here, on 127.0.0.1, and ends with this program. The table goes to stdout, progress to stderr.

mod beside;
mod lines;
mod load;
mod orders;
mod report;
mod seats;
mod stack;
mod verdict;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use beside::Beside;
use clap::{Parser, ValueEnum};
use load::{Pressure, Run, Series, Side, Tokens, wrk};
use report::{Report, Target};
use stack::{Programs, Stack};
use tokio::signal::unix::{SignalKind, signal};
use zticket_testkit::{Database, Outcome};

const RESULTS: &str = "loadtest/results";

/// Measures ZTicket side by side with its ceiling and the obvious way, or with another build. Needs the services of
/// scripts/bench.
#[derive(Parser)]
struct Cli {
    /// Under two minutes: less certain figures, and fewer rows without a target
    #[arg(long)]
    quick: bool,
    /// How often each side of a ratio is run [default: 5, quick 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long each run takes [default: 4, quick 1]
    #[arg(long)]
    seconds: Option<u64>,
    #[arg(long, default_value_t = 2)]
    threads: u32,
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Tokens the polls are spread over: enough that a visitor hardly polls twice, as in a long line
    #[arg(long, default_value_t = 1_000_000)]
    tokens: u32,
    /// Lengths of the three lines that are compared
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    waiting: Vec<u32>,
    /// A part by itself
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Compare this build with another zticket binary instead: requests, start and memory. The two take turns, with a
    /// line of the middle length. Prints a table and keeps no figures; exits with 1 if this build is worse or requests
    /// failed
    #[arg(long, value_name = "BINARY")]
    beside: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Lines,
    Seats,
    Holds,
    Purchases,
    Orders,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // Whichever comes first; what the run has started ends when it is dropped.
    let outcome = tokio::select! {
        outcome = run(cli) => outcome,
        outcome = interrupted() => outcome,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() -> Outcome<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Err("interrupted".into())
}

async fn run(cli: Cli) -> Outcome<()> {
    let &[small, middle, large] = cli.waiting.as_slice() else { return Err("--waiting takes three lengths".into()) };
    let programs = Programs::find()?;
    let postgres = Database::from_env()?;
    // Beside the programs, so that it is on the disk they are on.
    let folder = programs.zticket.parent().ok_or("zticket is nowhere")?;
    let files = tempfile::Builder::new().prefix("bench-").tempdir_in(folder)?;
    let mut bench = Bench {
        quick: cli.quick,
        rounds: cli.rounds.unwrap_or(if cli.quick { 3 } else { 5 }),
        pressure: Pressure {
            threads: cli.threads,
            connections: cli.connections,
            seconds: cli.seconds.unwrap_or(if cli.quick { 1 } else { 4 }),
        },
        tokens: cli.tokens,
        buyers: if cli.quick { 10_000 } else { 20_000 },
        programs: &programs,
        postgres: &postgres,
        files: files.path(),
        report: Report::default(),
        warm: HashSet::new(),
        runs: 0,
        errors: 0,
        started: Instant::now(),
    };
    let all = Part::value_variants().iter().copied();
    let parts: Vec<Part> = all.filter(|part| cli.only.is_empty() || cli.only.contains(part)).collect();
    if let Some(other) = &cli.beside {
        return Beside::new(bench, other)?.run(&parts, middle).await;
    }
    for part in parts {
        match part {
            Part::Lines => bench.lines(small, middle, large).await?,
            Part::Seats => bench.seats().await?,
            Part::Holds => bench.holds().await?,
            Part::Purchases => bench.purchases().await?,
            Part::Orders => bench.orders().await?,
        }
    }
    bench.report.figure("errors", bench.errors as f64, None, report::count, Target::AtMost(0.0));
    bench.publish().await?;
    bench.verify()
}

struct Bench<'a> {
    quick: bool,
    rounds: usize,
    pressure: Pressure,
    tokens: u32,
    /// Visitors inside that buy, in each round.
    buyers: u32,
    programs: &'a Programs,
    postgres: &'a Database,
    files: &'a Path,
    report: Report,
    /// Sides that are warm.
    warm: HashSet<String>,
    runs: u32,
    errors: u64,
    started: Instant,
}

impl<'a> Bench<'a> {
    fn say(&self, what: &str) {
        eprintln!("bench: {:>4} s  {what}", self.started.elapsed().as_secs());
    }

    async fn stack(&self, zticket: &'a Path, name: &str, settings: &[(&'static str, u64)]) -> Outcome<Stack<'a>> {
        Stack::new(zticket, self.postgres, self.files, name, settings).await
    }

    async fn load(&mut self, side: &Side, pressure: Pressure, tokens: Tokens) -> Outcome<Run> {
        let run = wrk(self.programs, self.files, side, pressure, tokens).await?;
        self.errors += run.errors();
        self.say(&format!(
            "{}: {}{}",
            side.name(),
            report::rate(run.rate()),
            if run.errors() > 0 { format!(", {} ERRORS", run.errors()) } else { String::new() }
        ));
        Ok(run)
    }

    /// A run with tokens that were not used lately.
    async fn load_anew(&mut self, side: &Side, seconds: u64) -> Outcome<Run> {
        self.runs += 1;
        let start = self.runs.wrapping_mul(7_654_321) % self.tokens.max(1);
        self.load(side, Pressure { seconds, ..self.pressure }, Tokens::From(start)).await
    }

    /// Fails if any request failed.
    fn verify(&self) -> Outcome<()> {
        match self.errors {
            0 => Ok(()),
            errors => Err(format!("{errors} requests went wrong").into()),
        }
    }

    /// Runs the sides in turns, A B C A B C …, so that a change of the machine affects all of them.
    async fn alternate<const N: usize>(&mut self, sides: [Option<Side>; N]) -> Outcome<[Series; N]> {
        for side in sides.iter().flatten() {
            if self.warm.insert(side.name().to_owned()) {
                self.load_anew(side, 1).await?;
            }
        }
        let mut series: [Series; N] = std::array::from_fn(|_| Series::default());
        for _ in 0..self.rounds {
            for (side, series) in sides.iter().zip(&mut series) {
                let Some(side) = side else { continue };
                series.add(&self.load_anew(side, self.pressure.seconds).await?);
            }
        }
        Ok(series)
    }

    /// A side without a target: a quick run leaves it out.
    fn extra(&self, side: Side) -> Option<Side> {
        (!self.quick).then_some(side)
    }

    async fn fill(&self, stack: &Stack<'_>, waiting: u32) -> Outcome<PathBuf> {
        self.padded(stack.fill(waiting, self.tokens.min(waiting), false).await?)
    }

    /// Repeats the tokens until there are as many as everywhere, so that a short line is no less work to the generator.
    fn padded(&self, path: PathBuf) -> Outcome<PathBuf> {
        let tokens = fs::read_to_string(&path)?;
        let times = (self.tokens as usize).div_ceil(tokens.lines().count().max(1));
        fs::write(&path, tokens.repeat(times))?;
        Ok(path)
    }

    /// Writes the table and what it was measured on, to stdout and to files.
    async fn publish(&self) -> Outcome<()> {
        let postgres = self.postgres.text("SELECT current_setting('server_version') AS answer").await?;
        let postgres = postgres.split(' ').next().unwrap_or_default();
        let redis = std::process::Command::new(&self.programs.redis).arg("--version").output()?;
        let redis = String::from_utf8_lossy(&redis.stdout).into_owned();
        let redis = redis.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("of unknown version");
        let table = self.report.table();
        println!("{table}");
        let date = chrono::Utc::now().format("%Y-%m-%d").to_string();
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let built = self.programs.zticket.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let (command, name) = match (built.as_ref(), arguments.join(" ").as_str()) {
            ("release", "") => ("make bench".to_owned(), format!("{date}.md")),
            ("release", "--quick") => ("make bench-quick".to_owned(), format!("{date}-quick.md")),
            (_, other) => (format!("scripts/bench {other}"), format!("{date}-other.md")),
        };
        let text = format!(
            "<!-- Written by scripts/bench. -->\n\
             Measured by `{command}` on {date}, {built} build of commit {}: {}.\n\n\
             {table}\n\
             Requests a second are the median of {} runs of {} s; the sides of a ratio take turns. The load comes from \
             the same machine: wrk, {} threads, {} connections, each asking again as soon as it was answered, which is \
             what p50 and p99 are under. *Ceiling*: `GET /livez` of the same server. *The obvious way*: the same web \
             server and Redis pool, two sorted sets, one command at a time (`loadtest/obvious.rs`); *multiplexed*: the \
             same with one shared connection a worker instead of the pool. Polls are spread over {} tokens. Holds and \
             purchases: each a seat and a visitor of its own. *Order accepted*: a purchase that is written later; *bought later*: such orders come about as fast \
             as buying at once was in the same round, and p50 and p99 are from accepted to PAID, read from the buckets of \
             `zticket_order_decided_seconds`. PostgreSQL commits durably; Redis keeps an append-only \
             file. *Inside Redis*: `INFO commandstats` around a single call, all five pulse slices full.\n",
            report::commit(),
            report::machine(postgres, redis),
            self.rounds,
            self.pressure.seconds,
            self.pressure.threads,
            self.pressure.connections,
            report::count(f64::from(self.tokens)),
        );
        let results = Path::new(RESULTS);
        report::write(results, &name, &text)?;
        // What the README shows is a whole run.
        if command == "make bench" { report::write(results, "latest.md", &text) } else { Ok(()) }
    }
}
