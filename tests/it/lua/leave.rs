//! `1_line_leave`: giving up a place or a pass.

use zticket::store::redis::scripts::Leave;

use super::fixture::{BLOCK, Fixture, change};

#[tokio::test]
async fn a_visitor_leaves_the_line_and_the_others_stay_in_order() {
    let event = Fixture::new().await;
    event.entered(10).await;
    assert_eq!(event.leave(4).await, Leave::Left);
    assert_eq!(event.line().await, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    assert_eq!((event.meta("head").await, event.meta("left").await), (0, 1));
    event.check().await;
}

#[tokio::test]
async fn when_the_first_leaves_the_next_one_is_the_head() {
    let event = Fixture::new().await;
    event.entered(40).await;
    for place in (1..30).chain([0]) {
        assert_eq!(event.leave(place).await, Leave::Left);
    }
    assert_eq!(event.meta("head").await, 30);
    event.check().await;
    assert_eq!(event.leave(30).await, Leave::Left);
    assert_eq!(event.meta("head").await, 31);
    event.check().await;
}

#[tokio::test]
async fn when_the_last_one_leaves_the_line_is_empty() {
    let event = Fixture::new().await;
    event.entered(2).await;
    event.leave(0).await;
    event.leave(1).await;
    assert_eq!((event.meta("waiting").await, event.meta("head").await), (0, 2));
    event.check().await;
    assert_eq!(event.entered(1).await, 2);
    event.check().await;
}

#[tokio::test]
async fn leaving_from_inside_gives_back_the_pass_and_all_holds() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[3, 5]).await;
    event.held(visitors[1], &[4]).await;
    let (seats, passes) = (event.meta("seats_version").await, event.meta("passes_version").await);
    assert_eq!(event.leave(visitors[0]).await, Leave::Left);
    assert_eq!(event.seats().await, "aaahaaaaaaaaaaaaaaaa");
    assert_eq!(event.passes().await.into_keys().collect::<Vec<_>>(), [visitors[1]]);
    assert!(event.meta("seats_version").await > seats && event.meta("passes_version").await > passes);
    event.check().await;
    assert_eq!(event.leave(visitors[0]).await, Leave::Gone);
}

#[tokio::test]
async fn leaving_from_inside_without_a_hold_changes_no_seat() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[1], &[4]).await;
    let seats = event.meta("seats_version").await;
    assert_eq!(event.leave(visitors[0]).await, Leave::Left);
    assert_eq!(event.meta("seats_version").await, seats);
    event.check().await;
}

#[tokio::test]
async fn a_pass_that_is_over_but_not_ended_yet_can_still_be_given_up() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    event.held(visitors[0], &[4]).await;
    event.pass(10_000_000).await;
    assert_eq!(event.leave(visitors[0]).await, Leave::Left);
    assert!(!event.seats().await.contains('h'));
    event.check().await;
}

#[tokio::test]
async fn leaving_the_gap_is_final() {
    let event = Fixture::new().await;
    event.entered(5).await;
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(500_000)).await;
    let version = event.meta("line_version").await;
    assert_eq!(event.leave(9).await, Leave::Left);
    assert!(event.meta("line_version").await > version, "servers must hear that it may not come back");
    assert_eq!(event.leave(9).await, Leave::Gone);
    assert_eq!(event.pulse(&[9]).await, 0);
    assert_eq!(event.line().await, [0, 1, 2, 3, 4]);
    event.check().await;
}

#[tokio::test]
async fn leaving_with_nothing_to_give_up_writes_nothing() {
    let base = 1 << 20;
    let event = Fixture::with(|setup| {
        setup.facts["base"] = base.into();
        setup.facts["next"] = (base + 10).into();
        setup.facts["end"] = (base + 100).into();
        setup.line = vec![base + 1, base + 3];
    })
    .await;
    event.pulse(&[base + 1]).await;
    let dump = event.dump().await;
    for place in [0, base - 1, base, base + 2, base + 9, base + 10, base + 99, u32::MAX] {
        assert_eq!(event.leave(place).await, Leave::Gone, "{place}");
    }
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn a_buyer_has_nothing_left_to_give_up() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    event.settle(&[change(4, 1, true, visitors[0])]).await;
    assert_eq!(event.leave(visitors[0]).await, Leave::Gone);
    assert_eq!(event.seats().await, "aaasaaaaaaaaaaaaaaaa");
    event.check().await;
}
