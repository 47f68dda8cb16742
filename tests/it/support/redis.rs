//! A Redis per test, on a Unix socket: it can be stopped, wiped, copied and restarted without anyone else noticing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use super::eventually;

pub struct TestRedis {
    dir: TempDir,
    process: Option<Child>,
}

impl TestRedis {
    pub async fn start() -> Self {
        let mut redis = Self { dir: tempfile::tempdir().unwrap(), process: None };
        redis.run(&[]).await;
        redis
    }

    /// A copy of another one's data at this moment, as a replica that is promoted would have.
    pub async fn replica_of(master: &TestRedis) -> Self {
        let mut conn = master.connect().await;
        let port = free_port();
        let _: () = redis::cmd("CONFIG").arg("SET").arg("port").arg(port).query_async(&mut conn).await.unwrap();
        let mut replica = Self { dir: tempfile::tempdir().unwrap(), process: None };
        replica.run(&["--replicaof", &format!("127.0.0.1 {port}")]).await;
        let mut conn = replica.connect().await;
        eventually("the replica is in step", async || {
            let info: redis::InfoDict = redis::cmd("INFO").arg("replication").query_async(&mut conn).await.ok()?;
            (info.get::<String>("master_link_status")? == "up").then_some(())
        })
        .await;
        replica
    }

    pub async fn promote(&self) {
        let mut conn = self.connect().await;
        let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut conn).await.unwrap();
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    /// Writes the data to disk, to be found by a later [`TestRedis::run`].
    pub async fn save(&self) {
        let mut conn = self.connect().await;
        let _: () = redis::cmd("SAVE").query_async(&mut conn).await.unwrap();
    }

    /// Ends it as a crash would. What was not saved is gone.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it again, from what was saved if anything.
    pub async fn restart(&mut self) {
        self.kill();
        self.run(&[]).await;
    }

    /// Starts it again with nothing.
    pub async fn restart_empty(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.dir.path().join("dump.rdb"));
        self.run(&[]).await;
    }

    async fn run(&mut self, more: &[&str]) {
        let server = std::env::var("ZT_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let _ = std::fs::remove_file(self.socket());
        let process = Command::new(server)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"])
            .args(["--unixsocket".as_ref(), self.socket().as_os_str()])
            .args(["--dir".as_ref(), self.dir.path().as_os_str()])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server: run the tests with `make test`, which finds or installs one");
        self.process = Some(process);
        let client = redis::Client::open(self.url()).unwrap();
        eventually("Redis answers", async || {
            let mut conn = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("PING").query_async::<String>(&mut conn).await.ok()
        })
        .await;
    }

    fn socket(&self) -> PathBuf {
        Path::join(self.dir.path(), "redis.sock")
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
