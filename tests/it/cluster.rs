//! On a Redis Cluster: masters that die, nodes that are away, slots that move. The rest of the suite runs on one, too:
//! `make test-cluster`.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use redis::AsyncCommands;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use zticket::server::run::Background;
use zticket::store::redis::keys::{Key, Keys};
use zticket::store::redis::scripts::SOURCES;
use zticket_testkit::cluster::id;
use zticket_testkit::{Redis, eventually, within};

use crate::support::app::answer;
use crate::support::{TestApp, Visitor, plan};

/// A request that is repeated after a 503.
async fn patiently(app: &TestApp, method: Method, path: &str, token: &str, body: Value) -> (StatusCode, Value) {
    eventually(path, async || {
        let request = app.request(method.clone(), path).header("X-Queue-Token", token).json(&body);
        let (status, body) = answer(request).await;
        (status != 503).then_some((status, body))
    })
    .await
}

/// From the door to the ticket.
async fn visit(app: &TestApp, seat: u32) -> Visitor {
    let visitor = app.enter_patiently().await;
    let status = format!("/api/queues/tokens/{}", visitor.0);
    within(Duration::from_secs(120), "admission", async || {
        let (code, now) = patiently(app, Method::GET, &status, &visitor.0, Value::Null).await;
        assert_eq!(code, 200, "{now}");
        Ok((now["status"] == "ACTIVE").then_some(()))
    })
    .await
    .unwrap();
    let (code, ticket) = patiently(app, Method::POST, "/api/tickets", &visitor.0, json!({ "seatNumber": seat })).await;
    assert_eq!(code, 200, "{ticket}");
    assert_eq!(ticket["seatNumber"], seat);
    visitor
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_dies_during_a_sale_and_its_replica_takes_over() {
    takes_over("KILL").await;
}

/// A frozen master takes everything and answers nothing; no connection breaks.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_freezes_during_a_sale_and_its_replica_takes_over() {
    takes_over("STOP").await;
}

async fn takes_over(signal: &str) {
    let redis = Redis::cluster(1).await.unwrap();
    let mut app = TestApp::start_on(redis, Background::Running, |config| {
        config.seat_count = 60;
        config.policy.max_active = 20;
        config.policy.queue_ttl_ms = 20_000;
    })
    .await;
    let keys = app.event().keys.clone();
    let master = app.redis.node_of(&keys).await.unwrap();
    let node = app.redis.nodes.remove(master);
    let fault = async {
        eventually("some have bought", async || {
            (app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap() >= 10).then_some(())
        })
        .await;
        node.signal(signal).unwrap();
    };
    let (visitors, ()) = tokio::join!(join_all((1..=60).map(|seat| visit(&app, seat))), fault);
    let places: HashSet<_> = visitors.iter().map(Visitor::place).collect();
    assert_eq!(places.len(), 60, "no place is given twice");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 60);
    // The replica learns from the database what it had missed.
    eventually("Redis knows of every sale", async || {
        let states: Vec<u8> = app.redis.connect().await.unwrap().get(app.key(Key::Seats)).await.ok()?;
        states.iter().all(|state| *state == b's').then_some(())
    })
    .await;
    // Gone for good: nothing below asks it again.
    drop(node);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_spread_over_the_nodes_and_a_dead_one_holds_up_no_other() {
    let mut app = TestApp::start_on(Redis::cluster(0).await.unwrap(), Background::Running, |_| {}).await;
    let mut hall = plan();
    hall["dates"] =
        (30..42).map(|day| json!({ "startsAt": chrono::Utc::now() + chrono::TimeDelta::days(day) })).collect();
    let (_, events) = app.concert(&hall).await;
    let mut homes = Vec::new();
    for event in &events {
        homes.push(app.redis.node_of(&Keys::new(*event)).await.unwrap());
    }
    assert_eq!(homes.iter().collect::<HashSet<_>>().len(), 3, "{homes:?}");
    for node in &app.redis.nodes {
        for source in SOURCES {
            let hash = redis::Script::new(source.text).get_hash().to_owned();
            let mut ask = redis::cmd("SCRIPT");
            let (known,): (bool,) =
                ask.arg("EXISTS").arg(hash).query_async(&mut node.connect().await.unwrap()).await.unwrap();
            assert!(known, "{} is loaded on every node", source.name);
        }
    }

    let (dead, alive) = (homes[0], events[homes.iter().position(|home| *home != homes[0]).unwrap()]);
    app.redis.nodes[dead].kill();
    // Visitors and loops of other events do not wait for the dead node.
    let well = async {
        for _ in 0..30 {
            let (status, body) = app.enter_as(alive, None).await;
            assert_eq!(status, 200, "{body}");
            let path = format!("/api/queues/tokens/{}", body["uuid"].as_str().unwrap());
            eventually("let in", async || {
                let (_, now) = answer(app.request(Method::GET, &path)).await;
                (now["status"] == "ACTIVE").then_some(())
            })
            .await;
        }
    };
    let away = async {
        let (status, _) = app.enter_as(events[0], None).await;
        assert_eq!(status, 503);
    };
    tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(well, away) }).await.expect("held up");

    app.redis.nodes[dead].start().unwrap();
    // It lost everything, and is rebuilt by itself.
    eventually("its events are sold again", async || {
        let (status, _) = app.enter_as(events[0], None).await;
        (status == 200).then_some(())
    })
    .await;
    for event in app.parts().catalogue.all() {
        eventually("every event is there again", async || {
            let mut conn = app.redis.connect_for(&event.keys).await.unwrap();
            conn.exists(event.keys.get(Key::Meta)).await.ok().filter(|there: &bool| *there)
        })
        .await;
    }
    app.finish().await;
}

/// Another node gets the event, as when a cluster grows.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_is_followed() {
    let app = TestApp::start_on(Redis::cluster(0).await.unwrap(), Background::Running, |config| {
        config.policy.max_active = 1;
    })
    .await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(app.enter().await);
    }
    let keys = app.event().keys.clone();
    let from = app.redis.node_of(&keys).await.unwrap();
    let to = (from + 1) % 3;
    let mut source = app.redis.nodes[from].connect().await.unwrap();
    let mut target = app.redis.nodes[to].connect().await.unwrap();
    let slot: u16 =
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(keys.get(Key::Meta)).query_async(&mut source).await.unwrap();
    let set = |state: &str, node: usize| {
        let mut set = redis::cmd("CLUSTER");
        set.arg("SETSLOT").arg(slot).arg(state).arg(id(node));
        set
    };
    let _: () = set("IMPORTING", from).query_async(&mut target).await.unwrap();
    let _: () = set("MIGRATING", to).query_async(&mut source).await.unwrap();
    let mut all = redis::cmd("CLUSTER");
    let all = all.arg("GETKEYSINSLOT").arg(slot).arg(100);
    loop {
        let moving: Vec<String> = all.query_async(&mut source).await.unwrap();
        if moving.is_empty() {
            break;
        }
        let mut migrate = redis::cmd("MIGRATE");
        let port = app.redis.nodes[to].port().unwrap();
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5000).arg("REPLACE").arg("KEYS").arg(moving);
        let _: String = migrate.query_async(&mut source).await.unwrap();
    }
    for node in &app.redis.nodes {
        let _: () = set("NODE", to).query_async(&mut node.connect().await.unwrap()).await.unwrap();
    }
    assert_eq!(app.redis.node_of(&keys).await.unwrap(), to);

    let late = app.enter_patiently().await;
    assert!(waiting.iter().all(|visitor| visitor.place() < late.place()), "no place is given twice");
    eventually("everyone is where they were", async || {
        for (ahead, visitor) in waiting.iter().skip(1).enumerate() {
            let (status, now) = app.status(visitor).await;
            assert!(matches!(status.as_u16(), 200 | 503), "{now}");
            if now["aheadCount"] != ahead {
                return None;
            }
        }
        Some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_is_too_few_for_a_cluster() {
    let redis = Redis::cluster(0).await.unwrap();
    let pool = zticket::store::redis::links::pool(
        &zticket::store::redis::links::Address::parse(&redis.nodes[0].url()).unwrap(),
    )
    .unwrap();
    let refused = zticket::store::redis::links::check(&pool).await.unwrap_err();
    assert!(refused.to_string().contains("name several, with commas"), "{refused}");
}
