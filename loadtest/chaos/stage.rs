//! What is hurt: server processes, a Redis, a PostgreSQL, and the wires between them.

use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::process::{PATIENCE, Process, find, last_lines};
use crate::proxy::Proxy;
use crate::{Outcome, sql};

/// The rules of the sale. Deadlines are short, so that faults outlast them.
pub const HOLD: Duration = Duration::from_secs(6);
pub const PASS: Duration = Duration::from_secs(8);
pub const QUEUE_TTL: Duration = Duration::from_secs(16);

pub struct Stage {
    files: TempDir,
    zticket: PathBuf,
    redis_server: PathBuf,
    redis_port: u16,
    redis: Mutex<Option<Process>>,
    postgres: Mutex<()>,
    servers: Vec<Slot>,
    pub redis_wire: Proxy,
    pub postgres_wire: Proxy,
    /// Past the wire.
    pub database_url: String,
    /// Most people inside an event.
    pub max_active: usize,
    settings: Vec<(String, String)>,
}

/// A server has its address for good.
struct Slot {
    port: u16,
    management: u16,
    process: Mutex<Option<Process>>,
}

impl Stage {
    pub async fn set_up(servers: usize, free_seats: u32, max_active: usize) -> Outcome<Self> {
        let files = tempfile::tempdir()?;
        let here = std::env::current_exe()?;
        let target = here.parent().and_then(Path::parent).ok_or("this program is nowhere")?;
        let database_url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set: use scripts/chaos")?;
        let redis_port = steady_port()?;
        let (redis_wire, postgres_wire) =
            (Proxy::start(redis_port).await?, Proxy::start(port_of(&database_url)?).await?);
        let mut settings = vec![
            ("DATABASE_URL".to_owned(), through(&database_url, postgres_wire.port)?),
            ("REDIS_URL".to_owned(), format!("redis://127.0.0.1:{}/", redis_wire.port)),
            ("ZTICKET_LOG".to_owned(), std::env::var("ZTICKET_LOG").unwrap_or_else(|_| "info".to_owned())),
        ];
        for (name, value) in [
            ("SEAT_TOTAL_COUNT", u64::from(free_seats)),
            ("ADMISSION_INTERVAL_MS", 200),
            ("ADMISSION_BATCH_SIZE", 30),
            ("ADMISSION_MAX_ACTIVE_USERS", max_active as u64),
            ("ADMISSION_ACTIVE_TTL_SECONDS", PASS.as_secs()),
            ("QUEUE_TTL_SECONDS", QUEUE_TTL.as_secs()),
            ("SEAT_HOLD_TTL_SECONDS", HOLD.as_secs()),
            ("SYNC_INTERVAL_MS", 1000),
            ("SNAPSHOT_INTERVAL_MS", 100),
            ("LIMIT_ENTER_PER_SECOND", 0),
            ("LIMIT_BUY_PER_SECOND", 0),
            ("LIMIT_SIGN_UP_PER_SECOND", 0),
            ("LIMIT_STREAMS", 0),
        ] {
            settings.push((format!("ZTICKET_{name}"), value.to_string()));
        }
        let slot = |_| Ok(Slot { port: steady_port()?, management: steady_port()?, process: Mutex::new(None) });
        let stage = Self {
            zticket: target.join("zticket"),
            redis_server: find("ZT_REDIS_SERVER", "redis-server")?,
            redis_port,
            redis: Mutex::new(None),
            postgres: Mutex::new(()),
            servers: (0..servers).map(slot).collect::<Outcome<_>>()?,
            redis_wire,
            postgres_wire,
            database_url,
            max_active,
            settings,
            files,
        };
        *stage.redis.lock().await = Some(stage.run_redis().await?);
        Ok(stage)
    }

    /// Two dates of a concert that costs money, beside the free event the first server makes.
    pub async fn open(&self, rows: u32) -> Outcome<()> {
        self.start_server(0).await?;
        self.serving(0).await?;
        let days = |days| chrono::Utc::now() + chrono::TimeDelta::days(days);
        let plan = json!({
            "title": "Chaos",
            "bookingOpensAt": days(-1),
            "bookingClosesAt": days(1),
            "dates": [{ "startsAt": days(30) }, { "startsAt": days(31) }],
            "layout": { "sections": [
                { "name": "R", "price": 50_000, "rows": rows, "seatsPerRow": 10 },
                { "name": "S", "price": 30_000, "rows": rows, "seatsPerRow": 10 },
            ] },
        });
        let file = self.files.path().join("concert.json");
        fs::write(&file, plan.to_string())?;
        let added = self.zticket().args(["add-concert"]).arg(file).stdout(Stdio::null()).status()?;
        if !added.success() {
            return Err("the concert could not be added".into());
        }
        for at in 1..self.servers.len() {
            self.start_server(at).await?;
        }
        for at in 0..self.servers.len() {
            self.serving(at).await?;
        }
        Ok(())
    }

    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    pub fn server_url(&self, at: usize) -> String {
        format!("http://127.0.0.1:{}", self.servers[at].port)
    }

    fn zticket(&self) -> Command {
        let mut command = Command::new(&self.zticket);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ZTICKET_")) {
            command.env_remove(name);
        }
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    fn log(&self, at: usize) -> PathBuf {
        self.files.path().join(format!("server-{at}.log"))
    }

    /// Unless it runs.
    pub async fn start_server(&self, at: usize) -> Outcome<()> {
        let slot = &self.servers[at];
        let mut process = slot.process.lock().await;
        if process.as_mut().is_some_and(|process| matches!(process.ended(), Ok(None))) {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log(at))?;
        let mut command = self.zticket();
        command.env("ZTICKET_BIND", format!("127.0.0.1:{}", slot.port));
        command.env("ZTICKET_MANAGEMENT_BIND", format!("127.0.0.1:{}", slot.management));
        command.stdout(Stdio::null()).stderr(log);
        *process = Some(Process::start(&format!("server {at}"), &mut command)?);
        Ok(())
    }

    async fn serving(&self, at: usize) -> Outcome<()> {
        let client = reqwest::Client::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ready = client.get(format!("{}/api/seats/available-count", self.server_url(at))).send().await;
            if ready.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("server {at} does not serve:\n{}", last_lines(&self.log(at))).into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether there was one to kill.
    pub async fn kill_server(&self, at: usize) -> bool {
        self.servers[at].process.lock().await.take().is_some()
    }

    /// In good order. An exit code other than 0 is an error.
    pub async fn stop_server(&self, at: usize) -> Outcome<()> {
        let Some(mut process) = self.servers[at].process.lock().await.take() else { return Ok(()) };
        process.signal("TERM")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match process.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("server {at} stopped with {status}").into()),
                None if Instant::now() > deadline => return Err(format!("server {at} does not stop").into()),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    pub async fn freeze_server(&self, at: usize, frozen: bool) -> Outcome<()> {
        match &*self.servers[at].process.lock().await {
            Some(process) => process.signal(if frozen { "STOP" } else { "CONT" }),
            None => Ok(()),
        }
    }

    /// A server that ended by itself has crashed.
    pub async fn crashed(&self, at: usize) -> Option<String> {
        let mut process = self.servers[at].process.lock().await;
        let status = process.as_mut()?.ended().ok()??;
        Some(format!("server {at} ended by itself with {status}:\n{}", last_lines(&self.log(at))))
    }

    fn redis_data(&self) -> PathBuf {
        self.files.path().join("redis")
    }

    async fn run_redis(&self) -> Outcome<Process> {
        fs::create_dir_all(self.redis_data())?;
        let mut command = Command::new(&self.redis_server);
        command.args(["--bind", "127.0.0.1", "--port", &self.redis_port.to_string(), "--dir"]).arg(self.redis_data());
        command.args(["--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction"]);
        command.stdout(File::create(self.files.path().join("redis.log"))?).stderr(Stdio::null());
        let process = Process::start("Redis", &mut command)?;
        let deadline = Instant::now() + PATIENCE;
        while self.redis().await.is_err() {
            if Instant::now() > deadline {
                return Err("Redis does not answer".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(process)
    }

    /// Past the wire.
    pub async fn redis(&self) -> Outcome<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.redis_port))?;
        let timeout = Some(Duration::from_millis(500));
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(timeout).set_connection_timeout(timeout);
        let mut conn = client.get_multiplexed_async_connection_with_config(&config).await?;
        // One that still reads its file does not answer yet.
        let () = redis::cmd("PING").query_async(&mut conn).await?;
        Ok(conn)
    }

    /// Kills Redis for a while. It comes back with its file, or with nothing.
    pub async fn kill_redis(&self, away: Duration, wipe: bool) -> Outcome<()> {
        let mut redis = self.redis.lock().await;
        drop(redis.take());
        tokio::time::sleep(away).await;
        if wipe {
            fs::remove_dir_all(self.redis_data())?;
        }
        *redis = Some(self.run_redis().await?);
        Ok(())
    }

    pub async fn freeze_redis(&self, time: Duration) -> Outcome<()> {
        let redis = self.redis.lock().await;
        let Some(process) = redis.as_ref() else { return Ok(()) };
        process.signal("STOP")?;
        tokio::time::sleep(time).await;
        process.signal("CONT")
    }

    /// Kills PostgreSQL with all it has not written down, and starts it again.
    pub async fn crash_postgres(&self) -> Outcome<()> {
        let _one = self.postgres.lock().await;
        for command in ["crash", "start"] {
            let mut services = tokio::process::Command::new("scripts/services");
            // Set, they would stand for services that are not the script's.
            services.env_remove("DATABASE_URL").env_remove("REDIS_URL");
            let done = services.args([command, "chaos"]).stdout(Stdio::null()).stderr(Stdio::null()).status().await?;
            if !done.success() {
                return Err(format!("scripts/services {command} chaos failed: {done}").into());
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while sql::number(&self.database_url, "SELECT 1::bigint AS n").await.is_err() {
            if Instant::now() > deadline {
                return Err("PostgreSQL does not come back".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Keeps the logs for whoever looks into a violation.
    pub fn keep_logs(&self, folder: &Path) -> Outcome<()> {
        fs::create_dir_all(folder)?;
        for at in 0..self.servers.len() {
            fs::copy(self.log(at), folder.join(format!("server-{at}.log")))?;
        }
        Ok(())
    }
}

fn port_of(url: &str) -> Outcome<u16> {
    let server = url.split('/').nth(2).ok_or("DATABASE_URL has no server")?;
    Ok(server.rsplit(':').next().and_then(|port| port.parse().ok()).ok_or("DATABASE_URL names no port")?)
}

fn through(url: &str, port: u16) -> Outcome<String> {
    Ok(url.replacen(&format!(":{}/", port_of(url)?), &format!(":{port}/"), 1))
}

/// A port below those lent to outgoing connections: whoever comes back finds it free again.
fn steady_port() -> Outcome<u16> {
    loop {
        let port = fastrand::u16(20_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
}
