//! A lock in Redis: a key with its owner's token in it, which Redis deletes after a lease.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use redis::Script;
use uuid::Uuid;

use crate::lab::background::Background;
use crate::lab::ground::{Fault, Ground};
use crate::store::redis::links::Link;

/// How long a buyer waits for the lock.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Buyers ask again and again, after up to this many ms. Those who have waited longer ask less often.
const FIRST_PAUSE: u32 = 10;
const LAST_PAUSE: u32 = 40;

/// Only the owner may unlock: after the lease, the lock may be somebody else's.
static UNLOCK: LazyLock<Script> = LazyLock::new(|| {
    Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
});
static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
    )
});

pub struct Lock {
    link: Link,
    key: String,
    token: String,
    lease_ms: u64,
}

impl Lock {
    /// Waits for the lock of an item, within a limit. `None`: others had it all the time.
    pub async fn take(ground: &Ground, item: i32, lease: Duration) -> Result<Option<Self>, Fault> {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let (key, token) = (format!("zt1:{{lab}}:lab:lock:{item}"), Uuid::now_v7());
        let mut lock = Self { link: ground.link.clone(), key, token: token.to_string(), lease_ms };
        // The token ends with random bits: buyers who came together do not ask again together.
        let dice = token.as_u64_pair().1;
        let asked = Instant::now();
        for tried in 1.. {
            if lock.try_once().await? {
                return Ok(Some(lock));
            }
            if asked.elapsed() > LONGEST_WAIT {
                break;
            }
            let most = (FIRST_PAUSE + tried).min(LAST_PAUSE);
            let pause = 1 + dice.rotate_left(tried * 7) % u64::from(most);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Ok(None)
    }

    async fn try_once(&mut self) -> Result<bool, Fault> {
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(&self.token).arg("NX").arg("PX").arg(self.lease_ms);
        let reply: Option<String> = set.query_async(&mut self.link).await?;
        Ok(reply.is_some())
    }

    /// Renews the lease until the task is dropped.
    pub fn watch(&self) -> Background {
        let (mut link, key, token, lease_ms) = (self.link.clone(), self.key.clone(), self.token.clone(), self.lease_ms);
        Background::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(lease_ms / 3)).await;
                let renewed: Result<i32, _> = RENEW.key(&key).arg(&token).arg(lease_ms).invoke_async(&mut link).await;
                if !matches!(renewed, Ok(1)) {
                    return;
                }
            }
        })
    }

    pub async fn release(mut self) -> Result<(), Fault> {
        let _: i32 = UNLOCK.key(&self.key).arg(&self.token).invoke_async(&mut self.link).await?;
        Ok(())
    }
}
