//! Redis or servers that are away for a while, and a Redis that forgot a part.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use redis::AsyncCommands;
use zticket::event::tally::Count;
use zticket::store::redis::keys::Key;
use zticket_testkit::eventually;

use super::{enter_many, ranks};
use crate::support::TestApp;

#[tokio::test(flavor = "multi_thread")]
async fn a_silence_longer_than_the_queue_ttl_sweeps_nobody() {
    let app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    app.inside().await;
    let waiting = enter_many(&app, 5).await;
    // Redis and servers sleep for an hour, then work again: everyone has a full TTL to be heard from.
    app.pass_time(Duration::from_secs(3600)).await;
    for _ in 0..4 {
        app.sweep().await;
        app.pass_time_served(Duration::from_secs(45)).await;
    }
    app.look().await;
    ranks(&app, &waiting[..2]).await;
    app.pulse().await;
    for _ in 0..2 {
        app.sweep().await;
        app.pass_time_served(Duration::from_secs(45)).await;
    }
    app.look().await;
    assert_eq!(ranks(&app, &waiting[..2]).await, [1, 2]);
    assert_eq!(app.status(&waiting[4]).await.0, 410, "a visitor who stayed silent for a whole served TTL is gone");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wakes_from_a_freeze_trusts_no_old_snapshot() {
    let app = TestApp::by_hand(|config| config.seat_count = 1).await;
    let buyer = app.inside().await;
    let waiting = app.enter().await;
    let gone = app.enter().await;
    app.leave(&gone).await;
    assert_eq!(app.buy(&buyer, 1).await.0, 200);
    app.settle().await;
    let before = app.look().await;
    assert_eq!(app.status(&waiting).await.1["status"], "SOLD_OUT");

    // While it was frozen the seat came back and the visitor was let in.
    app.cancel_all().await;
    app.settle().await;
    app.admit().await;
    let mut frozen = (*before).clone();
    frozen.taken -= Duration::from_secs(3);
    app.event().snapshot.store(Some(Arc::new(frozen.clone())));
    assert_eq!(app.status(&waiting).await.1["status"], "ACTIVE", "an old snapshot does not decide SOLD_OUT");

    frozen.taken -= Duration::from_secs(3600);
    app.event().snapshot.store(Some(Arc::new(frozen)));
    assert_eq!(app.status(&waiting).await.1["status"], "ACTIVE", "a very old snapshot decides nothing");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_polls_work_and_writes_get_a_503() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    let inside = app.inside().await;
    let waiting = app.enter().await;
    app.redis.save().await.unwrap();
    let seen = app.look().await;
    app.redis.kill();

    assert_eq!(app.status(&waiting).await.1["rank"], 1, "from the last snapshot");
    assert_eq!(app.status(&inside).await.1["status"], "ACTIVE");
    for (status, body) in [app.hold(&inside, 1).await, app.buy(&inside, 1).await] {
        assert_eq!((status.as_u16(), &body["code"]), (503, &"SERVICE_UNAVAILABLE".into()));
    }
    let response = app.request(reqwest::Method::POST, "/api/queues/tokens").send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let health = app.client.get(app.management_url("/actuator/health")).send().await.unwrap();
    assert_eq!(health.status(), 503);
    let health: serde_json::Value = health.json().await.unwrap();
    assert_eq!(health["components"]["redis"]["status"], "DOWN");
    assert_eq!(health["components"]["postgres"]["status"], "UP");

    // After ten seconds polls are refused too.
    let mut old = (*seen).clone();
    old.taken -= Duration::from_secs(11);
    app.event().snapshot.store(Some(Arc::new(old)));
    assert_eq!(app.status(&waiting).await.0, 503);

    app.restart_redis().await;
    eventually("entering works again", async || {
        let request = app.request(reqwest::Method::POST, "/api/queues/tokens");
        (request.send().await.unwrap().status() == 200).then_some(())
    })
    .await;
    app.look().await;
    assert_eq!(ranks(&app, &[waiting]).await, [1]);
    // Each web worker has a connection of its own, and finds out at its first call that it broke.
    eventually("buying works again", async || {
        let (status, body) = app.buy(&inside, 1).await;
        assert!(matches!(status.as_u16(), 200 | 503), "{body}");
        (status == 200).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_redis_forgets_are_loaded_again() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut conn = app.redis.connect().await.unwrap();
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut conn).await.unwrap();
    let visitors = join_all((0..20).map(|_| app.enter())).await;
    assert_eq!(visitors.len(), 20);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_repairs_what_redis_forgot_and_counts_it() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    assert_eq!(app.buy(&visitor, 2).await.0, 200);
    app.settle().await;
    // As after a failover to a replica that had not heard of the sale.
    let mut conn = app.redis.connect().await.unwrap();
    let _: () = conn.setrange(app.key(Key::Seats), 1, "a").await.unwrap();
    let _: () = conn.hdel(app.key(Key::Owners), 2).await.unwrap();
    let _: () = conn.hdel(app.key(Key::Versions), 2).await.unwrap();
    let _: () = conn.hset(app.key(Key::Meta), "sold", 0).await.unwrap();

    let thief = app.inside().await;
    let (status, body) = app.buy(&thief, 2).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"SEAT_ALREADY_SOLD".into()), "the database has the last word");
    assert_eq!(app.parts().settler.audit(&app.event()).await.unwrap(), 1);
    assert_eq!(app.parts().settler.audit(&app.event()).await.unwrap(), 0);
    assert_eq!(app.event().tally.total(Count::Repaired), 1);
    assert_eq!(app.buy(&thief, 3).await.0, 200, "the thief may still buy another seat");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_the_audit_brings_to_redis_is_not_a_seat_sold_without_a_ticket() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    assert_eq!(app.buy(&visitor, 2).await.0, 200);
    app.settle().await;
    app.cancel_all().await;
    assert_eq!(app.parts().settler.audit(&app.event()).await.unwrap(), 1);
    assert_eq!(app.event().tally.unexplained.load(Relaxed), 0);
    // Nobody bought this one.
    let mut conn = app.redis.connect().await.unwrap();
    let _: () = conn.setrange(app.key(Key::Seats), 4, "s").await.unwrap();
    assert_eq!(app.parts().settler.audit(&app.event()).await.unwrap(), 0);
    assert_eq!(app.event().tally.unexplained.load(Relaxed), 1);
    let _: () = conn.setrange(app.key(Key::Seats), 4, "a").await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_calls_after_a_restart_of_redis_are_carried_out() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let visitors = enter_many(&app, 8).await;
    app.admit().await;
    app.look().await;
    for round in 0..3 {
        // Every web worker has a connection that breaks.
        join_all((1..=8).map(|seat| app.release(&visitors[seat - 1], u32::try_from(seat).unwrap()))).await;
        app.redis.save().await.unwrap();
        app.restart_redis().await;
        let held = join_all((1..=8).map(|seat| app.hold(&visitors[seat - 1], u32::try_from(seat).unwrap()))).await;
        assert!(held.iter().all(|(status, _)| *status == 200), "round {round}: {held:?}");
        let joined = join_all((0..8).map(|_| app.join())).await;
        assert!(joined.iter().all(|(status, _)| *status == 200), "round {round}: {joined:?}");
    }
    app.finish().await;
}
