//! What is measured: servers as child processes, each with a Redis and a database of its own. They end when their value
//! is dropped, however the run ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use zticket_testkit::process::{find, output};
use zticket_testkit::redis::Options;
use zticket_testkit::{Database, Outcome, PATIENCE, Redis, Server, Zticket, ports};

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
async fn redis(files: &Path) -> Outcome<Redis> {
    // Rewriting the file in the middle of a run would slow down one side.
    let more = ["--auto-aof-rewrite-percentage", "0"].map(str::to_owned).to_vec();
    Redis::single(Options { tcp: true, append_only: true, folder: Some(files.to_owned()), more, ..Options::default() })
        .await
}

/// A server of either kind, ready to be asked.
pub struct Serving {
    server: Server,
    pub url: String,
    /// Where its metrics are, if it has any.
    pub management: String,
    /// From its start to its first answer.
    pub ready_after: Duration,
}

impl Serving {
    async fn start(name: &str, command: &mut Command, port: u16, files: &Path) -> Outcome<Self> {
        let mut server = Server::start(name, command, &files.join(format!("{name}.log")))?;
        let url = format!("http://127.0.0.1:{port}");
        let ready_after = server.answers(&format!("{url}/livez")).await?;
        Ok(Self { server, url, management: String::new(), ready_after })
    }

    pub async fn stop(mut self) -> Outcome<()> {
        self.server.stop().await
    }

    pub fn resident(&self) -> Outcome<u64> {
        self.server.resident()
    }
}

/// A build of ZTicket with a Redis and a database of its own.
pub struct Stack<'a> {
    name: String,
    files: &'a Path,
    zticket: Zticket,
    redis: Redis,
    pub db: Database,
}

impl<'a> Stack<'a> {
    pub async fn new(
        zticket: &Path,
        postgres: &Database,
        files: &'a Path,
        name: &str,
        settings: &[(&str, u64)],
    ) -> Outcome<Self> {
        let redis = redis(files).await?;
        let db = postgres.create(&format!("zticket_bench_{name}")).await?;
        let zticket = Zticket::new(zticket, &db.url, &redis.url()).without_limits();
        // Nobody is swept, and no pass ends, while the tokens are in use.
        let day = [("ZTICKET_QUEUE_TTL_SECONDS", 86400), ("ZTICKET_ADMISSION_ACTIVE_TTL_SECONDS", 86400)];
        let settings = day.iter().chain(settings);
        let zticket = settings.fold(zticket, |zticket, (name, value)| zticket.set(name, value));
        Ok(Self { name: name.to_owned(), files, zticket, redis, db })
    }

    /// The same with another setting.
    pub fn set(self, name: &str, value: &str) -> Self {
        Self { zticket: self.zticket.set(name, value), ..self }
    }

    pub async fn redis(&self) -> Outcome<MultiplexedConnection> {
        self.redis.connect().await
    }

    /// Puts visitors into the line, or inside, and returns the file of their tokens.
    pub async fn fill(&self, waiting: u32, tokens: u32, inside: bool) -> Outcome<PathBuf> {
        let name = format!("{}.fill", self.name);
        let mut command = self.zticket.command();
        command.args(["fill", "--waiting", &waiting.to_string(), "--tokens", &tokens.to_string()]);
        if inside {
            command.arg("--admit");
        }
        output(&name, &mut command, self.files, PATIENCE).await
    }

    pub async fn serve(&self) -> Outcome<Serving> {
        let (port, management) = (ports::free()?, ports::free()?);
        let mut command = self.zticket.clone().on(port, management).command();
        let serving = Serving::start(&self.name, &mut command, port, self.files).await?;
        Ok(Serving { management: format!("http://127.0.0.1:{management}"), ..serving })
    }

    pub async fn remove(self) -> Outcome<()> {
        self.db.remove().await
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
        Ok(Self { programs, files, redis: redis(files).await? })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.programs.obvious);
        command.env("REDIS_URL", self.redis.url());
        command
    }

    pub async fn fill(&self, waiting: u32, tokens: u32) -> Outcome<PathBuf> {
        let mut command = self.command();
        command.args(["--fill", &waiting.to_string(), "--tokens", &tokens.to_string()]);
        output("obvious.fill", &mut command, self.files, PATIENCE * 5).await
    }

    pub async fn serve(&self, multiplex: bool) -> Outcome<Serving> {
        let port = ports::free()?;
        let mut command = self.command();
        command.args(["--bind", &format!("127.0.0.1:{port}")]);
        if multiplex {
            command.arg("--multiplex");
        }
        Serving::start(if multiplex { "obvious-multiplex" } else { "obvious" }, &mut command, port, self.files).await
    }
}
