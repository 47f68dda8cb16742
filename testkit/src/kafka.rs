//! A Kafka of one node, from the jars in the folder that `ZT_KAFKA` names (`scripts/kafka` fetches them).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::process::{find, output};
use crate::{Outcome, Server, ports, within};

/// Java takes its time, most of all on a busy machine.
const LONGEST_START: Duration = Duration::from_secs(90);

pub struct Kafka {
    port: u16,
    folder: TempDir,
    server: Option<Server>,
}

impl Kafka {
    /// With no topics: servers make theirs.
    pub async fn start() -> Outcome<Self> {
        let (port, controller) = (ports::free()?, ports::free()?);
        let folder = tempfile::tempdir()?;
        let settings = format!(
            "process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
",
            folder.path().join("data").display()
        );
        fs::write(folder.path().join("server.properties"), settings)?;
        let mut kafka = Self { port, folder, server: None };
        let mut format = kafka.java("kafka.tools.StorageTool")?;
        format.args(["format", "-t", &Uuid::now_v7().to_string(), "-c"]).arg(kafka.settings());
        output("kafka-format", &mut format, kafka.folder.path(), LONGEST_START).await?;
        kafka.restart().await?;
        Ok(kafka)
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("server.properties")
    }

    fn java(&self, class: &str) -> Outcome<Command> {
        let jars = std::env::var("ZT_KAFKA").map_err(|_| "ZT_KAFKA names no folder with Kafka: see scripts/kafka")?;
        let mut java = Command::new(find("ZT_JAVA", "java")?);
        java.args(["-Xmx512m", "-cp", &format!("{jars}/*"), class]).current_dir(self.folder.path());
        Ok(java)
    }

    /// For `ZTICKET_BROKER`. Servers with the same prefix share their orders.
    pub fn url(&self, prefix: &str) -> String {
        format!("kafka://127.0.0.1:{}/{prefix}", self.port)
    }

    /// As a crash would.
    pub fn kill(&mut self) -> Outcome<()> {
        self.server.take().map_or(Ok(()), |mut server| server.kill())
    }

    /// With what it had before.
    pub async fn restart(&mut self) -> Outcome<()> {
        self.kill()?;
        let mut command = self.java("kafka.Kafka")?;
        command.arg(self.settings());
        let mut server = Server::start("kafka", &mut command, &self.folder.path().join("log"))?;
        within(LONGEST_START, "Kafka listens", async || {
            if let Some(problem) = server.crashed()? {
                return Err(problem.into());
            }
            Ok(TcpStream::connect(("127.0.0.1", self.port)).await.ok())
        })
        .await?;
        self.server = Some(server);
        Ok(())
    }
}
