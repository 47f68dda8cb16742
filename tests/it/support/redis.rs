//! A Redis per test: it can be stopped, wiped, copied and restarted without anyone else noticing. With `ZT_REDIS=cluster`,
//! which `make test-cluster` sets, it is a cluster of three masters.

use std::fmt::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use zticket::base::ids::EventId;
use zticket::store::redis::keys::{Key, Keys};

use super::eventually;

const MASTERS: usize = 3;

pub struct TestRedis {
    pub nodes: Vec<Node>,
}

impl TestRedis {
    /// Whether the suite runs on clusters.
    pub fn is_cluster() -> bool {
        std::env::var("ZT_REDIS").is_ok_and(|kind| kind == "cluster")
    }

    pub async fn start() -> Self {
        if Self::is_cluster() { Self::cluster(0).await } else { Self::single(&[]).await }
    }

    /// One server on a Unix socket.
    pub async fn single(more: &[&str]) -> Self {
        let mut node = Node::new(None);
        node.run(more);
        node.answers().await;
        Self { nodes: vec![node] }
    }

    /// A cluster of three masters, each with so many replicas. Masters come first.
    pub async fn cluster(replicas: usize) -> Self {
        let mut nodes: Vec<Node> = (0..MASTERS * (1 + replicas)).map(|_| Node::new(Some(free_ports()))).collect();
        // Each is told who the others are, as if they had met before.
        for me in 0..nodes.len() {
            let mut known = String::new();
            for (at, node) in nodes.iter().enumerate() {
                let (port, bus) = node.ports.unwrap();
                let (myself, master) = (if at == me { "myself," } else { "" }, at % MASTERS);
                let (kind, slots) = if at < MASTERS {
                    let (from, to) = (16384 * master / MASTERS, 16384 * (master + 1) / MASTERS - 1);
                    ("master -".to_owned(), format!(" {from}-{to}"))
                } else {
                    (format!("slave {}", id(master)), String::new())
                };
                let epoch = master + 1;
                writeln!(known, "{} 127.0.0.1:{port}@{bus} {myself}{kind} 0 0 {epoch} connected{slots}", id(at))
                    .unwrap();
            }
            writeln!(known, "vars currentEpoch {MASTERS} lastVoteEpoch 0").unwrap();
            std::fs::write(nodes[me].dir.path().join("nodes.conf"), known).unwrap();
        }
        nodes.iter_mut().for_each(|node| node.run(&[]));
        let redis = Self { nodes };
        redis.ready().await;
        redis
    }

    /// A copy of another one's data at this moment, as a replica that is promoted would have. Of single servers.
    pub async fn replica_of(master: &TestRedis) -> Self {
        let mut conn = master.connect().await;
        let port = free_ports().0;
        let _: () = redis::cmd("CONFIG").arg("SET").arg("port").arg(port).query_async(&mut conn).await.unwrap();
        let replica = Self::single(&["--replicaof", &format!("127.0.0.1 {port}")]).await;
        replica.nodes[0].in_step().await;
        replica
    }

    pub async fn promote(&self) {
        let mut conn = self.connect().await;
        let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut conn).await.unwrap();
    }

    pub fn url(&self) -> String {
        self.nodes.iter().map(Node::url).collect::<Vec<_>>().join(",")
    }

    /// To the server that has the default event.
    pub async fn connect(&self) -> MultiplexedConnection {
        self.connect_for(&Keys::new(EventId::new(1).unwrap())).await
    }

    /// To the server that has this event.
    pub async fn connect_for(&self, keys: &Keys) -> MultiplexedConnection {
        let at = if self.nodes.len() > 1 { self.node_of(keys).await } else { 0 };
        self.nodes[at].connect().await
    }

    /// Writes the data to disk, to be found by a later restart.
    pub async fn save(&self) {
        for node in &self.nodes {
            let _: () = redis::cmd("SAVE").query_async(&mut node.connect().await).await.unwrap();
        }
    }

    /// Ends it as a crash would. What was not saved is gone.
    pub fn kill(&mut self) {
        self.nodes.iter_mut().for_each(Node::kill);
    }

    /// Starts it again, from what was saved if anything.
    pub async fn restart(&mut self) {
        self.kill();
        self.nodes.iter_mut().for_each(|node| node.run(&[]));
        self.ready().await;
    }

    /// Starts it again with nothing.
    pub async fn restart_empty(&mut self) {
        self.kill();
        self.nodes.iter().for_each(Node::forget);
        self.restart().await;
    }

    /// Which node has an event now.
    pub async fn node_of(&self, keys: &Keys) -> usize {
        eventually("some node has the event", async || {
            for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.process.is_some()) {
                if node.connect().await.exists::<_, bool>(keys.get(Key::Meta)).await.is_ok() {
                    return Some(at);
                }
            }
            None
        })
        .await
    }

    async fn ready(&self) {
        for node in &self.nodes {
            node.answers().await;
        }
        for node in self.nodes.iter().filter(|node| node.ports.is_some()) {
            node.knows_the_cluster().await;
        }
        for replica in self.nodes.iter().skip(MASTERS) {
            replica.in_step().await;
        }
    }
}

/// The name a node of a cluster goes by.
pub fn id(at: usize) -> String {
    format!("{at:040x}")
}

pub struct Node {
    dir: TempDir,
    /// In a cluster: for clients, and for the other nodes.
    ports: Option<(u16, u16)>,
    process: Option<Child>,
}

impl Node {
    fn new(ports: Option<(u16, u16)>) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), ports, process: None }
    }

    pub fn url(&self) -> String {
        match self.ports {
            Some((port, _)) => format!("redis://127.0.0.1:{port}"),
            None => format!("redis+unix://{}", self.socket().display()),
        }
    }

    /// The one for clients.
    pub fn port(&self) -> u16 {
        self.ports.unwrap().0
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    pub fn run(&mut self, more: &[&str]) {
        let server = std::env::var("ZT_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(server);
        match self.ports {
            None => {
                let _ = std::fs::remove_file(self.socket());
                command.args(["--port", "0"]).args(["--unixsocket".as_ref(), self.socket().as_os_str()]);
            }
            Some((port, bus)) => {
                command
                    .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--cluster-port", &bus.to_string()])
                    .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"])
                    // What is left of a cluster goes on selling; a replica takes over however old its data is.
                    .args(["--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"]);
            }
        }
        let process = command
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"])
            .args(["--dir".as_ref(), self.dir.path().as_os_str()])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server: run the tests with `make test`, which finds or installs one");
        self.process = Some(process);
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn forget(&self) {
        let _ = std::fs::remove_file(self.dir.path().join("dump.rdb"));
    }

    async fn answers(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        eventually("Redis answers", async || {
            let mut conn = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("PING").query_async::<String>(&mut conn).await.ok()
        })
        .await;
    }

    async fn knows_the_cluster(&self) {
        let mut conn = self.connect().await;
        eventually("the cluster serves every slot", async || {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut conn).await.ok()?;
            (info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")).then_some(())
        })
        .await;
    }

    /// Waits until a replica has all its master has.
    async fn in_step(&self) {
        let mut conn = self.connect().await;
        eventually("the replica is in step", async || {
            let info: redis::InfoDict = redis::cmd("INFO").arg("replication").query_async(&mut conn).await.ok()?;
            (info.get::<String>("master_link_status")? == "up").then_some(())
        })
        .await;
    }

    fn socket(&self) -> PathBuf {
        Path::join(self.dir.path(), "redis.sock")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Two ports nobody listens on, below those that are lent to outgoing connections: a node finds them free again when it
/// comes back.
pub fn free_ports() -> (u16, u16) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let free = || loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 12_000 + (std::process::id() as u16 % 100 * 190 + step) % 19_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    };
    (free(), free())
}
