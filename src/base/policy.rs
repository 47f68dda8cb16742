//! The settings of a sale. Scripts read them from Redis. They come from the configuration, and operators change them live.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::base::error::Error;

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
    /// Most tickets of an event that one person may have; 0: no limit.
    pub tickets_per_person: u64,
}

impl Policy {
    pub const PASS_OUTLASTS_HOLD: &str =
        "activeTtlSeconds must be at least holdTtlSeconds: a pass has to outlast a hold.";
    pub const HOLD_OUTLASTS_SYNC: &str =
        "holdTtlSeconds must be more than ZTICKET_SYNC_INTERVAL_MS: a sale has to be settled before its hold can end.";
    pub const SEATS_PER_PASS: u64 = 4;
    /// Where seats cost something.
    pub const TICKETS_PER_PERSON: u64 = 4;

    /// Nobody is asked to poll faster than this, or slower than [`Self::longest_poll`].
    const SHORTEST_POLL: Duration = Duration::from_secs(2);
    const LONGEST_POLL: Duration = Duration::from_secs(60);

    /// The settings as fields and values.
    pub fn fields(&self) -> [(&'static str, u64); 10] {
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
            ("tickets_per_person", self.tickets_per_person),
        ]
    }

    /// Identifies this configuration, so that each is applied once.
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
            // An older server wrote none: then there is no limit for the moment that a newer one takes to write it.
            tickets_per_person: field("tickets_per_person").unwrap_or(0),
        })
    }

    /// The same for an event, whose seats may be free: then anyone may have any number, unless an operator says otherwise.
    pub fn where_seats_are(&self, priced: bool) -> Self {
        let tickets_per_person = if priced { self.tickets_per_person } else { 0 };
        Self { tickets_per_person, ..self.clone() }
    }

    /// The rules between settings. The error names the one that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |rule: &str| Err(Error::InvalidPolicy(rule.to_owned()));
        if self.active_ttl_ms < self.hold_ttl_ms {
            return refuse(Self::PASS_OUTLASTS_HOLD);
        }
        if self.sync_interval_ms >= self.hold_ttl_ms {
            return refuse(Self::HOLD_OUTLASTS_SYNC);
        }
        Ok(())
    }

    /// With the rules between settings kept: a hold outlasts a sync round, and a pass a hold.
    pub fn reconciled(mut self) -> Self {
        self.hold_ttl_ms = self.hold_ttl_ms.max(self.sync_interval_ms.saturating_add(1));
        self.active_ttl_ms = self.active_ttl_ms.max(self.hold_ttl_ms);
        self
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

/// A setting that operators change while servers run.
pub struct Setting {
    /// What it is called outside.
    pub name: &'static str,
    pub lowest: u64,
    pub highest: u64,
    /// What one of its units outside is inside: milliseconds for times.
    unit: u64,
    field: fn(&mut Policy) -> &mut u64,
}

/// Settings that need a restart, and what to set for it.
const FIXED: [(&str, &str); 2] =
    [("syncIntervalMs", "ZTICKET_SYNC_INTERVAL_MS"), ("snapshotIntervalMs", "ZTICKET_SNAPSHOT_INTERVAL_MS")];

pub const SETTINGS: [Setting; 9] = [
    Setting { name: "batch", lowest: 1, highest: 1_000_000, unit: 1, field: |policy| &mut policy.batch },
    Setting { name: "intervalMs", lowest: 10, highest: 3_600_000, unit: 1, field: |policy| &mut policy.interval_ms },
    Setting { name: "maxActive", lowest: 1, highest: 10_000_000, unit: 1, field: |policy| &mut policy.max_active },
    Setting {
        name: "activeTtlSeconds",
        lowest: 1,
        highest: 86_400,
        unit: 1000,
        field: |policy| &mut policy.active_ttl_ms,
    },
    Setting { name: "holdTtlSeconds", lowest: 1, highest: 86_400, unit: 1000, field: |policy| &mut policy.hold_ttl_ms },
    Setting {
        name: "queueTtlSeconds",
        lowest: 4,
        highest: 86_400,
        unit: 1000,
        field: |policy| &mut policy.queue_ttl_ms,
    },
    Setting { name: "maxQueue", lowest: 0, highest: u32::MAX as u64, unit: 1, field: |policy| &mut policy.max_queue },
    Setting { name: "seatsPerPass", lowest: 1, highest: 50, unit: 1, field: |policy| &mut policy.seats_per_pass },
    Setting {
        name: "ticketsPerPerson",
        lowest: 0,
        highest: 50_000,
        unit: 1,
        field: |policy| &mut policy.tickets_per_person,
    },
];

impl Setting {
    pub fn named(name: &str) -> Result<&'static Self, Error> {
        if let Some((_, variable)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return Err(Error::InvalidPolicy(format!(
                "{name} cannot change while servers run: set {variable} and restart them."
            )));
        }
        let known = || SETTINGS.map(|setting| setting.name).join(", ");
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        setting.ok_or_else(|| Error::InvalidPolicy(format!("There is no such setting. These can change: {}.", known())))
    }

    /// The value, if it is one of this setting's.
    pub fn check(&self, value: &Value) -> Result<u64, Error> {
        let Self { name, lowest, highest, .. } = self;
        let fits = value.as_u64().filter(|value| (lowest..=highest).contains(&value));
        fits.ok_or_else(|| Error::InvalidPolicy(format!("{name} is a whole number from {lowest} to {highest}.")))
    }

    pub fn get(&self, policy: &Policy) -> u64 {
        *(self.field)(&mut policy.clone()) / self.unit
    }

    pub fn set(&self, policy: &mut Policy, value: u64) {
        *(self.field)(policy) = value.saturating_mul(self.unit);
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
            tickets_per_person: Self::TICKETS_PER_PERSON,
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
    fn a_setting_reads_back_in_its_own_unit_and_keeps_its_bounds() {
        for setting in &SETTINGS {
            let mut policy = Policy::default();
            for value in [setting.lowest, setting.highest] {
                assert_eq!(setting.check(&value.into()).unwrap(), value);
                setting.set(&mut policy, value);
                assert_eq!(setting.get(&policy), value, "{}", setting.name);
            }
            for wrong in
                [setting.highest.saturating_add(1).into(), Value::from(-1), 1.5.into(), "5".into(), true.into()]
            {
                assert!(matches!(setting.check(&wrong), Err(Error::InvalidPolicy(_))), "{} {wrong}", setting.name);
            }
        }
    }

    #[test]
    fn settings_that_do_not_go_together_are_reconciled() {
        let policy = Policy { active_ttl_ms: 5, hold_ttl_ms: 10, sync_interval_ms: 100, ..Policy::default() };
        assert!(policy.check().is_err());
        assert!(policy.reconciled().check().is_ok());
        assert_eq!(Policy::default().reconciled(), Policy::default());
    }

    #[test]
    fn settings_that_need_a_restart_say_so() {
        let refused = |name| Setting::named(name).err().unwrap().public().2.to_owned();
        assert!(refused("syncIntervalMs").contains("ZTICKET_SYNC_INTERVAL_MS"));
        assert!(refused("nonsense").contains("maxActive"));
    }

    #[test]
    fn the_hash_in_redis_reads_back() {
        let policy = Policy { batch: 17, ..Policy::default() };
        let hash = policy.fields().map(|(name, value)| (name.to_owned(), value.to_string())).into();
        assert_eq!(Policy::from_hash(&hash), Some(policy));
        assert_eq!(Policy::from_hash(&HashMap::new()), None);
    }
}
