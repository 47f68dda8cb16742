//! An event of ZTicket for the lab, made by the script that brings back lost ones. It is in Redis only.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::base::policy::Policy;
use crate::event::snapshot::COUNTERS;
use crate::lab::ground::{Fault, Ground};
use crate::store::redis::scripts::RestoreArgs;

const HOUR_MS: u64 = 3_600_000;
/// How long visitors who are inside may stay.
const STAY_MS: u64 = 600_000;
/// The places that the event can hand out.
const PLACES: u32 = 1 << 28;

/// With this many seats, places 1 to `inside` let in, and the first `waiting` places in the line.
pub async fn make(ground: &Ground, seats: u32, inside: u32, waiting: u32) -> Result<(), Fault> {
    let policy = Policy {
        interval_ms: 1000,
        batch: 1,
        max_active: u64::from(inside.max(1)),
        max_queue: 0,
        active_ttl_ms: STAY_MS,
        queue_ttl_ms: HOUR_MS,
        hold_ttl_ms: STAY_MS,
        sync_interval_ms: 5000,
        seats_per_pass: 4,
        tickets_per_person: 0,
    };
    let mut policy: BTreeMap<&str, Value> = policy.fields().map(|(field, value)| (field, json!(value))).into();
    policy.extend([("version", json!(0)), ("seed", json!("")), ("slow_ttl_ms", json!(0)), ("slow_left", json!(0))]);
    let mut facts: BTreeMap<&str, Value> = COUNTERS.map(|counter| (counter, json!(0))).into();
    facts.extend(["base", "block", "gap_from", "gap_to", "gap_wait", "tick"].map(|field| (field, json!(0))));
    facts.extend(["line_version", "passes_version", "seats_version", "fetch"].map(|field| (field, json!(1))));
    facts.extend([("next", json!(waiting)), ("end", json!(PLACES)), ("seats", json!(seats))]);
    facts.extend([("state", json!("open")), ("reason", json!(""))]);
    let passes: Vec<_> = (1..=inside).map(|place| (place, STAY_MS, STAY_MS)).collect();
    let args = RestoreArgs {
        facts: json!(facts).to_string(),
        policy: json!(policy).to_string(),
        line: first_bits(waiting),
        back: Vec::new(),
        passes: json!(passes).to_string(),
        holds: "[]".to_owned(),
        settled: "[]".to_owned(),
    };
    ground.scripts.restore(&mut ground.link.clone(), &ground.keys, &args).await?;
    Ok(())
}

/// A bitmap with this many bits set, in the bit order of Redis.
fn first_bits(count: u32) -> Vec<u8> {
    let mut bytes = vec![0xff; count as usize / 8];
    if !count.is_multiple_of(8) {
        bytes.push(0xff << (8 - count % 8));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bits_are_set_as_people_wait() {
        for count in [0, 1, 7, 8, 9, 1000] {
            let bits: u32 = first_bits(count).iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(bits, count);
        }
        assert_eq!(first_bits(10), [0xff, 0xc0]);
    }
}
