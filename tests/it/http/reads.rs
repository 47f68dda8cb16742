//! What reads answer: statuses, seat maps, counts.

use std::time::Duration;

use reqwest::Method;

use crate::support::TestApp;
use crate::support::app::answer;

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_waiting_visitor_is_complete() {
    let app = TestApp::by_hand(|config| config.policy.max_active = 0).await;
    let (_, entered) = answer(app.request(Method::POST, "/api/queues/tokens")).await;
    assert_eq!(
        (&entered["status"], &entered["rank"], &entered["aheadCount"]),
        (&"WAITING".into(), &1.into(), &0.into())
    );
    app.enter().await;
    let third = app.enter().await;
    app.look().await;
    let (_, body) = app.status(&third).await;
    assert_eq!(body["uuid"], third.0);
    assert_eq!((&body["rank"], &body["aheadCount"], &body["waitingCount"]), (&3.into(), &2.into(), &3.into()));
    assert_eq!(body["seatsLeft"], 50);
    assert!(body["estimatedWaitSeconds"].is_null(), "not known yet, and said so");
    assert!((1800..=2000).contains(&body["pollAfterMs"].as_u64().unwrap()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_a_person_are_not_stored() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let status = app.request(Method::GET, &format!("/api/queues/tokens/{}", visitor.0));
    let hold = app.request(Method::POST, "/api/seats/1/hold").header("X-Queue-Token", &visitor.0);
    let wrong = app.request(Method::POST, "/api/seats/99/hold").header("X-Queue-Token", &visitor.0);
    for request in [status, hold, wrong, app.request(Method::POST, "/api/queues/tokens")] {
        assert_eq!(request.send().await.unwrap().headers()["cache-control"], "no-store");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seat_map_has_an_etag_and_is_compressed_on_request() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let get = |tag: Option<String>| {
        let request = app.request(Method::GET, "/api/seats");
        tag.into_iter().fold(request, |request, tag| request.header("If-None-Match", tag)).send()
    };
    let first = get(None).await.unwrap();
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let again = get(Some(tag.clone())).await.unwrap();
    assert_eq!(again.status(), 304);
    assert!(again.bytes().await.unwrap().is_empty());

    assert_eq!(app.hold(&visitor, 3).await.0, 200);
    app.look().await;
    let changed = get(Some(tag)).await.unwrap();
    assert_eq!(changed.status(), 200);
    let mine = app.request(Method::GET, "/api/seats").header("X-Queue-Token", &visitor.0).send().await.unwrap();
    assert_ne!(mine.headers()["etag"], changed.headers()["etag"], "a holder of a seat gets a different map");

    let packed = app.request(Method::GET, "/api/seats").header("Accept-Encoding", "gzip").send().await.unwrap();
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let count = answer(app.request(Method::GET, "/api/seats/available-count")).await.1;
    assert_eq!(count["count"], 49);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_and_a_hold_that_run_out_give_back_what_they_took() {
    let app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    let first = app.inside().await;
    let second = app.enter().await;
    assert_eq!(app.hold(&first, 1).await.0, 200);
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&second).await.1["status"], "WAITING", "there is room for one");

    app.pass_time(Duration::from_secs(301)).await;
    app.expire().await;
    app.pulse().await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&first).await.0, 410);
    assert_eq!(app.status(&second).await.1["status"], "ACTIVE");
    assert_eq!(app.seats(None).await[0]["status"], "available");
    assert_eq!(app.buy(&second, 1).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_hears_of_a_sell_out_and_gets_a_seat_that_comes_back() {
    let app = TestApp::by_hand(|config| config.seat_count = 1).await;
    let buyer = app.inside().await;
    let waiting = app.enter().await;
    assert_eq!(app.hold(&buyer, 1).await.0, 200);
    app.look().await;
    assert_eq!(app.status(&waiting).await.1["status"], "WAITING", "a held seat may come back");
    assert_eq!(app.buy(&buyer, 1).await.0, 200);
    app.settle().await;
    app.look().await;
    let (_, told) = app.status(&waiting).await;
    assert_eq!(told["status"], "SOLD_OUT");
    assert!(told["pollAfterMs"].as_u64().is_some());
    assert_eq!(app.status(&buyer).await.0, 410, "the buyer is done, not sold out");
    let (status, body) = answer(app.request(Method::POST, "/api/queues/tokens")).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"SOLD_OUT".into()));
    let calls = || app.parts().stores.metrics.script_seconds.with_label_values(&["1_line_enter"]).get_sample_count();
    let before = calls();
    for _ in 0..20 {
        assert_eq!(app.join().await.0, 409);
    }
    assert_eq!(calls(), before, "a crowd that keeps trying costs Redis nothing");

    app.cancel_all().await;
    app.settle().await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&waiting).await.1["status"], "ACTIVE");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_answered_like_get_without_the_body() {
    let app = TestApp::by_hand(|_| {}).await;
    for path in ["/livez", "/api/seats", "/api/seats/available-count"] {
        let response = app.request(Method::HEAD, path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.bytes().await.unwrap().is_empty());
    }
    app.finish().await;
}
