//! What an operator can change live. Scripts read it from Redis; the configuration seeds it there.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

/// Field names are those of the hash in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// At least this long between two admissions.
    pub interval_ms: u64,
    /// Most people let in at once.
    pub batch: u64,
    /// Most people inside.
    pub max_active: u64,
    /// Most people waiting; 0: no limit.
    pub max_queue: u64,
    /// How long a pass lasts.
    pub active_ttl_ms: u64,
    /// How long a waiting visitor may be silent.
    pub queue_ttl_ms: u64,
    /// How long a seat is lent.
    pub hold_ttl_ms: u64,
    /// How often unsettled sales are taken up.
    pub sync_interval_ms: u64,
    /// Most seats one pass may hold.
    pub seats_per_pass: u64,
}

impl Policy {
    pub const SEATS_PER_PASS: u64 = 4;

    /// Nobody is asked to poll faster than this, or slower than [`Self::longest_poll`].
    const SHORTEST_POLL: Duration = Duration::from_secs(2);
    const LONGEST_POLL: Duration = Duration::from_secs(60);

    /// The settings as fields and values.
    pub fn fields(&self) -> [(&'static str, u64); 9] {
        [
            ("interval_ms", self.interval_ms),
            ("batch", self.batch),
            ("max_active", self.max_active),
            ("max_queue", self.max_queue),
            ("active_ttl_ms", self.active_ttl_ms),
            ("queue_ttl_ms", self.queue_ttl_ms),
            ("hold_ttl_ms", self.hold_ttl_ms),
            ("sync_interval_ms", self.sync_interval_ms),
            ("seats_per_pass", self.seats_per_pass),
        ]
    }

    /// Identifies this configuration, so that it is applied once and live changes outlast a restart.
    pub fn seed(&self) -> String {
        self.fields().map(|(_, value)| value.to_string()).join("/")
    }

    /// From the hash in Redis; `None` if a field is missing or no number.
    pub fn from_hash(hash: &HashMap<String, String>) -> Option<Self> {
        let field = |name: &str| hash.get(name)?.parse().ok();
        Some(Self {
            interval_ms: field("interval_ms")?,
            batch: field("batch")?,
            max_active: field("max_active")?,
            max_queue: field("max_queue")?,
            active_ttl_ms: field("active_ttl_ms")?,
            queue_ttl_ms: field("queue_ttl_ms")?,
            hold_ttl_ms: field("hold_ttl_ms")?,
            sync_interval_ms: field("sync_interval_ms")?,
            seats_per_pass: field("seats_per_pass")?,
        })
    }

    /// A pulse is good for the slice it falls into; there are four full ones in a queue TTL.
    pub fn slice(&self) -> Duration {
        Duration::from_millis(self.queue_ttl_ms / 4)
    }

    /// Three quarters of a slice: a visitor who polls on time has a pulse in this slice or the one before whenever admission
    /// looks, even if the pulse took a moment to arrive, and so is never passed over.
    pub fn longest_poll(&self) -> Duration {
        Self::LONGEST_POLL.min(self.slice() * 3 / 4)
    }

    /// How often gathered pulses are sent: about once a second, faster where a slice is short.
    pub fn pulse_interval(&self) -> Duration {
        Duration::from_secs(1).min(self.slice() / 8).max(Duration::from_millis(10))
    }

    /// When to ask again: half the time in which this rank could be let in at the earliest, so that nobody near the
    /// front is found absent. `spread` (any number) shortens it by up to a tenth to keep crowds from marching in step.
    pub fn poll_after(&self, rank: u64, spread: u32) -> Duration {
        let rounds = rank.div_ceil(self.batch.max(1));
        let soonest = Duration::from_millis(rounds.saturating_mul(self.interval_ms));
        let paced = (soonest / 2).max(Self::SHORTEST_POLL).min(self.longest_poll());
        paced - paced / 1000 * (spread % 100)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            interval_ms: 1000,
            batch: 200,
            max_active: 200,
            max_queue: 0,
            active_ttl_ms: 300_000,
            queue_ttl_ms: 180_000,
            hold_ttl_ms: 300_000,
            sync_interval_ms: 5000,
            seats_per_pass: Self::SEATS_PER_PASS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_short_near_the_front_and_long_at_the_back() {
        let policy = Policy::default();
        assert_eq!(policy.poll_after(1, 0), Duration::from_secs(2));
        assert_eq!(policy.poll_after(4000, 0), Duration::from_secs(10));
        assert_eq!(policy.poll_after(u64::MAX, 0), Duration::from_millis(33_750));
    }

    #[test]
    fn a_poll_never_waits_longer_than_a_third_of_the_queue_ttl() {
        for queue_ttl_ms in [100, 4_000, 60_000, 180_000, 3_600_000] {
            let policy = Policy { queue_ttl_ms, ..Policy::default() };
            for rank in [1, 1_000, 100_000, 100_000_000] {
                for spread in [0, 37, 99] {
                    assert!(policy.poll_after(rank, spread) <= Duration::from_millis(queue_ttl_ms / 3));
                    assert!(policy.poll_after(rank, spread) <= Duration::from_secs(60));
                }
            }
        }
    }

    #[test]
    fn the_hash_in_redis_reads_back() {
        let policy = Policy { batch: 17, ..Policy::default() };
        let hash = policy.fields().map(|(name, value)| (name.to_owned(), value.to_string())).into();
        assert_eq!(Policy::from_hash(&hash), Some(policy));
        assert_eq!(Policy::from_hash(&HashMap::new()), None);
    }
}
