//! `4_ticket_settle`: what the database sold or took back becomes known.

use redis::AsyncCommands;
use zticket::base::seat::SeatState;
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::Settled;
use zticket::store::redis::scripts::{Admit, Hold};

use super::fixture::{BLOCK, Fixture, change};

#[tokio::test]
async fn a_sale_ends_the_visit_and_the_other_holds() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1, 2, 3]).await;
    event.held(visitors[1], &[4]).await;
    let (seats, passes, line) = versions(&event).await;
    assert_eq!(event.settle(&[change(2, 1, true, visitors[0])]).await, 1);
    assert_eq!(event.seats().await, "asahaaaaaaaaaaaaaaaa");
    assert_eq!(event.passes().await.into_keys().collect::<Vec<_>>(), [visitors[1]]);
    assert_eq!(event.meta("sold").await, 1);
    assert_eq!(versions(&event).await, (seats + 1, passes + 1, line));
    event.check().await;
}

async fn versions(event: &Fixture) -> (i64, i64, i64) {
    (event.meta("seats_version").await, event.meta("passes_version").await, event.meta("line_version").await)
}

#[tokio::test]
async fn a_doubled_message_changes_nothing() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.settle(&[change(2, 5, true, visitors[0])]).await;
    event.held(visitors[1], &[3]).await;
    let dump = event.dump().await;
    assert_eq!(event.settle(&[change(2, 5, true, visitors[0])]).await, 0);
    assert_eq!(event.settle(&[change(2, 5, false, visitors[0])]).await, 0);
    assert_eq!(event.settle(&[]).await, 0);
    assert_eq!(event.dump().await, dump);
}

#[tokio::test]
async fn doubled_within_one_call_a_message_counts_once() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    assert_eq!(event.settle(&[change(2, 1, true, place), change(2, 1, true, place)]).await, 1);
    assert_eq!(event.meta("sold").await, 1);
    event.check().await;
}

#[tokio::test]
async fn changes_in_the_wrong_order_end_as_in_the_right_one() {
    let event = Fixture::new().await;
    let visitors = event.inside(3).await;
    let story = [change(1, 1, true, visitors[0]), change(1, 2, false, visitors[0]), change(1, 3, true, visitors[1])];
    assert_eq!(event.settle(&[story[2]]).await, 1);
    let dump = event.dump().await;
    assert_eq!(event.settle(&[story[0], story[1]]).await, 0);
    assert_eq!(event.dump().await, dump);
    assert_eq!(event.owners().await[&1], visitors[1]);

    // A cancel that overtakes its sale: the sale comes too late.
    assert_eq!(event.settle(&[change(2, 2, false, visitors[2])]).await, 1);
    assert_eq!(event.settle(&[change(2, 1, true, visitors[2])]).await, 0);
    assert_eq!(event.seats().await, "saaaaaaaaaaaaaaaaaaa");
    assert!(event.passes().await.contains_key(&visitors[2]));
    event.check().await;
}

#[tokio::test]
async fn a_cancelled_seat_can_be_sold_again() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.settle(&[change(1, 1, true, visitors[0])]).await;
    assert_eq!(event.settle(&[change(1, 2, false, visitors[0])]).await, 1);
    assert_eq!((event.meta("sold").await, event.seats().await.contains('s')), (0, false));
    assert!(event.owners().await.is_empty());
    event.check().await;
    event.held(visitors[1], &[1]).await;
    assert_eq!(event.settle(&[change(1, 3, true, visitors[1])]).await, 1);
    assert_eq!(event.owners().await[&1], visitors[1]);
    event.check().await;
}

#[tokio::test]
async fn a_resale_without_news_of_its_cancel_changes_the_owner_once() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.settle(&[change(1, 1, true, visitors[0])]).await;
    event.settle(&[change(1, 3, true, visitors[1])]).await;
    assert_eq!((event.meta("sold").await, event.owners().await[&1]), (1, visitors[1]));
    assert!(event.passes().await.is_empty());
    event.check().await;
}

#[tokio::test]
async fn a_sale_overrules_the_hold_of_someone_else() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[1], &[1, 2]).await;
    event.settle(&[change(1, 1, true, visitors[0])]).await;
    assert_eq!(event.seats().await, "shaaaaaaaaaaaaaaaaaa");
    assert!(event.passes().await.contains_key(&visitors[1]), "the visitor who held it stays inside");
    assert!(matches!(event.hold(visitors[1], &[1]).await, Hold::Taken(seats) if seats[0].1 == SeatState::Sold));
    event.check().await;
    event.settle(&[change(2, 1, true, visitors[0])]).await;
    assert!(event.hold_ends().await.is_empty());
    event.check().await;
}

#[tokio::test]
async fn news_of_a_cancel_leaves_a_hold_that_is_newer() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[1], &[1]).await;
    let ends = event.hold_ends().await;
    assert_eq!(event.settle(&[change(1, 2, false, visitors[0])]).await, 1);
    assert_eq!((event.hold_ends().await, event.owners().await[&1]), (ends, visitors[1]));
    event.check().await;
    assert_eq!(event.settle(&[change(1, 1, true, visitors[0])]).await, 0, "but the version is known");
    assert_eq!(event.settle(&[change(1, 3, true, visitors[1])]).await, 1);
    event.check().await;
}

#[tokio::test]
async fn a_buyer_who_is_still_in_the_line_is_taken_out_of_it() {
    let event = Fixture::new().await;
    event.entered(30).await;
    let (_, passes, line) = versions(&event).await;
    event.settle(&[change(1, 1, true, 4)]).await;
    assert_eq!((event.meta("head").await, event.meta("waiting").await), (0, 29));
    event.settle(&[change(2, 1, true, 0)]).await;
    assert_eq!((event.meta("head").await, event.meta("waiting").await), (1, 28));
    let (_, passes_after, line_after) = versions(&event).await;
    assert_eq!((passes_after, line_after), (passes, line + 2));
    event.check().await;
    for (version, place) in (2..).zip((1..30).filter(|place| *place != 4)) {
        event.settle(&[change(3, version, true, place)]).await;
    }
    assert_eq!((event.meta("waiting").await, event.meta("head").await), (0, 30));
    event.check().await;
}

#[tokio::test]
async fn a_buyer_does_not_come_back_from_the_gap() {
    let event = Fixture::new().await;
    event.entered(5).await;
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(500_000)).await;
    let (_, _, line) = versions(&event).await;
    event.settle(&[change(1, 1, true, 9)]).await;
    assert!(versions(&event).await.2 > line, "servers must hear that it may not come back");
    assert_eq!(event.pulse(&[9, 10]).await, 1);
    event.settle(&[change(2, 1, true, 10)]).await;
    assert_eq!(event.pulse(&[10]).await, 0);
    assert_eq!(event.line().await, [0, 1, 2, 3, 4]);
    event.check().await;
}

#[tokio::test]
async fn a_sale_to_a_place_outside_the_line_is_settled() {
    let base = 1 << 20;
    let event = Fixture::with(|setup| {
        setup.facts["base"] = base.into();
        setup.facts["next"] = (base + 10).into();
        setup.facts["end"] = (base + 100).into();
        setup.line = vec![base + 1, base + 3];
    })
    .await;
    assert_eq!(event.settle(&[change(1, 1, true, 7), change(2, 1, true, base + 50)]).await, 2);
    assert_eq!(event.line().await, [base + 1, base + 3]);
    event.check().await;
}

#[tokio::test]
async fn a_sale_counts_even_when_the_pass_of_its_buyer_is_over() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1, 2]).await;
    event.pass(10_000_000).await;
    event.admit_now().await;
    event.settle(&[change(1, 1, true, place)]).await;
    assert_eq!(event.seats().await, "saaaaaaaaaaaaaaaaaaa");
    event.check().await;
}

#[tokio::test]
async fn an_order_of_several_seats_is_settled_as_a_whole() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1, 2, 3]).await;
    let order = [1, 2].map(|seat| change(seat, 1, true, visitors[0]));
    assert_eq!(event.settle(&order).await, 2);
    assert_eq!(event.seats().await, "ssaaaaaaaaaaaaaaaaaa");
    event.check().await;
}

#[tokio::test]
async fn a_thousand_messages_fit_one_call() {
    let event = Fixture::with(|setup| setup.facts["seats"] = 1000.into()).await;
    event.entered(1000).await;
    let messages: Vec<_> = (1..=1000).map(|seat| change(seat, 7, true, seat - 1)).collect();
    assert_eq!(event.settle(&messages).await, 1000);
    assert_eq!((event.meta("sold").await, event.meta("waiting").await), (1000, 0));
    assert_eq!(event.admit().await, Admit::Admitted(0));
    event.check().await;
}

#[tokio::test]
async fn a_seat_that_the_event_does_not_have_is_passed_over() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    assert_eq!(event.settle(&[change(21, 1, true, place), change(20, 1, true, place)]).await, 1);
    assert_eq!(event.seats().await.len(), 20);
    let known: Vec<(u32, i64)> = event.conn().hgetall(event.key(Key::Versions)).await.unwrap();
    assert_eq!(known, [(20, 1)]);
    event.check().await;
}

#[tokio::test]
async fn an_order_is_sold_as_a_whole_and_the_reply_counts_unsold_seats() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[3, 4, 5]).await;
    let messages = [change(3, 1, true, place), change(4, 1, true, place)];
    let settled = event.scripts.settle(&mut event.conn(), &event.keys, &messages).await.unwrap();
    assert_eq!(settled, Settled { applied: 2, unsold: 18 });
    assert_eq!(&event.seats().await[..6], "aassaa", "the third seat was not bought and is free");
    event.check().await;
}

#[tokio::test]
async fn a_cancel_that_comes_before_its_sale_ends_the_hold_and_the_visit() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[3, 4]).await;
    assert_eq!(event.settle(&[change(3, 2, false, place), change(3, 1, true, place)]).await, 1);
    assert_eq!(&event.seats().await[..5], "aaaaa");
    assert!(event.passes().await.is_empty());
    event.check().await;
}
