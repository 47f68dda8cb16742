//! `make estimates`: how honest the waiting times are. Simulated crowds wait in a simulated line, are let in by the rules of
//! a real one, and see the ranges that the real estimator shows. It counts who was let in within the first range they saw.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use zticket::base::ids::Place;
use zticket::base::policy::Policy;
use zticket::event::estimate::{Estimator, Outlook, Pass, Seen};

const STEP_MS: u64 = 1000;
/// Servers look at the future once a second.
const LOOK_EVERY: u64 = 1000;
const LONGEST_MS: u64 = 3 * 3_600_000;

/// Lets simulated crowds wait, and counts who was let in within the range first shown.
#[derive(Parser)]
struct Cli {
    /// Decides what people do
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each crowd comes, with other people
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Also put the table into this file, between its marks
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The table stands between these lines.
const MARKS: [&str; 2] = ["<!-- estimates:begin -->\n", "<!-- estimates:end -->"];

/// How people behave.
struct Crowd {
    name: &'static str,
    /// Share of people who sit idle until their time is over.
    idle: f64,
    /// Share of the line that gives up in a minute: half of them say so, the others just stop asking.
    gives_up: f64,
}

const CROWDS: [Crowd; 4] = [
    Crowd { name: "quick buyers", idle: 0.0, gives_up: 0.002 },
    Crowd { name: "idlers", idle: 0.9, gives_up: 0.002 },
    Crowd { name: "mixed", idle: 0.4, gives_up: 0.005 },
    Crowd { name: "many leaving", idle: 0.2, gives_up: 0.05 },
];

/// Settings and size of a sale.
struct House {
    name: &'static str,
    policy: Policy,
    people: u32,
    seats: u64,
}

fn houses() -> Vec<House> {
    let usual = Policy::default();
    vec![
        House { name: "200 inside, 5,000 come", policy: usual.clone(), people: 5000, seats: 8000 },
        House {
            name: "1,000 inside, 20,000 come",
            policy: Policy { max_active: 1000, batch: 1000, ..usual.clone() },
            people: 20_000,
            seats: 30_000,
        },
        House {
            name: "50 inside, two minutes each, 1,500 come",
            policy: Policy { max_active: 50, batch: 10, active_ttl_ms: 120_000, hold_ttl_ms: 120_000, ..usual },
            people: 1500,
            seats: 3000,
        },
    ]
}

#[derive(Clone)]
struct Person {
    arrives: u64,
    next_poll: u64,
    last_poll: u64,
    gives_up_at: u64,
    says_so: bool,
    stay_ms: u64,
    tickets: u64,
    /// When a range was first shown, and which.
    shown: Option<(u64, u64, u64)>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Coming,
    Waiting,
    /// Stopped asking without a word.
    Silent,
    Inside,
    Gone,
}

/// What came out of one or more sales.
#[derive(Default)]
struct Score {
    let_in: u64,
    hits: u64,
    early: u64,
    never_shown: u64,
    ratios: Vec<f64>,
    /// Seconds from joining to the first range.
    delays: Vec<f64>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (table, honest) = table(&cli);
    print!("{table}");
    if let Some(file) = &cli.write
        && let Err(error) = write(file, &table)
    {
        eprintln!("estimates: {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    if !honest {
        eprintln!("estimates: fewer than 0.8 were let in within the range first shown, or ranges are too wide");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn write(file: &Path, table: &str) -> std::io::Result<()> {
    let text = fs::read_to_string(file)?;
    let [begin, end] = MARKS;
    let (before, rest) = text.split_once(begin).ok_or_else(|| std::io::Error::other("has no mark for the table"))?;
    let (_, after) = rest.split_once(end).ok_or_else(|| std::io::Error::other("has no mark for its end"))?;
    fs::write(file, format!("{before}{begin}{table}{end}{after}"))
}

/// The table, and whether every line of it is good enough.
fn table(cli: &Cli) -> (String, bool) {
    let mut lines = vec![
        "| crowd | sale | let in | within the range first shown | earlier | high ÷ low, median | first range after, median | let in before any range |".to_owned(),
        "|---|---|---:|---:|---:|---:|---:|---:|".to_owned(),
    ];
    let mut honest = true;
    for crowd in &CROWDS {
        for house in houses() {
            let mut score = Score::default();
            for round in 0..cli.rounds {
                Sale::new(crowd, &house, fastrand::Rng::with_seed(cli.seed * 1000 + round)).run(&mut score);
            }
            let judged = score.let_in - score.never_shown;
            let share = score.hits as f64 / judged.max(1) as f64;
            let ratio = median(&mut score.ratios);
            honest &= share >= 0.8 && ratio <= 3.0;
            lines.push(format!(
                "| {} | {} | {} | {:.2} | {:.2} | {:.1} | {:.0} s | {:.2} |",
                crowd.name,
                house.name,
                score.let_in,
                share,
                score.early as f64 / judged.max(1) as f64,
                ratio,
                median(&mut score.delays),
                score.never_shown as f64 / score.let_in.max(1) as f64,
            ));
            eprintln!("estimates: {}, {}: {share:.2}", crowd.name, house.name);
        }
    }
    (lines.join("\n") + "\n", honest)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One sale.
struct Sale<'a> {
    policy: &'a Policy,
    people: Vec<Person>,
    /// In order of their places.
    line: Vec<u32>,
    passes: HashMap<Place, Pass>,
    leaves: BTreeMap<(u64, u32), ()>,
    estimator: Estimator,
    outlook: Option<Outlook>,
    seats_left: u64,
    gave_up: u64,
    admitted_at: u64,
}

impl<'a> Sale<'a> {
    fn new(crowd: &Crowd, house: &'a House, mut rng: fastrand::Rng) -> Self {
        let policy = &house.policy;
        let person = |_| {
            let idle = rng.f64() < crowd.idle;
            // Most come when booking opens, the others over half an hour.
            let arrives = if rng.f64() < 0.7 { rng.u64(..60_000) } else { rng.u64(..1_800_000) };
            let stay_ms = if idle { policy.active_ttl_ms } else { quick_stay(&mut rng).min(policy.active_ttl_ms) };
            let minutes = -(1.0 - rng.f64()).ln() / crowd.gives_up;
            Person {
                arrives,
                next_poll: arrives,
                last_poll: arrives,
                gives_up_at: arrives + (minutes * 60_000.0) as u64,
                says_so: rng.bool(),
                stay_ms,
                tickets: if idle { 0 } else { rng.u64(0..=3) },
                shown: None,
                state: State::Coming,
            }
        };
        let mut people: Vec<Person> = (0..house.people).map(person).collect();
        people.sort_by_key(|person| person.arrives);
        Self {
            policy,
            people,
            line: Vec::new(),
            passes: HashMap::new(),
            leaves: BTreeMap::new(),
            estimator: Estimator::default(),
            outlook: None,
            seats_left: house.seats,
            gave_up: 0,
            admitted_at: 0,
        }
    }

    fn run(mut self, score: &mut Score) {
        // Event time is never near zero.
        let begin = 1_000_000;
        let mut now = begin;
        let mut come = 0;
        while now < begin + LONGEST_MS && (come < self.people.len() || !self.line.is_empty()) && self.seats_left > 0 {
            while let Some(person) = self.people.get_mut(come).filter(|person| begin + person.arrives <= now) {
                person.state = State::Waiting;
                for time in [&mut person.next_poll, &mut person.last_poll, &mut person.gives_up_at] {
                    *time += begin;
                }
                self.line.push(come as u32);
                come += 1;
            }
            self.end_stays(now);
            if now >= self.admitted_at + self.policy.interval_ms {
                self.admit(now, score);
            }
            if (now - begin).is_multiple_of(LOOK_EVERY) {
                self.sweep(now);
                self.look(now);
            }
            self.poll(now, score);
            now += STEP_MS;
        }
    }

    fn end_stays(&mut self, now: u64) {
        while let Some((&(time, number), ())) = self.leaves.first_key_value().filter(|((time, _), ())| *time <= now) {
            self.leaves.remove(&(time, number));
            self.passes.remove(&Place(number));
            if let Some(person) = self.people.get_mut(number as usize) {
                person.state = State::Gone;
                self.seats_left = self.seats_left.saturating_sub(person.tickets);
            }
        }
    }

    /// Whoever was not heard from since then is absent.
    fn heard_since(&self, now: u64) -> u64 {
        now.saturating_sub(2 * self.policy.slice().as_millis() as u64)
    }

    /// As the script does: the first in line who were heard from lately.
    fn admit(&mut self, now: u64, score: &mut Score) {
        let heard = self.heard_since(now);
        let most = self.policy.max_active.min(self.seats_left);
        let mut room = most.saturating_sub(self.passes.len() as u64).min(self.policy.batch);
        let (people, passes, leaves) = (&mut self.people, &mut self.passes, &mut self.leaves);
        let before = self.line.len();
        self.line.retain(|number| {
            let Some(person) = people.get_mut(*number as usize).filter(|_| room > 0) else { return true };
            if person.last_poll < heard {
                return true;
            }
            room -= 1;
            // Who went away without a word and is let in all the same sits idle.
            let gone = person.state == State::Silent;
            let stay = if gone { self.policy.active_ttl_ms } else { person.stay_ms };
            let deadline_ms = now + self.policy.active_ttl_ms;
            passes.insert(Place(*number), Pass { deadline_ms, limit_ms: deadline_ms + self.policy.hold_ttl_ms });
            leaves.insert((now + stay, *number), ());
            if !gone {
                person.state = State::Inside;
                score.count(person, now);
            }
            false
        });
        if self.line.len() < before {
            self.admitted_at = now;
        }
    }

    fn sweep(&mut self, now: u64) {
        let people = &mut self.people;
        let before = self.line.len();
        self.line.retain(|number| {
            people.get(*number as usize).is_some_and(|person| person.last_poll + self.policy.queue_ttl_ms > now)
        });
        self.gave_up += (before - self.line.len()) as u64;
    }

    fn look(&mut self, now: u64) {
        let heard = self.heard_since(now);
        let absent = |number: &&u32| self.people.get(**number as usize).is_some_and(|person| person.last_poll < heard);
        let absent = self.line.iter().filter(absent).count() as u64;
        self.outlook = self.estimator.observe(&Seen {
            now_ms: now,
            passes: &self.passes,
            policy: self.policy,
            waiting: self.line.len() as u64,
            absent,
            gave_up: self.gave_up,
            seats_left: self.seats_left,
            open: true,
        });
    }

    fn poll(&mut self, now: u64, score: &mut Score) {
        let mut left = 0;
        let mut rank = 0;
        let (people, outlook) = (&mut self.people, &self.outlook);
        self.line.retain(|number| {
            rank += 1;
            let Some(person) = people.get_mut(*number as usize) else { return true };
            if person.state == State::Silent || person.next_poll > now {
                return true;
            }
            if person.gives_up_at <= now {
                person.state = if person.says_so { State::Gone } else { State::Silent };
                left += u64::from(person.says_so);
                return !person.says_so;
            }
            person.last_poll = now;
            person.next_poll = now + self.policy.poll_after(rank, *number).as_millis() as u64;
            if person.shown.is_none()
                && let Some(range) = outlook.as_ref().and_then(|outlook| outlook.range(rank))
            {
                person.shown = Some((now, range.low, range.high));
                score.ratios.push(range.high as f64 / range.low.max(1) as f64);
                score.delays.push((now - 1_000_000 - person.arrives) as f64 / 1000.0);
            }
            true
        });
        self.gave_up += left;
    }
}

impl Score {
    fn count(&mut self, person: &Person, now: u64) {
        self.let_in += 1;
        let Some((at, low, high)) = person.shown else {
            self.never_shown += 1;
            return;
        };
        let waited = (now - at) as f64 / 1000.0;
        self.hits += u64::from((low as f64..=high as f64).contains(&waited));
        self.early += u64::from(waited < low as f64);
    }
}

/// Log-normal around 45 s: most need half a minute to two.
fn quick_stay(rng: &mut fastrand::Rng) -> u64 {
    let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    (45_000.0 * (0.6 * normal).exp()) as u64
}
