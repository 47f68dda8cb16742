//! Thousands of requests nobody should send: each gets an answer, none a 5xx, and none breaks anything.
//!
//! The seed is printed when something fails; `ZT_SEED=… cargo test --test it -- http::fuzz` sends the same again.

mod garbage;
mod junk;
mod routes;
mod wire;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use futures_util::future::join_all;
use serde_json::Value;
use zticket::house::operators::{self, Role};
use zticket::server::config::Config;
use zticket::server::run::Background;

use junk::{Junk, Known};
use routes::Route;
use wire::{Answer, Then};
use zticket_testkit::eventually;

use crate::support::TestApp;
use crate::support::contract::{self, Seen};
use crate::support::set_live;

/// Requests to each route.
const ROUNDS: usize = 40;
/// Sent at the same time.
const LANES: usize = 48;
const README: &str = include_str!("../../../README.md");

fn seed() -> u64 {
    std::env::var("ZT_SEED").ok().map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("ZT_SEED is a number"))
}

/// Visitors who came with the junk are let in at the end, and one more.
fn roomy(config: &mut Config) {
    (config.seat_count, config.policy.max_active, config.policy.batch) = (1000, 1000, 1000);
}

/// A free event that lets nobody in, and a priced one with people inside.
async fn open_house(app: &TestApp) -> Known {
    let mut conn = app.redis.connect().await.unwrap();
    set_live(&app.parts().stores.scripts, &mut conn, &app.event().keys, &[("state", "paused")]).await;
    let priced = app.priced_event().await;
    let inside = app.inside_of(priced, 30).await;
    let waiting = join_all((0..30).map(|_| app.enter())).await;
    let rich = join_all((0..3).map(|_| app.rich("Kim Haneul", 200_000))).await;
    let (status, order) = app.pay(&inside[0], &rich[0], &[1, 2]).await;
    assert_eq!(status, 200, "{order}");
    let tickets = order["tickets"].as_array().unwrap();
    let viewer = operators::add(&app.parts().stores.db, "viewer", Role::Viewer).await.unwrap();
    Known {
        waiting: waiting.into_iter().map(|visitor| visitor.0).collect(),
        inside: inside.into_iter().map(|visitor| visitor.0).collect(),
        keys: rich.into_iter().map(|person| person.key).chain([viewer]).collect(),
        tickets: tickets.iter().map(|ticket| ticket["ticketId"].as_str().unwrap().to_owned()).collect(),
        priced: priced.to_string(),
    }
}

/// Every answer is well-formed, whatever the request.
fn check(route: &Route, method: &str, target: &str, answer: &Answer) {
    assert!(answer.status < 500, "a fault of ours");
    if !route.page {
        let packed = answer.header("content-encoding").is_some();
        let body = (!packed).then(|| serde_json::from_slice(&answer.body).ok()).flatten();
        let (path, content_type) = (target.split('?').next().unwrap_or_default(), answer.kind());
        let has_header = &|name: &str| answer.header(&name.to_lowercase()).is_some();
        contract::check(&Seen { method, path, status: answer.status, content_type, body: body.as_ref(), has_header });
    }
    if let Some(to) = answer.header("location") {
        let own = to.starts_with('/') && !to.starts_with("//") && !to.contains('\\');
        assert!(own && answer.status == 303, "leads off the site: {to}");
    }
    match answer.kind() {
        "text/html" => {
            assert!(!target.starts_with("/api/"), "a program is answered in HTML");
            for (name, value) in
                [("x-content-type-options", "nosniff"), ("x-frame-options", "DENY"), ("cache-control", "no-store")]
            {
                assert_eq!(answer.header(name), Some(value), "{name}");
            }
            assert!(
                answer.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
            );
        }
        "application/json" if !answer.body.is_empty() && answer.header("content-encoding").is_none() => {
            let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
            if answer.status >= 400 {
                check_error(route, answer.status, &body);
            }
        }
        _ => assert!(answer.status < 400 || answer.body.is_empty(), "an error without a form"),
    }
}

fn check_error(route: &Route, status: u16, body: &Value) {
    assert_eq!(body["status"], status, "{body}");
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    let code = body["code"].as_str().unwrap();
    assert!(README.contains(code), "{code} is not in the README");
    assert!(!route.page || matches!(code, "NOT_FOUND" | "METHOD_NOT_ALLOWED"), "a page answers {body}");
}

/// Sends one, and prints it if its answer is wrong.
async fn try_one(addr: SocketAddr, route: &Route, request: junk::Request) -> u16 {
    let heard = wire::send(addr, &request.bytes, Then::Listen).await;
    let outcome = std::panic::catch_unwind(|| {
        let (answer, _) = wire::answer(&heard, request.method == "HEAD").expect("an answer");
        check(route, request.method, &request.target, &answer);
        answer.status
    });
    outcome.unwrap_or_else(|_| {
        panic!("{}\n{}\n\nwas answered\n\n{}", route.pattern, wire::shown(&request.bytes), wire::shown(&heard))
    })
}

/// The route patterns for which the server counted answers.
async fn measured(app: &TestApp) -> BTreeSet<String> {
    let text = app.client.get(app.management_url("/actuator/prometheus")).send().await.unwrap().text().await.unwrap();
    let route = |line: &str| Some(line.split_once("route=\"")?.1.split('"').next()?.to_owned());
    text.lines().filter_map(route).filter(|route| route != "none" && !route.starts_with("/actuator")).collect()
}

/// Everything from the line to the ticket still works.
async fn buy_a_ticket(app: &TestApp) {
    let mut conn = app.redis.connect().await.unwrap();
    set_live(&app.parts().stores.scripts, &mut conn, &app.event().keys, &[("state", "open")]).await;
    let visitor = app.enter().await;
    eventually("the turn comes", async || (app.status(&visitor).await.1["status"] == "ACTIVE").then_some(())).await;
    let (status, ticket) = app.buy(&visitor, 50).await;
    assert_eq!((status.as_u16(), &ticket["status"]), (200, &"PAID".into()), "{ticket}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_breaks_the_server() {
    let seed = seed();
    println!("ZT_SEED={seed}");
    let app = TestApp::start_with(Background::Running, roomy).await;
    let known = open_house(&app).await;
    let addr = app.server.as_ref().unwrap().addr;
    let routes = routes::all();
    let lane = async |lane: usize| {
        let mut junk = Junk::new(seed.wrapping_add(lane as u64), &known);
        let mut answered = 0;
        for round in (lane..ROUNDS * routes.len()).step_by(LANES) {
            let route = &routes[round % routes.len()];
            let request = junk.request(route);
            answered += usize::from(try_one(addr, route, request).await < 400);
        }
        answered
    };
    let good: usize = join_all((0..LANES).map(lane)).await.into_iter().sum();
    // If all junk were refused at once, it would test nothing.
    assert!(good * 10 > ROUNDS * routes.len(), "{good} of {} were taken", ROUNDS * routes.len());

    let patterns: BTreeSet<String> = routes.into_iter().map(|route| route.pattern).collect();
    assert_eq!(measured(&app).await, patterns, "what was asked is what there is");
    assert_eq!(app.meta("seats_version").await, 1, "no visitor in line touched a seat");
    buy_a_ticket(&app).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_http_harm_nobody() {
    let seed = seed();
    println!("ZT_SEED={seed}");
    let app = TestApp::start_with(Background::Running, roomy).await;
    let addr = app.server.as_ref().unwrap().addr;
    let cases = garbage::all(&mut fastrand::Rng::with_seed(seed));
    for some in cases.chunks(LANES) {
        join_all(some.iter().map(async |(bytes, then)| {
            let heard = wire::send(addr, bytes, *then).await;
            let faults = wire::statuses(&heard).into_iter().any(|status| status >= 500);
            assert!(!faults, "{}\n\nwas answered\n\n{}", wire::shown(bytes), wire::shown(&heard));
        }))
        .await;
    }
    assert_eq!(app.meta("seats_version").await, 1);
    buy_a_ticket(&app).await;
    app.finish().await;
}

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
async fn a_request_hidden_in_a_body_is_not_executed() {
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
