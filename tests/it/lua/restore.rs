//! `5_event_restore`: building an event, the first time and after Redis lost it.

use redis::AsyncCommands;
use uuid::Uuid;
use zticket::base::ids::PersonId;
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Enter, Hold, PolicySet, Release, Restore};

use super::fixture::{BLOCK, Fixture, PULSES, Setup, change};

async fn lose(event: &Fixture, key: Key) {
    let gone: u32 = event.conn().del(event.key(key)).await.unwrap();
    assert_eq!(gone, 1);
}

#[tokio::test]
async fn a_new_event_has_all_its_seats_and_takes_people() {
    let event = Fixture::new().await;
    assert_eq!(event.seats().await, "a".repeat(20));
    assert_eq!((event.meta("waiting").await, event.meta("sold").await, event.meta("head").await), (0, 0, 0));
    event.check().await;
    assert_eq!(event.entered(1).await, 0);
    assert_eq!(event.admit().await, Admit::Admitted(1));
}

#[tokio::test]
async fn an_event_that_is_there_is_left_alone() {
    let event = Fixture::new().await;
    let other = Setup { line: vec![1, 2, 3], passes: vec![(4, 5, 6)], ..Setup::default() };
    let dump = event.dump().await;
    assert_eq!(event.restore(&other).await, Restore::Present, "an empty line needs no key");
    assert_eq!(event.dump().await, dump);
    event.inside(3).await;
    event.entered(2).await;
    let dump = event.dump().await;
    assert_eq!(event.restore(&other).await, Restore::Present);
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn what_is_left_of_a_lost_event_is_thrown_away() {
    for lost in [Key::Meta, Key::Line] {
        let event = Fixture::new().await;
        let visitors = event.inside(3).await;
        event.held(visitors[0], &[1]).await;
        event.settle(&[change(2, 9, true, visitors[1])]).await;
        event.entered(50).await;
        event.turn().await;
        event.start_new_life().await;
        event.block(BLOCK..2 * BLOCK, Some(0)).await;
        event.leave(100).await;
        lose(&event, lost).await;
        assert_eq!(event.restore(&Setup::default()).await, Restore::Restored);
        assert!(event.passes().await.is_empty() && event.line().await.is_empty());
        assert_eq!(event.seats().await, "a".repeat(20));
        for key in [Key::Back, Key::Held, Key::Owners, Key::Versions].into_iter().chain(PULSES) {
            let exists: bool = event.conn().exists(event.key(key)).await.unwrap();
            assert!(!exists, "{key:?}");
        }
        event.check().await;
    }
}

#[tokio::test]
async fn the_people_of_passes_that_come_back_still_use_their_places() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    let people = [1, 2].map(|number| Some(PersonId(Uuid::from_u128(number))));
    for (visitor, person) in visitors.iter().zip(people) {
        assert!(matches!(event.hold_as(person, *visitor, 0, &[*visitor + 1]).await, Hold::Held { .. }));
    }
    lose(&event, Key::Meta).await;
    let back = Setup { passes: vec![(visitors[0], 900_000, 900_000)], ..Setup::default() };
    assert_eq!(event.restore(&back).await, Restore::Restored);
    let known: Vec<u32> = event.conn().hkeys(event.key(Key::People)).await.unwrap();
    assert_eq!(known, [visitors[0]], "and nobody else is remembered");
    assert_eq!(event.hold_as(people[1], visitors[0], 0, &[5]).await, Hold::Another);
    event.check().await;
}

#[tokio::test]
async fn a_restored_line_keeps_its_order_and_everyone_is_present() {
    let event = Fixture::with(|setup| {
        setup.line = vec![3, 7, 8, 70];
        setup.facts["next"] = 100.into();
        setup.policy.batch = 3;
    })
    .await;
    assert_eq!((event.meta("waiting").await, event.meta("head").await), (4, 3));
    assert_eq!(event.heard().await, [3, 7, 8, 70]);
    event.check().await;
    assert_eq!(event.admit().await, Admit::Admitted(3));
    assert_eq!(event.line().await, [70]);
    event.check().await;
}

#[tokio::test]
async fn a_restored_line_without_visitors_is_empty() {
    let event = Fixture::new().await;
    lose(&event, Key::Meta).await;
    let mut args = Setup::default().args();
    args.line = vec![0, 0, 0];
    let restored = event.scripts.restore(&mut event.conn(), &event.keys, &args).await.unwrap();
    assert_eq!(restored, Restore::Restored);
    assert_eq!((event.meta("waiting").await, event.meta("head").await), (0, 0));
    event.entered(1).await;
    event.check().await;
}

#[tokio::test]
async fn passes_and_holds_come_back_with_the_time_they_had_left() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = 100.into();
        setup.passes = vec![(1, 700_000, 900_000), (2, 50_000, 60_000)];
        setup.holds = vec![(10, 1, 300_000), (11, 1, 700_000), (12, 2, 50_000)];
    })
    .await;
    let now = event.meta("now").await;
    assert_eq!(event.passes().await.into_iter().collect::<Vec<_>>(), [(1, now + 700_000), (2, now + 50_000)]);
    assert_eq!(event.limits().await.into_iter().collect::<Vec<_>>(), [(1, now + 900_000), (2, now + 60_000)]);
    let ends: Vec<_> = event.hold_ends().await.into_iter().collect();
    assert_eq!(ends, [(10, now + 300_000), (11, now + 700_000), (12, now + 50_000)]);
    assert_eq!(event.seats().await, "aaaaaaaaahhhaaaaaaaa");
    event.check().await;

    // They are as good as new.
    assert!(event.held(1, &[10]).await <= 300_000);
    assert_eq!(event.release(1, &[11]).await, Release::Released(1));
    event.at(now + 50_000).await;
    assert_eq!(event.hold(2, &[13]).await, Hold::NoPass);
    assert_eq!(event.expire(10).await, 1);
    event.check().await;
}

#[tokio::test]
async fn what_was_sold_stays_sold_and_old_messages_stay_old() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = 100.into();
        setup.settled = vec![(1, 3, 40), (2, 6, -1), (20, 1, 41)];
    })
    .await;
    assert_eq!(event.seats().await, "saaaaaaaaaaaaaaaaaas");
    assert_eq!(event.meta("sold").await, 2);
    assert_eq!(event.owners().await.into_iter().collect::<Vec<_>>(), [(1, 40), (20, 41)]);
    event.check().await;
    let late = [change(1, 2, false, 40), change(2, 5, true, 42), change(20, 1, true, 41)];
    assert_eq!(event.settle(&late).await, 0);
    assert_eq!(event.settle(&[change(1, 4, false, 40), change(2, 7, true, 42)]).await, 2);
    assert_eq!(event.seats().await, "asaaaaaaaaaaaaaaaaas");
    assert_eq!(event.hold(41, &[20]).await, Hold::Yours);
    event.check().await;
}

#[tokio::test]
async fn lost_places_may_return_unless_they_are_barred() {
    let event = Fixture::with(|setup| {
        setup.line = vec![3, 7];
        setup.back = vec![12, 14];
        setup.facts["next"] = BLOCK.into();
        setup.facts["end"] = (2 * BLOCK).into();
        setup.facts["gap_from"] = 10.into();
        setup.facts["gap_to"] = BLOCK.into();
        setup.facts["gap_wait"] = 500_000.into();
    })
    .await;
    assert_eq!(event.meta("gap_opens").await, event.meta("now").await + 500_000);
    assert_eq!(event.pulse(&[9, 11, 12, 13, 14]).await, 2);
    assert_eq!(event.line().await, [3, 7, 11, 13]);
    event.check().await;
}

#[tokio::test]
async fn time_does_not_go_back_behind_what_was_seen_last() {
    let event = Fixture::new().await;
    let seen = event.now().await + 3_600_000;
    lose(&event, Key::Meta).await;
    let mut setup = Setup { passes: vec![(1, 100_000, 200_000)], ..Setup::default() };
    setup.facts["tick"] = seen.into();
    setup.facts["next"] = 10.into();
    assert_eq!(event.restore(&setup).await, Restore::Restored);
    assert_eq!((event.meta("now").await, event.meta("turned").await), (seen, seen));
    assert_eq!(event.passes().await[&1], seen + 100_000);
    event.pass(100_000).await;
    event.admit().await;
    assert!(event.passes().await.is_empty(), "and continues from there");
    event.check().await;
}

#[tokio::test]
async fn settings_state_and_counters_are_carried_over() {
    let event = Fixture::with(|setup| {
        setup.policy.batch = 77;
        for (value, field) in (5..).zip(["entered", "admitted", "swept", "left", "returned", "overdue", "restores"]) {
            setup.facts[field] = value.into();
        }
        setup.facts["state"] = "paused".into();
        setup.facts["line_version"] = 31.into();
    })
    .await;
    assert_eq!(event.policy("batch").await, 77);
    assert_eq!(event.meta_text("state").await, "paused");
    for (value, field) in (5..).zip(["entered", "admitted", "swept", "left", "returned", "overdue", "restores"]) {
        assert_eq!(event.meta(field).await, value, "{field}");
    }
    assert_eq!(event.meta("line_version").await, 31);
    assert_eq!(event.admit().await, Admit::Paused);
    assert_eq!(event.change(&[("state", "closed")]).await, PolicySet::Ok);
    assert_eq!(event.enter(1).await, Enter::Closed);
}

#[tokio::test]
async fn after_a_restore_the_sweep_starts_with_a_full_ttl() {
    let event = Fixture::with(|setup| {
        setup.line = (0..20).collect();
        setup.facts["next"] = 100.into();
    })
    .await;
    for _ in 0..4 {
        event.turn().await;
        assert_eq!(event.meta("waiting").await, 20);
    }
    event.turn().await;
    assert_eq!(event.meta("waiting").await, 0);
    event.check().await;
}

#[tokio::test]
async fn an_event_is_forgotten_as_a_whole_unless_it_handed_out_more_places() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1]).await;
    event.entered(5).await;
    let forget = async |end| event.scripts.forget(&mut event.conn(), &event.keys, end).await.unwrap();
    let dump = event.dump().await;
    assert!(!forget(BLOCK - 1).await, "a server fetched another block meanwhile");
    assert_eq!(event.dump().await, dump);
    assert!(forget(BLOCK).await);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut event.conn()).await.unwrap();
    assert_eq!(keys, Vec::<String>::new());
    assert!(forget(0).await, "again is fine");
}
