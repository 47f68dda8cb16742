//! Load: wrk with the one request generator, pgbench, and what they measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use zticket_testkit::Outcome;
use zticket_testkit::process::output;

use crate::stack::{Programs, Serving};

const GENERATOR: &str = "loadtest/wrk/load.lua";
const INSERT: &str = "loadtest/insert.sql";

/// How hard, how long.
#[derive(Clone, Copy)]
pub struct Pressure {
    pub threads: u32,
    pub connections: u32,
    pub seconds: u64,
}

/// One side of a comparison: the request, the server and the tokens.
pub struct Side {
    /// As the generator knows it.
    kind: &'static str,
    name: String,
    url: String,
    tokens: PathBuf,
    /// Requests a second; 0: as fast as it can.
    rate: f64,
}

impl Side {
    pub fn new(kind: &'static str, of: &str, server: &Serving, tokens: &Path) -> Self {
        let (url, tokens) = (server.url.clone(), tokens.to_owned());
        Self { kind, name: format!("{kind}, {of}"), url, tokens, rate: 0.0 }
    }

    /// Not as fast as it can, but this many requests a second.
    pub fn paced(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Which of the tokens are used.
#[derive(Clone, Copy)]
pub enum Tokens {
    /// All of them, again and again, beginning somewhere.
    From(u32),
    /// Each token once, with the seat of its number: first number, and how many.
    Once(u32, u32),
}

/// What one run of wrk saw.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Run {
    requests: u64,
    micros: f64,
    /// Latencies, µs.
    p50: f64,
    p99: f64,
    /// Answers of 400 and more, broken connections, answers that did not come.
    status: u64,
    socket: u64,
    timeout: u64,
}

impl Run {
    pub fn rate(&self) -> f64 {
        self.good() as f64 / self.micros * 1e6
    }

    /// How many succeeded.
    pub fn good(&self) -> u64 {
        self.requests.saturating_sub(self.status)
    }

    pub fn errors(&self) -> u64 {
        self.status + self.socket + self.timeout
    }
}

/// All runs of one side.
#[derive(Default)]
pub struct Series(Vec<Figures>);

#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Series {
    pub fn add(&mut self, run: &Run) {
        self.0.push(Figures { rate: run.rate(), p50_ms: run.p50 / 1000.0, p99_ms: run.p99 / 1000.0 });
    }

    /// For a side that has only a rate.
    pub fn add_rate(&mut self, rate: f64) {
        self.add_timed(rate, 0.0, 0.0);
    }

    /// For a side whose times come from elsewhere, in milliseconds.
    pub fn add_timed(&mut self, rate: f64, p50_ms: f64, p99_ms: f64) {
        self.0.push(Figures { rate, p50_ms, p99_ms });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Run by run.
    pub fn rates(&self) -> Vec<f64> {
        self.0.iter().map(|run| run.rate).collect()
    }

    pub fn rate(&self) -> f64 {
        median(self.0.iter().map(|run| run.rate))
    }

    pub fn p50(&self) -> f64 {
        median(self.0.iter().map(|run| run.p50_ms))
    }

    pub fn p99(&self) -> f64 {
        median(self.0.iter().map(|run| run.p99_ms))
    }
}

/// The middle one; of an even number the lower of the two.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

pub async fn wrk(programs: &Programs, files: &Path, side: &Side, pressure: Pressure, tokens: Tokens) -> Outcome<Run> {
    let Pressure { threads, connections, seconds } = pressure;
    let (start, count) = match tokens {
        Tokens::From(start) => (start, 0),
        Tokens::Once(start, count) => (start, count),
    };
    let mut command = Command::new(&programs.wrk);
    command.args([format!("-t{threads}"), format!("-c{connections}"), format!("-d{seconds}s")]);
    // An answer that takes longer than this counts as an error.
    command.args(["--timeout", "5s", "-s", GENERATOR, &side.url, "--", side.kind]);
    command.args([threads, start, count].map(|number| number.to_string())).arg(&side.tokens);
    command.arg(side.rate.to_string());
    let text = fs::read_to_string(output("wrk", &mut command, files, Duration::from_secs(seconds + 30)).await?)?;
    let json = text.lines().rfind(|line| line.starts_with('{')).ok_or_else(|| format!("wrk said: {text}"))?;
    Ok(serde_json::from_str(json)?)
}

/// Single-row inserts a second into a new table like `tickets` of that database.
pub async fn pgbench(programs: &Programs, files: &Path, database_url: &str, pressure: Pressure) -> Outcome<f64> {
    let mut command = Command::new(&programs.pgbench);
    let database = connect_by_env(&mut command, database_url)?;
    command.args(["-n", "-M", "prepared", "-D", "n=0", "-f", INSERT]);
    command.args(["-c", &pressure.connections.to_string(), "-j", &pressure.threads.to_string()]);
    command.args(["-T", &pressure.seconds.to_string(), &database]);
    let text =
        fs::read_to_string(output("pgbench", &mut command, files, Duration::from_secs(pressure.seconds + 30)).await?)?;
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.ok_or_else(|| format!("pgbench said: {text}").into())
}

/// Hands the address over by the environment, so that the password is in no list of processes. Returns the database.
fn connect_by_env(command: &mut Command, url: &str) -> Outcome<String> {
    let unknown = || "DATABASE_URL is not like postgres://user:password@host:port/database";
    let (_, rest) = url.split_once("://").ok_or_else(unknown)?;
    let (login, place) = rest.rsplit_once('@').ok_or_else(unknown)?;
    let (host, database) = place.split_once('/').ok_or_else(unknown)?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = host.split_once(':').unwrap_or((host, "5432"));
    command.env("PGHOST", host).env("PGPORT", port).env("PGUSER", user).env("PGPASSWORD", password);
    Ok(database.split('?').next().unwrap_or(database).to_owned())
}
