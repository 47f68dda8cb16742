//! `1_line_pulse`: signs of life, and the way back from the gap.

use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Leave, Sweep};

use super::fixture::{BLOCK, Fixture, bitmap};

/// Places 0 to 4 wait; 5 up to the next block are the gap, not open yet.
async fn with_gap() -> Fixture {
    let event = Fixture::new().await;
    event.entered(5).await;
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(500_000)).await;
    event
}

/// As [`Fixture::new`], with everyone's pulse of the current slice taken away.
async fn silent(count: u32) -> Fixture {
    let event = Fixture::new().await;
    event.entered(count).await;
    event.turn().await;
    assert!(event.heard().await.is_empty());
    event
}

#[tokio::test]
async fn a_pulse_is_kept_in_the_current_slice() {
    let event = silent(30).await;
    assert_eq!(event.pulse(&[3, 29, 8]).await, 0);
    assert_eq!(event.heard().await, [3, 8, 29]);
    event.pulse(&[3, 4]).await;
    assert_eq!(event.heard().await, [3, 4, 8, 29]);
    assert_eq!(event.bits(Key::Pulse0).await, (0..30).collect::<Vec<_>>(), "the slice before is as it was");
    event.check().await;
}

#[tokio::test]
async fn a_thousand_places_fit_one_call() {
    let event = silent(5000).await;
    let places: Vec<u32> = (0..1000).map(|n| n * 5).collect();
    event.pulse(&places).await;
    assert_eq!(event.heard().await, places);
}

#[tokio::test]
async fn a_crowd_is_marked_as_a_bitmap() {
    let event = silent(100).await;
    event.pulse(&[1, 99]).await;
    event.pulse_dense(16, &[0xff, 0x01, 0x80], &[]).await;
    assert_eq!(event.heard().await, [1, 16, 17, 18, 19, 20, 21, 22, 23, 31, 32, 99]);
    event.pulse_dense(0, &[0x80], &[98]).await;
    assert_eq!(event.heard().await, [0, 1, 16, 17, 18, 19, 20, 21, 22, 23, 31, 32, 98, 99]);
    event.check().await;
}

#[tokio::test]
async fn nobody_is_marked_by_an_empty_pulse() {
    let event = silent(10).await;
    assert_eq!(event.pulse_dense(0, &[], &[]).await, 0);
    assert!(event.heard().await.is_empty());
    event.check().await;
}

#[tokio::test]
async fn a_bitmap_is_cut_at_the_base_of_the_line() {
    let base = 1 << 20;
    let event = Fixture::with(|setup| {
        setup.facts["base"] = base.into();
        setup.facts["next"] = (base + 100).into();
        setup.facts["end"] = (2 * base).into();
        setup.line = (base..base + 100).collect();
    })
    .await;
    event.turn().await;
    let marked: Vec<u32> = vec![base - 20, base - 1, base, base + 5, base + 90];
    event.pulse_dense(base - 24, &bitmap(base - 24, &marked), &[]).await;
    assert_eq!(event.heard().await, [base, base + 5, base + 90]);
    // All of it, up to exactly the base and far away.
    event.pulse_dense(base - 16, &[0xff, 0xff], &[]).await;
    event.pulse_dense(0, &[0xff], &[]).await;
    assert_eq!(event.heard().await, [base, base + 5, base + 90]);
    event.check().await;
}

#[tokio::test]
async fn places_before_the_base_and_not_yet_given_out_are_ignored() {
    let base = 1 << 20;
    let event = Fixture::with(|setup| {
        setup.facts["base"] = base.into();
        setup.facts["next"] = (base + 10).into();
        setup.facts["end"] = (2 * base).into();
        setup.line = (base..base + 10).collect();
    })
    .await;
    event.turn().await;
    assert_eq!(event.pulse(&[0, base - 1, base + 9, base + 10, u32::MAX]).await, 0);
    assert_eq!(event.heard().await, [base + 9]);
    event.check().await;
}

#[tokio::test]
async fn a_pulse_brings_back_nobody_who_left_or_was_let_in() {
    let event = Fixture::new().await;
    event.entered(5).await;
    event.leave(2).await;
    event.set_policy("batch", 1).await;
    assert_eq!(event.admit().await, Admit::Admitted(1));
    assert_eq!(event.pulse(&[0, 2]).await, 0);
    event.pulse_dense(0, &[0xff], &[]).await;
    assert_eq!(event.line().await, [1, 3, 4]);
    event.check().await;
}

#[tokio::test]
async fn a_lost_place_comes_back_where_it_was() {
    let event = with_gap().await;
    event.entered(1).await;
    assert_eq!(event.pulse(&[9, 2, 7]).await, 2);
    assert_eq!(event.line().await, [0, 1, 2, 3, 4, 7, 9, u32::try_from(BLOCK).unwrap()]);
    assert_eq!((event.meta("returned").await, event.meta("waiting").await), (2, 8));
    assert!(event.heard().await.contains(&9), "and counts as present");
    event.check().await;
}

#[tokio::test]
async fn a_lost_place_comes_back_at_most_once_a_restore() {
    let event = with_gap().await;
    assert_eq!(event.pulse(&[7, 7]).await, 1);
    assert_eq!(event.pulse(&[7]).await, 0);
    assert_eq!(event.leave(7).await, Leave::Left);
    assert_eq!(event.pulse(&[7]).await, 0, "leaving is final");
    assert_eq!(event.pulse(&[8]).await, 1);
    event.pass(500_000).await;
    event.asked().await;
    assert_eq!(event.admit().await, Admit::Admitted(6));
    assert_eq!(event.pulse(&[8]).await, 0, "being let in is final");
    assert!(event.line().await.is_empty());
    event.check().await;
}

#[tokio::test]
async fn a_lost_place_that_came_back_and_was_swept_is_gone() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = BLOCK.into();
        setup.facts["end"] = (2 * BLOCK).into();
        setup.facts["gap_to"] = BLOCK.into();
    })
    .await;
    assert_eq!(event.pulse(&[7]).await, 1);
    // The gap stays open while lost places may come back.
    let mut swept = 0;
    for _ in 0..5 {
        event.set_meta("gap_turns", 0).await;
        swept += match event.turn().await {
            Sweep::Swept(count) => count,
            Sweep::Skipped => panic!("not in time"),
        };
    }
    assert_eq!(swept, 1);
    assert_eq!(event.pulse(&[7]).await, 0);
    assert_eq!(event.pulse(&[8]).await, 1);
    event.check().await;
}

#[tokio::test]
async fn a_lost_place_that_is_barred_stays_away() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = BLOCK.into();
        setup.facts["end"] = (2 * BLOCK).into();
        setup.facts["gap_to"] = BLOCK.into();
        setup.back = vec![3, 11];
    })
    .await;
    assert_eq!(event.pulse(&[3, 4, 11]).await, 1);
    assert_eq!(event.line().await, [4]);
    assert_eq!(event.meta("head").await, 4, "the first in a line that was empty is its head");
    assert_eq!(event.pulse(&[2, 9]).await, 2);
    assert_eq!(event.meta("head").await, 2);
    event.check().await;
}

#[tokio::test]
async fn the_edges_of_the_gap_are_exact() {
    let event = Fixture::with(|setup| {
        setup.facts["next"] = 100.into();
        setup.facts["gap_from"] = 10.into();
        setup.facts["gap_to"] = 20.into();
    })
    .await;
    assert_eq!(event.pulse(&[9, 20]).await, 0);
    assert_eq!(event.pulse(&[10, 19]).await, 2);
    assert_eq!(event.line().await, [10, 19]);
    event.check().await;
}

#[tokio::test]
async fn the_line_version_moves_only_when_someone_came_back() {
    let event = with_gap().await;
    let version = event.meta("line_version").await;
    event.pulse(&[0, 1]).await;
    assert_eq!(event.meta("line_version").await, version);
    event.pulse(&[50]).await;
    assert!(event.meta("line_version").await > version);
}
