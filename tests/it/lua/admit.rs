//! `2_pass_admit`: who is let in, when, and how much work that is.

use redis::{AsyncCommands, InfoDict};
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, PolicySet};

use super::fixture::{Fixture, bitmap, change};

async fn inside(event: &Fixture) -> Vec<u32> {
    event.passes().await.into_keys().collect()
}

#[tokio::test]
async fn people_are_let_in_in_order_a_batch_at_a_time() {
    let event = Fixture::with(|setup| setup.policy.batch = 4).await;
    event.entered(10).await;
    let now = event.now().await + 50;
    event.at(now).await;
    assert_eq!(event.admit().await, Admit::Admitted(4));
    assert_eq!(inside(&event).await, [0, 1, 2, 3]);
    assert_eq!(event.line().await, [4, 5, 6, 7, 8, 9]);
    assert_eq!((event.meta("head").await, event.meta("admitted").await), (4, 4));
    assert!(event.passes().await.values().all(|deadline| *deadline == now + 2_000_000));
    assert!(event.limits().await.values().all(|limit| *limit == now + 3_000_000));
    event.check().await;
}

#[tokio::test]
async fn admissions_keep_their_interval_however_many_servers_ask() {
    let event = Fixture::with(|setup| setup.policy.batch = 2).await;
    event.entered(10).await;
    let now = event.now().await + 50;
    for (at, outcome) in [
        (0, Admit::Admitted(2)),
        (0, Admit::Skipped(100_000)),
        (40_000, Admit::Skipped(60_000)),
        (99_999, Admit::Skipped(1)),
        (100_000, Admit::Admitted(2)),
        (100_000, Admit::Skipped(100_000)),
        (350_000, Admit::Admitted(2)),
        (449_999, Admit::Skipped(1)),
    ] {
        event.at(now + at).await;
        assert_eq!(event.admit().await, outcome, "{at} ms later");
    }
    assert_eq!(inside(&event).await, [0, 1, 2, 3, 4, 5]);
    event.check().await;
}

#[tokio::test]
async fn a_round_that_let_nobody_in_costs_no_interval() {
    let event = Fixture::new().await;
    assert_eq!(event.admit().await, Admit::Admitted(0));
    event.entered(1).await;
    assert_eq!(event.admit().await, Admit::Admitted(1));
    assert_eq!(event.meta("head").await, 1);
    event.check().await;
}

#[tokio::test]
async fn absent_people_are_passed_over_but_keep_their_place() {
    let event = Fixture::with(|setup| setup.policy.batch = 2).await;
    event.entered(8).await;
    event.turn().await;
    event.turn().await;
    event.pulse(&[2, 5, 6]).await;
    assert_eq!(event.admit().await, Admit::Admitted(2));
    assert_eq!(inside(&event).await, [2, 5]);
    assert_eq!(event.line().await, [0, 1, 3, 4, 6, 7]);
    assert_eq!((event.meta("head").await, event.meta("absent").await), (0, 5));
    event.pulse(&[1]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(2));
    assert_eq!(inside(&event).await, [1, 2, 5, 6], "a visitor who is back has the old place");
    assert_eq!(event.admit_now().await, Admit::Admitted(0));
    assert_eq!(event.meta("absent").await, 4);
    // Whoever is swept was absent.
    for _ in 0..5 {
        event.turn().await;
        event.pulse(&[0]).await;
    }
    assert_eq!((event.line().await, event.meta("absent").await), (vec![0], 1), "until the next admission looks");
    assert_eq!(event.admit_now().await, Admit::Admitted(1));
    assert_eq!(event.admit_now().await, Admit::Admitted(0));
    let absent: Option<u32> = event.conn().hget(event.key(Key::Meta), "absent").await.unwrap();
    assert_eq!(absent, None, "nobody waits");
    event.check().await;
}

#[tokio::test]
async fn a_visitor_heard_in_this_slice_or_the_last_is_present() {
    let event = Fixture::new().await;
    event.entered(3).await;
    for _ in 0..5 {
        // Around the whole ring: the slice before the first is the last.
        event.pulse(&[0]).await;
        event.turn().await;
        event.pulse(&[1]).await;
        event.turn().await;
        event.pulse(&[2]).await;
        event.set_policy("batch", 1).await;
        assert_eq!(event.admit_now().await, Admit::Admitted(1));
        assert_eq!(inside(&event).await, [1], "heard two slices ago is absent, one slice ago is present");
        event.rebuild(|_| {}).await;
        event.entered(3).await;
        event.turn().await;
    }
}

#[tokio::test]
async fn never_more_are_inside_than_allowed() {
    let event = Fixture::with(|setup| setup.policy.max_active = 3).await;
    event.entered(10).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(3));
    assert_eq!(event.admit_now().await, Admit::Admitted(0));
    event.leave(1).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(1));
    assert_eq!(inside(&event).await, [0, 2, 3]);
    event.change(&[("max_active", "1")]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(0), "more inside than a lowered limit: they may stay");
    assert_eq!(inside(&event).await.len(), 3);
    event.check().await;
}

#[tokio::test]
async fn never_more_are_inside_than_seats_are_unsold() {
    let event = Fixture::with(|setup| setup.facts["seats"] = 3.into()).await;
    event.entered(10).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(3));
    event.settle(&[change(1, 1, true, 0)]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(0), "two inside, two unsold");
    event.leave(1).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(1));
    event.settle(&[change(1, 2, false, 0)]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(1), "a seat taken back goes to the line");
    assert_eq!(inside(&event).await, [2, 3, 4]);
    event.settle(&[change(1, 3, true, 2), change(2, 1, true, 3), change(3, 1, true, 4)]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(0), "sold out");
    event.check().await;
}

#[tokio::test]
async fn a_batch_of_none_lets_nobody_in() {
    let event = Fixture::new().await;
    event.entered(3).await;
    assert_eq!(event.change(&[("batch", "0")]).await, PolicySet::Ok);
    assert_eq!(event.admit().await, Admit::Admitted(0));
    assert_eq!(event.line().await, [0, 1, 2]);
}

#[tokio::test]
async fn overdue_passes_end_and_make_room() {
    let event = Fixture::with(|setup| setup.policy.max_active = 2).await;
    event.entered(5).await;
    let now = event.now().await + 50;
    event.at(now).await;
    assert_eq!(event.admit().await, Admit::Admitted(2));
    let version = event.meta("passes_version").await;
    event.at(now + 1_999_999).await;
    assert_eq!(event.admit().await, Admit::Admitted(0));
    assert_eq!(event.meta("passes_version").await, version);
    event.at(now + 2_000_000).await;
    assert_eq!(event.admit().await, Admit::Admitted(2), "at the deadline it is over");
    assert_eq!(inside(&event).await, [2, 3]);
    assert_eq!(event.meta("overdue").await, 2);
    assert!(event.meta("passes_version").await > version);
    event.check().await;
}

#[tokio::test]
async fn thousands_are_let_in_and_their_passes_end_in_one_call() {
    let event = Fixture::with(|setup| {
        setup.facts["seats"] = 10_000.into();
        setup.policy.batch = 2500;
        setup.policy.max_active = 2500;
    })
    .await;
    event.entered(6000).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(2500));
    assert_eq!(inside(&event).await, (0..2500).collect::<Vec<_>>());
    assert_eq!(event.limits().await.len(), 2500);
    event.check().await;
    event.pass(2_000_000).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(2500));
    assert_eq!(inside(&event).await, (2500..5000).collect::<Vec<_>>());
    assert_eq!(event.meta("overdue").await, 2500);
    event.check().await;
}

#[tokio::test]
async fn a_paused_or_closed_event_lets_nobody_in_but_ends_passes() {
    for state in ["paused", "closed"] {
        let event = Fixture::with(|setup| setup.policy.batch = 2).await;
        event.entered(5).await;
        assert_eq!(event.admit_now().await, Admit::Admitted(2));
        event.change(&[("state", state)]).await;
        assert_eq!(event.admit_now().await, Admit::Paused);
        assert_eq!(inside(&event).await, [0, 1]);
        event.pass(2_000_000).await;
        assert_eq!(event.admit_now().await, Admit::Paused);
        assert!(inside(&event).await.is_empty());
        assert_eq!(event.line().await, [2, 3, 4]);
        event.change(&[("state", "open")]).await;
        assert_eq!(event.admit_now().await, Admit::Admitted(2));
        event.check().await;
    }
}

#[tokio::test]
async fn a_stale_event_lets_nobody_in_because_someone_may_be_missing() {
    let event = Fixture::new().await;
    event.entered(5).await;
    event.start_new_life().await;
    assert_eq!(event.admit().await, Admit::Stale);
    assert_eq!(event.line().await.len(), 5);
    event.check().await;
}

#[tokio::test]
async fn nobody_behind_the_gap_is_let_in_until_it_opens() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = 40.into();
        setup.facts["gap_from"] = 11.into();
        setup.facts["gap_to"] = 30.into();
        setup.facts["gap_wait"] = 500_000.into();
        setup.line = vec![3, 10, 31, 33];
    })
    .await;
    let opens = event.meta("gap_opens").await;
    assert_eq!(event.pulse(&[12, 29]).await, 2);
    assert_eq!(event.admit().await, Admit::Admitted(2));
    assert_eq!(inside(&event).await, [3, 10], "in one byte with the gap, but before it");
    event.at(opens - 1).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(0));
    assert_eq!(event.pulse(&[11]).await, 1, "there is still time to come back");
    event.at(opens).await;
    event.set_policy("batch", 4).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(0), "nobody asked for a sweep: no poll could be recorded");
    event.asked().await;
    assert_eq!(event.admit_now().await, Admit::Admitted(4));
    assert_eq!(inside(&event).await, [3, 10, 11, 12, 29, 31]);
    assert_eq!(event.line().await, [33]);
    event.check().await;
}

#[tokio::test]
async fn admission_goes_on_after_the_clock_of_redis_was_set_back() {
    let event = Fixture::with(|setup| setup.policy.batch = 1).await;
    event.entered(5).await;
    assert_eq!(event.admit().await, Admit::Admitted(1));
    let now = event.meta("now").await;
    event.pass(-3_600_000).await;
    assert!(matches!(event.admit().await, Admit::Skipped(wait) if wait <= 100_000));
    assert!(event.now().await >= now, "the event's time does not go back");
    for count in 2..=5 {
        event.pass(100_000).await;
        assert_eq!(event.admit().await, Admit::Admitted(1));
        assert_eq!(inside(&event).await.len(), count);
    }
    event.pass(2_000_000).await;
    event.admit().await;
    assert!(inside(&event).await.is_empty(), "and passes end in their time");
    event.check().await;
}

#[tokio::test]
async fn whatever_the_pattern_the_first_present_are_let_in() {
    let event = Fixture::new().await;
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let length = random.u32(1..60_000);
        let (density, presence) = (random.f64(), random.f64() * random.f64());
        let base = random.u32(0..2) << 20;
        let line: Vec<u32> = (base..base + length).filter(|_| random.f64() < density).collect();
        let present: Vec<u32> = line.iter().copied().filter(|_| random.f64() < presence).collect();
        let gap = base + random.u32(0..2 * length);
        let room = random.usize(0..4000);
        event
            .rebuild(|setup| {
                setup.facts["base"] = base.into();
                setup.facts["next"] = (base + length).into();
                setup.facts["end"] = (base + (1 << 20)).into();
                setup.facts["seats"] = 5000.into();
                setup.facts["gap_from"] = gap.into();
                setup.facts["gap_to"] = (gap + 8).into();
                setup.facts["gap_wait"] = 100_000_000.into();
                setup.policy.batch = room as u64;
                setup.policy.max_active = 5000;
                setup.line = line.clone();
            })
            .await;
        event.turn().await;
        event.turn().await;
        event.pulse_dense(base, &bitmap(base, &present), &[]).await;
        let expected: Vec<u32> = present.iter().copied().filter(|place| *place < gap).take(room).collect();
        assert_eq!(event.admit().await, Admit::Admitted(expected.len() as u64), "seed {seed}");
        assert_eq!(inside(&event).await, expected, "seed {seed}");
        let rest: Vec<u32> = line.into_iter().filter(|place| expected.binary_search(place).is_err()).collect();
        assert_eq!(event.line().await, rest, "seed {seed}");
        event.check().await;
    }
}

/// Commands that Redis ran since the count began: scripts, and what they call.
async fn commands(event: &Fixture) -> u64 {
    let stats: InfoDict = redis::cmd("INFO").arg("commandstats").query_async(&mut event.conn()).await.unwrap();
    let commands = ["bitpos", "getrange", "setrange", "bitop", "getbit", "setbit", "bitfield"];
    let calls = commands.iter().filter_map(|command| {
        let stat: String = stats.get(&format!("cmdstat_{command}"))?;
        stat.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
    });
    calls.sum()
}

async fn forget_commands(event: &Fixture) {
    let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut event.conn()).await.unwrap();
}

#[tokio::test]
async fn a_million_absent_people_at_the_head_cost_no_more_than_none() {
    let event = Fixture::with(|setup| setup.facts["end"] = (2 << 20).into()).await;
    event.entered(1_000_000).await;
    event.turn().await;
    event.turn().await;
    let last = event.entered(3).await;
    event.pulse(&[999_000, 999_990]).await;
    let version = event.meta("line_version").await;
    forget_commands(&event).await;
    assert_eq!(event.admit().await, Admit::Admitted(5));
    let calls = commands(&event).await;
    assert!(calls <= 10, "{calls} commands");
    assert_eq!(inside(&event).await, [999_000, 999_990, last, last + 1, last + 2]);
    assert_eq!((event.meta("head").await, event.meta("waiting").await), (0, 999_998));
    assert!(event.meta("line_version").await > version, "so far from the head servers would not look");
    event.check().await;
}

#[tokio::test]
async fn people_far_apart_are_found_by_the_kilobyte() {
    let event = Fixture::with(|setup| {
        setup.facts["end"] = (2 << 20).into();
        setup.facts["seats"] = 1000.into();
        setup.policy.batch = 500;
        setup.policy.max_active = 500;
    })
    .await;
    event.entered(1_000_000).await;
    event.turn().await;
    event.turn().await;
    let present: Vec<u32> = (0..400).map(|n| n * 2_500 + 1_249).collect();
    event.pulse(&present).await;
    forget_commands(&event).await;
    assert_eq!(event.admit().await, Admit::Admitted(400));
    let (calls, kilobytes) = (commands(&event).await, 1_000_000 / 8192);
    assert!(calls <= 4 * (kilobytes + 1) + 4, "{calls} commands");
    assert_eq!(inside(&event).await, present);
    event.check().await;
}

#[tokio::test]
async fn the_line_version_does_not_move_for_an_admission_near_the_head() {
    let event = Fixture::new().await;
    event.entered(90_000).await;
    let version = event.meta("line_version").await;
    assert_eq!(event.admit().await, Admit::Admitted(10));
    assert_eq!(event.meta("line_version").await, version);
}
