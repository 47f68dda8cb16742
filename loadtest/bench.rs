//! `make bench`: how fast ZTicket is, beside its ceiling, the obvious way, and PostgreSQL alone. Everything is started
//! here, on 127.0.0.1, and ends with this program. The table goes to stdout, progress to stderr.

mod load;
mod process;
mod report;
mod stack;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use load::{Pressure, Run, Series, Side, Tokens, median, pgbench, wrk};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use report::{Report, Target, short};
use stack::{Obvious, Postgres, Programs, Server, Stack, ask, execute};
use tokio::signal::unix::{SignalKind, signal};
use zticket::ids::EventId;
use zticket::metrics::Metrics;
use zticket::redis::keys::{Key, Keys};
use zticket::redis::scripts::{Admit, PolicySet, Scripts, Sweep};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const RESULTS: &str = "loadtest/results";
/// Let in at once by the admission that is timed.
const ADMITTED: u64 = 10_000;
/// Turns of the ring until every slice of it is full, and turns that are timed then.
const TURNS_TO_FILL: usize = 5;
const TURNS_TIMED: usize = 5;

/// Measures ZTicket side by side with its ceiling and the obvious way. Needs the services of scripts/bench.
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
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Lines,
    Seats,
    Holds,
    Purchases,
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
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("bench: {errors} requests went wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() -> Outcome<u64> {
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

/// Returns how many requests went wrong.
async fn run(cli: Cli) -> Outcome<u64> {
    let &[small, middle, large] = cli.waiting.as_slice() else { return Err("--waiting takes three lengths".into()) };
    let programs = Programs::find()?;
    let postgres = Postgres::find()?;
    // Beside the programs, so that it is on the disk they are on.
    let beside = programs.zticket.parent().ok_or("zticket is nowhere")?;
    let files = tempfile::Builder::new().prefix("bench-").tempdir_in(beside)?;
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
    for part in Part::value_variants() {
        match part {
            _ if !cli.only.is_empty() && !cli.only.contains(part) => {}
            Part::Lines => bench.lines(small, middle, large).await?,
            Part::Seats => bench.seats().await?,
            Part::Holds => bench.holds().await?,
            Part::Purchases => bench.purchases().await?,
        }
    }
    bench.report.figure("errors", bench.errors as f64, None, report::count, Target::AtMost(0.0));
    bench.publish().await?;
    Ok(bench.errors)
}

struct Bench<'a> {
    quick: bool,
    rounds: usize,
    pressure: Pressure,
    tokens: u32,
    /// Visitors inside that buy, in each round.
    buyers: u32,
    programs: &'a Programs,
    postgres: &'a Postgres,
    files: &'a Path,
    report: Report,
    /// Sides that had their warm-up.
    warm: HashSet<String>,
    runs: u32,
    errors: u64,
    started: Instant,
}

impl<'a> Bench<'a> {
    fn say(&self, what: &str) {
        eprintln!("bench: {:>4} s  {what}", self.started.elapsed().as_secs());
    }

    async fn stack(&self, name: &str, settings: &[(&'static str, u64)]) -> Outcome<Stack<'a>> {
        Stack::new(self.programs, self.postgres, self.files, name, settings).await
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

    /// Runs the sides in turns, A B C A B C …, so that whatever changes on the machine meanwhile changes for all.
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

    /// A side no target hangs on: a quick run leaves it out.
    fn extra(&self, side: Side) -> Option<Side> {
        (!self.quick).then_some(side)
    }

    /// Polling and entering, with lines of three lengths.
    async fn lines(&mut self, small: u32, middle: u32, large: u32) -> Outcome<()> {
        // Enough that admission, at its default pace, never runs out of seats.
        let settings = [("ZTICKET_SEAT_TOTAL_COUNT", 50_000)];
        self.say("filling the lines");
        let (small_stack, small_name) = (self.stack("small", &settings).await?, short(small));
        let small_tokens = self.fill(&small_stack, small).await?;
        let (middle_stack, middle_name) = (self.stack("middle", &settings).await?, short(middle));
        let middle_tokens = self.fill(&middle_stack, middle).await?;
        let (large_stack, large_name) = (self.stack("large", &settings).await?, short(large));
        let large_tokens = self.fill(&large_stack, large).await?;
        let obvious = Obvious::new(self.programs, self.files).await?;
        let obvious_tokens = self.padded(obvious.fill(middle, self.tokens.min(middle)).await?)?;
        self.say("filled");

        let on_small = small_stack.serve().await?;
        let on_middle = middle_stack.serve().await?;
        let on_large = large_stack.serve().await?;
        let pooled = obvious.serve(false).await?;
        let multiplexed = obvious.serve(true).await?;
        let at_small = |kind| Side::new(kind, &small_name, &on_small, &small_tokens);
        let at_middle = |kind| Side::new(kind, &middle_name, &on_middle, &middle_tokens);
        let at_large = |kind| Side::new(kind, &large_name, &on_large, &large_tokens);
        let by_pool = |kind| Side::new(kind, "the obvious way", &pooled, &obvious_tokens);
        let by_link = |kind| Side::new(kind, "the obvious way, multiplexed", &multiplexed, &obvious_tokens);

        let what = |kind: &str, name: &str, beside: &str| format!("{kind}, {name} waiting ÷ {beside}");
        let [ceiling, poll] = self.alternate([self.extra(at_small("ceiling")), self.extra(at_small("poll"))]).await?;
        self.report.ratio(&what("poll", &small_name, "ceiling"), &poll, &ceiling, Target::None);
        let [ceiling, poll, pool, link] = self
            .alternate([
                self.extra(at_middle("ceiling")),
                Some(at_middle("poll")),
                Some(by_pool("poll")),
                self.extra(by_link("poll")),
            ])
            .await?;
        self.report.ratio(&what("poll", &middle_name, "ceiling"), &poll, &ceiling, Target::None);
        let obvious_polls = [(pool, "the obvious way", Target::AtLeast(4.0)), (link, MULTIPLEXED, Target::None)]
            .map(|(other, name, target)| (what("poll", &middle_name, name), other, target));
        let [ceiling, poll_large, poll_small] =
            self.alternate([at_large("ceiling"), at_large("poll"), at_small("poll")].map(Some)).await?;
        let at_least = Target::AtLeast;
        self.report.ratio(&what("poll", &large_name, "ceiling"), &poll_large, &ceiling, at_least(0.75));
        let poll_small_name = format!("poll, {small_name} waiting");
        self.report.ratio(&what("poll", &large_name, &poll_small_name), &poll_large, &poll_small, at_least(0.95));
        for (what, other, target) in obvious_polls {
            self.report.ratio(&what, &poll, &other, target);
        }
        let resident = on_large.resident()?;
        on_small.stop().await?;
        small_stack.remove(self.postgres).await?;

        let [ceiling, enter, pool, link] = self
            .alternate([
                Some(at_middle("ceiling")),
                Some(at_middle("enter")),
                Some(by_pool("enter")),
                self.extra(by_link("enter")),
            ])
            .await?;
        self.report.ratio("enter ÷ ceiling", &enter, &ceiling, at_least(0.65));
        self.report.ratio("enter ÷ the obvious way", &enter, &pool, at_least(4.0));
        self.report.ratio(&format!("enter ÷ {MULTIPLEXED}"), &enter, &link, Target::None);
        let [mixed, pool] = self.alternate([at_middle("mixed"), by_pool("mixed")].map(Some)).await?;
        self.report.ratio("poll and enter 9:1 ÷ the obvious way", &mixed, &pool, Target::None);
        for server in [pooled, multiplexed, on_middle] {
            server.stop().await?;
        }
        middle_stack.remove(self.postgres).await?;
        let mut conn = obvious.redis.connect().await?;
        let waiting: f64 = conn.zcard("obvious:order").await?;
        let obvious_bytes = memory(&mut conn, "obvious:*").await? / waiting;
        drop(obvious);

        self.say("inside Redis");
        self.inside_redis(&large_stack, on_large, &large_name, obvious_bytes, resident).await?;
        large_stack.remove(self.postgres).await
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

    /// What the long line costs Redis, with nobody else calling: the server is stopped, the scripts are called from here.
    async fn inside_redis(
        &mut self,
        stack: &Stack<'_>,
        server: Server,
        name: &str,
        obvious_bytes: f64,
        resident: u64,
    ) -> Outcome<()> {
        server.stop().await?;
        let mut starts = Vec::new();
        for _ in 0..3 {
            let server = stack.serve().await?;
            starts.push(server.ready_after.as_secs_f64() * 1000.0);
            server.stop().await?;
        }
        let mut conn = stack.redis.connect().await?;
        let keys = Keys::new(EventId::new(1).ok_or("1 is an event")?);
        let scripts = Scripts::new(Arc::new(Metrics::new()?));
        scripts.load(&mut conn).await?;

        let mut sweeps = Vec::new();
        for _ in 0..TURNS_TO_FILL + TURNS_TIMED {
            let_a_slice_pass(&mut conn, &keys).await?;
            count_from_here(&mut conn).await?;
            let swept = scripts.sweep(&mut conn, &keys).await?;
            sweeps.push(ms_in_script(&mut conn).await?);
            if swept != Sweep::Swept(0) {
                return Err(format!("the sweep answered {swept:?}").into());
            }
            // Everyone is heard from again, so that the next sweep finds as much as this one.
            let base: u32 = conn.hget(keys.get(Key::Meta), "base").await?;
            let line: Vec<u8> = conn.get(keys.get(Key::Line)).await?;
            scripts.pulse(&mut conn, &keys, base, &line, &[]).await?;
        }
        let sweep = median(sweeps.into_iter().skip(TURNS_TO_FILL));
        let waiting: f64 = conn.hget(keys.get(Key::Meta), "waiting").await?;
        let bytes = memory(&mut conn, "zt1:*").await? / waiting;

        let policy = [("batch", ADMITTED), ("max_active", 1_000_000), ("interval_ms", 1)];
        match scripts.policy_set(&mut conn, &keys, "", &policy).await? {
            PolicySet::Ok => {}
            PolicySet::Refused(rule) => return Err(format!("the policy was refused: {rule}").into()),
        }
        let mut admissions = Vec::new();
        for _ in 0..3 {
            count_from_here(&mut conn).await?;
            let admitted = scripts.admit(&mut conn, &keys).await?;
            admissions.push(ms_in_script(&mut conn).await?);
            if admitted != Admit::Admitted(ADMITTED) {
                return Err(format!("the admission answered {admitted:?}").into());
            }
        }

        let at_most = Target::AtMost;
        let figures = &mut self.report;
        let what = format!("Redis memory per waiter, {name} waiting (beside: the obvious way)");
        figures.figure(&what, bytes, Some(obvious_bytes), report::bytes, at_most(1.5));
        figures.figure(&format!("sweep, {name} waiting, inside Redis"), sweep, None, report::millis, at_most(20.0));
        let what = format!("admit {}, {name} waiting, inside Redis", report::count(ADMITTED as f64));
        figures.figure(&what, median(admissions), None, report::millis, at_most(60.0));
        let what = format!("server memory, {name} waiting");
        figures.figure(&what, resident as f64, None, report::megabytes, Target::None);
        let what = format!("start to ready, {name} waiting");
        figures.figure(&what, median(starts), None, report::millis, Target::None);
        Ok(())
    }

    /// The seat map of a hall.
    async fn seats(&mut self) -> Outcome<()> {
        let stack = self.stack("seats", &[("ZTICKET_SEAT_TOTAL_COUNT", 1000)]).await?;
        let tokens = self.fill(&stack, 1000).await?;
        let server = stack.serve().await?;
        let side = |kind| Side::new(kind, "1,000 seats", &server, &tokens);
        let [ceiling, seats] = self.alternate([side("ceiling"), side("seats")].map(Some)).await?;
        self.report.ratio("seat map of 1,000 seats ÷ ceiling", &seats, &ceiling, Target::None);
        server.stop().await?;
        stack.remove(self.postgres).await
    }

    /// A stack with that many visitors inside, and their tokens: number n for seat n.
    async fn inside(&self, name: &str, visitors: u32) -> Outcome<(Stack<'a>, PathBuf, Server)> {
        let all = u64::from(visitors);
        let settings = [
            ("ZTICKET_SEAT_TOTAL_COUNT", all),
            ("ZTICKET_ADMISSION_BATCH_SIZE", all),
            ("ZTICKET_ADMISSION_MAX_ACTIVE_USERS", all),
        ];
        let stack = self.stack(name, &settings).await?;
        let tokens = stack.fill(visitors, visitors, true).await?;
        let server = stack.serve().await?;
        Ok((stack, tokens, server))
    }

    /// Holding: each visitor another seat, until there are no more visitors.
    async fn holds(&mut self) -> Outcome<()> {
        let (mut ceiling, mut holds) = (Series::default(), Series::default());
        let visitors = self.buyers * 2;
        for _ in 0..self.rounds {
            let (stack, tokens, server) = self.inside("hold", visitors).await?;
            let side = |kind| Side::new(kind, "free seats", &server, &tokens);
            self.warm_up(&side("hold")).await?;
            let seconds = self.pressure.seconds.min(2);
            ceiling.add(&self.load_anew(&side("ceiling"), seconds).await?);
            holds.add(&self.load_once(&side("hold"), visitors, seconds).await?);
            server.stop().await?;
            stack.remove(self.postgres).await?;
        }
        self.report.ratio("hold ÷ ceiling", &holds, &ceiling, Target::None);
        Ok(())
    }

    /// Buying, beside what PostgreSQL does alone: single-row inserts into a table like `tickets`.
    async fn purchases(&mut self) -> Outcome<()> {
        let (mut purchases, mut inserts) = (Series::default(), Series::default());
        for _ in 0..self.rounds {
            let (stack, tokens, server) = self.inside("buy", self.buyers).await?;
            let side = Side::new("buy", "free seats", &server, &tokens);
            let warm = self.warm_up(&side).await?;
            let seconds = self.pressure.seconds.max(2);
            let run = self.load_once(&side, self.buyers, seconds).await?;
            server.stop().await?;
            purchases.add(&run);
            let sold: u64 = ask(&stack.database_url, "SELECT count(*)::text AS answer FROM tickets").await?.parse()?;
            let told = warm.good() + run.good();
            if sold < told {
                return Err(format!("{told} buyers were told that they have a ticket, {sold} have one").into());
            }
            execute(&stack.database_url, "CREATE TABLE like_tickets (LIKE tickets INCLUDING ALL)").await?;
            let pressure = Pressure { seconds, ..self.pressure };
            let rate = pgbench(self.programs, self.files, &stack.database_url, pressure).await?;
            self.say(&format!("pgbench: {}", report::rate(rate)));
            inserts.add_rate(rate);
            stack.remove(self.postgres).await?;
        }
        self.report.ratio("purchase ÷ pgbench single-row insert", &purchases, &inserts, Target::AtLeast(0.5));
        Ok(())
    }

    /// The first tenth of the tokens, once.
    async fn warm_up(&mut self, side: &Side) -> Outcome<Run> {
        let count = self.buyers / 10;
        self.load(side, Pressure { seconds: 1, ..self.pressure }, Tokens::Once(0, count)).await
    }

    /// The tokens the warm-up has left, once, for at most so long.
    async fn load_once(&mut self, side: &Side, visitors: u32, seconds: u64) -> Outcome<Run> {
        let used = self.buyers / 10;
        self.load(side, Pressure { seconds, ..self.pressure }, Tokens::Once(used, visitors - used)).await
    }

    /// Writes the table and what it was measured on, to stdout and to files.
    async fn publish(&self) -> Outcome<()> {
        let postgres = ask(&self.postgres.url, "SELECT current_setting('server_version') AS answer").await?;
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
             purchases: each a seat and a visitor of its own. PostgreSQL commits durably; Redis keeps an append-only \
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

const MULTIPLEXED: &str = "the obvious way, multiplexed";

/// Moves the last turn of the ring back, so that the next one is due.
async fn let_a_slice_pass(conn: &mut MultiplexedConnection, keys: &Keys) -> Outcome<()> {
    let ttl: i64 = conn.hget(keys.get(Key::Policy), "queue_ttl_ms").await?;
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(conn).await?;
    let () = conn.hset(keys.get(Key::Meta), "turned", seconds * 1000 - ttl / 4 * 3 / 2).await?;
    Ok(())
}

async fn count_from_here(conn: &mut MultiplexedConnection) -> Outcome<()> {
    Ok(redis::cmd("CONFIG").arg("RESETSTAT").query_async(conn).await?)
}

/// How long Redis was busy with the one script called since [`count_from_here`].
async fn ms_in_script(conn: &mut MultiplexedConnection) -> Outcome<f64> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(conn).await?;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=1,usec="));
    let micros = line.and_then(|line| line.split(',').next()).ok_or("other scripts were called meanwhile")?;
    Ok(micros.parse::<f64>()? / 1000.0)
}

/// Bytes of all keys of this pattern.
async fn memory(conn: &mut MultiplexedConnection, pattern: &str) -> Outcome<f64> {
    let keys: Vec<String> = conn.keys(pattern).await?;
    let mut bytes = 0;
    for key in keys {
        let of_key: u64 = redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(conn).await?;
        bytes += of_key;
    }
    Ok(bytes as f64)
}
