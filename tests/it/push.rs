//! Server-sent events: the status of a token, sent when it changes.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use zticket::server::run::Background;
use zticket_testkit::eventually;

use crate::support::set_live;
use crate::support::{Stream, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_reports_the_rank_the_turn_the_seats_and_the_end() {
    let app = TestApp::by_hand(|config| config.policy.batch = 1).await;
    let (first, second) = (app.enter().await, app.enter().await);
    app.look().await;
    let mut stream = Stream::open(&app, &second).await;
    let (name, status) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), &status["status"], &status["rank"]), ("status", &"WAITING".into(), &2.into()));
    assert_eq!(status["push"], true);
    assert_eq!(status["uuid"], second.0);

    app.admit().await;
    app.look().await;
    assert_eq!(stream.next().await.unwrap().1["rank"], 1, "the one in front was let in");
    app.admit().await;
    app.look().await;
    let (_, turn) = stream.next().await.unwrap();
    assert_eq!(turn["status"], "ACTIVE");
    app.hold(&first, 7).await;
    app.look().await;
    let (_, seats) = stream.next().await.unwrap();
    assert_ne!(seats["seatsVersion"], turn["seatsVersion"], "someone holds a seat");
    assert_eq!(app.leave(&second).await, 204);
    app.look().await;
    let (name, end) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), &end["code"]), ("end", &"QUEUE_TOKEN_EXPIRED".into()));
    assert_eq!(stream.next().await, None);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_reports_a_pause_its_reason_and_the_turn_after_it() {
    let app = TestApp::start().await;
    let mut conn = app.redis.connect().await.unwrap();
    let keys = app.event().keys.clone();
    let changes = [("state", "paused"), ("reason", r#"{"ko":"곧","en":"Soon."}"#)];
    set_live(&app.parts().stores.scripts, &mut conn, &keys, &changes).await;
    let visitor = app.enter().await;
    let mut stream = Stream::open(&app, &visitor).await;
    let paused = eventually("the stream reports the pause", async || {
        let (_, status) = stream.next().await.unwrap();
        status["pause"]["reason"]["en"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(paused, "Soon.");
    set_live(&app.parts().stores.scripts, &mut conn, &keys, &[("state", "open")]).await;
    while stream.next().await.unwrap().1["status"] != "ACTIVE" {}
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_is_a_sign_of_life() {
    let app = TestApp::by_hand(|_| {}).await;
    let (first, second) = (app.enter().await, app.enter().await);
    app.look().await;
    let mut stream = Stream::open(&app, &second).await;
    stream.next().await.unwrap();
    app.pulse().await;
    // A new slice, in which nobody was heard from yet; then a change that the stream reports.
    app.pass_time_served(Duration::from_secs(50)).await;
    app.sweep().await;
    app.look().await;
    app.pulse().await;
    app.leave(&first).await;
    app.look().await;
    assert_eq!(stream.next().await.unwrap().1["rank"], 1);
    app.pulse().await;
    let key = format!("zt1:{{e1}}:pulse:{}", app.meta("slice").await);
    let heard: bool = redis::AsyncCommands::getbit(&mut app.redis.connect().await.unwrap(), key, 1).await.unwrap();
    assert!(heard, "heard from in the new slice");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_listener_went_away_is_closed() {
    let app = TestApp::start_with(Background::Running, |config| config.policy.max_active = 0).await;
    let mut others = Vec::new();
    for _ in 0..500 {
        others.push(app.enter().await);
    }
    let last = app.enter().await;
    let event = app.event();
    let open = || event.tally.streams.load(Relaxed);
    let stream = Stream::open(&app, &last).await;
    assert_eq!(open(), 1);
    drop(stream);
    // The server notices when it sends the next event, so there must be one.
    eventually("the stream is closed", async || {
        app.leave(&others.pop().unwrap()).await;
        (open() == 0).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_over_or_unknown_opens_no_stream() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.enter().await;
    app.leave(&visitor).await;
    app.look().await;
    for (token, status) in [(visitor.0.as_str(), 410), ("x", 404)] {
        let url = app.url(&format!("/api/queues/tokens/{token}/events"));
        assert_eq!(app.client.get(url).send().await.unwrap().status(), status);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_do_not_keep_a_server_from_stopping() {
    let mut app = TestApp::start_with(Background::Running, |_| {}).await;
    let visitor = app.enter().await;
    let mut stream = Stream::open(&app, &visitor).await;
    stream.next().await.unwrap();
    let metrics = app.client.get(app.management_url("/actuator/prometheus")).send().await.unwrap();
    assert!(metrics.text().await.unwrap().contains("zticket_push_streams{event=\"1\"} 1"));
    let began = Instant::now();
    app.restart().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    while stream.next().await.is_some() {}
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_keeps_its_place_and_its_turn_however_short_the_queue_ttl_is() {
    // Nobody is let in before both have waited for three times the TTL.
    let app = TestApp::start_with(Background::Running, |config| {
        (config.policy.queue_ttl_ms, config.policy.max_active) = (4_000, 0);
    })
    .await;
    let (listens, polls) = (app.enter().await, app.enter().await);
    let mut stream = Stream::open(&app, &listens).await;
    assert_eq!(stream.next().await.unwrap().1["rank"], 1);
    let until = Instant::now() + Duration::from_secs(12);
    while Instant::now() < until {
        let (status, body) = app.status(&polls).await;
        assert_eq!((status.as_u16(), &body["rank"]), (200, &2.into()), "the listener in front is still there");
        tokio::time::sleep(Duration::from_millis(body["pollAfterMs"].as_u64().unwrap())).await;
    }
    let mut conn = app.redis.connect().await.unwrap();
    let changed = [("max_active", "1")];
    set_live(&app.parts().stores.scripts, &mut conn, &app.event().keys, &changed).await;
    let turn = async { while stream.next().await.unwrap().1["status"] != "ACTIVE" {} };
    tokio::time::timeout(Duration::from_secs(5), turn).await.expect("the listener is let in first");
    assert_eq!(app.status(&polls).await.1["status"], "WAITING");
    app.finish().await;
}
