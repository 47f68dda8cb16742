//! What dies on the way: Redis wiped, restarted, replaced; servers crashed, frozen, restarted. Nobody loses a place.

mod away;

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use serde_json::json;
use zticket::server::run::Background;
use zticket::store::db::locks::Alone;
use zticket::store::redis::keys::Key;
use zticket_testkit::{Redis, eventually};

use crate::support::app::{answer, reach_redis};
use crate::support::{TestApp, Visitor};

async fn ranks(app: &TestApp, visitors: &[Visitor]) -> Vec<u64> {
    let mut ranks = Vec::new();
    for visitor in visitors {
        let (status, body) = app.status(visitor).await;
        assert_eq!(status, 200, "{body}");
        ranks.push(body["rank"].as_u64().unwrap_or(0));
    }
    ranks
}

async fn enter_many(app: &TestApp, count: usize) -> Vec<Visitor> {
    let mut visitors = Vec::new();
    for _ in 0..count {
        visitors.push(app.enter_patiently().await);
    }
    visitors
}

async fn ready(app: &TestApp) {
    app.parts().restorer.ready(&app.event()).await.unwrap();
    app.look().await;
}

/// Lets the time pass in which lost places may return before anyone behind them is let in.
async fn gap_time(app: &TestApp) {
    app.pass_time_served(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_redis_is_rebuilt_from_the_living_snapshot() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 3).await;
    let inside = enter_many(&app, 3).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.buy(&inside[0], 5).await.0, 200);
    app.settle().await;
    assert_eq!(app.hold(&inside[1], 6).await.0, 200);
    let waiting = enter_many(&app, 10).await;
    app.leave(&waiting[2]).await;
    app.look().await;
    // Came after the last snapshot: in the gap.
    let late = enter_many(&app, 3).await;

    app.restart_redis_empty().await;
    ready(&app).await;

    assert_eq!(app.status(&inside[0]).await.0, 410, "the buyer does not come back");
    assert_eq!(app.status(&inside[1]).await.1["status"], "ACTIVE", "the visitor inside stays inside");
    assert_eq!(app.status(&waiting[2]).await.0, 410, "the visitor who left does not come back");
    let still: Vec<Visitor> = waiting.iter().filter(|visitor| **visitor != waiting[2]).cloned().collect();
    assert_eq!(ranks(&app, &still).await, (1..=9).collect::<Vec<_>>(), "the line is what it was");
    let seats = app.seats(Some(&inside[1])).await;
    assert_eq!((&seats[4]["status"], &seats[5]["status"]), (&"sold".into(), &"held".into()));
    assert_eq!(seats[5]["mine"], true, "holds are back with their owners");

    // The late ones see that they wait. Their polls bring them back in their old order, whoever polls first.
    for visitor in late.iter().rev() {
        assert_eq!(app.status(visitor).await.1["status"], "WAITING");
        app.pulse().await;
        app.look().await;
    }
    assert_eq!(ranks(&app, &late).await, [10, 11, 12]);

    // A newcomer gets a place nobody ever had, behind them all.
    let newcomer = app.enter_patiently().await;
    assert!(newcomer.place() > late[2].place());
    app.look().await;
    assert_eq!(ranks(&app, &[newcomer]).await, [13]);
    assert_eq!(app.buy_patiently(&inside[1], 6).await.0, 200, "a restored hold can be paid");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overtakes_the_lost_after_a_restore() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 5).await;
    let known = enter_many(&app, 2).await;
    app.look().await;
    let lost = enter_many(&app, 2).await;
    app.restart_redis_empty().await;
    ready(&app).await;
    // Only the second of the lost polls at first, and a newcomer arrives.
    assert_eq!(app.status(&lost[1]).await.1["status"], "WAITING");
    app.pulse().await;
    let newcomer = app.enter_patiently().await;
    app.admit().await;
    app.look().await;
    for visitor in &known {
        assert_eq!(app.status(visitor).await.1["status"], "ACTIVE", "the known part of the line keeps moving");
    }
    for visitor in [&lost[1], &newcomer] {
        assert_eq!(app.status(visitor).await.1["status"], "WAITING", "the first of the lost may still be there");
    }
    // Within the longest poll interval it is heard from too.
    app.status(&lost[0]).await;
    app.pulse().await;
    gap_time(&app).await;
    app.admit().await;
    app.look().await;
    for visitor in lost.iter().chain([&newcomer]) {
        assert_eq!(app.status(visitor).await.1["status"], "ACTIVE");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_fault_does_not_use_up_the_time_in_which_the_lost_can_return() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    let (first, second) = (app.enter().await, app.enter().await);
    app.look().await;
    app.crash().await;
    app.restart_redis_empty().await;
    app.start_again().await;
    // The second one polls. Then nothing can be recorded for as long as everyone was to have, and the first one's polls
    // are in vain.
    assert_eq!(app.status(&second).await.1["status"], "WAITING");
    app.pulse().await;
    app.sweep().await;
    app.pass_time(Duration::from_secs(60)).await;
    for _ in 0..3 {
        app.admit().await;
        app.sweep().await;
    }
    app.look().await;
    assert_eq!(app.status(&second).await.1["status"], "WAITING", "the first one had no chance to return");
    assert_eq!(app.status(&first).await.1["status"], "WAITING");
    app.pulse().await;
    gap_time(&app).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&first).await.1["status"], "ACTIVE");
    assert_eq!(app.status(&second).await.1["status"], "WAITING");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_redis_is_rebuilt_from_the_database_alone() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 2).await;
    let inside = enter_many(&app, 2).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.buy(&inside[0], 5).await.0, 200);
    app.settle().await;
    let waiting = enter_many(&app, 5).await;
    app.look().await;
    app.parts().restorer.tick_step().await.unwrap();

    // Every server and Redis are gone: no snapshot is left.
    app.crash().await;
    app.restart_redis_empty().await;
    app.start_again().await;
    app.look().await;

    assert_eq!(app.seats(None).await[4]["status"], "sold");
    assert_eq!(app.status(&inside[0]).await.0, 410, "the buyer does not come back");
    // The others come back as they poll, whoever polls first.
    for visitor in waiting.iter().rev() {
        assert_eq!(app.status(visitor).await.1["status"], "WAITING");
        app.pulse().await;
    }
    app.admit().await;
    app.look().await;
    assert_eq!(ranks(&app, &waiting).await, [1, 2, 3, 4, 5], "in their old order, and nobody was let in");
    app.leave(&waiting[1]).await;
    app.look().await;
    assert_eq!(app.status(&waiting[1]).await.0, 410);
    app.pulse().await;
    app.look().await;
    assert_eq!(app.status(&waiting[1]).await.0, 410, "leaving after the restore is final");

    gap_time(&app).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&waiting[0]).await.1["status"], "ACTIVE");
    assert_eq!(app.status(&waiting[2]).await.1["status"], "ACTIVE");
    assert_eq!(ranks(&app, &waiting[3..]).await, [1, 2]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_out_of_time_before_the_loss_does_not_come_back() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    let visitor = app.inside().await;
    app.pass_time(Duration::from_secs(301)).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&visitor).await.0, 410);
    app.restart_redis_empty().await;
    ready(&app).await;
    app.pulse().await;
    app.look().await;
    assert_eq!(app.status(&visitor).await.0, 410);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_place_is_given_twice_when_redis_comes_back_from_an_old_file() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 2).await;
    let early = enter_many(&app, 4).await;
    app.redis.save().await.unwrap();
    let lost = enter_many(&app, 4).await;
    let buyer = early[0].clone();
    app.admit().await;
    app.look().await;
    assert_eq!(app.buy(&buyer, 9).await.0, 200);
    app.settle().await;

    app.restart_redis().await;
    let newcomers = enter_many(&app, 4).await;
    let mut places: Vec<_> = early.iter().chain(&lost).chain(&newcomers).map(Visitor::place).collect();
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), count, "every place once");
    assert!(newcomers[0].place() > lost[3].place());

    app.look().await;
    assert_eq!(app.seats(None).await[8]["status"], "sold", "the audit gave Redis what it forgot");
    assert_eq!(app.status(&buyer).await.0, 410, "the buyer is not in line again");
    // The lost entries come back by their polls, in front of the newcomers.
    ranks(&app, &lost).await;
    app.pulse().await;
    app.look().await;
    let line: Vec<Visitor> = early[1..].iter().chain(&lost).chain(&newcomers).cloned().collect();
    assert_eq!(ranks(&app, &line).await, (1..=11).collect::<Vec<_>>());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_place_is_given_twice_when_a_lagging_replica_is_promoted() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let known = enter_many(&app, 3).await;
    let replica = Redis::replica_of(&app.redis).await.unwrap();
    // Cut off: it keeps its data and gets nothing more.
    replica.promote().await.unwrap();
    let lost = enter_many(&app, 3).await;

    // The same address now leads to the replica: the server crashes and restarts onto it.
    app.crash().await;
    let master = std::mem::replace(&mut app.redis, replica);
    drop(master);
    app.use_redis();
    app.start_again().await;
    let newcomers = enter_many(&app, 3).await;
    assert!(newcomers[0].place() > lost[2].place());
    app.look().await;
    ranks(&app, &lost).await;
    app.pulse().await;
    app.look().await;
    let line: Vec<Visitor> = known.iter().chain(&lost).chain(&newcomers).cloned().collect();
    assert_eq!(ranks(&app, &line).await, (1..=9).collect::<Vec<_>>());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_restart_keeps_everything_and_leaves_no_gap() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    let inside = app.inside().await;
    assert_eq!(app.hold(&inside, 4).await.0, 200);
    let waiting = enter_many(&app, 3).await;
    app.server.take().unwrap().stop().await;
    app.redis.save().await.unwrap();
    app.restart_redis().await;
    app.start_again().await;
    app.look().await;
    assert_eq!(app.status(&inside).await.1["status"], "ACTIVE");
    assert_eq!(ranks(&app, &waiting).await, [1, 2, 3]);
    assert_eq!(app.meta("gap_to").await, 0, "nothing was lost, so nobody is waited for");
    let (status, ticket) = app.buy(&inside, 4).await;
    assert_eq!(status, 200);
    app.restart().await;
    assert_eq!(app.buy(&inside, 4).await.1, ticket, "the same ticket after a restart");
    let newcomer = app.enter_patiently().await;
    app.look().await;
    assert_eq!(ranks(&app, &[newcomer]).await, [4]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_polls_before_an_orderly_stop_count() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let visitor = app.enter().await;
    let slice = app.look().await.policy.slice();
    app.pass_time_served(slice + Duration::from_secs(1)).await;
    app.sweep().await;
    app.look().await;
    let heard = async |app: &TestApp| {
        let slice = [Key::Pulse0, Key::Pulse1, Key::Pulse2, Key::Pulse3, Key::Pulse4][app.meta("slice").await as usize];
        let mut conn = app.redis.connect().await.unwrap();
        redis::cmd("BITCOUNT").arg(app.key(slice)).query_async::<u32>(&mut conn).await.unwrap()
    };
    assert_eq!(heard(&app).await, 0, "a new slice");
    assert_eq!(app.status(&visitor).await.1["status"], "WAITING");
    app.restart().await;
    assert_eq!(heard(&app).await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_leaves_the_restore_to_one_with_a_newer_snapshot() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let other = app.another(Background::ByHand).await;
    let event = other.parts.catalogue.default().unwrap();
    app.enter().await;
    app.look().await;
    let late = app.enter().await;
    event.asked();
    event.refresh(&other.parts.stores, std::time::Instant::now()).await.unwrap();
    other.parts.restorer.tick_step().await.unwrap();

    app.restart_redis_empty().await;
    reach_redis(&other.parts).await;
    // This one knows less and leaves it to the other. It looks twice before a restore, and again after it left it.
    let own = app.event();
    let mut conn = app.redis.connect_for(&own.keys).await.unwrap();
    let before = looks(&mut conn).await;
    let (first, second) = tokio::join!(app.parts().restorer.ready(&own), async {
        eventually("it looks again", async || (looks(&mut conn).await >= before + 3).then_some(())).await;
        assert!(!conn.exists::<_, bool>(own.keys.get(Key::Meta)).await.unwrap(), "it restored nothing");
        other.parts.restorer.ready(&event).await
    });
    first.unwrap();
    second.unwrap();
    let line: Ranks = app.redis.connect().await.unwrap().get(app.key(Key::Line)).await.unwrap();
    assert!(line.has(late.place().0), "a visitor who came after the older snapshot is in line without a poll");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_froze_in_the_middle_of_a_repair_does_not_hold_up_the_others() {
    let app = TestApp::by_hand(|_| {}).await;
    let frozen = Alone::with(&app.parts().stores.db, app.event().id).await.unwrap().unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut app.redis.connect().await.unwrap()).await.unwrap();
    ready(&app).await;
    assert!(frozen.give_back().await.is_err(), "it lost the right to repair");
    app.enter().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_brings_back_no_pass_and_no_hold() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 2).await;
    let newest = app.another(Background::ByHand).await;
    let (left, stays) = (app.enter().await, app.enter().await);
    app.admit().await;
    app.look().await;
    assert_eq!(app.hold(&left, 5).await.0, 200);
    let old = app.look().await;
    // This server is asked no more. On another one the first visitor leaves and the second holds the seat.
    assert_eq!(app.leave(&left).await, 204);
    assert_eq!(app.hold(&stays, 5).await.0, 200);
    let waits = app.enter().await;
    app.pass_time(Duration::from_secs(31)).await;
    let event = newest.parts.catalogue.default().unwrap();
    event.asked();
    event.refresh(&newest.parts.stores, std::time::Instant::now()).await.unwrap();
    newest.parts.restorer.tick_step().await.unwrap();
    // Then that one dies together with Redis.
    newest.crash().await;
    app.event().snapshot.store(Some(old));
    app.restart_redis_empty().await;
    ready(&app).await;

    let seats = app.seats(None).await;
    assert_eq!(seats[4]["status"], "available", "nobody knows who holds it");
    assert_eq!(app.status(&left).await.0, 410, "the visitor who left does not come back");
    assert_eq!(app.status(&waits).await.1["status"], "WAITING");
    app.pulse().await;
    gap_time(&app).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&waits).await.1["status"], "ACTIVE");
    assert_eq!(app.hold(&waits, 5).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_decided_is_in_force_when_only_the_database_is_left() {
    for (action, state) in [("pause", "paused"), ("close", "closed")] {
        let mut app = TestApp::by_hand(|config| config.admin_token = Some("secret".to_owned())).await;
        app.enter().await;
        let admin = async |method, path: &str, body| {
            let request = app.request(method, &format!("/api/admin/events/1/{path}")).bearer_auth("secret");
            answer(request.json(&body)).await
        };
        assert_eq!(admin(Method::PATCH, "policy", json!({ "maxActive": 7 })).await.0, 200);
        let reason = json!({ "reason": { "ko": "정오에 만나요.", "en": "Back at noon." } });
        let body = if action == "pause" { reason } else { json!({}) };
        assert_eq!(admin(Method::POST, action, body).await.0, 200);
        app.crash().await;
        app.restart_redis_empty().await;
        app.start_again().await;
        let seen = app.look().await;
        assert_eq!((seen.meta.state.word(), seen.policy.max_active), (state, 7));
        assert_eq!(
            seen.meta.reason.as_ref().map(|reason| reason.en.as_str()),
            (action == "pause").then_some("Back at noon.")
        );
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_the_last_decision_hears_of_it_again() {
    let mut app = TestApp::by_hand(|config| config.admin_token = Some("secret".to_owned())).await;
    let version = async |app: &TestApp| app.look().await.in_force.version;
    // Redis comes back from a file that is older than the decision.
    let mut conn = app.redis.connect().await.unwrap();
    let _: () = redis::cmd("CONFIG").arg("SET").arg("appendonly").arg("no").query_async(&mut conn).await.unwrap();
    let _: () = redis::cmd("SAVE").query_async(&mut conn).await.unwrap();
    let _: () = redis::cmd("CONFIG").arg("SET").arg("save").arg("").query_async(&mut conn).await.unwrap();
    let pause = app.request(Method::POST, "/api/admin/events/1/pause").bearer_auth("secret").json(&json!({}));
    assert_eq!(answer(pause).await.0, 200);
    assert_eq!(version(&app).await, 1);
    app.restart_redis().await;
    app.parts().restorer.ready(&app.event()).await.unwrap();
    let seen = app.look().await;
    assert_eq!((seen.in_force.version, seen.meta.state.word()), (1, "paused"));
    app.finish().await;
}

/// How often servers have looked in this Redis whether an event is ready.
async fn looks(conn: &mut MultiplexedConnection) -> u64 {
    let stats: redis::InfoDict = redis::cmd("INFO").arg("commandstats").query_async(conn).await.unwrap();
    let calls = stats.get::<String>("cmdstat_hmget").unwrap_or_default();
    calls.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// The raw bitmap.
struct Ranks(Vec<u8>);

impl Ranks {
    fn has(&self, place: u32) -> bool {
        self.0.get(place as usize / 8).is_some_and(|byte| byte & (0x80 >> (place % 8)) != 0)
    }
}

impl redis::FromRedisValue for Ranks {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        Vec::from_redis_value(value).map(Self)
    }
}
