//! How Redis comes to refuse writes while it answers reads.

use crate::wait::{PATIENCE, within};
use crate::{Outcome, Redis};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Full,
    NoReplicas,
    ReadOnly,
    /// Needs [`Refusal::options`].
    CannotSave,
}

impl Refusal {
    /// What a server must be started with so that it can be made unable to save. It needs an append-only file too.
    pub fn options() -> Vec<String> {
        ["--enable-protected-configs", "yes"].map(str::to_owned).to_vec()
    }

    pub async fn begin(self, redis: &Redis) -> Outcome<()> {
        match self {
            Self::Full => configure(redis, &[("maxmemory", "1")]).await,
            Self::NoReplicas => configure(redis, &[("min-replicas-to-write", "1")]).await,
            Self::ReadOnly => replica_of(redis, "127.0.0.1", "1").await,
            Self::CannotSave => {
                // The file it would write is the folder of its append-only file.
                configure(redis, &[("save", "3600 1000000"), ("dbfilename", "appendonlydir")]).await?;
                for node in &redis.nodes {
                    let mut conn = node.connect().await?;
                    within(PATIENCE, "a save that fails", async || {
                        let _: Result<(), _> = redis::cmd("BGSAVE").query_async(&mut conn).await;
                        let info: redis::InfoDict =
                            redis::cmd("INFO").arg("persistence").query_async(&mut conn).await?;
                        let failed = info.get::<String>("rdb_last_bgsave_status").as_deref() == Some("err");
                        Ok(failed.then_some(()))
                    })
                    .await?;
                }
                Ok(())
            }
        }
    }

    pub async fn end(self, redis: &Redis) -> Outcome<()> {
        match self {
            Self::Full => configure(redis, &[("maxmemory", "0")]).await,
            Self::NoReplicas => configure(redis, &[("min-replicas-to-write", "0")]).await,
            Self::ReadOnly => replica_of(redis, "NO", "ONE").await,
            Self::CannotSave => configure(redis, &[("save", "")]).await,
        }
    }
}

/// Sets options of every node.
async fn configure(redis: &Redis, settings: &[(&str, &str)]) -> Outcome<()> {
    for node in &redis.nodes {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET");
        for (name, value) in settings {
            command.arg(name).arg(value);
        }
        let () = command.query_async(&mut node.connect().await?).await?;
    }
    Ok(())
}

async fn replica_of(redis: &Redis, host: &str, port: &str) -> Outcome<()> {
    for node in &redis.nodes {
        let () = redis::cmd("REPLICAOF").arg(host).arg(port).query_async(&mut node.connect().await?).await?;
    }
    Ok(())
}
