//! What gets broken: server processes, a Redis, a PostgreSQL, and the network between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use zticket_testkit::redis::{Options, connect};
use zticket_testkit::{Database, Outcome, PATIENCE, Proxy, Redis, Refusal, Server, Zticket, ports, within};

/// Deadlines of the sale. They are short, so that faults outlast them.
pub const HOLD: Duration = Duration::from_secs(6);
pub const PASS: Duration = Duration::from_secs(8);
pub const QUEUE_TTL: Duration = Duration::from_secs(16);

/// Longest wait for Redis, which may be away.
const ONE_TRY: Duration = Duration::from_millis(500);

pub struct Stage {
    files: TempDir,
    zticket: Zticket,
    redis_url: String,
    redis: Mutex<Redis>,
    postgres: Mutex<()>,
    servers: Vec<Slot>,
    pub redis_wire: Proxy,
    pub postgres_wire: Proxy,
    /// Connects directly, not through the proxy.
    pub db: Database,
    /// Most people inside an event.
    pub max_active: usize,
    has_clock: bool,
}

/// A server keeps its ports over restarts.
struct Slot {
    port: u16,
    management: u16,
    server: Mutex<Option<Server>>,
    /// Held by a fault for as long as it lasts.
    turn: Mutex<()>,
}

impl Stage {
    pub async fn set_up(servers: usize, free_seats: u32, max_active: usize) -> Outcome<Self> {
        let files = tempfile::tempdir()?;
        let here = std::env::current_exe()?;
        let target = here.parent().and_then(Path::parent).ok_or("this program is nowhere")?;
        // A database of its own, which can be replaced by a backup.
        let db = Database::from_env()?.create("sale").await?;
        let clock = std::env::var_os("ZT_FAKETIME");
        let has_clock = clock.is_some();
        let options = Options { tcp: true, append_only: true, clock, more: Refusal::options(), ..Options::default() };
        let redis = Redis::single(options).await?;
        let (mut by_wire, mut redis_by_wire) = (db.url.clone(), redis.url());
        let (postgres_wire, redis_wire) = (Proxy::before(&mut by_wire)?, Proxy::before(&mut redis_by_wire)?);
        let log = std::env::var("ZTICKET_LOG").unwrap_or_else(|_| "info".to_owned());
        let zticket = Zticket::new(target.join("zticket"), &by_wire, &redis_by_wire).set("ZTICKET_LOG", log);
        let slot = |_| {
            Ok(Slot {
                port: ports::free()?,
                management: ports::free()?,
                server: Mutex::new(None),
                turn: Mutex::new(()),
            })
        };
        Ok(Self {
            files,
            zticket: rules(zticket.without_limits(), free_seats, max_active),
            redis_url: redis.url(),
            redis: Mutex::new(redis),
            postgres: Mutex::new(()),
            servers: (0..servers).map(slot).collect::<Outcome<_>>()?,
            redis_wire,
            postgres_wire,
            db,
            max_active,
            has_clock,
        })
    }

    /// Adds two dates of a concert that costs money to the free event that the first server makes.
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
        let added = self.zticket.command().arg("add-concert").arg(file).stdout(Stdio::null()).status()?;
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

    fn log(&self, at: usize) -> PathBuf {
        self.files.path().join(format!("server-{at}.log"))
    }

    /// Does nothing if it runs.
    pub async fn start_server(&self, at: usize) -> Outcome<()> {
        let slot = &self.servers[at];
        let mut server = slot.server.lock().await;
        if server.as_mut().is_some_and(|server| matches!(server.crashed(), Ok(None))) {
            return Ok(());
        }
        let mut command = self.zticket.clone().on(slot.port, slot.management).command();
        *server = Some(Server::start(&format!("server {at}"), &mut command, &self.log(at))?);
        Ok(())
    }

    async fn serving(&self, at: usize) -> Outcome<()> {
        let mut server = self.servers[at].server.lock().await;
        let server = server.as_mut().ok_or("the server was not started")?;
        server.answers(&format!("{}/api/seats/available-count", self.server_url(at))).await?;
        Ok(())
    }

    /// Waits until no other fault is at this server: a frozen one could not stop cleanly.
    pub async fn turn(&self, at: usize) -> MutexGuard<'_, ()> {
        self.servers[at].turn.lock().await
    }

    /// Whether there was one to kill.
    pub async fn kill_server(&self, at: usize) -> bool {
        self.servers[at].server.lock().await.take().is_some()
    }

    /// Stops it cleanly. Any exit code but 0 is an error.
    pub async fn stop_server(&self, at: usize) -> Outcome<()> {
        let Some(mut server) = self.servers[at].server.lock().await.take() else { return Ok(()) };
        server.stop().await
    }

    pub async fn freeze_server(&self, at: usize, frozen: bool) -> Outcome<()> {
        match &*self.servers[at].server.lock().await {
            Some(server) => server.signal(if frozen { "STOP" } else { "CONT" }),
            None => Ok(()),
        }
    }

    /// A server that ended by itself has crashed.
    pub async fn crashed(&self, at: usize) -> Option<String> {
        self.servers[at].server.lock().await.as_mut()?.crashed().ok()?
    }

    /// Connects directly, not through the proxy. Fails while Redis is away or loads its file.
    pub async fn redis(&self) -> Outcome<MultiplexedConnection> {
        let mut conn = connect(&self.redis_url, ONE_TRY).await?;
        let () = redis::cmd("PING").query_async(&mut conn).await?;
        Ok(conn)
    }

    /// Kills Redis for a while. It comes back with its file, or with nothing.
    pub async fn kill_redis(&self, away: Duration, wipe: bool) -> Outcome<()> {
        let mut redis = self.redis.lock().await;
        redis.kill();
        tokio::time::sleep(away).await;
        if wipe { redis.restart_empty().await } else { redis.restart().await }
    }

    pub async fn freeze_redis(&self, time: Duration) -> Outcome<()> {
        let redis = self.redis.lock().await;
        redis.nodes[0].signal("STOP")?;
        tokio::time::sleep(time).await;
        redis.nodes[0].signal("CONT")
    }

    /// Redis answers reads and refuses writes for a while.
    pub async fn refuse_writes(&self, refusal: Refusal, time: Duration) -> Outcome<()> {
        let redis = self.redis.lock().await;
        refusal.begin(&redis).await?;
        tokio::time::sleep(time).await;
        refusal.end(&redis).await
    }

    /// Redis dies, and a replica takes its place that has missed what happened lately.
    pub async fn promote_replica(&self, behind: Duration) -> Outcome<()> {
        let mut redis = self.redis.lock().await;
        let port = redis.nodes[0].port().ok_or("this Redis has no port")?;
        let replica = Redis::following(port, Options { append_only: true, ..Options::default() }).await?;
        replica.promote().await?;
        tokio::time::sleep(behind).await;
        redis.fall_back_to(replica).await
    }

    /// Whether the clock of Redis can be stepped.
    pub fn has_clock(&self) -> bool {
        self.has_clock
    }

    /// The clock of Redis is wrong for a while.
    pub async fn step_clock(&self, seconds: i32, time: Duration) -> Outcome<()> {
        let redis = self.redis.lock().await;
        redis.step_clock(seconds)?;
        tokio::time::sleep(time).await;
        redis.step_clock(0)
    }

    /// Every sale takes 200 ms more to commit, as on a slow disk.
    pub async fn slow_commits(&self, time: Duration) -> Outcome<()> {
        let slow = "CREATE OR REPLACE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
              -- Once a transaction, however many rows it has.
              IF current_setting('chaos.slept', true) IS DISTINCT FROM txid_current()::text THEN
                PERFORM set_config('chaos.slept', txid_current()::text, true), pg_sleep(0.2);
              END IF;
              RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION slow_commit()";
        self.db.execute(slow).await?;
        tokio::time::sleep(time).await;
        self.db.execute("DROP TRIGGER slow_commit ON orders").await
    }

    /// Stops the servers cleanly, copies the database, and starts them again.
    pub async fn back_up(&self) -> Outcome<Database> {
        for at in 0..self.servers.len() {
            self.stop_server(at).await?;
        }
        // Others look at the database now and then, and a copy needs it to itself.
        let copied = within(PATIENCE, "a copy of the database", async || Ok(self.db.back_up().await.ok())).await?;
        for at in 0..self.servers.len() {
            self.start_server(at).await?;
        }
        Ok(copied)
    }

    /// Puts the backup in place of the database, does what the manual says, and starts the servers.
    pub async fn restore(&self, backup: Database) -> Outcome<()> {
        self.db.restore(backup).await?;
        let done = self.zticket.command().arg("after-restore").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !done.success() {
            return Err(format!("zticket after-restore failed: {done}").into());
        }
        for at in 0..self.servers.len() {
            self.start_server(at).await?;
        }
        Ok(())
    }

    /// Kills PostgreSQL, which loses what is not on disk, and starts it again.
    pub async fn crash_postgres(&self) -> Outcome<()> {
        let _one = self.postgres.lock().await;
        for command in ["crash", "start"] {
            let mut services = tokio::process::Command::new("scripts/services");
            // If they were set, the script would leave these services alone.
            services.env_remove("DATABASE_URL").env_remove("REDIS_URL");
            let done = services.args([command, "chaos"]).stdout(Stdio::null()).stderr(Stdio::null()).status().await?;
            if !done.success() {
                return Err(format!("scripts/services {command} chaos failed: {done}").into());
            }
        }
        within(PATIENCE, "an answer of PostgreSQL", async || {
            Ok(self.db.number("SELECT 1::bigint AS n").await.ok().map(drop))
        })
        .await
    }

    /// Keeps the logs, to look into a violation.
    pub fn keep_logs(&self, folder: &Path) -> Outcome<()> {
        fs::create_dir_all(folder)?;
        for at in 0..self.servers.len() {
            fs::copy(self.log(at), folder.join(format!("server-{at}.log")))?;
        }
        Ok(())
    }
}

/// The rules of the sale.
fn rules(zticket: Zticket, free_seats: u32, max_active: usize) -> Zticket {
    let settings = [
        ("SEAT_TOTAL_COUNT", u64::from(free_seats)),
        ("ADMISSION_INTERVAL_MS", 200),
        ("ADMISSION_BATCH_SIZE", 30),
        ("ADMISSION_MAX_ACTIVE_USERS", max_active as u64),
        ("ADMISSION_ACTIVE_TTL_SECONDS", PASS.as_secs()),
        ("QUEUE_TTL_SECONDS", QUEUE_TTL.as_secs()),
        ("SEAT_HOLD_TTL_SECONDS", HOLD.as_secs()),
        ("SYNC_INTERVAL_MS", 1000),
        ("SNAPSHOT_INTERVAL_MS", 100),
    ];
    settings.iter().fold(zticket, |zticket, (name, value)| zticket.set(&format!("ZTICKET_{name}"), value))
}
