//! `policy_set`: what an operator can change live.

use redis::AsyncCommands;
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, PolicySet, Sweep};

use super::fixture::Fixture;

fn refused(rule: &str) -> PolicySet {
    PolicySet::Refused(rule.to_owned())
}

#[tokio::test]
async fn a_change_applies_at_once_and_servers_hear_of_it() {
    let event = Fixture::new().await;
    event.entered(10).await;
    assert_eq!(event.change(&[("batch", "3"), ("max_active", "2")]).await, PolicySet::Ok);
    assert_eq!((event.policy("batch").await, event.policy("max_active").await), (3, 2));
    let version = event.meta("policy_version").await;
    assert_eq!(event.admit().await, Admit::Admitted(2));
    assert_eq!(event.change(&[("interval_ms", "1")]).await, PolicySet::Ok);
    assert!(event.meta("policy_version").await > version);
}

#[tokio::test]
async fn every_setting_takes_its_lowest_value_and_nothing_lower() {
    let event = Fixture::new().await;
    for (field, lowest) in [
        ("interval_ms", 1),
        ("batch", 0),
        ("max_active", 0),
        ("max_queue", 0),
        ("queue_ttl_ms", 4),
        ("sync_interval_ms", 1),
        ("seats_per_pass", 1),
    ] {
        assert_eq!(event.change(&[(field, &lowest.to_string())]).await, PolicySet::Ok, "{field}");
        assert_eq!(event.policy(field).await, lowest);
        let rule = format!("{field} is a whole number of at least {lowest}");
        assert_eq!(event.change(&[(field, &(lowest - 1).to_string())]).await, refused(&rule));
        assert_eq!(event.policy(field).await, lowest);
    }
    for field in ["active_ttl_ms", "hold_ttl_ms"] {
        let rule = format!("{field} is a whole number of at least 1");
        assert_eq!(event.change(&[(field, "0")]).await, refused(&rule));
    }
}

#[tokio::test]
async fn a_value_that_is_no_plain_whole_number_is_refused() {
    let event = Fixture::new().await;
    let rule = "batch is a whole number of at least 0";
    for value in ["", "-1", "+1", "1.5", "1e3", "0x10", " 1", "1 ", "ten", "1\n", "1234567890123", "nan"] {
        assert_eq!(event.change(&[("batch", value)]).await, refused(rule), "{value:?}");
    }
    assert_eq!(event.change(&[("batch", "999999999999")]).await, PolicySet::Ok);
}

#[tokio::test]
async fn an_unknown_setting_is_refused_by_name() {
    let event = Fixture::new().await;
    for field in ["", "Batch", "waiting", "seed", "now"] {
        let rule = format!("there is no setting {field}");
        assert_eq!(event.change(&[(field, "1")]).await, refused(&rule));
    }
}

#[tokio::test]
async fn a_pass_lasts_as_long_as_a_hold() {
    let event = Fixture::new().await;
    let rule = "active_ttl_ms must be at least hold_ttl_ms";
    assert_eq!(event.change(&[("active_ttl_ms", "999999")]).await, refused(rule));
    assert_eq!(event.change(&[("hold_ttl_ms", "2000001")]).await, refused(rule));
    assert_eq!(event.change(&[("active_ttl_ms", "1000000")]).await, PolicySet::Ok);
    let both = [("hold_ttl_ms", "3000000"), ("active_ttl_ms", "3000000")];
    assert_eq!(event.change(&both).await, PolicySet::Ok, "only the outcome counts, not the order");
}

#[tokio::test]
async fn a_sync_round_comes_before_a_hold_ends() {
    let event = Fixture::new().await;
    let rule = "sync_interval_ms must be less than hold_ttl_ms";
    assert_eq!(event.change(&[("sync_interval_ms", "1000000")]).await, refused(rule));
    assert_eq!(event.change(&[("hold_ttl_ms", "5000")]).await, refused(rule));
    assert_eq!(event.change(&[("hold_ttl_ms", "5001")]).await, PolicySet::Ok);
}

#[tokio::test]
async fn a_refusal_changes_nothing_of_what_came_with_it() {
    let event = Fixture::new().await;
    event.entered(2).await;
    let dump = event.dump().await;
    for wrong in [("batch", "x"), ("nonsense", "1"), ("state", "shut"), ("hold_ttl_ms", "1")] {
        let changes = [("max_queue", "5"), ("state", "paused"), wrong];
        assert!(matches!(event.change(&changes).await, PolicySet::Refused(_)), "{wrong:?}");
        assert!(matches!(event.decide(0, "new", &changes).await, PolicySet::Refused(_)), "{wrong:?}");
        assert_eq!(event.dump().await, dump, "{wrong:?}");
    }
}

#[tokio::test]
async fn an_event_is_paused_resumed_and_closed() {
    let event = Fixture::new().await;
    assert_eq!(event.change(&[("state", "shut")]).await, refused("state is open, paused or closed"));
    event.set_meta("policy_version", 7).await;
    for (version, state) in (8..).zip(["paused", "open", "closed", "open"]) {
        assert_eq!(event.change(&[("state", state)]).await, PolicySet::Ok);
        assert_eq!(event.meta_text("state").await, state);
        assert_eq!(event.meta("policy_version").await, version);
    }
    assert_eq!(event.change(&[("state", "paused"), ("batch", "1")]).await, PolicySet::Ok);
    assert_eq!((event.meta_text("state").await.as_str(), event.policy("batch").await), ("paused", 1));
}

#[tokio::test]
async fn an_older_decision_changes_nothing_and_a_configuration_is_applied_once() {
    let event = Fixture::new().await;
    let decide = async |version, seed, batch| {
        assert_eq!(event.decide(version, seed, &[("batch", batch)]).await, PolicySet::Ok);
        event.policy("batch").await
    };
    assert_eq!(decide(0, "a", "50").await, 50);
    assert_eq!(decide(3, "a", "60").await, 60);
    let dump = event.dump().await;
    assert_eq!(decide(2, "a", "50").await, 60, "decided earlier");
    assert_eq!(decide(2, "b", "50").await, 60, "decided earlier");
    assert_eq!(decide(3, "a", "60").await, 60);
    assert_eq!(event.dump().await, dump);
    assert_eq!(decide(3, "b", "70").await, 70, "a server with another configuration");
    assert_eq!(decide(3, "a", "60").await, 60);
    assert_eq!(decide(4, "a", "80").await, 80);
}

#[tokio::test]
async fn a_shorter_queue_ttl_drops_nobody_who_polls_as_told_before() {
    let event = Fixture::new().await;
    event.entered(3).await;
    let (old, new) = (4_000_000, 400_000);
    assert_eq!(event.policy("queue_ttl_ms").await, old);
    assert_eq!(event.change(&[("queue_ttl_ms", &new.to_string())]).await, PolicySet::Ok);
    let until = event.now().await + old;
    assert!((until - event.policy("slow_until").await).abs() < 60_000);
    assert_eq!(event.policy("slow_ttl_ms").await, old);
    // For one old TTL the ring turns as before.
    event.pass_served(new / 4 + 1).await;
    assert_eq!(event.sweep().await, Sweep::Skipped);
    event.pass_served(old / 4).await;
    assert_eq!(event.sweep().await, Sweep::Swept(0));
    // Meanwhile it becomes shorter still: the longest of all counts.
    assert_eq!(event.change(&[("queue_ttl_ms", "40000")]).await, PolicySet::Ok);
    assert_eq!(event.policy("slow_ttl_ms").await, old);
    event.pulse(&[0, 1, 2]).await;
    event.pass_served(old).await;
    event.sweep().await;
    event.pulse(&[0, 1, 2]).await;
    event.pass_served(40_000 / 4 + 1).await;
    assert_eq!(event.sweep().await, Sweep::Swept(0), "then it turns as it is told now");
    // A longer one counts at once.
    assert_eq!(event.change(&[("queue_ttl_ms", "8000000")]).await, PolicySet::Ok);
    event.pass_served(1_000_001).await;
    assert_eq!(event.sweep().await, Sweep::Skipped);
}

#[tokio::test]
async fn a_reason_belongs_to_its_pause() {
    let event = Fixture::new().await;
    let reason = async || -> String { event.conn().hget(event.key(Key::Meta), "reason").await.unwrap() };
    event.change(&[("state", "paused"), ("reason", "The doors are late.")]).await;
    assert_eq!(reason().await, "The doors are late.");
    event.change(&[("batch", "5")]).await;
    assert_eq!(reason().await, "The doors are late.");
    event.change(&[("reason", "Five more minutes.")]).await;
    assert_eq!(reason().await, "Five more minutes.");
    event.change(&[("state", "open")]).await;
    assert_eq!(reason().await, "");
    let long = "x".repeat(4001);
    assert_eq!(event.change(&[("reason", &long)]).await, PolicySet::Refused("reason is 4000 bytes at most".to_owned()));
}
