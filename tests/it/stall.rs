//! PostgreSQL and Redis that take everything and answer nothing, which is worse than a broken connection: no error comes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use zticket::base::error::Error;
use zticket::server::config::Config;
use zticket::server::run::Background;
use zticket_testkit::{Proxy, eventually};

use crate::support::app::answer;
use crate::support::{TestApp, Visitor, single_redis};

/// No request is answered later than this, whatever stalls.
const LONGEST: Duration = Duration::from_secs(16);

async fn behind(change: impl FnOnce(&mut Config)) -> TestApp {
    TestApp::start_on(single_redis().await, Background::Running, change).await
}

async fn behind_database(change: impl FnOnce(&mut Config)) -> (TestApp, Proxy) {
    let mut proxy = None;
    let app = behind(|config| {
        proxy = Some(Proxy::before(&mut config.database_url).unwrap());
        change(config);
    });
    let app = app.await;
    (app, proxy.unwrap())
}

async fn behind_redis(change: impl FnOnce(&mut Config)) -> (TestApp, Proxy) {
    let mut proxy = None;
    let app = behind(|config| {
        proxy = Some(Proxy::before(&mut config.redis_url).unwrap());
        change(config);
    });
    let app = app.await;
    (app, proxy.unwrap())
}

async fn inside(app: &TestApp, count: usize) -> Vec<Visitor> {
    let visitors = join_all((0..count).map(|_| app.enter_patiently())).await;
    for visitor in &visitors {
        eventually("inside", async || (app.status(visitor).await.1["status"] == "ACTIVE").then_some(())).await;
    }
    visitors
}

/// Sends it. Returns status and time; checks that the answer is in time, and that a 503 has a Retry-After.
async fn asked(request: reqwest::RequestBuilder) -> (StatusCode, Duration) {
    let started = Instant::now();
    let response = request.send().await.unwrap();
    let took = started.elapsed();
    assert!(took < LONGEST, "{} took {took:?}", response.url());
    let told = response.headers().contains_key("Retry-After");
    assert_eq!(told, response.status() == 503, "{} of {}", response.status(), response.url());
    (response.status(), took)
}

fn purchase(app: &TestApp, visitor: &Visitor, seat: usize) -> reqwest::RequestBuilder {
    let request = app.request(Method::POST, "/api/tickets").header("X-Queue-Token", &visitor.0);
    request.json(&json!({ "seatNumber": seat }))
}

/// Buys until it is sold, and once more: the same ticket. The second request may meet a connection the first did not.
async fn buys_one(app: &TestApp, visitor: &Visitor, seat: usize) {
    let ticket = async || {
        eventually("bought", async || {
            let (status, ticket) = answer(purchase(app, visitor, seat)).await;
            assert!(matches!(status.as_u16(), 200 | 503), "{ticket}");
            (status == 200).then(|| ticket["ticketId"].clone())
        })
        .await
    };
    assert_eq!(ticket().await, ticket().await);
}

async fn health(app: &TestApp) -> (StatusCode, Value) {
    let started = Instant::now();
    let health = answer(app.client.get(app.management_url("/actuator/health"))).await;
    assert!(started.elapsed() < Duration::from_secs(5), "the health check does not wait");
    health
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_stalls_purchases_fail_in_time_and_polls_work() {
    let (app, proxy) = behind_database(|_| {}).await;
    let buyers = inside(&app, 8).await;
    assert_eq!(health(&app).await.0, 200);
    proxy.stall();

    let stalled = AtomicBool::new(true);
    let polls = async {
        let mut count = 0;
        while stalled.load(Ordering::Relaxed) {
            let (status, took) = asked(app.request(Method::GET, &format!("/api/queues/tokens/{}", buyers[7].0))).await;
            assert_eq!(status, 200);
            assert!(took < Duration::from_secs(2), "a poll waited {took:?}");
            count += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        count
    };
    let writes = async {
        let bought = join_all((1..).zip(&buyers[..7]).map(|(seat, buyer)| asked(purchase(&app, buyer, seat))));
        let unknown = asked(app.request(Method::GET, "/api/events/99/seats"));
        let newcomer = asked(app.request(Method::POST, "/api/users").json(&json!({ "name": "Kim" })));
        let (bought, (unknown, _), (newcomer, _)) = tokio::join!(bought, unknown, newcomer);
        assert!(bought.iter().all(|(status, _)| *status == 503), "{bought:?}");
        assert_eq!((unknown, newcomer), (StatusCode::SERVICE_UNAVAILABLE, StatusCode::SERVICE_UNAVAILABLE));
        let (ready, body) = health(&app).await;
        assert_eq!((ready.as_u16(), &body["components"]["postgres"]["status"]), (503, &"DOWN".into()));
        assert_eq!(answer(app.request(Method::GET, "/livez")).await, (StatusCode::OK, "ok".into()));
        stalled.store(false, Ordering::Relaxed);
    };
    let (polled, ()) = tokio::join!(polls, writes);
    assert!(polled > 20);

    proxy.resume();
    for (seat, buyer) in (1..).zip(&buyers) {
        buys_one(&app, buyer, seat).await;
    }
    eventually("ready", async || (health(&app).await.0 == 200).then_some(())).await;
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 8);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_the_database_keeps_no_connection_to_redis() {
    let (app, proxy) = behind_database(|_| {}).await;
    let event = app.event();
    proxy.stall();
    // As if there were so many events. Each audit reads Redis, then the database.
    let audits = join_all((0..40).map(|_| app.parts().settler.audit(&event)));
    let others = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let redis = tokio::time::timeout(Duration::from_secs(1), app.parts().stores.redis.get()).await;
            redis.expect("those who need only Redis do not wait").unwrap();
        }
    };
    let (audits, ()) = tokio::join!(audits, others);
    assert!(audits.iter().all(Result::is_err), "the database did not stall");
    proxy.resume();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_the_database_that_fell_silent_are_all_replaced() {
    let (app, proxy) = behind_database(|_| {}).await;
    let buyers = inside(&app, 20).await;
    // As many connections as there can be.
    let busy = join_all((0..16).map(|_| async { app.parts().stores.db.get().await.unwrap() })).await;
    drop(busy);
    proxy.lose();
    let (status, _) = asked(purchase(&app, &buyers[0], 1)).await;
    assert!(matches!(status.as_u16(), 200 | 503));
    for (seat, buyer) in (1..).zip(&buyers) {
        buys_one(&app, buyer, seat).await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_stalls_writes_fail_in_time_and_polls_work() {
    let (app, proxy) = behind_redis(|_| {}).await;
    let buyers = inside(&app, 8).await;
    proxy.stall();
    let poll = || asked(app.request(Method::GET, &format!("/api/queues/tokens/{}", buyers[7].0)));
    let bought = join_all((1..).zip(&buyers[..7]).map(|(seat, buyer)| asked(purchase(&app, buyer, seat))));
    let entered = asked(app.request(Method::POST, "/api/queues/tokens"));
    let ((polled, took), bought, (entered, _)) = tokio::join!(poll(), bought, entered);
    assert_eq!(polled, 200);
    assert!(took < Duration::from_secs(1), "a poll waited {took:?}");
    assert!(bought.iter().all(|(status, took)| *status == 503 && *took < Duration::from_secs(5)), "{bought:?}");
    assert_eq!(entered, 503);
    assert_eq!(poll().await.0, 200, "from memory");
    let (ready, body) = health(&app).await;
    assert_eq!((ready.as_u16(), &body["components"]["redis"]["status"]), (503, &"DOWN".into()));
    assert_eq!(answer(app.request(Method::GET, "/livez")).await, (StatusCode::OK, "ok".into()));

    proxy.resume();
    for (seat, buyer) in (1..).zip(&buyers) {
        buys_one(&app, buyer, seat).await;
    }
    app.enter_patiently().await;
    eventually("ready", async || (health(&app).await.0 == 200).then_some(())).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_redis_that_fell_silent_or_broke_are_replaced() {
    let (app, proxy) = behind_redis(|_| {}).await;
    let buyers = inside(&app, 6).await;
    proxy.lose();
    for (seat, buyer) in (1..).zip(&buyers[..3]) {
        buys_one(&app, buyer, seat).await;
    }
    proxy.cut();
    for (seat, buyer) in (4..).zip(&buyers[3..]) {
        buys_one(&app, buyer, seat).await;
    }
    app.enter_patiently().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_purchases_some_fail_at_once_and_the_rest_sell_later() {
    let (app, proxy) = behind_database(|config| {
        config.policy.max_active = 1000;
        config.policy.batch = 1000;
        config.seat_count = 400;
        config.most_buying = 20;
    })
    .await;
    let buyers = inside(&app, 300).await;
    proxy.stall();
    let refused = AtomicUsize::new(0);
    let go_on = async {
        // Two statements of up to 200 purchases may be under way: the rest waits, or is refused at once.
        eventually("someone is refused", async || (refused.load(Ordering::Relaxed) > 0).then_some(())).await;
        proxy.resume();
    };
    let bought = join_all((1..).zip(&buyers).map(|(seat, buyer)| {
        let (app, refused) = (&app, &refused);
        async move {
            let (status, took) = asked(purchase(app, buyer, seat)).await;
            if status == 503 {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            (status, took)
        }
    }));
    let (bought, ()) = tokio::join!(bought, go_on);
    let sold = bought.iter().filter(|(status, _)| *status == 200).count();
    assert!(sold >= 20, "{sold}");
    assert!(bought.iter().all(|(status, _)| matches!(status.as_u16(), 200 | 503)), "all others were refused");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), sold as i64);
    for (seat, buyer) in (1..).zip(&buyers) {
        buys_one(&app, buyer, seat).await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_entries_some_fail_at_once_and_the_rest_succeed_later() {
    let (app, proxy) = behind_redis(|config| config.most_entering = 20).await;
    app.enter().await;
    proxy.stall();
    let refused = AtomicUsize::new(0);
    let go_on = async {
        eventually("someone is refused", async || (refused.load(Ordering::Relaxed) > 0).then_some(())).await;
        proxy.resume();
    };
    let entered = join_all((0..300).map(|_| async {
        let (status, _) = asked(app.request(Method::POST, "/api/queues/tokens")).await;
        if status == 503 {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        status
    }));
    let (entered, ()) = tokio::join!(entered, go_on);
    let inside = entered.iter().filter(|status| **status == 200).count();
    assert!(inside >= 20, "{inside}");
    assert!(entered.iter().all(|status| matches!(status.as_u16(), 200 | 503)), "the others got in");
    app.enter().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sales_find_a_connection_however_many_queries_wait() {
    let app = TestApp::start().await;
    let buyers = inside(&app, 2).await;
    assert_eq!(answer(purchase(&app, &buyers[0], 1)).await.0, 200);
    // Those beyond are refused at once, so that this ends while the others still wait.
    let (go_on, waits) = tokio::sync::watch::channel(false);
    let mut piled_up = Vec::new();
    for _ in 0..10_000 {
        let (app, mut waits) = (app.parts().clone(), waits.clone());
        piled_up.push(tokio::spawn(async move {
            let wait = async move {
                let _ = waits.wait_for(|go_on| *go_on).await;
                Ok(())
            };
            app.stores.query(|_| wait.boxed()).await
        }));
    }
    eventually("a query is refused", async || piled_up.iter().any(|query| query.is_finished()).then_some(())).await;
    let (status, took) = asked(purchase(&app, &buyers[0], 1)).await;
    assert_eq!(status, 503, "the ticket bought before cannot be looked up now");
    assert!(took < Duration::from_secs(2), "it was refused after {took:?}");
    assert_eq!(answer(purchase(&app, &buyers[1], 2)).await.0, 200, "a sale still works");
    assert_eq!(health(&app).await.0, 200);

    go_on.send(true).unwrap();
    let done = join_all(piled_up).await.into_iter().filter(|query| query.as_ref().unwrap().is_ok()).count();
    assert!((8..10_000).contains(&done), "{done}");
    assert_eq!(answer(purchase(&app, &buyers[0], 1)).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_worker_starts_only_as_many_redis_calls_as_fit_the_deadline() {
    let app = TestApp::by_hand(|_| {}).await;
    let lane = app.parts().site.stores.lane(1).unwrap();
    let mut calls = Vec::new();
    while let Ok(call) = lane.call() {
        calls.push(call);
    }
    assert!(calls.len() < 10_000);
    assert!(matches!(lane.call(), Err(Error::Overloaded(_))));
    calls.pop();
    assert!(lane.call().is_ok());
    drop(calls);
    app.finish().await;
}
