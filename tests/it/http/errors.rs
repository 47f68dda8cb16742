//! Wrong requests: each gets a clear error, never a 5xx, and changes nothing.

use reqwest::{Method, StatusCode};
use serde_json::Value;
use zticket_testkit::eventually;

use crate::support::app::{answer, token_of};
use crate::support::set_live;
use crate::support::{TestApp, Visitor};

#[track_caller]
fn is((status, body): (StatusCode, Value), expected: u16, code: &str) {
    assert_eq!((status.as_u16(), body["code"].as_str()), (expected, Some(code)), "{body}");
    assert_eq!(body["status"], expected);
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_wrong_methods_are_answered_in_json() {
    let app = TestApp::by_hand(|_| {}).await;
    for path in
        ["/nope", "/api", "/api/", "/api/nope", "/api/events", "/api/events/1/nope", "/api/seats/", "/api/rankings"]
    {
        is(answer(app.request(Method::GET, path)).await, 404, "NOT_FOUND");
    }
    // Programs get JSON, whatever they accept.
    for path in ["/api/nope", "/api/events/1/nope", "/api/events/1/seats/1/hold/"] {
        is(answer(app.request(Method::GET, path).header("Accept", "text/html")).await, 404, "NOT_FOUND");
    }
    for (method, path, allowed) in [
        (Method::GET, "/api/queues/tokens", "POST"),
        (Method::POST, "/api/seats", "GET, HEAD"),
        (Method::PUT, "/api/seats/1/hold", "POST, DELETE"),
        (Method::PATCH, "/api/events/1/tickets", "POST"),
        (Method::DELETE, "/livez", "GET, HEAD"),
        (Method::OPTIONS, "/api/tickets", "POST"),
    ] {
        let response = app.request(method, path).send().await.unwrap();
        assert_eq!(response.headers()["allow"], allowed, "{path}");
        let (status, body) = (response.status(), response.json().await.unwrap());
        is((status, body), 405, "METHOD_NOT_ALLOWED");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_ours_is_not_found() {
    let app = TestApp::by_hand(|_| {}).await;
    let good = app.enter().await.0;
    let place = good.replace(&good[7..8], if &good[7..8] == "0" { "1" } else { "0" });
    let forged = format!("{}{}", &good[..35], if good.ends_with('0') { "1" } else { "0" });
    let spellings = [
        forged,
        place,
        good.to_uppercase(),
        good.replace('-', ""),
        "x".to_owned(),
        "00000000-0000-0000-0000-000000000000".to_owned(),
        "%00".to_owned(),
        "a".repeat(4000),
        uuid::Uuid::now_v7().to_string(),
    ];
    for token in spellings {
        is(app.status(&Visitor(token.clone())).await, 404, "QUEUE_TOKEN_NOT_FOUND");
        if token != "%00" {
            is(app.hold(&Visitor(token.clone()), 1).await, 404, "QUEUE_TOKEN_NOT_FOUND");
            is(app.buy(&Visitor(token), 1).await, 404, "QUEUE_TOKEN_NOT_FOUND");
        }
    }
    let not_text = app.request(Method::POST, "/api/seats/1/hold").header("X-Queue-Token", b"\xff\xfe".as_slice());
    is(answer(not_text).await, 404, "QUEUE_TOKEN_NOT_FOUND");
    is(answer(app.request(Method::POST, "/api/seats/1/hold")).await, 401, "UNAUTHORIZED");
    is(answer(app.request(Method::GET, "/api/tickets/1")).await, 401, "UNAUTHORIZED");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_one_event_is_useless_in_another() {
    let app = TestApp::by_hand(|_| {}).await;
    app.db
        .execute(
            "INSERT INTO events (title) VALUES ('another');
             INSERT INTO seats (event_id, number, label) SELECT 2, n, 'B' || n FROM generate_series(1, 5) AS n",
        )
        .await
        .unwrap();
    let visitor = app.inside().await;
    let elsewhere = |path: &str| format!("/api/events/2{path}");
    let with_token = |method, path: &str| {
        let body = serde_json::json!({ "seatNumber": 1 });
        app.request(method, &elsewhere(path)).header("X-Queue-Token", &visitor.0).json(&body)
    };
    let status = app.request(Method::GET, &elsewhere(&format!("/queues/tokens/{}", visitor.0)));
    is(answer(status).await, 404, "QUEUE_TOKEN_NOT_FOUND");
    is(answer(with_token(Method::POST, "/seats/1/hold")).await, 404, "QUEUE_TOKEN_NOT_FOUND");
    is(answer(with_token(Method::POST, "/tickets")).await, 404, "QUEUE_TOKEN_NOT_FOUND");
    is(answer(with_token(Method::GET, "/seats")).await, 404, "QUEUE_TOKEN_NOT_FOUND");

    // Entering makes the new event ready; its tokens belong to it, even if a request names no event.
    let body = eventually("the new event is known", async || {
        let (status, body) = answer(app.request(Method::POST, &elsewhere("/queues/tokens"))).await;
        (status == 200).then_some(body)
    })
    .await;
    let other = Visitor(body["uuid"].as_str().unwrap().to_owned());
    assert_eq!(app.status(&other).await.1["rank"], 1);
    assert_eq!(app.seats(Some(&other)).await.len(), 5);
    assert_eq!(app.seats(Some(&visitor)).await.len(), 50);
    for wrong in ["0", "3", "x", "-1", "16777216", "01"] {
        let path = format!("/api/events/{wrong}/seats");
        is(answer(app.request(Method::GET, &path)).await, 404, "EVENT_NOT_FOUND");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seats_out_of_range_are_refused() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    for seat in ["0", "51", "4294967295", "4294967296", "-1", "1.5", "x", "%20", "01", "１"] {
        let path = format!("/api/seats/{seat}/hold");
        for method in [Method::POST, Method::DELETE] {
            let request = app.request(method, &path).header("X-Queue-Token", &visitor.0);
            is(answer(request).await, 400, "INVALID_SEAT_NUMBER");
        }
    }
    for seat in [0, 51, u32::MAX] {
        is(app.buy(&visitor, seat).await, 400, "INVALID_SEAT_NUMBER");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_cannot_be_read_is_explained() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let post = |kind: &'static str, body: String| {
        let request = app.request(Method::POST, "/api/tickets").header("X-Queue-Token", &visitor.0);
        answer(request.header("Content-Type", kind).body(body))
    };
    let bodies = [
        "",
        "{",
        "null",
        "[]",
        "7",
        "{}",
        r#"{"seatNumber":"7"}"#,
        r#"{"seatNumber":-7}"#,
        r#"{"seatNumber":1.5}"#,
        r#"{"seatNumber":4294967296}"#,
        r#"{"seat_number":7}"#,
        r#"{"seatNumber":null}"#,
        "\u{0}",
    ];
    for body in bodies {
        is(post("application/json", body.to_owned()).await, 400, "INVALID_REQUEST");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/xml"] {
        is(post(kind, r#"{"seatNumber":7}"#.to_owned()).await, 415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let long = format!(r#"{{"seatNumber":7,"x":"{}"}}"#, "x".repeat(20_000));
    is(post("application/json", long).await, 413, "PAYLOAD_TOO_LARGE");
    assert_eq!(app.meta("seats_version").await, 1, "no seat was touched");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_too_long_to_read_end_the_connection_not_the_server() {
    let app = TestApp::by_hand(|_| {}).await;
    let request = app.request(Method::GET, "/livez").header("X-Long", "x".repeat(300_000));
    if let Ok(response) = request.send().await {
        assert!(response.status().is_client_error(), "{}", response.status());
    }
    assert_eq!(answer(app.request(Method::GET, "/livez")).await, (StatusCode::OK, Value::String("ok".to_owned())));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_who_is_not_inside_cannot_hold_or_buy() {
    let app = TestApp::by_hand(|config| config.policy.max_active = 1).await;
    let inside = app.inside().await;
    let waiting = app.enter().await;
    app.look().await;
    is(app.hold(&waiting, 1).await, 403, "NOT_ACTIVE_USER");
    is(app.buy(&waiting, 1).await, 403, "NOT_ACTIVE_USER");
    assert_eq!(app.hold(&inside, 1).await.0, 200);
    app.leave(&inside).await;
    app.look().await;
    is(app.hold(&inside, 1).await, 403, "NOT_ACTIVE_USER");
    is(app.status(&inside).await, 410, "QUEUE_TOKEN_EXPIRED");
    assert_eq!(app.leave(&inside).await, 204, "leaving again is fine");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_of_someone_else_is_refused_by_name() {
    let app = TestApp::by_hand(|_| {}).await;
    let (first, second) = (app.inside().await, app.inside().await);
    assert_eq!(app.hold(&first, 1).await.0, 200);
    is(app.hold(&second, 1).await, 409, "SEAT_ALREADY_HELD");
    is(app.buy(&second, 1).await, 409, "SEAT_ALREADY_HELD");
    is(app.release(&second, 1).await, 409, "SEAT_ALREADY_HELD");
    assert_eq!(app.buy(&first, 1).await.0, 200);
    app.settle().await;
    is(app.hold(&second, 1).await, 409, "SEAT_ALREADY_SOLD");
    is(app.buy(&second, 1).await, 409, "SEAT_ALREADY_SOLD");
    is(app.release(&second, 1).await, 409, "SEAT_ALREADY_SOLD");
    for seat in 2..=5 {
        assert_eq!(app.hold(&second, seat).await.0, 200);
    }
    is(app.hold(&second, 6).await, 400, "INVALID_REQUEST");
    assert_eq!(app.release(&second, 2).await.0, 204);
    assert_eq!(app.release(&second, 2).await.0, 204, "giving back again is fine");
    assert_eq!(app.hold(&second, 6).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_shown_to_its_buyer_only() {
    let app = TestApp::by_hand(|_| {}).await;
    let (buyer, other) = (app.inside().await, app.inside().await);
    let (_, ticket) = app.buy(&buyer, 1).await;
    let id = ticket["ticketId"].as_str().unwrap().to_owned();
    let see = |id: &str, visitor: &Visitor| {
        answer(app.request(Method::GET, &format!("/api/tickets/{id}")).header("X-Queue-Token", &visitor.0))
    };
    assert_eq!(see(&id, &buyer).await, (StatusCode::OK, ticket));
    is(see(&id, &other).await, 404, "TICKET_NOT_FOUND");
    is(see("nonsense", &buyer).await, 404, "TICKET_NOT_FOUND");
    is(see(&uuid::Uuid::now_v7().to_string(), &buyer).await, 404, "TICKET_NOT_FOUND");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_line_and_a_closed_sale_take_nobody() {
    let app = TestApp::by_hand(|config| {
        config.policy.max_queue = 2;
        config.policy.max_active = 1;
    })
    .await;
    let enter = || answer(app.request(Method::POST, "/api/queues/tokens"));
    let first = app.enter().await;
    app.enter().await;
    is(enter().await, 429, "QUEUE_FULL");
    app.leave(&first).await;
    app.enter().await;

    let mut conn = app.redis.connect().await.unwrap();
    let closed = [("state", "closed")];
    set_live(&app.parts().stores.scripts, &mut conn, &app.event().keys, &closed).await;
    is(enter().await, 409, "EVENT_CLOSED");
    // A token of a place that was never given out is genuine only if the server signed it.
    let newer = Visitor(token_of(&app.event(), 1000));
    assert_eq!(app.status(&newer).await.1["status"], "WAITING");
    app.finish().await;
}
