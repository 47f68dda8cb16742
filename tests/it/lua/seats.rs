//! `3_seat_release` and `3_seat_expire`: seats come back.

use zticket::base::ids::SeatNumber;
use zticket::base::seat::SeatState;
use zticket::store::redis::scripts::Release;

use super::fixture::{Fixture, change};

#[tokio::test]
async fn a_released_seat_is_free_for_others() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1, 2, 3]).await;
    let version = event.meta("seats_version").await;
    assert_eq!(event.release(visitors[0], &[2]).await, Release::Released(1));
    assert!(event.meta("seats_version").await > version);
    assert_eq!(event.seats().await, "hahaaaaaaaaaaaaaaaaa");
    event.check().await;
    event.held(visitors[1], &[2]).await;
    assert_eq!(event.release(visitors[0], &[3, 1]).await, Release::Released(2));
    assert_eq!(event.seats().await, "ahaaaaaaaaaaaaaaaaaa");
    event.check().await;
}

#[tokio::test]
async fn releasing_a_free_seat_changes_nothing() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    event.release(place, &[1]).await;
    let dump = event.dump().await;
    assert_eq!(event.release(place, &[1]).await, Release::Released(0));
    assert_eq!(event.release(4711, &[1, 9]).await, Release::Released(0));
    assert_eq!(event.dump().await, dump);
    event.held(place, &[1]).await;
    assert_eq!(event.release(place, &[1, 9]).await, Release::Released(1));
    event.check().await;
}

#[tokio::test]
async fn only_the_holder_can_release_a_seat_and_a_refusal_keeps_all() {
    let event = Fixture::new().await;
    let visitors = event.inside(3).await;
    event.held(visitors[0], &[1]).await;
    event.held(visitors[1], &[2]).await;
    event.settle(&[change(3, 1, true, visitors[2])]).await;
    let dump = event.dump().await;
    let not_yours = |seat, state| Release::NotYours(SeatNumber(seat), state);
    assert_eq!(event.release(visitors[0], &[1, 2]).await, not_yours(2, SeatState::Held));
    assert_eq!(event.release(visitors[0], &[1, 3]).await, not_yours(3, SeatState::Sold));
    assert_eq!(
        event.release(visitors[2], &[3]).await,
        not_yours(3, SeatState::Sold),
        "a sold seat cannot be released, not even by its buyer"
    );
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn a_seat_that_does_not_exist_cannot_be_released() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    let dump = event.dump().await;
    for seat in [0, 21] {
        assert_eq!(event.release(place, &[1, seat]).await, Release::NoSeat(SeatNumber(seat)));
    }
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn a_seat_that_changed_hands_is_not_released_by_its_last_holder() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1]).await;
    event.pass(1_000_000).await;
    event.held(visitors[1], &[1]).await;
    assert_eq!(event.release(visitors[0], &[1]).await, Release::NotYours(SeatNumber(1), SeatState::Held));
    assert_eq!(event.release(visitors[1], &[1]).await, Release::Released(1));
    event.check().await;
}

#[tokio::test]
async fn an_overdue_hold_comes_back_at_its_deadline_and_not_before() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    let deadline = event.hold_ends().await[&1];
    let dump = event.dump().await;
    event.at(deadline - 1).await;
    assert_eq!(event.expire(10).await, 0);
    assert_eq!(event.dump().await["seats"], dump["seats"]);
    let version = event.meta("seats_version").await;
    event.at(deadline).await;
    assert_eq!(event.expire(10).await, 1);
    assert!(event.meta("seats_version").await > version);
    assert!(!event.seats().await.contains('h'));
    event.check().await;
}

#[tokio::test]
async fn without_an_overdue_hold_nothing_is_written() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    let dump = event.dump().await;
    assert_eq!(event.expire(10).await, 0);
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn overdue_holds_end_oldest_first_and_a_bounded_number_at_a_time() {
    let event = Fixture::with(|setup| setup.policy.seats_per_pass = 20).await;
    let visitors = event.inside(2).await;
    for seat in 1..=12 {
        event.held(visitors[(seat % 2) as usize], &[seat]).await;
        event.pass(1_000).await;
    }
    event.pass(1_000_000 - 6_500).await;
    assert_eq!(event.expire(2).await, 2);
    assert_eq!(event.seats().await, "aahhhhhhhhhhaaaaaaaa");
    event.check().await;
    event.pass(1_000_000).await;
    assert_eq!(event.expire(0).await, 0);
    assert_eq!((event.expire(6).await, event.expire(6).await, event.expire(6).await), (6, 4, 0));
    assert_eq!(event.seats().await, "a".repeat(20));
    event.check().await;
}

#[tokio::test]
async fn seats_of_one_pass_come_back_one_by_one() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    event.pass(500_000).await;
    event.held(place, &[2]).await;
    event.pass(500_000).await;
    assert_eq!(event.expire(10).await, 1);
    assert_eq!(event.hold_ends().await.into_keys().collect::<Vec<_>>(), [2]);
    event.check().await;
    assert_eq!(event.release(place, &[2]).await, Release::Released(1));
    event.check().await;
}

#[tokio::test]
async fn holds_outlive_the_end_of_their_pass_only_until_they_are_freed() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    event.pass(3_000_000).await;
    event.admit_now().await;
    assert!(event.passes().await.is_empty());
    event.check().await;
    assert_eq!(event.expire(10).await, 1);
    event.check().await;
}
