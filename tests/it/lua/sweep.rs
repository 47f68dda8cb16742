//! `1_line_sweep`: drops visitors who went away, and nobody else.

use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Sweep};

use super::fixture::{BLOCK, Fixture, PULSES, SLICE, Setup};

/// The turn at which a visitor who was silent from before the first one is dropped.
const TURNS: u32 = 5;

#[tokio::test]
async fn the_ring_turns_when_a_slice_is_over() {
    let event = Fixture::new().await;
    event.entered(1).await;
    for (elapsed, outcome, slice) in [
        (SLICE - 1, Sweep::Skipped, 0),
        (SLICE, Sweep::Swept(0), 1),
        (SLICE + SLICE / 8, Sweep::Swept(0), 2),
        (3 * SLICE, Sweep::Swept(0), 3),
        (SLICE - 1, Sweep::Skipped, 3),
    ] {
        let turned = event.meta("turned").await;
        event.at(turned + elapsed).await;
        event.asked().await;
        assert_eq!((event.sweep().await, event.meta("slice").await), (outcome, slice), "after {elapsed} ms");
        let early = elapsed < SLICE;
        assert_eq!(event.meta("turned").await, if early { turned } else { turned + elapsed });
    }
    event.check().await;
}

#[tokio::test]
async fn after_a_gap_without_sweeps_the_slice_starts_over() {
    const WHILE: i64 = SLICE / 8;
    let event = Fixture::new().await;
    event.entered(1).await;
    assert_eq!(event.sweep().await, Sweep::Skipped);
    let turned = event.meta("turned").await;
    // Requested just often enough.
    let start = event.meta("asked").await;
    for step in 1..=7 {
        event.at(start + step * WHILE).await;
        assert_eq!(event.sweep().await, Sweep::Skipped);
    }
    assert_eq!(event.meta("turned").await, turned);
    // The gap is a moment longer: once before the slice is over, and once when it would be.
    for silence in [WHILE + 1, SLICE, 10 * SLICE] {
        let last = event.meta("asked").await;
        event.at(last + silence).await;
        assert_eq!(event.sweep().await, Sweep::Skipped);
        assert_eq!((event.meta("turned").await, event.meta("slice").await), (last + silence, 0), "{silence} ms");
    }
    let start = event.meta("asked").await;
    for step in 1..=8 {
        event.at(start + step * WHILE).await;
        assert_eq!(event.sweep().await, if step == 8 { Sweep::Swept(0) } else { Sweep::Skipped });
    }
    event.check().await;
}

#[tokio::test]
async fn short_slices_leave_half_a_second_between_sweeps() {
    for (unasked, outcome) in [(500, Sweep::Swept(0)), (501, Sweep::Skipped)] {
        let event = Fixture::with(|setup| setup.policy.queue_ttl_ms = 1000).await;
        event.at(event.meta("turned").await + unasked).await;
        assert_eq!(event.sweep().await, outcome, "not asked for {unasked} ms");
    }
}

#[tokio::test]
async fn a_visitor_who_polled_during_an_outage_is_let_in_before_those_behind() {
    let event = Fixture::new().await;
    event.entered(2).await;
    event.turn().await;
    // Both poll in this slice. The pulse of the first is on its way when Redis goes away, until the slice is over.
    event.pulse(&[1]).await;
    event.pass(SLICE + 1).await;
    assert_eq!(event.sweep().await, Sweep::Skipped);
    assert_eq!(event.admit().await, Admit::Admitted(2));
    event.check().await;
}

#[tokio::test]
async fn a_sweep_that_comes_too_early_only_notes_its_time() {
    let event = Fixture::new().await;
    event.entered(3).await;
    event.turn().await;
    let now = event.meta("now").await;
    event.at(now).await;
    let dump = event.dump().await;
    event.at(now + 1).await;
    assert_eq!(event.sweep().await, Sweep::Skipped);
    assert_eq!(event.meta("asked").await, now + 1);
    event.at(now).await;
    event.set_meta("asked", now).await;
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn however_many_servers_sweep_the_ring_turns_once() {
    let event = Fixture::new().await;
    event.entered(3).await;
    assert_eq!(event.turn().await, Sweep::Swept(0));
    for _ in 0..5 {
        assert_eq!(event.sweep().await, Sweep::Skipped);
    }
    assert_eq!(event.meta("slice").await, 1);
}

#[tokio::test]
async fn a_visitor_is_dropped_after_a_full_ttl_of_silence_and_not_before() {
    let event = Fixture::new().await;
    event.entered(10).await;
    let heard = event.meta("now").await;
    for turn in 1..TURNS {
        let turned = event.meta("turned").await;
        event.at(turned + SLICE).await;
        event.asked().await;
        assert_eq!(event.sweep().await, Sweep::Swept(0), "turn {turn}");
    }
    event.pulse(&[2, 6]).await;
    let version = event.meta("line_version").await;
    let turned = event.meta("turned").await;
    event.at(turned + SLICE).await;
    event.asked().await;
    assert_eq!(event.sweep().await, Sweep::Swept(8));
    assert!(event.meta("now").await - heard >= event.policy("queue_ttl_ms").await);
    assert_eq!(event.line().await, [2, 6]);
    assert_eq!((event.meta("head").await, event.meta("swept").await), (2, 8));
    assert!(event.meta("line_version").await > version);
    event.check().await;
}

#[tokio::test]
async fn a_pulse_right_before_a_turn_is_good_for_a_full_ttl_after_it() {
    let event = Fixture::new().await;
    event.entered(2).await;
    for _ in 0..7 {
        event.turn().await;
        event.pulse(&[0, 1]).await;
    }
    event.turn().await;
    let heard = event.meta("turned").await + SLICE;
    event.at(heard).await;
    event.pulse(&[1]).await;
    for turn in 1..=TURNS {
        event.at(heard + SLICE * i64::from(turn - 1)).await;
        event.asked().await;
        // Place 0 was last heard in the slice before, so it goes a turn earlier.
        assert_eq!(event.sweep().await, Sweep::Swept(u64::from(turn >= TURNS - 1)), "turn {turn}");
    }
    assert_eq!(event.meta("now").await - heard, event.policy("queue_ttl_ms").await);
    assert!(event.line().await.is_empty());
    event.check().await;
}

#[tokio::test]
async fn a_visitor_who_keeps_polling_is_never_dropped() {
    let event = Fixture::new().await;
    event.entered(300).await;
    for turn in 0..12_u32 {
        // Everyone polls once in four slices, in groups.
        let group: Vec<u32> = (0..300).filter(|place| place % 4 == turn % 4).collect();
        event.pulse(&group).await;
        assert_eq!(event.turn().await, Sweep::Swept(0));
    }
    assert_eq!(event.meta("waiting").await, 300);
    event.check().await;
}

#[tokio::test]
async fn time_without_any_server_does_not_count_as_silence() {
    let event = Fixture::new().await;
    event.entered(3).await;
    for _ in 1..TURNS {
        event.turn().await;
    }
    for _ in 0..10 {
        event.pass(7 * SLICE).await;
        assert_eq!(event.sweep().await, Sweep::Skipped);
        assert_eq!(event.sweep().await, Sweep::Skipped, "the slice starts again");
        assert_eq!(event.line().await, [0, 1, 2]);
    }
    assert_eq!(event.bits(Key::Pulse0).await, [0, 1, 2], "nothing heard is forgotten");
    assert_eq!(event.turn().await, Sweep::Swept(3), "a TTL of served silence is over now");
    event.check().await;
}

#[tokio::test]
async fn the_sweep_goes_on_after_the_clock_of_redis_was_set_back() {
    let event = Fixture::new().await;
    event.entered(3).await;
    event.turn().await;
    event.pass(-3_600_000).await;
    assert_eq!(event.sweep().await, Sweep::Skipped);
    assert!(matches!(event.admit().await, Admit::Admitted(_)));
    event.entered(2).await;
    for turn in 2..=7 {
        let lost = u64::from(turn == 6) * 2;
        assert_eq!(event.turn().await, Sweep::Swept(lost), "turn {turn}");
    }
    event.check().await;
}

#[tokio::test]
async fn an_emptied_line_takes_people_again() {
    let event = Fixture::new().await;
    event.entered(20).await;
    for turn in 1..=TURNS {
        assert_eq!(event.turn().await, Sweep::Swept(if turn == TURNS { 20 } else { 0 }));
    }
    assert_eq!((event.meta("waiting").await, event.meta("head").await), (0, 20));
    assert!(event.bytes(Key::Line).await.is_empty());
    event.check().await;
    assert_eq!(event.turn().await, Sweep::Swept(0), "the ring of an empty line turns too");
    assert_eq!(event.entered(2).await, 20);
    event.check().await;
}

#[tokio::test]
async fn a_small_line_is_emptied_at_once() {
    let event = Fixture::new().await;
    event.entered(100).await;
    for _ in 1..TURNS {
        event.turn().await;
    }
    assert_eq!(event.turn().await, Sweep::Swept(100));
    assert_eq!(event.meta("sweeps_skipped").await, 0);
}

#[tokio::test]
async fn a_sweep_may_empty_half_of_a_large_line_and_no_more() {
    for (waiting, alive, outcome) in
        [(102, 51, Sweep::Swept(51)), (101, 51, Sweep::Swept(50)), (101, 50, Sweep::Skipped)]
    {
        let event = Fixture::new().await;
        event.entered(waiting).await;
        for _ in 1..TURNS {
            event.turn().await;
        }
        event.pulse(&(0..alive).collect::<Vec<_>>()).await;
        assert_eq!(event.turn().await, outcome, "{alive} of {waiting} alive");
        event.check().await;
    }
}

#[tokio::test]
async fn a_large_silent_line_is_emptied_after_another_ttl_of_silence() {
    let event = Fixture::new().await;
    event.entered(101).await;
    for _ in 1..TURNS {
        assert_eq!(event.turn().await, Sweep::Swept(0));
    }
    for skipped in 1..=4 {
        assert_eq!(event.turn().await, Sweep::Skipped);
        assert_eq!((event.meta("waiting").await, event.meta("sweeps_skipped").await), (101, skipped));
        event.check().await;
    }
    assert_eq!(event.turn().await, Sweep::Swept(101));
    assert_eq!(event.meta("suspect").await, 0);
    event.check().await;
}

#[tokio::test]
async fn a_crowd_that_comes_back_in_time_starts_with_a_full_ttl() {
    let event = Fixture::new().await;
    event.entered(101).await;
    for _ in 1..TURNS {
        event.turn().await;
    }
    assert_eq!((event.turn().await, event.turn().await), (Sweep::Skipped, Sweep::Skipped));
    event.pulse(&(0..101).collect::<Vec<_>>()).await;
    for _ in 1..TURNS {
        assert_eq!(event.turn().await, Sweep::Swept(0));
    }
    for _ in 0..4 {
        assert_eq!(event.turn().await, Sweep::Skipped, "suspicion starts over");
    }
    assert_eq!(event.turn().await, Sweep::Swept(101));
    event.check().await;
}

fn long(setup: &mut Setup, head: i64) {
    let head = u32::try_from(head).unwrap();
    setup.facts["next"] = (head + 30).into();
    setup.facts["end"] = (head + 1000).into();
    setup.line = vec![head, head + 9, head + 20];
}

#[tokio::test]
async fn whole_megabits_are_cut_off_a_line_two_megabits_past_its_base() {
    for (head, base) in [(2 * BLOCK - 1, 0), (2 * BLOCK, 2 * BLOCK), (3 * BLOCK + 77, 3 * BLOCK)] {
        let event = Fixture::with(|setup| long(setup, head)).await;
        let before = event.line().await;
        let version = event.meta("line_version").await;
        assert_eq!(event.turn().await, Sweep::Swept(0));
        assert_eq!(event.meta("base").await, base);
        assert_eq!(event.line().await, before);
        assert_eq!(event.bits(Key::Pulse0).await, before);
        assert_eq!(event.meta("line_version").await > version, base > 0, "servers must read it again");
        event.check().await;

        // Everything works with the new base.
        event.pulse(&before[1..]).await;
        event.turn().await;
        let last = event.entered(1).await;
        assert_eq!(event.admit().await, Admit::Admitted(3));
        assert_eq!(event.passes().await.into_keys().collect::<Vec<_>>(), [before[1], before[2], last]);
        assert_eq!(event.line().await, [before[0]]);
        event.check().await;
    }
}

#[tokio::test]
async fn every_slice_is_cut_like_the_line() {
    let event = Fixture::with(|setup| long(setup, BLOCK + 3)).await;
    let line = event.line().await;
    for place in [line[0], line[1], line[2], line[0]] {
        event.turn().await;
        event.pulse(&[place]).await;
    }
    // A visitor far behind makes the head move far enough.
    event.block(3 * BLOCK..4 * BLOCK, None).await;
    let last = event.entered(1).await;
    for place in line {
        event.leave(place).await;
    }
    event.turn().await;
    assert_eq!(event.meta("base").await, 3 * BLOCK);
    for (slice, heard) in PULSES.into_iter().zip([&[][..], &[], &[], &[], &[last]]) {
        assert_eq!(event.bits(slice).await, heard, "{slice:?}");
    }
    event.check().await;
}

#[tokio::test]
async fn an_empty_line_is_cut_up_to_its_last_megabit() {
    let event = Fixture::with(|setup| {
        long(setup, 3 * BLOCK + 5);
        setup.line = vec![];
    })
    .await;
    event.turn().await;
    assert_eq!(event.meta("base").await, 3 * BLOCK);
    event.entered(2).await;
    assert!(event.bytes(Key::Line).await.len() < 100);
    event.check().await;
}

#[tokio::test]
async fn nothing_is_cut_while_lost_places_may_return() {
    let event = Fixture::with(|setup| {
        long(setup, 2 * BLOCK);
        setup.facts["gap_from"] = 100.into();
        setup.facts["gap_to"] = (2 * BLOCK).into();
    })
    .await;
    for _ in 1..TURNS {
        event.pulse(&event.line().await).await;
        event.turn().await;
        assert_eq!(event.meta("base").await, 0);
    }
    event.turn().await;
    assert_eq!(event.meta("base").await, 2 * BLOCK, "once the gap is closed it is");
    event.check().await;
}

#[tokio::test]
async fn the_gap_is_closed_after_a_ttl_of_served_silence() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = 100.into();
        setup.facts["gap_from"] = 10.into();
        setup.facts["gap_to"] = 20.into();
        setup.back = vec![12];
    })
    .await;
    let restored = event.meta("now").await;
    for turn in 1..TURNS {
        // A silence in between closes nothing.
        event.pass(5 * SLICE).await;
        assert_eq!(event.sweep().await, Sweep::Skipped);
        event.turn().await;
        assert_eq!(event.meta("gap_to").await, 20, "turn {turn}");
        assert_eq!(event.pulse(&[10 + turn]).await, u64::from(turn != 2));
    }
    let version = event.meta("line_version").await;
    event.turn().await;
    assert!(event.meta("now").await - restored >= event.policy("queue_ttl_ms").await);
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (0, 0));
    assert!(event.bytes(Key::Back).await.is_empty());
    assert!(event.meta("line_version").await > version);
    assert_eq!(event.pulse(&[15]).await, 0);
    event.check().await;
}
