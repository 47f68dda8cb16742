//! `1_line_enter`: taking places.

use zticket::base::ids::{PersonId, Place};
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Enter, Leave};

use super::fixture::{BLOCK, Fixture, PULSES, change};

fn entered(first: u32, count: u32, first_rank: u64) -> Enter {
    Enter::Entered { first: Place(first), count, first_rank }
}

#[tokio::test]
async fn places_follow_each_other_and_the_rank_is_the_number_waiting() {
    let event = Fixture::new().await;
    assert_eq!(event.enter(3).await, entered(0, 3, 1));
    assert_eq!(event.enter(1).await, entered(3, 1, 4));
    assert_eq!(event.leave(1).await, Leave::Left);
    assert_eq!(event.leave(0).await, Leave::Left);
    assert_eq!(event.enter(2).await, entered(4, 2, 3));
    assert_eq!(event.line().await, [2, 3, 4, 5]);
    assert_eq!((event.meta("entered").await, event.meta("waiting").await), (6, 4));
    event.check().await;
}

#[tokio::test]
async fn any_number_enters_at_any_offset_and_touches_no_other_bit() {
    let event = Fixture::new().await;
    for offset in [0, 1, 2, 3, 5, 7, 8, 9, 13, 16] {
        for count in [1, 2, 7, 8, 9, 15, 16, 17, 511] {
            event.rebuild(|_| {}).await;
            if offset > 0 {
                event.entered(offset).await;
                // A cleared bit in the byte that is shared must stay cleared.
                event.leave(offset - 1).await;
            }
            let waiting = offset.saturating_sub(1);
            assert_eq!(event.enter(count as usize).await, entered(offset, count, u64::from(waiting) + 1));
            let expected: Vec<u32> = (0..waiting).chain(offset..offset + count).collect();
            assert_eq!(event.line().await, expected, "{count} at {offset}");
            assert_eq!(event.heard().await, (0..offset + count).collect::<Vec<_>>(), "{count} at {offset}");
            event.check().await;
        }
    }
}

#[tokio::test]
async fn a_hundred_thousand_enter_in_one_call() {
    let event = Fixture::new().await;
    event.entered(3).await;
    assert_eq!(event.enter(100_000).await, entered(3, 100_000, 4));
    assert_eq!(event.line().await, (0..100_003).collect::<Vec<_>>());
    event.check().await;
}

#[tokio::test]
async fn bits_count_from_the_base_of_a_trimmed_line() {
    let base = 3 << 20;
    let event = Fixture::with(|setup| {
        setup.facts["base"] = base.into();
        setup.facts["next"] = (base + 5).into();
        setup.facts["end"] = (base + 100).into();
    })
    .await;
    assert_eq!(event.entered(9).await, base + 5);
    assert_eq!(event.line().await, (base + 5..base + 14).collect::<Vec<_>>());
    assert_eq!(event.bytes(Key::Line).await, [0x07, 0xfc]);
    event.check().await;
}

#[tokio::test]
async fn a_visitor_who_enters_counts_as_present() {
    let event = Fixture::new().await;
    event.entered(2).await;
    for slice in PULSES.into_iter().skip(1).chain([Key::Pulse0]) {
        event.pulse(&[0, 1]).await;
        event.turn().await;
        let place = event.entered(1).await;
        assert_eq!(event.bits(slice).await, [place]);
    }
    event.check().await;
}

#[tokio::test]
async fn the_first_in_an_empty_line_is_its_head() {
    let event = Fixture::new().await;
    assert_eq!(event.inside(5).await, [0, 1, 2, 3, 4]);
    event.entered(2).await;
    assert_eq!(event.meta("head").await, 5);
    event.entered(2).await;
    assert_eq!(event.meta("head").await, 5);
    event.check().await;
}

#[tokio::test]
async fn a_nearly_full_line_takes_the_first_who_ask() {
    let event = Fixture::with(|setup| setup.policy.max_queue = 10).await;
    assert_eq!(event.enter(8).await, entered(0, 8, 1));
    assert_eq!(event.enter(5).await, entered(8, 2, 9));
    assert_eq!(event.enter(5).await, Enter::Full);
    assert_eq!(event.leave(4).await, Leave::Left);
    assert_eq!(event.enter(5).await, entered(10, 1, 10));
    event.check().await;
}

#[tokio::test]
async fn a_line_longer_than_a_lowered_limit_is_full_and_keeps_everyone() {
    let event = Fixture::new().await;
    event.entered(8).await;
    event.change(&[("max_queue", "3")]).await;
    assert_eq!(event.enter(1).await, Enter::Full);
    assert_eq!(event.line().await.len(), 8);
    event.change(&[("max_queue", "0")]).await;
    assert_eq!(event.enter(1).await, entered(8, 1, 9));
}

#[tokio::test]
async fn a_closed_sale_takes_nobody_and_a_paused_one_takes_everybody() {
    let event = Fixture::new().await;
    event.change(&[("state", "closed")]).await;
    assert_eq!(event.enter(1).await, Enter::Closed);
    event.change(&[("state", "paused")]).await;
    assert_eq!(event.enter(1).await, entered(0, 1, 1));
}

#[tokio::test]
async fn nobody_enters_when_all_is_sold_until_a_seat_is_taken_back() {
    let event = Fixture::with(|setup| setup.facts["seats"] = 2.into()).await;
    let visitors = event.inside(2).await;
    event.settle(&[change(1, 1, true, visitors[0])]).await;
    assert_eq!(event.enter(1).await, entered(2, 1, 1));
    event.settle(&[change(2, 1, true, visitors[1])]).await;
    assert_eq!(event.enter(1).await, Enter::SoldOut);
    event.settle(&[change(1, 2, false, visitors[0])]).await;
    assert_eq!(event.enter(1).await, entered(3, 1, 2));
    event.check().await;
}

#[tokio::test]
async fn held_seats_may_come_back_so_people_still_enter() {
    let event = Fixture::with(|setup| setup.facts["seats"] = 1.into()).await;
    let visitors = event.inside(1).await;
    event.held(visitors[0], &[1]).await;
    assert_eq!(event.enter(1).await, entered(1, 1, 1));
}

#[tokio::test]
async fn a_block_of_an_earlier_life_is_stale() {
    let event = Fixture::new().await;
    event.entered(2).await;
    event.start_new_life().await;
    assert_eq!(event.enter(1).await, Enter::Stale);
    assert_eq!(event.line().await, [0, 1]);
    event.block(BLOCK..2 * BLOCK, Some(0)).await;
    assert_eq!(event.entered(1).await, u32::try_from(BLOCK).unwrap());
    event.check().await;
}

#[tokio::test]
async fn a_redis_that_came_back_from_its_file_hands_out_no_place_again() {
    let mut event = Fixture::new().await;
    event.entered(5).await;
    event.redis.save().await.unwrap();
    event.entered(5).await;
    event.redis.restart().await.unwrap();
    event.conn = event.redis.connect().await.unwrap();
    assert_eq!(event.meta("next").await, 5);
    assert_eq!(event.enter(1).await, Enter::Stale);
    assert_eq!(event.admit().await, Admit::Stale);
    event.check().await;
}

#[tokio::test]
async fn a_block_is_used_up_to_its_last_place() {
    let event = Fixture::with(|setup| setup.facts["end"] = 10.into()).await;
    assert_eq!(event.enter(11).await, Enter::NeedBlock);
    assert_eq!(event.enter(7).await, entered(0, 7, 1));
    assert_eq!(event.enter(4).await, Enter::NeedBlock);
    assert_eq!(event.enter(3).await, entered(7, 3, 8));
    assert_eq!(event.enter(1).await, Enter::NeedBlock);
    event.check().await;
}

#[tokio::test]
async fn a_full_line_with_a_short_block_needs_no_more_than_it_can_take() {
    let event = Fixture::with(|setup| {
        setup.facts["end"] = 10.into();
        setup.policy.max_queue = 10;
    })
    .await;
    assert_eq!(event.enter(500).await, entered(0, 10, 1));
    assert_eq!(event.enter(500).await, Enter::Full);
}

#[tokio::test]
async fn a_refusal_writes_nothing() {
    let event = Fixture::with(|setup| setup.facts["end"] = 10.into()).await;
    event.entered(5).await;
    for (field, value, word) in [
        ("state", "closed", Enter::Closed),
        ("sold", "20", Enter::SoldOut),
        ("life", "abc", Enter::Stale),
        ("end", "6", Enter::NeedBlock),
    ] {
        let before = event.meta_text(field).await;
        event.set_meta(field, value).await;
        let dump = event.dump().await;
        assert_eq!(event.enter(2).await, word);
        assert_eq!(event.dump().await, dump, "{word:?}");
        event.set_meta(field, before).await;
    }
    event.set_policy("max_queue", 5).await;
    let dump = event.dump().await;
    assert_eq!(event.enter(2).await, Enter::Full);
    assert_eq!(event.dump().await, dump);
}

/// What members have after they asked: their places, and what happened to the newcomers among them.
async fn members(event: &Fixture, who: &[u128]) -> (Enter, Vec<Option<u32>>) {
    let who: Vec<PersonId> = who.iter().map(|id| PersonId(uuid::Uuid::from_u128(*id))).collect();
    let reply = event.scripts.enter_people(&mut event.conn(), &event.keys, &who).await.unwrap();
    (reply.outcome, reply.places.into_iter().map(|place| place.map(|place| place.0)).collect())
}

#[tokio::test]
async fn a_member_has_one_place_however_often_it_is_asked_for() {
    let event = Fixture::new().await;
    let first = members(&event, &[7, 8, 7]).await;
    assert_eq!(
        first,
        (entered(0, 2, 1), vec![Some(0), Some(1), Some(0)]),
        "a member who asks twice at once counts once"
    );
    assert_eq!(members(&event, &[8]).await, (entered(0, 0, 0), vec![Some(1)]));
    assert_eq!(members(&event, &[9, 7, 10]).await, (entered(2, 2, 3), vec![Some(2), Some(0), Some(3)]));
    assert_eq!(event.line().await, [0, 1, 2, 3]);
    assert_eq!(event.meta("entered").await, 4);
    event.check().await;
}

#[tokio::test]
async fn a_place_is_a_members_while_it_is_alive() {
    let event = Fixture::new().await;
    members(&event, &[7, 8]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(2));
    assert_eq!(members(&event, &[7]).await.1, [Some(0)], "inside");
    event.pass(2_000_001).await;
    assert_eq!(members(&event, &[7]).await.1, [Some(2)], "the pass is over, though nobody ended it yet");
    event.leave(2).await;
    assert_eq!(members(&event, &[7]).await.1, [Some(3)], "left");
    assert_eq!(event.admit_now().await, Admit::Admitted(1));
    event.settle(&[change(1, 1, true, 3)]).await;
    assert_eq!(members(&event, &[7]).await.1, [Some(4)], "bought");
    event.check().await;
}

#[tokio::test]
async fn a_member_whose_place_was_lost_keeps_the_way_back() {
    let event = Fixture::new().await;
    members(&event, &[7, 8]).await;
    let stored: std::collections::HashMap<Vec<u8>, u32> =
        redis::AsyncCommands::hgetall(&mut event.conn(), event.key(Key::Members)).await.unwrap();
    // The line is rebuilt without them; both may come back, and 8 leaves for good.
    event
        .rebuild(|setup| {
            setup.facts["next"] = BLOCK.into();
            setup.facts["end"] = (2 * BLOCK).into();
            setup.facts["gap_from"] = 0.into();
            setup.facts["gap_to"] = BLOCK.into();
        })
        .await;
    for (member, place) in stored {
        let _: () =
            redis::AsyncCommands::hset(&mut event.conn(), event.key(Key::Members), member, place).await.unwrap();
    }
    event.leave(1).await;
    let next = u32::try_from(BLOCK).unwrap();
    assert_eq!(members(&event, &[7, 8]).await.1, [Some(0), Some(next)]);
    event.check().await;
}

#[tokio::test]
async fn a_refusal_of_newcomers_tells_members_their_places() {
    let event = Fixture::new().await;
    members(&event, &[7]).await;
    event.set_policy("max_queue", 2).await;
    assert_eq!(members(&event, &[8, 9, 7]).await, (entered(1, 1, 2), vec![Some(1), None, Some(0)]));
    assert_eq!(members(&event, &[7, 9]).await, (Enter::Full, vec![Some(0), None]));
    event.change(&[("state", "closed")]).await;
    assert_eq!(members(&event, &[9, 8]).await, (Enter::Closed, vec![None, Some(1)]));
    assert_eq!(members(&event, &[8]).await, (entered(0, 0, 0), vec![Some(1)]));
    event.change(&[("state", "open")]).await;
    event.settle(&(1..=20).map(|seat| change(seat, 1, true, 1000 + seat)).collect::<Vec<_>>()).await;
    assert_eq!(members(&event, &[7, 9]).await, (Enter::SoldOut, vec![Some(0), None]));
}

#[tokio::test]
async fn a_member_inside_keeps_the_place_when_the_line_is_trimmed_past_it() {
    let event = Fixture::new().await;
    members(&event, &[7]).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(1));
    event.set_meta("base", 8).await;
    event.set_meta("next", 8).await;
    event.set_meta("head", 8).await;
    assert_eq!(members(&event, &[7]).await.1, [Some(0)]);
}
