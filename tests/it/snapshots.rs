//! Snapshots: right for long lines too, and free of charge for callers.

use std::time::Duration;

use redis::AsyncCommands;
use reqwest::StatusCode;
use zticket::base::ids::{Place, SeatNumber};
use zticket::event::snapshot::Standing;
use zticket::store::redis::keys::Key;
use zticket::store::redis::reads;
use zticket::store::redis::scripts::Enter;
use zticket_testkit::eventually;

use crate::support::app::token_of;
use crate::support::set_live;
use crate::support::{TestApp, Visitor};

/// Fills the line as a crowd would that arrives at once.
async fn crowd(app: &TestApp, count: usize) {
    let mut conn = app.redis.connect().await.unwrap();
    let mut entered = 0;
    while entered < count {
        let event = app.event();
        let block = reads::block(&mut conn, &event.keys).await.unwrap().unwrap().0;
        let room = usize::try_from(block.end - block.next).unwrap();
        let enter = app.parts().stores.scripts.enter(&mut conn, &event.keys, room.min(count - entered));
        match enter.await.unwrap().outcome {
            Enter::Entered { count, .. } => entered += count as usize,
            refused => panic!("{refused:?}"),
        }
        app.parts().restorer.ready(&event).await.unwrap();
    }
}

fn rank(standing: Standing) -> Option<u64> {
    match standing {
        Standing::Waiting { rank } => Some(rank),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_front_and_the_tail_of_a_long_line_are_always_fresh() {
    let app = TestApp::by_hand(|config| config.policy.max_active = 10).await;
    crowd(&app, 700_000).await;
    assert_eq!(rank(app.look().await.standing(Place(699_999))), Some(700_000));

    // Someone near the front leaves, ten are let in, more arrive.
    app.leave(&Visitor(token_of(&app.event(), 50))).await;
    app.admit().await;
    crowd(&app, 100).await;
    let seen = app.look().await;
    assert!(matches!(seen.standing(Place(9)), Standing::Active { .. }));
    assert_eq!(seen.standing(Place(50)), Standing::Over);
    assert_eq!(rank(seen.standing(Place(10))), Some(1));
    assert_eq!(rank(seen.standing(Place(51))), Some(41));
    assert_eq!(rank(seen.standing(Place(700_099))), Some(700_089));

    // In the middle it may take two seconds, because then the whole line is read.
    app.leave(&Visitor(token_of(&app.event(), 400_000))).await;
    let seen = eventually("the whole line is read", async || {
        Some(app.look().await).filter(|seen| seen.standing(Place(400_000)) == Standing::Over)
    })
    .await;
    assert_eq!(rank(seen.standing(Place(700_099))), Some(700_088));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_costs_redis_nothing_and_an_enter_is_one_script_call() {
    let app = TestApp::by_hand(|config| config.policy.max_active = 0).await;
    let visitor = app.enter().await;
    app.look().await;
    let mut conn = app.redis.connect().await.unwrap();
    // Web workers introduce themselves to Redis when they start, each in its own time.
    let before = eventually("Redis is quiet", async || {
        let before = commands(&mut conn).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let after = commands(&mut conn).await;
        (before == after).then_some(after)
    })
    .await;
    for _ in 0..50 {
        assert_eq!(app.status(&visitor).await.1["rank"], 1);
        app.seats(None).await;
    }
    assert_eq!(commands(&mut conn).await, before, "a poll and a seat map ask Redis nothing");

    let scripts = script_calls(&mut conn).await;
    app.enter().await;
    assert_eq!(script_calls(&mut conn).await, scripts + 1);

    // While Redis is held up a crowd gathers: then it enters in a few calls, one or two per web worker.
    let _: () = redis::cmd("CLIENT").arg("PAUSE").arg(1000).query_async(&mut conn).await.unwrap();
    let together = futures_util::future::join_all((0..200).map(|_| app.enter())).await;
    let calls = script_calls(&mut conn).await - scripts - 1;
    assert!(calls < 50, "{calls} calls for {} visitors", together.len());
    app.finish().await;
}

/// Commands so far, without the INFO that counts them.
async fn commands(conn: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query_async(conn).await.unwrap();
    let all: u64 = info.get("total_commands_processed").unwrap();
    let counted: redis::InfoDict = redis::cmd("INFO").arg("commandstats").query_async(conn).await.unwrap();
    let infos = counted.get::<String>("cmdstat_info").unwrap_or_default();
    let infos = infos.strip_prefix("calls=").and_then(|text| text.split(',').next()?.parse::<u64>().ok());
    all - infos.unwrap_or(0)
}

async fn script_calls(conn: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("commandstats").query_async(conn).await.unwrap();
    let stats: String = info.get("cmdstat_evalsha").unwrap_or_default();
    stats.strip_prefix("calls=").and_then(|text| text.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_changes_costs_one_small_read() {
    let app = TestApp::by_hand(|_| {}).await;
    crowd(&app, 100_000).await;
    app.look().await;
    let mut conn = app.redis.connect().await.unwrap();
    let bytes = async |conn: &mut redis::aio::MultiplexedConnection| {
        let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query_async(conn).await.unwrap();
        info.get::<u64>("total_net_output_bytes").unwrap()
    };
    let (first, second) = (bytes(&mut conn).await, bytes(&mut conn).await);
    let info = second - first;
    app.look().await;
    let spent = bytes(&mut conn).await - second - info;
    assert!(spent < 2_000, "{spent} bytes for an unchanged line of 12,500");
    let exists: bool = conn.exists(app.key(Key::Line)).await.unwrap();
    assert!(exists);
    app.finish().await;
}

/// A snapshot is two reads, and people are let in between them as well. Whatever the order, it is of one moment: nobody
/// is missing both in the line and inside, and the next one knows all.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_between_the_two_reads_of_a_snapshot_is_not_missed() {
    let app = TestApp::by_hand(|config| {
        config.seat_count = 500;
        config.policy.max_active = 500;
    })
    .await;
    let mut conn = app.redis.connect().await.unwrap();
    for round in 0..200 {
        let visitor = app.enter().await;
        app.look().await;
        // A change that has nothing to do with the line, so that there is something to read.
        set_live(&app.parts().stores.scripts, &mut conn, &app.event().keys, &[("batch", "200")]).await;
        let (seen, ()) = tokio::join!(app.look(), app.admit());
        let standing = seen.standing(visitor.place());
        assert_ne!(standing, Standing::Over, "round {round}");
        let standing = app.look().await.standing(visitor.place());
        assert!(matches!(standing, Standing::Active { .. }), "round {round}: {standing:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_passed_to_another_visitor_with_the_same_deadline_is_theirs() {
    let app = TestApp::by_hand(|_| {}).await;
    let (one, other) = (app.enter().await, app.enter().await);
    app.admit().await;
    // Late in their visits, both can hold no longer than to the end of their passes, which is the same.
    app.pass_time(Duration::from_secs(250)).await;
    assert_eq!((app.hold(&one, 11).await.0, app.hold(&other, 12).await.0), (StatusCode::OK, StatusCode::OK));
    app.pass_time(Duration::from_secs(150)).await;
    assert_eq!(app.hold(&one, 1).await.0, 200);
    let before = app.look().await.seats.holds[&SeatNumber(1)];
    assert_eq!(before.place, one.place());
    assert_eq!(app.release(&one, 1).await.0, 204);
    assert_eq!(app.hold(&other, 1).await.0, 200);
    let after = app.look().await.seats.holds[&SeatNumber(1)];
    assert_eq!(after.deadline_ms, before.deadline_ms);
    assert_eq!(after.place, other.place());
    app.finish().await;
}
