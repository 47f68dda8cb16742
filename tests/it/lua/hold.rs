//! `3_seat_hold`: lending seats.

use uuid::Uuid;
use zticket::base::ids::{PersonId, Place, SeatNumber};
use zticket::base::seat::SeatState;
use zticket::store::redis::scripts::{Hold, Holder, Release};

use super::fixture::{Fixture, change};

const HOLD: i64 = 1_000_000;

fn held(left_ms: i64) -> Hold {
    Hold::Held { left_ms: left_ms.try_into().unwrap() }
}

fn taken(seats: &[(u32, SeatState)]) -> Hold {
    Hold::Taken(seats.iter().map(|(seat, state)| (SeatNumber(*seat), *state)).collect())
}

#[tokio::test]
async fn a_free_seat_is_lent_for_the_hold_ttl() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    let version = event.meta("seats_version").await;
    assert_eq!(event.hold(visitors[0], &[7]).await, held(HOLD));
    assert_eq!(event.seats().await, "aaaaaahaaaaaaaaaaaaa");
    assert_eq!(event.owners().await.into_iter().collect::<Vec<_>>(), [(7, visitors[0])]);
    assert!(event.meta("seats_version").await > version);
    event.check().await;
}

#[tokio::test]
async fn a_place_is_for_the_first_person_who_holds_with_it() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    let (one, other) = (Some(PersonId(Uuid::from_u128(1))), Some(PersonId(Uuid::from_u128(2))));
    assert_eq!(event.hold_as(one, visitors[0], 0, &[7]).await, held(HOLD));
    let dump = event.dump().await;
    assert_eq!(event.hold_as(other, visitors[0], 0, &[8]).await, Hold::Another);
    assert_eq!(event.hold_as(other, visitors[0], 0, &[7]).await, Hold::Another, "nor are the seats shown to be held");
    assert_eq!(event.dump().await, dump, "a refusal writes nothing");
    assert!(matches!(event.hold_as(one, visitors[0], 0, &[8]).await, Hold::Held { .. }));
    assert_eq!(event.hold(visitors[0], &[9]).await, Hold::Another, "nor does the token alone do");
    assert_eq!(event.hold_as(other, visitors[1], 0, &[7]).await, taken(&[(7, SeatState::Held)]));
    assert_eq!(event.hold_as(one, visitors[1], 0, &[10]).await, held(HOLD), "a refused hold makes nobody the owner");
    event.check().await;
}

#[tokio::test]
async fn the_same_seat_again_has_the_same_deadline() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    event.held(visitors[0], &[7, 8]).await;
    let (ends, version) = (event.hold_ends().await, event.meta("seats_version").await);
    event.pass(200_000).await;
    let left = event.held(visitors[0], &[8, 7]).await;
    assert!(left <= 800_000);
    assert_eq!(event.hold_ends().await, ends);
    assert_eq!(event.meta("seats_version").await, version);
    event.check().await;
}

#[tokio::test]
async fn a_further_seat_has_its_own_deadline_and_the_reply_is_the_earliest() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    let now = event.now().await + 50;
    event.at(now).await;
    event.held(visitors[0], &[7]).await;
    event.at(now + 300_000).await;
    assert_eq!(event.hold(visitors[0], &[7, 8]).await, held(HOLD - 300_000));
    let ends: Vec<(u32, i64)> = event.hold_ends().await.into_iter().collect();
    assert_eq!(ends, [(7, now + HOLD), (8, now + HOLD + 300_000)]);
    event.check().await;
}

#[tokio::test]
async fn a_seat_named_twice_is_asked_for_once() {
    let event = Fixture::with(|setup| setup.policy.seats_per_pass = 2).await;
    let visitors = event.inside(1).await;
    event.held(visitors[0], &[7, 7, 8]).await;
    event.check().await;
    assert_eq!(event.release(visitors[0], &[7, 7]).await, Release::Released(1));
    event.check().await;
    event.settle(&[change(8, 1, true, visitors[0])]).await;
    assert_eq!(event.hold(visitors[0], &[8, 8]).await, Hold::Yours);
}

#[tokio::test]
async fn a_hold_lasts_at_least_as_long_as_a_payment_needs() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    let now = event.now().await + 50;
    event.at(now).await;
    event.held(visitors[0], &[7]).await;
    let version = event.meta("seats_version").await;
    event.at(now + HOLD - 3_000).await;
    assert_eq!(event.hold(visitors[0], &[7]).await, held(3_000), "looking around does not stretch it");
    assert_eq!(event.meta("seats_version").await, version);
    event.at(now + HOLD - 3_000).await;
    assert_eq!(event.hold_for(visitors[0], 10_000, &[7]).await, held(10_000));
    assert!(event.meta("seats_version").await > version, "servers must hear of the new deadline");
    event.check().await;
}

#[tokio::test]
async fn a_pass_is_stretched_to_cover_its_holds() {
    let event = Fixture::new().await;
    let visitors = event.inside(1).await;
    let pass = event.passes().await[&visitors[0]];
    let version = event.meta("passes_version").await;
    event.held(visitors[0], &[1]).await;
    assert_eq!(event.passes().await[&visitors[0]], pass, "a hold within the pass changes nothing");
    assert_eq!(event.meta("passes_version").await, version);
    event.at(pass - 400_000).await;
    assert_eq!(event.hold(visitors[0], &[2]).await, held(HOLD));
    assert_eq!(event.passes().await[&visitors[0]], pass - 400_000 + HOLD);
    assert!(event.meta("passes_version").await > version);
    event.check().await;
}

#[tokio::test]
async fn no_hold_goes_beyond_the_limit_of_its_pass_but_for_a_payment() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let limit = event.limits().await[&place];
    event.at(event.passes().await[&place] - 100_000).await;
    event.held(place, &[1]).await;
    event.at(limit - 200_000).await;
    assert_eq!(event.hold(place, &[2]).await, held(200_000));
    assert_eq!(event.passes().await[&place], limit);
    event.at(limit - 3_000).await;
    assert_eq!(event.hold_for(place, 10_000, &[2]).await, held(10_000));
    event.at(limit + 5_000).await;
    assert_eq!(event.hold_for(place, 10_000, &[2]).await, held(5_000), "the limit and one payment, no more");
    event.check().await;
    event.at(limit + 5_000).await;
    assert_eq!(event.hold(place, &[3]).await, Hold::NoPass, "a new seat would be overdue from the start");
    assert!(!event.hold_ends().await.contains_key(&3));
    event.at(limit + 10_000).await;
    assert_eq!(event.hold_for(place, 10_000, &[2]).await, Hold::NoPass);
    event.check().await;
}

#[tokio::test]
async fn without_a_pass_there_is_no_hold() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let waiting = event.entered(1).await;
    assert_eq!(event.hold(waiting, &[1]).await, Hold::NoPass);
    assert_eq!(event.hold(4711, &[1]).await, Hold::NoPass);
    event.held(place, &[2]).await;
    assert_eq!(event.hold(waiting, &[2]).await, Hold::NoPass, "a visitor outside learns nothing about seats");
    let deadline = event.passes().await[&place];
    event.at(deadline).await;
    assert_eq!(event.hold(place, &[1]).await, Hold::NoPass, "over at its deadline, also before it is ended");
    event.at(deadline - 1).await;
    assert_eq!(event.hold(place, &[1]).await, held(HOLD));
    event.check().await;
}

#[tokio::test]
async fn of_several_seats_all_are_lent_or_none() {
    let event = Fixture::new().await;
    let visitors = event.inside(3).await;
    event.held(visitors[0], &[2]).await;
    event.settle(&[change(4, 1, true, visitors[1])]).await;
    let dump = event.dump().await;
    let others = taken(&[(2, SeatState::Held), (4, SeatState::Sold)]);
    assert_eq!(event.hold(visitors[2], &[1, 2, 3, 4]).await, others);
    assert_eq!(event.hold(visitors[2], &[2]).await, taken(&[(2, SeatState::Held)]));
    assert_eq!(event.hold(visitors[2], &[4]).await, taken(&[(4, SeatState::Sold)]));
    assert_eq!(event.dump().await, dump, "a refusal writes nothing");
    event.check().await;
}

#[tokio::test]
async fn a_seat_that_does_not_exist_is_named() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let dump = event.dump().await;
    for seat in [0, 21, u32::MAX] {
        assert_eq!(event.hold(place, &[1, seat]).await, Hold::NoSeat(SeatNumber(seat)));
    }
    assert_eq!(event.dump().await, dump);
    assert_eq!(event.hold(place, &[20]).await, held(HOLD));
}

#[tokio::test]
async fn a_pass_holds_a_limited_number_of_seats() {
    let event = Fixture::with(|setup| setup.policy.seats_per_pass = 3).await;
    let place = event.inside(1).await[0];
    let dump = event.dump().await;
    assert_eq!(event.hold(place, &[1, 2, 3, 4]).await, Hold::TooMany(3));
    assert_eq!(event.dump().await, dump);
    event.held(place, &[1, 2]).await;
    assert_eq!(event.hold(place, &[3, 4]).await, Hold::TooMany(3));
    event.held(place, &[2, 3]).await;
    assert_eq!(event.hold(place, &[4]).await, Hold::TooMany(3));
    assert_eq!(event.release(place, &[1]).await, Release::Released(1));
    event.held(place, &[4]).await;
    event.check().await;
}

#[tokio::test]
async fn a_visitor_with_more_holds_than_a_lowered_limit_can_still_pay() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held(place, &[1, 2, 3]).await;
    event.change(&[("seats_per_pass", "1")]).await;
    assert!(matches!(event.hold_for(place, 10_000, &[1, 2, 3]).await, Hold::Held { .. }));
    assert_eq!(event.hold(place, &[4]).await, Hold::TooMany(1));
    event.check().await;
}

#[tokio::test]
async fn an_overdue_hold_counts_as_free_for_others() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1, 2]).await;
    event.pass(HOLD / 2).await;
    event.held(visitors[0], &[3]).await;
    assert_eq!(event.hold(visitors[1], &[1]).await, taken(&[(1, SeatState::Held)]));
    event.pass(HOLD / 2).await;
    event.held(visitors[1], &[1]).await;
    assert_eq!(
        event.owners().await.into_iter().collect::<Vec<_>>(),
        [(1, visitors[1]), (2, visitors[0]), (3, visitors[0])]
    );
    event.check().await;
    assert_eq!(event.expire(10).await, 1, "seat 2 only: seat 1 is lent again");
    event.check().await;
    event.held(visitors[1], &[2]).await;
    assert_eq!(event.hold(visitors[0], &[1]).await, taken(&[(1, SeatState::Held)]));
    event.check().await;
}

#[tokio::test]
async fn the_last_overdue_hold_of_someone_can_be_taken_over() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[0], &[1, 2]).await;
    event.pass(HOLD).await;
    event.held(visitors[1], &[1, 2]).await;
    event.check().await;
    event.leave(visitors[0]).await;
    assert_eq!(event.owners().await.into_values().collect::<Vec<_>>(), [visitors[1], visitors[1]]);
    event.check().await;
}

#[tokio::test]
async fn the_last_holder_can_have_an_overdue_seat_again() {
    let event = Fixture::with(|setup| setup.policy.seats_per_pass = 1).await;
    let place = event.inside(1).await[0];
    let now = event.now().await + 50;
    event.at(now).await;
    event.held(place, &[1]).await;
    event.at(now + HOLD).await;
    assert_eq!(event.hold(place, &[1]).await, held(HOLD));
    event.check().await;
}

#[tokio::test]
async fn an_overdue_seat_does_not_count_against_its_last_holder() {
    let event = Fixture::with(|setup| setup.policy.seats_per_pass = 1).await;
    let place = event.inside(1).await[0];
    event.held(place, &[1]).await;
    event.pass(HOLD).await;
    event.held(place, &[2]).await;
    event.check().await;
    assert_eq!(event.expire(10).await, 1);
    event.check().await;
    assert_eq!(event.hold_ends().await.into_keys().collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn a_bought_seat_is_its_buyers_own_even_without_a_pass() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.settle(&[change(5, 1, true, visitors[0]), change(6, 1, true, visitors[0])]).await;
    let dump = event.dump().await;
    assert_eq!(event.hold(visitors[0], &[5]).await, Hold::Yours);
    assert_eq!(event.hold(visitors[0], &[6, 5]).await, Hold::Yours);
    assert_eq!(event.hold_for(visitors[0], 10_000, &[5]).await, Hold::Yours);
    assert_eq!(event.hold(visitors[0], &[5, 7]).await, Hold::NoPass, "not all of it was bought");
    assert_eq!(event.hold(visitors[1], &[5]).await, taken(&[(5, SeatState::Sold)]));
    assert_eq!(event.dump().await, dump);
    event.settle(&[change(5, 2, false, visitors[0])]).await;
    assert_eq!(event.hold(visitors[0], &[5]).await, Hold::NoPass, "taken back, it is nobody's");
    event.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_visitors_who_want_one_seat_exactly_one_gets_it() {
    let event = Fixture::with(|setup| {
        setup.facts["seats"] = 300.into();
        setup.policy.max_active = 300;
    })
    .await;
    let visitors = event.inside(200).await;
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(event.redis.connect().await.unwrap());
    }
    let tasks: Vec<_> = visitors
        .iter()
        .zip(connections.iter().cycle())
        .map(|(place, conn)| {
            let (place, mut conn, scripts, keys) = (*place, conn.clone(), event.scripts.clone(), event.keys.clone());
            tokio::spawn(async move {
                let party = Holder { place: Place(place), person: None, seats: &[SeatNumber(1)] };
                let outcome = scripts.hold(&mut conn, &keys, 0, &party).await;
                (place, outcome.unwrap())
            })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            (place, Hold::Held { .. }) => winners.push(place),
            (_, refused) => assert_eq!(refused, taken(&[(1, SeatState::Held)])),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(event.owners().await[&1], winners[0]);
    event.check().await;
}
