//! What is measured runs here: child processes, each with a Redis and a database of its own. All of them end with the
//! value that stands for them, however the run ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use redis::aio::MultiplexedConnection;

use crate::Outcome;
use crate::process::{PATIENCE, Process, find, free_port, last_lines, output};

/// Leftovers of a run that was killed are known by it.
const DATABASE_PREFIX: &str = "zticket_bench_";

/// Where the programs are.
pub struct Programs {
    pub zticket: PathBuf,
    pub obvious: PathBuf,
    pub redis: PathBuf,
    pub wrk: PathBuf,
    pub pgbench: PathBuf,
}

impl Programs {
    /// The servers beside this program, the others where the environment says or on the PATH.
    pub fn find() -> Outcome<Self> {
        let here = std::env::current_exe()?;
        let examples = here.parent().ok_or("this program is nowhere")?;
        let target = examples.parent().ok_or("this program is nowhere")?;
        let built = |path: PathBuf| match path.is_file() {
            true => Ok(path),
            false => Err(format!("{} is not built: use scripts/bench", path.display())),
        };
        Ok(Self {
            zticket: built(target.join("zticket"))?,
            obvious: built(examples.join("obvious"))?,
            redis: find("ZT_REDIS_SERVER", "redis-server")?,
            wrk: find("ZT_WRK", "wrk")?,
            pgbench: find("ZT_PGBENCH", "pgbench")?,
        })
    }
}

/// A Redis that keeps an append-only file, as one that matters would.
pub struct Redis {
    process: Process,
    port: u16,
}

impl Redis {
    pub async fn start(programs: &Programs, files: &Path, name: &str) -> Outcome<Self> {
        let (port, data) = (free_port()?, files.join(format!("{name}.redis")));
        // A stack of this name may have been here before.
        let _ = fs::remove_dir_all(&data);
        fs::create_dir(&data)?;
        let mut command = Command::new(&programs.redis);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(&data);
        command.args(["--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction"]);
        // Rewriting the file in the middle of a run would be charged to whoever is measured then.
        command.args(["--auto-aof-rewrite-percentage", "0"]);
        command.stdout(File::create(files.join(format!("{name}.redis.log")))?).stderr(Stdio::null());
        let process = Process::start(&format!("Redis of {name}"), &mut command)?;
        let redis = Self { process, port };
        let deadline = Instant::now() + PATIENCE;
        while redis.connect().await.is_err() {
            if Instant::now() > deadline {
                return Err(format!("{} does not answer", redis.process.name()).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub async fn connect(&self) -> Outcome<MultiplexedConnection> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let client = redis::Client::open(self.url())?;
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

/// The PostgreSQL all databases are in.
pub struct Postgres {
    pub url: String,
}

impl Postgres {
    /// `DATABASE_URL` names any database of it.
    pub fn find() -> Outcome<Self> {
        let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set: use scripts/bench")?;
        Ok(Self { url })
    }

    /// An empty database. One of this name that was left behind is dropped.
    pub async fn create(&self, name: &str) -> Outcome<String> {
        let name = format!("{DATABASE_PREFIX}{name}");
        execute(&self.url, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        execute(&self.url, &format!("CREATE DATABASE {name}")).await?;
        let (server, _) = self.url.rsplit_once('/').ok_or("DATABASE_URL names no database")?;
        Ok(format!("{server}/{name}"))
    }

    pub async fn drop(&self, url: &str) -> Outcome<()> {
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        if !name.starts_with(DATABASE_PREFIX) {
            return Err(format!("{name} is not a database of ours").into());
        }
        execute(&self.url, &format!("DROP DATABASE {name} WITH (FORCE)")).await
    }
}

pub async fn execute(database_url: &str, sql: &str) -> Outcome<()> {
    Ok(AsyncPgConnection::establish(database_url).await?.batch_execute(sql).await?)
}

/// The one text a query answers; it has to be named `answer`.
pub async fn ask(database_url: &str, sql: &str) -> Outcome<String> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        answer: String,
    }
    let mut conn = AsyncPgConnection::establish(database_url).await?;
    let row: Row = diesel::sql_query(sql).get_result(&mut conn).await?;
    Ok(row.answer)
}

/// A server of either kind, ready to be asked.
pub struct Server {
    process: Process,
    pub url: String,
    /// From its start to its first answer.
    pub ready_after: Duration,
}

impl Server {
    async fn start(name: &str, command: &mut Command, port: u16, files: &Path) -> Outcome<Self> {
        let log = files.join(format!("{name}.log"));
        command.stdout(Stdio::null()).stderr(File::create(&log)?);
        let url = format!("http://127.0.0.1:{port}");
        let client = reqwest::Client::new();
        let started = Instant::now();
        let mut process = Process::start(name, command)?;
        loop {
            let answer = client.get(format!("{url}/livez")).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(Self { process, url, ready_after: started.elapsed() });
            }
            if process.ended()?.is_some() || started.elapsed() > PATIENCE {
                return Err(format!("{name} does not serve:\n{}", last_lines(&log)).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn stop(self) -> Outcome<()> {
        self.process.stop().await
    }

    pub fn resident(&self) -> Outcome<u64> {
        self.process.resident()
    }
}

/// A build of ZTicket with a Redis and a database of its own.
pub struct Stack<'a> {
    name: String,
    zticket: &'a Path,
    files: &'a Path,
    settings: Vec<(&'static str, String)>,
    pub redis: Redis,
    pub database_url: String,
}

impl<'a> Stack<'a> {
    pub async fn new(
        programs: &Programs,
        zticket: &'a Path,
        postgres: &Postgres,
        files: &'a Path,
        name: &str,
        settings: &[(&'static str, u64)],
    ) -> Outcome<Self> {
        let redis = Redis::start(programs, files, name).await?;
        let database_url = postgres.create(name).await?;
        let settings = settings.iter().map(|(name, value)| (*name, value.to_string())).collect();
        Ok(Self { name: name.to_owned(), zticket, files, settings, redis, database_url })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.zticket);
        // Settings of the shell this runs in are not those that are measured.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ZTICKET_")) {
            command.env_remove(name);
        }
        command.env("DATABASE_URL", &self.database_url).env("REDIS_URL", self.redis.url());
        // Nobody is swept, and no pass ends, while the tokens are in use.
        command.env("ZTICKET_QUEUE_TTL_SECONDS", "86400").env("ZTICKET_ADMISSION_ACTIVE_TTL_SECONDS", "86400");
        // The whole load comes from one address.
        for limit in ["ENTER_PER_SECOND", "BUY_PER_SECOND", "SIGN_UP_PER_SECOND", "STREAMS"] {
            command.env(format!("ZTICKET_LIMIT_{limit}"), "0");
        }
        command.envs(self.settings.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Puts visitors into the line, or inside, and returns the file of their tokens.
    pub async fn fill(&self, waiting: u32, tokens: u32, inside: bool) -> Outcome<PathBuf> {
        let name = format!("{}.fill", self.name);
        let mut command = self.command();
        command.args(["fill", "--waiting", &waiting.to_string(), "--tokens", &tokens.to_string()]);
        if inside {
            command.arg("--admit");
        }
        output(&name, &mut command, self.files, PATIENCE).await?;
        Ok(self.files.join(format!("{name}.out")))
    }

    pub async fn serve(&self) -> Outcome<Server> {
        let port = free_port()?;
        let mut command = self.command();
        command.env("ZTICKET_BIND", format!("127.0.0.1:{port}"));
        command.env("ZTICKET_MANAGEMENT_BIND", format!("127.0.0.1:{}", free_port()?));
        Server::start(&self.name, &mut command, port, self.files).await
    }

    pub async fn remove(self, postgres: &Postgres) -> Outcome<()> {
        postgres.drop(&self.database_url).await
    }
}

/// The obvious way, with a Redis of its own.
pub struct Obvious<'a> {
    programs: &'a Programs,
    files: &'a Path,
    pub redis: Redis,
}

impl<'a> Obvious<'a> {
    pub async fn new(programs: &'a Programs, files: &'a Path) -> Outcome<Self> {
        Ok(Self { programs, files, redis: Redis::start(programs, files, "obvious").await? })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.programs.obvious);
        command.env("REDIS_URL", self.redis.url());
        command
    }

    pub async fn fill(&self, waiting: u32, tokens: u32) -> Outcome<PathBuf> {
        let mut command = self.command();
        command.args(["--fill", &waiting.to_string(), "--tokens", &tokens.to_string()]);
        output("obvious.fill", &mut command, self.files, PATIENCE * 5).await?;
        Ok(self.files.join("obvious.fill.out"))
    }

    pub async fn serve(&self, multiplex: bool) -> Outcome<Server> {
        let port = free_port()?;
        let mut command = self.command();
        command.args(["--bind", &format!("127.0.0.1:{port}")]);
        if multiplex {
            command.arg("--multiplex");
        }
        Server::start(if multiplex { "obvious-multiplex" } else { "obvious" }, &mut command, port, self.files).await
    }
}
