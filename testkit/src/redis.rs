//! A Redis of its own, which can be stopped, wiped, copied and restarted without anyone else noticing: a single server, a
//! replica of one, or a cluster of three masters.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use zticket::base::ids::EventId;
use zticket::store::redis::keys::{Key, Keys};

use crate::process::{find, last_lines};
use crate::{Outcome, PATIENCE, Process, ports, within};

pub const MASTERS: usize = 3;
/// Longest wait for one answer of a Redis that may still be loading its data. It is ample, because a program that is busy
/// with thousands of visitors is slow itself.
const LONG_TRY: Duration = Duration::from_secs(5);

/// Masters come first in a cluster.
pub struct Redis {
    pub nodes: Vec<Node>,
}

/// How a single server runs.
#[derive(Clone, Default)]
pub struct Options {
    /// Listen on a TCP port that stays the same over restarts, instead of a Unix socket.
    pub tcp: bool,
    /// Keep an append-only file, from which a killed server comes back.
    pub append_only: bool,
    /// Where its folder is made, instead of the system's folder for temporary files.
    pub folder: Option<PathBuf>,
    /// A clock of its own, which [`Redis::step_clock`] can move: the libraries to load first, libfaketime among them.
    pub clock: Option<OsString>,
    /// More arguments of redis-server.
    pub more: Vec<String>,
}

impl Redis {
    pub async fn single(options: Options) -> Outcome<Self> {
        let ports = if options.tcp { Ports::Client(ports::free()?) } else { Ports::Socket };
        let mut node = Node::new(ports, options)?;
        node.start()?;
        node.answers().await?;
        Ok(Self { nodes: vec![node] })
    }

    /// A cluster of three masters, each with this many replicas.
    pub async fn cluster(replicas: usize) -> Outcome<Self> {
        let mut nodes = Vec::new();
        for _ in 0..MASTERS * (1 + replicas) {
            nodes.push(Node::new(Ports::Cluster(ports::free()?, ports::free()?), Options::default())?);
        }
        crate::cluster::introduce(&nodes)?;
        nodes.iter_mut().try_for_each(Node::start)?;
        let redis = Self { nodes };
        redis.ready().await?;
        Ok(redis)
    }

    /// A replica of the server that has the default event, once it has caught up.
    pub async fn replica_of(master: &Redis) -> Outcome<Self> {
        let mut conn = master.connect().await?;
        let port = ports::free()?;
        let () = redis::cmd("CONFIG").arg("SET").arg("port").arg(port).query_async(&mut conn).await?;
        Self::following(port, Options::default()).await
    }

    /// A server that has caught up with the one on this port.
    pub async fn following(port: u16, options: Options) -> Outcome<Self> {
        let replica = Self::single(options).await?;
        let mut conn = replica.connect().await?;
        let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(port).query_async(&mut conn).await?;
        replica.nodes[0].caught_up().await?;
        Ok(replica)
    }

    /// Makes a replica a master. It hears no more of its old one.
    pub async fn promote(&self) -> Outcome<()> {
        Ok(redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut self.connect().await?).await?)
    }

    pub fn url(&self) -> String {
        self.nodes.iter().map(Node::url).collect::<Vec<_>>().join(",")
    }

    /// To the node that has the default event.
    pub async fn connect(&self) -> Outcome<MultiplexedConnection> {
        self.connect_for(&Keys::new(EventId::new(1).ok_or("1 is an event")?)).await
    }

    /// To the node that has this event.
    pub async fn connect_for(&self, keys: &Keys) -> Outcome<MultiplexedConnection> {
        let at = if self.nodes.len() > 1 { self.node_of(keys).await? } else { 0 };
        self.nodes[at].connect().await
    }

    /// Writes the data to disk, for a later restart.
    pub async fn save(&self) -> Outcome<()> {
        for node in &self.nodes {
            let () = redis::cmd("SAVE").query_async(&mut node.connect().await?).await?;
        }
        Ok(())
    }

    /// Ends it as a crash would. What is not on disk is gone.
    pub fn kill(&mut self) {
        self.nodes.iter_mut().for_each(Node::kill);
    }

    /// Starts it again with what is on disk.
    pub async fn restart(&mut self) -> Outcome<()> {
        self.kill();
        self.nodes.iter_mut().try_for_each(Node::start)?;
        self.ready().await
    }

    /// Starts it again with nothing.
    pub async fn restart_empty(&mut self) -> Outcome<()> {
        self.kill();
        self.nodes.iter().for_each(Node::forget);
        self.restart().await
    }

    /// Starts it again with what this replica has, as if it had been promoted. Both keep an append-only file.
    pub async fn fall_back_to(&mut self, mut replica: Self) -> Outcome<()> {
        self.kill();
        replica.kill();
        for (node, replica) in self.nodes.iter().zip(&replica.nodes) {
            node.forget();
            let folder = node.file("appendonlydir");
            fs::create_dir_all(&folder)?;
            for file in fs::read_dir(replica.file("appendonlydir"))? {
                let file = file?;
                fs::copy(file.path(), folder.join(file.file_name()))?;
            }
        }
        self.restart().await
    }

    /// Moves its clock this many seconds away from the right time.
    pub fn step_clock(&self, seconds: i32) -> Outcome<()> {
        for node in &self.nodes {
            // Renamed into place, because it may be read at any moment.
            fs::write(node.file("clock.new"), format!("{seconds:+}\n"))?;
            fs::rename(node.file("clock.new"), node.file("clock"))?;
        }
        Ok(())
    }

    /// Which node has an event now.
    pub async fn node_of(&self, keys: &Keys) -> Outcome<usize> {
        within(PATIENCE, "a node that has the event", async || {
            for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.process.is_some()) {
                if node.connect().await?.exists::<_, bool>(keys.get(Key::Meta)).await.is_ok() {
                    return Ok(Some(at));
                }
            }
            Ok(None)
        })
        .await
    }

    async fn ready(&self) -> Outcome<()> {
        for node in &self.nodes {
            node.answers().await?;
        }
        for node in self.nodes.iter().filter(|node| matches!(node.ports, Ports::Cluster(..))) {
            node.knows_the_cluster().await?;
        }
        for replica in self.nodes.iter().skip(MASTERS) {
            replica.caught_up().await?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Ports {
    Socket,
    Client(u16),
    /// For clients, and for the other nodes.
    Cluster(u16, u16),
}

/// One redis-server, with a folder that goes when it goes.
pub struct Node {
    folder: TempDir,
    pub(crate) ports: Ports,
    options: Options,
    process: Option<Process>,
}

impl Node {
    fn new(ports: Ports, options: Options) -> Outcome<Self> {
        let folder = match &options.folder {
            Some(parent) => tempfile::Builder::new().prefix("redis-").tempdir_in(parent)?,
            None => tempfile::tempdir()?,
        };
        Ok(Self { folder, ports, options, process: None })
    }

    pub fn url(&self) -> String {
        match self.ports {
            Ports::Socket => format!("redis+unix://{}", self.file("redis.sock").display()),
            Ports::Client(port) | Ports::Cluster(port, _) => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// The one for clients, if there is one.
    pub fn port(&self) -> Option<u16> {
        match self.ports {
            Ports::Socket => None,
            Ports::Client(port) | Ports::Cluster(port, _) => Some(port),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }

    pub async fn connect(&self) -> Outcome<MultiplexedConnection> {
        connect(&self.url(), PATIENCE).await
    }

    pub fn start(&mut self) -> Outcome<()> {
        let mut command = Command::new(find("ZT_REDIS_SERVER", "redis-server")?);
        match self.ports {
            Ports::Socket => {
                let socket = self.file("redis.sock");
                let _ = fs::remove_file(&socket);
                command.args(["--port", "0"]).args(["--unixsocket".as_ref(), socket.as_os_str()]);
            }
            Ports::Client(port) => {
                command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
            }
            Ports::Cluster(port, bus) => {
                command
                    .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--cluster-port", &bus.to_string()])
                    .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"])
                    // The rest of a cluster keeps selling; a replica takes over however old its data is.
                    .args(["--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"]);
            }
        }
        if let Some(faketime) = &self.options.clock {
            if !self.file("clock").exists() {
                fs::write(self.file("clock"), "+0\n")?;
            }
            command
                .env("LD_PRELOAD", faketime)
                .env("FAKETIME_TIMESTAMP_FILE", self.file("clock"))
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let append_only = if self.options.append_only { "yes" } else { "no" };
        command
            .args(["--save", "", "--appendonly", append_only, "--daemonize", "no"])
            .args(["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"])
            .args(["--dir".as_ref(), self.folder.path().as_os_str()])
            .args(&self.options.more)
            .stdout(OpenOptions::new().create(true).append(true).open(self.file("log"))?)
            .stderr(Stdio::null());
        self.process = Some(Process::start("Redis", &mut command)?);
        Ok(())
    }

    /// After its next start it refuses writes, for want of replicas.
    pub fn refuse_writes_from_now_on(&mut self) {
        self.options.more.extend(["--min-replicas-to-write", "1"].map(str::to_owned));
    }

    pub fn signal(&self, name: &str) -> Outcome<()> {
        self.process.as_ref().ok_or("this Redis does not run")?.signal(name)
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Deletes its data, not what it knows of its cluster.
    pub fn forget(&self) {
        let _ = fs::remove_file(self.file("dump.rdb"));
        let _ = fs::remove_dir_all(self.file("appendonlydir"));
    }

    /// Waits until it has loaded its data.
    pub async fn answers(&self) -> Outcome<()> {
        let answered = within(PATIENCE, "an answer of Redis", async || {
            let Ok(mut conn) = connect(&self.url(), LONG_TRY).await else { return Ok(None) };
            Ok(redis::cmd("PING").query_async::<()>(&mut conn).await.ok())
        });
        let log = self.file("log");
        answered.await.map_err(|error| format!("{error}\n{}", last_lines(&log)).into())
    }

    async fn knows_the_cluster(&self) -> Outcome<()> {
        let mut conn = self.connect().await?;
        within(PATIENCE, "a cluster that serves every slot", async || {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut conn).await?;
            Ok((info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")).then_some(()))
        })
        .await
    }

    /// Waits until a replica has everything its master has.
    async fn caught_up(&self) -> Outcome<()> {
        let mut conn = self.connect().await?;
        within(PATIENCE, "a replica that has caught up", async || {
            let info: redis::InfoDict = redis::cmd("INFO").arg("replication").query_async(&mut conn).await?;
            Ok(info.get::<String>("master_link_status").filter(|status| status == "up").map(drop))
        })
        .await
    }
}

/// With a limit on connecting and on every answer.
pub async fn connect(url: &str, limit: Duration) -> Outcome<MultiplexedConnection> {
    let limit = Some(limit);
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(limit).set_connection_timeout(limit);
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}
