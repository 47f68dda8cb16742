//! A Redis that answers reads and refuses writes: full, without its replicas, read-only, or unable to save. Nobody loses a
//! place, reading goes on, and however often a repair fails, it costs one block of places.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::AsyncCommands;
use reqwest::Method;
use zticket::server::run::Background;
use zticket::store::db::events::SMALLEST_BLOCK;
use zticket::store::redis::keys::Key;
use zticket_testkit::redis::Options;
use zticket_testkit::{Redis, Refusal};

use crate::support::app::answer;
use crate::support::{TestApp, Visitor, single_redis};

async fn places_handed_out(app: &TestApp) -> i64 {
    app.db.number("SELECT ceiling AS n FROM events WHERE id = 1").await.unwrap()
}

/// Asks for the seats and for a place, again and again, from many clients at once.
async fn besiege(app: &TestApp, time: Duration) {
    let until = Instant::now() + time;
    let asks = (0..20).map(|at| async move {
        while Instant::now() < until {
            let (method, path) =
                if at % 2 == 0 { (Method::GET, "/api/seats") } else { (Method::POST, "/api/queues/tokens") };
            let (status, body) = answer(app.request(method, path)).await;
            assert!(matches!(status.as_u16(), 200 | 503), "{body}");
        }
    });
    join_all(asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_keeps_failing_costs_one_block_whoever_asks() {
    let app = TestApp::start_on(single_redis().await, Background::Running, |_| {}).await;
    let visitors = [app.enter().await, app.enter().await];
    // The snapshot knows both, so the rebuilt event does too.
    app.wait_inside(&visitors[0]).await;
    app.wait_inside(&visitors[1]).await;
    let before = places_handed_out(&app).await;
    let mut conn = app.redis.connect().await.unwrap();
    // Empty, and from the same moment on it refuses every write.
    let () = redis::pipe()
        .atomic()
        .cmd("FLUSHALL")
        .cmd("CONFIG")
        .arg("SET")
        .arg("min-replicas-to-write")
        .arg(1)
        .query_async(&mut conn)
        .await
        .unwrap();
    besiege(&app, Duration::from_secs(4)).await;
    let taken = places_handed_out(&app).await - before;
    assert!(taken <= SMALLEST_BLOCK, "failed repairs took {taken} places");
    Refusal::NoReplicas.end(&app.redis).await.unwrap();

    let newcomer = app.enter_patiently().await;
    let taken = places_handed_out(&app).await - before;
    assert!(taken <= SMALLEST_BLOCK, "one repair took {taken} places");
    app.wait_inside(&visitors[0]).await;
    app.wait_inside(&visitors[1]).await;
    let length: usize = conn.strlen(app.key(Key::Line)).await.unwrap();
    assert!(length < 16 * 1024, "the line of a few people takes {length} bytes");
    assert!(newcomer.place() > visitors[1].place());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_life_that_cannot_be_written_costs_one_block() {
    let mut app = TestApp::start_on(single_redis().await, Background::Running, |_| {}).await;
    app.enter().await;
    app.redis.save().await.unwrap();
    let before = places_handed_out(&app).await;
    app.redis.nodes[0].refuse_writes_from_now_on();
    app.restart_redis().await;
    besiege(&app, Duration::from_secs(3)).await;
    Refusal::NoReplicas.end(&app.redis).await.unwrap();
    app.enter_patiently().await;
    let taken = places_handed_out(&app).await - before;
    assert!(taken <= SMALLEST_BLOCK, "a new life took {taken} places");
    app.finish().await;
}

/// Everyone polls as told, for longer than the queue TTL and than a snapshot may be old. Nobody is swept, and no poll fails.
async fn nobody_is_swept(refusal: Refusal, redis: Redis) {
    let app = TestApp::start_on(redis, Background::Running, |config| {
        (config.policy.queue_ttl_ms, config.policy.max_active) = (4_000, 1);
    })
    .await;
    let mut visitors = Vec::new();
    for _ in 0..5 {
        visitors.push(app.enter().await);
    }
    app.wait_inside(&visitors[0]).await;
    refusal.begin(&app.redis).await.unwrap();
    let until = Instant::now() + Duration::from_secs(12);
    join_all(visitors[1..].iter().map(|visitor| poll_until(&app, visitor, until))).await;
    assert_eq!(app.seats(None).await.len(), 50, "the seats can be read");
    let pulses = app.parts().stores.metrics.scripts.with_label_values(&["1_line_pulse", "refused"]).get();
    assert!(pulses > 0, "refused writes are counted as such");
    refusal.end(&app.redis).await.unwrap();
    // For another TTL with a Redis that is well again.
    let until = Instant::now() + Duration::from_secs(6);
    join_all(visitors[1..].iter().map(|visitor| poll_until(&app, visitor, until))).await;
    app.finish().await;
}

async fn poll_until(app: &TestApp, visitor: &Visitor, until: Instant) {
    while Instant::now() < until {
        let (status, body) = app.status(visitor).await;
        assert_eq!((status.as_u16(), &body["status"]), (200, &"WAITING".into()), "{body}");
        tokio::time::sleep(Duration::from_millis(body["pollAfterMs"].as_u64().unwrap())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_sweeps_nobody_and_can_be_read() {
    nobody_is_swept(Refusal::Full, single_redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_replicas_sweeps_nobody_and_can_be_read() {
    nobody_is_swept(Refusal::NoReplicas, single_redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_redis_sweeps_nobody_and_can_be_read() {
    nobody_is_swept(Refusal::ReadOnly, single_redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_cannot_save_sweeps_nobody_and_can_be_read() {
    let options = Options { append_only: true, more: Refusal::options(), ..Options::default() };
    nobody_is_swept(Refusal::CannotSave, Redis::single(options).await.unwrap()).await;
}
