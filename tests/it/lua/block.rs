//! `1_line_block`: blocks of places, and what a new life of Redis means for the people in line.

use redis::AsyncCommands;
use zticket::base::ids::{Fetched, PersonId};
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Enter, Leave, Why};

use super::fixture::{BLOCK, Fixture};

const WAIT: u64 = 500_000;

fn place(at: i64) -> u32 {
    u32::try_from(at).unwrap()
}

#[tokio::test]
async fn a_new_block_skips_the_rest_of_the_last_one() {
    for start in [16, 32] {
        let event = Fixture::with(|setup| setup.facts["end"] = 16.into()).await;
        event.entered(7).await;
        event.block(start..64, None).await;
        assert_eq!((event.meta("next").await, event.meta("end").await), (start, 64));
        let first = place(start);
        assert_eq!(event.entered(5).await, first);
        let line: Vec<u32> = (0..7).chain(first..first + 5).collect();
        assert_eq!(event.line().await, line);
        assert_eq!(event.meta("gap_to").await, 0, "in the same life nothing was lost");
        event.check().await;
    }
}

#[tokio::test]
async fn a_block_that_is_not_ahead_is_dropped() {
    let event = Fixture::new().await;
    event.block(BLOCK..2 * BLOCK, None).await;
    event.entered(3).await;
    for (start, end) in [(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK - 8, 3 * BLOCK)] {
        let dump = event.dump().await;
        event.block(start..end, Some(WAIT)).await;
        assert_eq!(event.dump().await, dump, "{start}..{end}");
    }
    event.start_new_life().await;
    let dump = event.dump().await;
    event.block(0..BLOCK, Some(WAIT)).await;
    assert_eq!(event.dump().await, dump, "a new life does not make an old block good");
    assert_eq!(event.enter(1).await, Enter::Stale);
}

#[tokio::test]
async fn a_new_life_turns_what_may_be_lost_into_the_gap() {
    let event = Fixture::new().await;
    event.entered(7).await;
    let version = event.meta("line_version").await;
    event.start_new_life().await;
    event.at(5_000).await;
    event.block(BLOCK..2 * BLOCK, Some(WAIT)).await;
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (7, BLOCK));
    assert_eq!(event.meta("gap_opens").await, 5_000 + WAIT.cast_signed());
    assert_eq!((event.meta("restores").await, event.meta("gap_turns").await), (1, 0));
    assert!(event.meta("line_version").await > version);
    assert_eq!(event.entered(1).await, place(BLOCK));
    event.check().await;
}

#[tokio::test]
async fn after_a_new_life_everyone_in_the_line_counts_as_present() {
    let event = Fixture::new().await;
    event.entered(4).await;
    for _ in 0..3 {
        event.turn().await;
        event.pulse(&[2]).await;
    }
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(0)).await;
    assert_eq!(event.heard().await, [0, 1, 2, 3]);
    assert_eq!(event.admit().await, Admit::Admitted(4));
    event.check().await;
}

#[tokio::test]
async fn a_new_life_that_lost_nothing_makes_no_gap_and_no_one_present() {
    let event = Fixture::new().await;
    event.entered(4).await;
    for _ in 0..3 {
        event.turn().await;
        event.pulse(&[2]).await;
    }
    event.start_new_life().await;
    let next = event.meta("next").await;
    assert!(event.new_block(BLOCK..2 * BLOCK, 1, Why::NewLife, WAIT, Some(next)).await);
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (0, 0));
    assert_eq!(event.meta("restores").await, 0);
    assert_eq!(event.admit().await, Admit::Admitted(1));
    assert_eq!(event.line().await, [0, 1, 3]);
    assert_eq!(event.entered(1).await, place(BLOCK));
    event.check().await;
}

#[tokio::test]
async fn an_empty_line_goes_on_at_the_new_block() {
    let event = Fixture::new().await;
    event.entered(2).await;
    assert_eq!((event.leave(0).await, event.leave(1).await), (Leave::Left, Leave::Left));
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(WAIT)).await;
    assert_eq!(event.meta("head").await, BLOCK);
    event.check().await;
    event.block(3 * BLOCK..4 * BLOCK, None).await;
    assert_eq!(event.meta("head").await, 3 * BLOCK);
    event.check().await;
}

#[tokio::test]
async fn a_second_new_life_keeps_the_first_gap_open() {
    let event = Fixture::new().await;
    event.entered(4).await;
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(WAIT)).await;
    assert_eq!(event.pulse(&[10, 20]).await, 2);
    event.entered(2).await;
    event.turn().await;
    event.start_new_life().await;
    event.block(2 * BLOCK..3 * BLOCK, Some(WAIT)).await;
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (4, 2 * BLOCK));
    assert_eq!(event.meta("gap_turns").await, 0, "and for a full TTL again");
    assert_eq!(event.pulse(&[12, place(BLOCK) + 7]).await, 2, "lost by the first, lost by the second");
    assert_eq!(event.pulse(&[10, 20]).await, 0, "these are in the line already");
    event.check().await;
}

#[tokio::test]
async fn a_visitor_who_came_between_two_losses_does_not_return() {
    for (gap_to, came) in [(104, 20), (100, 3), (101, 1), (103, 30), (107, 50)] {
        let event = Fixture::with(|setup| {
            setup.facts["next"] = gap_to.into();
            setup.facts["gap_from"] = 10.into();
            setup.facts["gap_to"] = gap_to.into();
            setup.back = vec![98, 99];
            setup.policy.batch = 1;
        })
        .await;
        let first = event.entered(came).await;
        let came: Vec<u32> = (first..first + came).collect();
        assert_eq!(event.admit().await, Admit::Admitted(1));
        let line = event.line().await;
        event.start_new_life().await;
        event.block(BLOCK..2 * BLOCK, Some(0)).await;
        assert_eq!(event.meta("gap_from").await, 10);
        assert_eq!(event.bits(Key::Back).await, [98, 99].into_iter().chain(came.clone()).collect::<Vec<_>>());
        assert_eq!(event.pulse(&came).await, 0, "one is inside, the others wait");
        assert_eq!(event.line().await, line);
        event.set_policy("batch", 1000).await;
        event.admit_now().await;
        assert_eq!(event.pulse(&came).await, 0, "and being let in is final");
        assert_eq!(event.pulse(&[50, came[came.len() - 1] + 1]).await, 2, "lost by the first, lost by the second");
        event.check().await;
    }
}

#[tokio::test]
async fn a_gap_stays_open_through_a_restart_that_lost_nothing() {
    let event = Fixture::new().await;
    event.entered(4).await;
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(WAIT)).await;
    event.start_new_life().await;
    assert!(event.new_block(2 * BLOCK..3 * BLOCK, 1, Why::NewLife, WAIT, Some(BLOCK)).await);
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (4, BLOCK));
    assert_eq!(event.pulse(&[10]).await, 1);
    event.check().await;
}

#[tokio::test]
async fn the_event_clock_survives_a_new_life_on_a_machine_with_a_slow_clock() {
    let event = Fixture::new().await;
    event.entered(1).await;
    let ahead = event.now().await + 3_600_000;
    event.at(ahead).await;
    event.start_new_life().await;
    event.block(BLOCK..2 * BLOCK, Some(WAIT)).await;
    assert_eq!(event.meta("now").await, ahead);
    assert_eq!(event.meta("gap_opens").await, ahead + WAIT.cast_signed());
    event.pass(1000).await;
    assert!(event.now().await >= ahead + 1000, "time continues from there");
    assert!(!event.bits(Key::Line).await.is_empty());
}

#[tokio::test]
async fn a_reply_with_places_names_the_block_they_come_from() {
    let event = Fixture::with(|setup| (setup.facts["block"], setup.facts["fetch"]) = (8.into(), 3.into())).await;
    let block = async |count| event.scripts.enter(&mut event.conn(), &event.keys, count).await.unwrap().block;
    assert_eq!(block(2).await, Some(Fetched { start: 8, fetch: 3 }));
    assert!(event.new_block(BLOCK..2 * BLOCK, 5, Why::UsedUp, 0, None).await);
    assert_eq!(block(1).await, Some(Fetched { start: BLOCK, fetch: 5 }));
    event.change(&[("max_queue", "1")]).await;
    assert_eq!(block(1).await, None, "nobody got a place");
    let who = [PersonId(uuid::Uuid::from_u128(1))];
    let people = async || event.scripts.enter_people(&mut event.conn(), &event.keys, &who).await.unwrap();
    assert_eq!((people().await.outcome, people().await.block), (Enter::Full, None));
    event.change(&[("max_queue", "0")]).await;
    people().await;
    event.change(&[("max_queue", "1")]).await;
    assert_eq!(people().await.block, Some(Fetched { start: BLOCK, fetch: 5 }), "a known place comes from a block too");
    // An older server wrote no numbers.
    let _: () = event.conn().hdel(event.key(Key::Meta), &["block", "fetch"]).await.unwrap();
    assert_eq!(people().await.block, Some(Fetched { start: 0, fetch: 0 }));
}

#[tokio::test]
async fn a_block_for_an_earlier_life_is_not_stored() {
    let event = Fixture::new().await;
    event.entered(7).await;
    event.start_new_life().await;
    let dump = event.dump().await;
    for why in [Why::UsedUp, Why::Refused] {
        assert!(!event.new_block(BLOCK..2 * BLOCK, 1, why, WAIT, None).await, "{why:?}");
        assert_eq!(event.dump().await, dump, "{why:?}");
    }
    assert_eq!(event.enter(1).await, Enter::Stale, "somebody still has to see to the places that were lost");
}

#[tokio::test]
async fn a_stop_that_was_clean_at_another_place_does_not_count() {
    let event = Fixture::new().await;
    event.entered(7).await;
    event.start_new_life().await;
    assert!(event.new_block(BLOCK..2 * BLOCK, 1, Why::NewLife, WAIT, Some(9)).await);
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (7, BLOCK));
}

#[tokio::test]
async fn the_places_of_a_refused_block_may_return_and_belong_to_no_person() {
    let event = Fixture::with(|setup| {
        (setup.facts["next"], setup.facts["block"], setup.facts["end"]) = (64.into(), 64.into(), BLOCK.into());
        setup.line = vec![3, 5];
    })
    .await;
    let people = [1, 2].map(|id| PersonId(uuid::Uuid::from_u128(id)));
    let enter = async |who: &[PersonId]| {
        let reply = event.scripts.enter_people(&mut event.conn(), &event.keys, who).await.unwrap();
        reply.places.into_iter().map(|place| place.map(|place| place.0)).collect::<Vec<_>>()
    };
    assert_eq!(enter(&people).await, [Some(64), Some(65)]);
    assert!(event.new_block(BLOCK..2 * BLOCK, 1, Why::Refused, WAIT, None).await);
    assert_eq!((event.meta("gap_from").await, event.meta("gap_to").await), (64, BLOCK));
    assert_eq!(event.pulse(&[70]).await, 1, "somebody was told this place by another fetch of the block");
    assert_eq!(enter(&people[..1]).await, [Some(place(BLOCK))], "a new place, because the old one is another's");
    event.check().await;
}
