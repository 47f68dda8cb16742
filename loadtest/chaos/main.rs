//! `make chaos`: a sale while everything goes wrong. Real servers, a real Redis and PostgreSQL, thousands of visitors who
//! try again, and a driver that kills, freezes, wipes and cuts, as its seed says. Everything is watched from outside; a
//! promise that breaks is a violation. With `--break` nothing is killed: each promise is broken on purpose, and it is the
//! checks that are tested.

// Servers are known by their index, and a wrong index may end this program.
#![allow(clippy::indexing_slicing)]

mod checks;
mod faults;
mod observer;
mod recovery;
mod sabotage;
mod sql;
mod stage;
mod visitors;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clap::Parser;
use faults::Kind;
use stage::Stage;
use tokio::task::JoinSet;
use visitors::Visitor;
use world::{End, Rule, World, lock};
use zticket_testkit::Outcome;

/// After the last fault people are waited for until nothing has moved for this long, and not longer than that.
const STANDSTILL: Duration = Duration::from_secs(60);
const LONGEST_DRAIN: Duration = Duration::from_secs(1800);
const CHECKPOINT: Duration = Duration::from_secs(10);

/// Sells tickets while everything goes wrong, and checks that nothing is lost. Needs the services of scripts/chaos.
#[derive(Parser)]
struct Cli {
    /// Decides what goes wrong and what visitors do [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// How long things go wrong
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Number of visitors [default: 60 for each second]
    #[arg(long)]
    visitors: Option<u32>,
    /// Seats of all events together [default: as many as people, who buy two on average]
    #[arg(long)]
    seats: Option<u32>,
    /// Only these faults
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Break every promise on purpose instead: the checks must find all of it
    #[arg(long = "break")]
    sabotage: bool,
    /// Where to keep the servers' logs if something was violated
    #[arg(long)]
    logs: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Outcome<bool> {
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let visitors = cli.visitors.unwrap_or(cli.seconds as u32 * 60);
    // To break promises on purpose, there must be something left to break.
    let seats = cli.seats.unwrap_or(if cli.sabotage { visitors * 3 } else { visitors }).max(60);
    eprintln!("chaos: seed {seed}, {visitors} visitors, about {seats} seats, {} s", cli.seconds);

    // A third of the seats for the free event, the others for two dates of two sections, ten seats to a row.
    // To break promises on purpose there must be a line: all come early, and few are inside.
    let (max_active, arriving) = if cli.sabotage { (15, 0.2) } else { (60, 0.8) };
    let stage = Stage::set_up(cli.servers, seats / 3, max_active).await?;
    stage.open((seats / 60).max(1)).await?;
    let events = stage.db.numbers("SELECT id::bigint AS n FROM events ORDER BY id").await?;
    let events: Vec<i32> = events.into_iter().map(i32::try_from).collect::<Result<_, _>>()?;
    let world = Arc::new(World::new(stage));
    let watching = observer::start(world.clone(), events.clone())?;
    let checking = tokio::spawn(checkpoints(world.clone()));
    let performed = perform(&world, &cli, seed, visitors, arriving, &events).await;
    // Also after an error: whoever keeps the world keeps its servers running.
    world.over.store(true, Relaxed);
    checking.await?;
    watching.join().map_err(|_| "the observer panicked")?;
    stop_all(&world).await;
    let outcome = match performed {
        Ok(took) => report(&world, &cli, seed, took).await,
        Err(error) => Err(error),
    };
    if let Some(folder) = cli.logs.filter(|_| !matches!(outcome, Ok(true))) {
        world.stage.keep_logs(&folder)?;
    }
    outcome
}

/// The sale, with everything that goes wrong, and the checks. Returns how long it took.
async fn perform(
    world: &Arc<World>,
    cli: &Cli,
    seed: u64,
    visitors: u32,
    arriving: f64,
    events: &[i32],
) -> Outcome<Duration> {
    let began = Instant::now();
    let until = began + Duration::from_secs(cli.seconds);
    let arrivals = Duration::from_secs(cli.seconds).mul_f64(arriving);
    let mut people = arrive(world, seed, visitors, events, arrivals);
    if cli.sabotage {
        sabotage::run(world.clone(), until).await?;
    } else {
        faults::run(world.clone(), seed, cli.only.clone(), until).await?;
        for at in 0..world.stage.server_count() {
            world.stage.start_server(at).await?;
        }
    }
    tokio::time::sleep_until(until.into()).await;
    eprintln!("chaos: no more faults; waiting until everyone is served");
    // What was broken on purpose may hold some up.
    drain(world, &mut people, if cli.sabotage { STANDSTILL / 4 } else { STANDSTILL }).await;
    let took = began.elapsed();

    promises_and_tickets(world).await?;
    checks::redis_agrees(world, events, Duration::from_secs(30)).await?;
    world.over.store(true, Relaxed);
    while people.join_next().await.is_some() {}
    checks::nothing_else(world).await?;
    Ok(took)
}

/// Waits until everyone is done, or nothing moves any more.
async fn drain(world: &World, people: &mut JoinSet<()>, standstill: Duration) {
    let end = Instant::now() + LONGEST_DRAIN;
    let (mut seen, mut moved) = (0, Instant::now());
    while !people.is_empty() && moved.elapsed() < standstill && Instant::now() < end {
        if tokio::time::timeout(Duration::from_millis(500), people.join_next()).await.is_ok() {
            moved = Instant::now();
        }
        let progress = lock(&world.sales).len() + lock(&world.admitted).len();
        if std::mem::replace(&mut seen, progress) != progress {
            moved = Instant::now();
        }
    }
    if !people.is_empty() {
        eprintln!("chaos: {} people are not done, and nothing moves any more", people.len());
    }
}

/// Lets the visitors come one after the other over this time, so that there is always a line.
fn arrive(world: &Arc<World>, seed: u64, visitors: u32, events: &[i32], over: Duration) -> JoinSet<()> {
    let priced: Vec<(i32, bool)> = events.iter().map(|event| (*event, *event != 1)).collect();
    let mut people = JoinSet::new();
    for number in 0..visitors {
        let visitor = Visitor::new(world.clone(), seed, number, &priced);
        let after = over * number / visitors.max(1);
        people.spawn(async move {
            tokio::time::sleep(after).await;
            visitor.visit().await;
        });
    }
    people
}

async fn stop_all(world: &World) {
    for at in 0..world.stage.server_count() {
        if let Err(error) = world.stage.stop_server(at).await {
            world.violated(Rule::NoOtherFault, error.to_string());
        }
    }
}

async fn promises_and_tickets(world: &World) -> Outcome<()> {
    checks::promises(world).await?;
    checks::places(world).await?;
    checks::told_is_true(world).await
}

/// Checks all the time, whenever the database answers.
async fn checkpoints(world: Arc<World>) {
    let mut next = Instant::now() + CHECKPOINT;
    while !world.is_over() {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for at in 0..world.stage.server_count() {
            if let Some(crash) = world.stage.crashed(at).await {
                world.violated(Rule::NoOtherFault, crash);
            }
        }
        if Instant::now() >= next {
            // If the database is away, the next checkpoint counts.
            let _ = promises_and_tickets(&world).await;
            next = Instant::now() + CHECKPOINT;
        }
    }
}

/// Prints the table. Returns whether the run passed.
async fn report(world: &World, cli: &Cli, seed: u64, took: Duration) -> Outcome<bool> {
    let (mut ends, mut tickets, mut cancelled, mut orders) = (BTreeMap::<End, u32>::new(), 0, 0, 0);
    for story in lock(&world.stories).iter() {
        let story = lock(story);
        *ends.entry(story.end.unwrap_or(End::StillWaiting)).or_default() += 1;
        tickets += story.tickets.len();
        orders += usize::from(!story.tickets.is_empty());
        cancelled += story.tickets.iter().filter(|ticket| ticket.cancelled).count();
    }
    let counts = &world.counts;
    let paid = "SELECT coalesce(sum(amount - refunded), 0)::bigint AS n FROM payments";
    let paid = world.stage.db.number(paid).await?;
    println!(
        "## Chaos, seed {seed}: {} s of faults, {} s in all, {} servers",
        cli.seconds,
        took.as_secs(),
        cli.servers
    );
    report_faults(world);
    println!("\n| what people met | |\n|---|---:|");
    println!("| requests answered | {} |", counts.answered.load(Relaxed));
    println!("| refused (4xx) | {} |", counts.refused.load(Relaxed));
    println!("| unavailable (503) | {} |", counts.unavailable.load(Relaxed));
    println!("| without an answer | {} |", counts.unanswered.load(Relaxed));
    println!("| purchases, tickets, of which cancelled | {orders}, {tickets}, {cancelled} |");
    println!("| money paid and not paid back | {paid} |");
    for (end, count) in ends {
        println!("| people: {} | {count} |", named(end));
    }
    println!("| looks into Redis | {} |", counts.lines_seen.load(Relaxed));
    println!(
        "\n| promise | {} |\n|---|---:|",
        if cli.sabotage { "broken on purpose: found out" } else { "violations" }
    );
    let mut well = true;
    for rule in Rule::ALL {
        let violations = world.violations(rule);
        if cli.sabotage && sabotage::BROKEN.contains(&rule) {
            well &= violations > 0;
            println!("| {rule} | {} |", if violations > 0 { "yes" } else { "NO" });
        } else if !cli.sabotage {
            well &= violations == 0;
            println!("| {rule} | {violations} |");
        }
    }
    Ok(well)
}

/// What went wrong how often, and how soon the next seat was sold.
fn report_faults(world: &World) {
    let (done, sales) = (lock(&world.faults_done), lock(&world.sales));
    println!("\n| faults injected | times | next sale after: median | longest |\n|---|---:|---:|---:|");
    for row in recovery::rows(&done, &sales) {
        let shown =
            |time: Option<&Duration>| time.map_or("–".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
        let median = row.to_next_sale.get(row.to_next_sale.len() / 2);
        println!("| {} | {} | {} | {} |", row.name, row.times, shown(median), shown(row.to_next_sale.last()));
    }
    match recovery::to_normal_pace(&done, &sales) {
        Some(time) => println!("\nFrom the last fault to the normal pace of sales: {:.1} s.", time.as_secs_f64()),
        None => println!("\nAfter the last fault too few people were left to see the normal pace of sales."),
    }
}

fn named(end: End) -> &'static str {
    match end {
        End::Bought => "bought",
        End::SoldOut => "learned that all is sold, or found no seat",
        End::RanOut => "inside, and out of time",
        End::Gone => "left or went away",
        End::Vanished => "sent a purchase and did not wait for the answer",
        End::Expired => "lost their place",
        End::Silent => "not heard for most of the queue's time to live",
        End::Unseen => "lost their place, or were let in and out of time while Redis could not be watched",
        End::Voided => "sent away when the database was restored from a backup",
        End::StillWaiting => "still there at the end",
    }
}
