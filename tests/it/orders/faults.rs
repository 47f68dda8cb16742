//! Orders that wait while servers die, stores fail and time passes.

use std::time::Duration;

use chrono::Utc;
use futures_util::FutureExt;
use reqwest::Method;
use serde_json::Value;
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::Take;
use zticket_testkit::eventually;

use super::seats;
use crate::support::TestApp;
use crate::support::app::answer;

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_failed_is_never_sold() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors = [app.inside().await, app.inside().await];
    let orders = [app.ordered(&visitors[0], &[7]).await, app.ordered(&visitors[1], &[8]).await];
    // As a writer does that was thought dead: it told the buyer, and did not tell Redis.
    let failed = format!(
        r#"INSERT INTO outcomes (order_id, problem) VALUES ('{}', '{{"code":"SEAT_ALREADY_SOLD","message":"-"}}')"#,
        orders[0]
    );
    app.db.execute(&failed).await.unwrap();
    app.write().await;
    assert_eq!(app.order_of(&visitors[0], &orders[0]).await["code"], "SEAT_ALREADY_SOLD");
    assert_eq!(seats(&app.order_of(&visitors[1], &orders[1]).await), [8], "the others are not held up");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    let seat = &app.seats(None).await[6];
    assert_ne!(seat["status"], "sold", "{seat}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_writer_takes_up_what_a_dead_one_left() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let order = app.ordered(&visitor, &[7]).await;
    let (event, stores) = (app.event(), &app.parts().stores);
    let mut conn = app.redis.connect_for(&event.keys).await.unwrap();
    let taken = stores.scripts.take(&mut conn, &event.keys, "dead", Duration::from_secs(10), 9).await.unwrap();
    assert!(matches!(taken, Take::Taken(orders) if orders.len() == 1));
    assert_eq!(app.order_of(&visitor, &order).await["status"], "PROCESSING");
    app.write().await;
    assert_eq!(app.order_of(&visitor, &order).await["status"], "PROCESSING", "it may be alive");
    app.pass_time(Duration::from_secs(11)).await;
    eventually("another server writes it", async || {
        app.write().await;
        (app.order_of(&visitor, &order).await["status"] == "PAID").then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_dies_after_the_sale_sold_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let order = app.ordered(&visitor, &[7]).await;
    // Redis keeps the order, and forgets that it was finished.
    let mut conn = app.redis.connect_for(&app.event().keys).await.unwrap();
    let keys = [app.key(Key::Requests), app.key(Key::Frozen)];
    let mut dumps: Vec<Vec<u8>> = Vec::new();
    for key in &keys {
        dumps.push(redis::cmd("DUMP").arg(key).query_async(&mut conn).await.unwrap());
    }
    app.write().await;
    for (key, dump) in keys.iter().zip(&dumps) {
        let _: () =
            redis::cmd("RESTORE").arg(key).arg(0).arg(dump).arg("REPLACE").query_async(&mut conn).await.unwrap();
    }
    for _ in 0..2 {
        app.write().await;
        assert_eq!(seats(&app.order_of(&visitor, &order).await), [7]);
        app.settle().await;
        app.look().await;
    }
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_pass_stands_still_while_its_order_waits() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    assert_eq!(app.hold(&visitor, 7).await.0, 200);
    let order = app.ordered(&visitor, &[7]).await;
    let left = app.status(&visitor).await.1["expiresInSeconds"].as_u64().unwrap();
    app.pass_time(Duration::from_secs(500)).await;
    app.look().await;
    assert!(app.status(&visitor).await.1["expiresInSeconds"].as_u64().unwrap().abs_diff(left) <= 1);
    app.admit().await;
    app.expire().await;
    app.write().await;
    assert_eq!(seats(&app.order_of(&visitor, &order).await), [7]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_ten_minutes_an_order_fails() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let order = app.ordered(&visitor, &[7]).await;
    app.pass_time(Duration::from_secs(601)).await;
    app.admit().await;
    app.look().await;
    app.write().await;
    let failed = app.order_of(&visitor, &order).await;
    assert_eq!((&failed["status"], &failed["code"]), (&"FAILED".into(), &"NOT_ACTIVE_USER".into()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_redis_lost_fails_after_half_a_minute() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let order = app.ordered(&visitor, &[7]).await;
    app.restart_redis_empty().await;
    let waiting = eventually("Redis is asked", async || {
        let (status, body) = app.ask(Method::GET, Some(&visitor), &order).await;
        (status == 200).then_some(body)
    })
    .await;
    assert_eq!((&waiting["status"], &waiting["aheadCount"]), (&"PENDING".into(), &Value::Null), "it may turn up");
    let earlier = u64::try_from(Utc::now().timestamp_millis() - 31_000).unwrap();
    let old = app.event().order_at(visitor.place(), earlier).to_string();
    for _ in 0..2 {
        let lost = app.order_of(&visitor, &old).await;
        assert_eq!((&lost["status"], &lost["code"]), (&"FAILED".into(), &"SERVICE_UNAVAILABLE".into()));
    }
    app.server.take().unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_stood_still_goes_on_when_redis_lost_the_order() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    assert_eq!(app.hold(&visitor, 7).await.0, 200);
    app.ordered(&visitor, &[7]).await;
    app.pass_time(Duration::from_secs(100)).await;
    let frozen = app.look().await;
    assert!(frozen.passes[&visitor.place()].deadline_ms - frozen.now_ms > 490_000);
    app.restart_redis_empty().await;
    app.parts().restorer.ready(&app.event()).await.unwrap();
    let seen = app.look().await;
    let pass = seen.passes[&visitor.place()];
    let policy = &app.config().policy;
    assert!(pass.deadline_ms - seen.now_ms <= policy.active_ttl_ms, "{pass:?} at {}", seen.now_ms);
    let hold = seen.seats.holds.values().next().unwrap().deadline_ms - seen.now_ms;
    assert!(hold <= policy.hold_ttl_ms && hold > 0, "{hold}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_bought_and_cancelled_since_holds_up_nobody() {
    let app = TestApp::by_hand(|_| {}).await;
    let (visitor, next) = (app.inside().await, app.inside().await);
    let order = app.ordered(&visitor, &[7]).await;
    // A replica that lags is promoted: it knows the order, and nothing that came after it.
    let mut conn = app.redis.connect_for(&app.event().keys).await.unwrap();
    let mut dumps: Vec<(&str, Option<Vec<u8>>)> = Vec::new();
    let event = app.event();
    for key in Key::ALL.iter().filter(|key| **key != Key::Meta) {
        let dump = redis::cmd("DUMP").arg(event.keys.get(*key)).query_async(&mut conn).await.unwrap();
        dumps.push((event.keys.get(*key), dump));
    }
    app.write().await;
    app.settle().await;
    let paid = app.order_of(&visitor, &order).await;
    let ticket = paid["tickets"][0]["ticketId"].as_str().unwrap();
    let request = app.request(Method::DELETE, &format!("/api/tickets/{ticket}"));
    assert_eq!(answer(request.header("X-Queue-Token", &visitor.0)).await.0, 200);
    app.settle().await;
    for (key, dump) in dumps.iter().filter_map(|(key, dump)| Some((key, dump.as_ref()?))) {
        let _: () =
            redis::cmd("RESTORE").arg(key).arg(0).arg(dump).arg("REPLACE").query_async(&mut conn).await.unwrap();
    }
    let other = app.ordered(&next, &[8]).await;
    app.write().await;
    assert_eq!(app.order_of(&visitor, &order).await["status"], "PAID", "as it was told");
    assert_eq!(seats(&app.order_of(&next, &other).await), [8]);
    let seen = app.look().await;
    let pass = seen.passes[&visitor.place()];
    assert!(pass.deadline_ms - seen.now_ms <= app.config().policy.active_ttl_ms, "its clock goes on");
    app.server.unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_the_database_refuses_fails_and_holds_up_nobody() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors = [app.inside().await, app.inside().await];
    app.db.execute("ALTER TABLE tickets ADD CONSTRAINT not_7 CHECK (seat_number <> 7)").await.unwrap();
    let orders = [app.ordered(&visitors[0], &[7]).await, app.ordered(&visitors[1], &[8]).await];
    app.write().await;
    let failed = app.order_of(&visitors[0], &orders[0]).await;
    assert_eq!((&failed["status"], &failed["code"]), (&"FAILED".into(), &"SERVICE_UNAVAILABLE".into()));
    assert_eq!(seats(&app.order_of(&visitors[1], &orders[1]).await), [8]);
    assert_eq!(app.hold(&app.inside().await, 7).await.0, 200, "the seat is free for others");
    let next = app.ordered(&visitors[0], &[9]).await;
    app.write().await;
    assert_eq!(seats(&app.order_of(&visitors[0], &next).await), [9], "its buyer can buy something else");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_the_database_says_how_orders_ended() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let visitors = [app.inside().await, app.inside().await];
    let paid = app.ordered(&visitors[0], &[7]).await;
    app.write().await;
    let waiting = app.ordered(&visitors[1], &[8]).await;
    app.redis.kill();
    assert_eq!(seats(&app.order_of(&visitors[0], &paid).await), [7]);
    let (status, body) = app.ask(Method::GET, Some(&visitors[1]), &waiting).await;
    assert_eq!((status.as_u16(), &body["code"]), (503, &"SERVICE_UNAVAILABLE".into()), "nobody knows");
    app.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_an_old_order_ended_is_forgotten() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let earlier = u64::try_from(Utc::now().timestamp_millis() - 3_601_000).unwrap();
    let old = app.event().order_at(visitor.place(), earlier).to_string();
    let (status, body) = app.ask(Method::GET, Some(&visitor), &old).await;
    assert_eq!((status.as_u16(), &body["code"]), (404, &"ORDER_NOT_FOUND".into()));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM outcomes").await.unwrap(), 0, "asking writes nothing");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_question_about_an_event_wakes_its_writer() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.event();
    assert!(!event.hot());
    event.asked();
    assert!(event.order_waits.notified().now_or_never().is_some());
    event.asked();
    assert!(event.order_waits.notified().now_or_never().is_none(), "it is awake");
    app.finish().await;
}
