//! What callers do on the wire, by the byte.

mod wire;

use crate::support::TestApp;
use wire::Then;

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_one_breath_are_answered_one_by_one() {
    let app = TestApp::by_hand(|_| {}).await;
    let addr = app.server.as_ref().unwrap().addr;
    let alive = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
    let unknown = "GET /api/nope HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let heard = wire::send(addr, format!("{}{unknown}{alive}{last}", alive.repeat(20)).as_bytes(), Then::Listen).await;
    let expected: Vec<u16> = std::iter::repeat_n(200, 20).chain([404, 200, 200]).collect();
    assert_eq!(wire::statuses(&heard), expected);
    app.finish().await;
}

/// A second request hidden in the body of the first must not be taken for one.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_hidden_in_a_body_is_not_heard() {
    let app = TestApp::by_hand(|_| {}).await;
    let addr = app.server.as_ref().unwrap().addr;
    let hidden = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
    let bodies = [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}", hidden.len() + 5),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n\r\n0\r\n\r\n{hidden}", hidden.len() + 5),
        format!("Content-Length: {}\r\nContent-Length: 0\r\n\r\n{hidden}", hidden.len()),
        format!("Content-Length: {}\r\n\r\n{hidden}", hidden.len()),
    ];
    for body in bodies {
        let request = format!("POST /api/queues/tokens HTTP/1.1\r\nHost: a\r\n{body}");
        let heard = wire::send(addr, request.as_bytes(), Then::HalfClose).await;
        let statuses = wire::statuses(&heard);
        assert!(statuses.len() <= 1 && !heard.ends_with(b"ok"), "{request}\n\n{}", wire::shown(&heard));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_for_the_head_of_a_stream_opens_none() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.enter().await;
    app.look().await;
    let addr = app.server.as_ref().unwrap().addr;
    let head = format!("HEAD /api/queues/tokens/{}/events HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", visitor.0);
    let heard = wire::send_all(addr, head.as_bytes()).await;
    let (answer, rest) = wire::answer(&heard, true).unwrap();
    assert_eq!((answer.status, answer.kind(), rest), (200, "text/event-stream", b"".as_slice()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let addr = app.server.as_ref().unwrap().addr;
    let api = format!("POST /api/tickets HTTP/1.1\r\nX-Queue-Token: {}\r\nContent-Type: application/json", visitor.0);
    let page = "POST /account/sign-up HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let wait = async |head: &str| {
        let request = format!("{head}\r\nHost: a\r\nContent-Length: 16\r\n\r\n{{\"seat");
        let heard = wire::send(addr, request.as_bytes(), Then::Listen).await;
        assert_eq!(wire::statuses(&heard), [408], "{}", wire::shown(&heard));
    };
    tokio::join!(wait(&api), wait(page));
    app.finish().await;
}
