//! Servers as child processes, as people run them.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::last_lines;
use crate::{Outcome, PATIENCE, Process, within};

/// The program and its settings. Those of the shell do not count.
#[derive(Clone)]
pub struct Zticket {
    program: PathBuf,
    settings: Vec<(String, String)>,
}

impl Zticket {
    /// On ports the system chooses; the log says which.
    pub fn new(program: impl Into<PathBuf>, database_url: &str, redis_url: &str) -> Self {
        let zticket = Self { program: program.into(), settings: Vec::new() };
        zticket.set("DATABASE_URL", database_url).set("REDIS_URL", redis_url).on(0, 0)
    }

    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn on(self, port: u16, management: u16) -> Self {
        let bind = |port| format!("127.0.0.1:{port}");
        self.set("ZTICKET_BIND", bind(port)).set("ZTICKET_MANAGEMENT_BIND", bind(management))
    }

    /// All visitors come from one address.
    pub fn without_limits(self) -> Self {
        let limits = ["ENTER_PER_SECOND", "BUY_PER_SECOND", "SIGN_UP_PER_SECOND", "STREAMS"];
        limits.iter().fold(self, |zticket, limit| zticket.set(&format!("ZTICKET_LIMIT_{limit}"), 0))
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A server whose log goes when the server goes.
    pub fn start(&self) -> Outcome<Server> {
        let folder = tempfile::tempdir()?;
        let mut server = Server::start("zticket", &mut self.command(), &folder.path().join("log"))?;
        server.folder = Some(folder);
        Ok(server)
    }
}

/// A process that has just begun does not listen to signals yet, and one would end it.
const LISTENS_WITHIN: Duration = Duration::from_millis(500);

/// A running server. Dropping it kills it.
pub struct Server {
    name: String,
    process: Process,
    log: PathBuf,
    folder: Option<TempDir>,
    started: Instant,
}

impl Server {
    /// Its log is added to the file.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Outcome<Self> {
        command.stdout(Stdio::null()).stderr(OpenOptions::new().create(true).append(true).open(log)?);
        let started = Instant::now();
        let process = Process::start(name, command)?;
        Ok(Self { name: name.to_owned(), process, log: log.to_owned(), folder: None, started })
    }

    /// Waits until a GET succeeds. Returns how long after the start that was.
    pub async fn answers(&mut self, url: &str) -> Outcome<Duration> {
        let client = reqwest::Client::new();
        loop {
            if client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(self.started.elapsed());
            }
            if self.process.ended()?.is_some() || self.started.elapsed() > PATIENCE {
                return Err(format!("{} does not serve:\n{}", self.name, last_lines(&self.log)).into());
            }
            // Short, because the bench reports the time.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the log has a line with this text, and returns that line.
    pub async fn logs(&mut self, text: &str) -> Outcome<String> {
        within(PATIENCE, &format!("{text:?} in the log of {}", self.name), async || {
            let ended = self.process.ended()?;
            let log = self.log()?;
            let whole = log.rfind('\n').map_or("", |end| &log[..end]);
            match whole.lines().find(|line| line.contains(text)) {
                Some(line) => Ok(Some(line.to_owned())),
                None if ended.is_some() => Err(format!("the log ended without {text:?}:\n{log}").into()),
                None => Ok(None),
            }
        })
        .await
    }

    /// Waits until the log says where it serves.
    pub async fn url(&mut self) -> Outcome<String> {
        let line = self.logs("serving on ").await?;
        let (_, rest) = line.split_once("serving on ").unwrap_or_default();
        Ok(rest.split(',').next().unwrap_or_default().to_owned())
    }

    /// The log so far.
    pub fn log(&self) -> Outcome<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// What to say of a server that ended by itself.
    pub fn crashed(&mut self) -> Outcome<Option<String>> {
        let status = self.process.ended()?;
        Ok(status.map(|status| format!("{} ended by itself with {status}:\n{}", self.name, last_lines(&self.log))))
    }

    pub fn signal(&self, name: &str) -> Outcome<()> {
        self.process.signal(name)
    }

    /// Stops it cleanly. Any exit code but 0 is an error.
    pub async fn stop(&mut self) -> Outcome<()> {
        tokio::time::sleep(LISTENS_WITHIN.saturating_sub(self.started.elapsed())).await;
        self.process.stop().await
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) -> Outcome<()> {
        self.process.kill()
    }

    pub fn resident(&self) -> Outcome<u64> {
        self.process.resident()
    }
}
