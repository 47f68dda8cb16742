//! What one address may do, and how long it may take. Tests act as a trusted proxy, so that they can be
//! several clients.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zticket::server::config::Config;
use zticket::web::limits::LimitSettings;
use zticket_testkit::eventually;

use crate::support::app::answer;
use crate::support::{TestApp, Visitor};

/// With one a second, this many at once.
const BURST: usize = 10;
const HERE: &str = "192.0.2.1";
const THERE: &str = "192.0.2.2";

/// One request a second for each of these, from behind a proxy at 127.0.0.1.
async fn limited(change: impl FnOnce(&mut LimitSettings)) -> TestApp {
    TestApp::by_hand(|config| {
        change(&mut config.limits);
        behind_proxy(config);
    })
    .await
}

fn behind_proxy(config: &mut Config) {
    config.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
}

fn from(request: RequestBuilder, client: &str) -> RequestBuilder {
    request.header("X-Forwarded-For", client)
}

/// Sends again and again until a request is refused. Returns how many were accepted, and the refusal.
async fn until_refused(request: impl Fn() -> RequestBuilder) -> (usize, Response) {
    for sent in 0..1000 {
        let response = request().send().await.unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            return (sent, response);
        }
    }
    panic!("nothing was refused");
}

fn retry_after(response: &Response) -> u64 {
    response.headers()["retry-after"].to_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn entering_is_limited_by_address_and_allowed_again_later() {
    let app = limited(|limits| limits.enter_per_second = 1).await;
    let enter = |client: &'static str| from(app.request(Method::POST, "/api/queues/tokens"), client);
    let (sent, refused) = until_refused(|| enter(HERE)).await;
    assert!(sent >= BURST, "{sent}");
    assert_eq!(retry_after(&refused), 1);
    let body: serde_json::Value = refused.json().await.unwrap();
    assert_eq!((&body["status"], &body["code"]), (&429.into(), &"TOO_MANY_REQUESTS".into()));
    assert_eq!(enter(THERE).send().await.unwrap().status(), 200, "another address is another client");
    eventually("the second is over", async || (enter(HERE).send().await.unwrap().status() == 200).then_some(())).await;
    // Polls are not counted.
    let visitor = Visitor(answer(enter(THERE)).await.1["uuid"].as_str().unwrap().to_owned());
    app.look().await;
    for _ in 0..3 * BURST {
        let poll = app.request(Method::GET, &format!("/api/queues/tokens/{}", visitor.0));
        assert_eq!(from(poll, HERE).send().await.unwrap().status(), 200);
    }
    let metrics = app.client.get(app.management_url("/actuator/prometheus")).send().await.unwrap();
    assert!(metrics.text().await.unwrap().contains("zticket_limited_total{limit=\"enter\"}"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_cannot_make_up_an_address() {
    let app = TestApp::by_hand(|config| {
        config.limits.enter_per_second = 1;
        config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    })
    .await;
    let next = std::cell::Cell::new(0);
    let enter = || {
        next.set(next.get() + 1);
        from(app.request(Method::POST, "/api/queues/tokens"), &format!("192.0.2.{}", next.get() % 250))
    };
    let (sent, _) = until_refused(enter).await;
    assert!(sent >= BURST, "{sent}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_writes_before_the_proxy_does_not_help_it() {
    let app = limited(|limits| limits.enter_per_second = 1).await;
    let next = std::cell::Cell::new(0);
    let enter = || {
        next.set(next.get() + 1);
        from(app.request(Method::POST, "/api/queues/tokens"), &format!("198.51.100.{}, {HERE}", next.get() % 250))
    };
    until_refused(enter).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_network_is_one_client() {
    let app = limited(|limits| limits.enter_per_second = 1).await;
    let next = std::cell::Cell::new(0);
    let enter = |client: &str| from(app.request(Method::POST, "/api/queues/tokens"), client);
    let vary = || {
        next.set(next.get() + 1);
        enter(&format!("2001:db8:1:2::{:x}", next.get()))
    };
    until_refused(vary).await;
    assert_eq!(enter("2001:db8:1:3::1").send().await.unwrap().status(), 200, "the network beside it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holding_buying_and_signing_up_are_limited() {
    let app = limited(|limits| (limits.buy_per_second, limits.sign_up_per_second) = (1, 1)).await;
    let visitor = app.inside().await;
    let with_token =
        |path: &str, client| from(app.request(Method::POST, path), client).header("X-Queue-Token", &visitor.0);
    let (sent, _) = until_refused(|| with_token("/api/seats/1/hold", HERE)).await;
    assert!(sent >= BURST, "{sent}");
    // They share what is left, which is next to nothing.
    until_refused(|| with_token("/api/tickets", HERE).json(&json!({ "seatNumber": 99 }))).await;
    until_refused(|| with_token("/api/seats/best", HERE).json(&json!({ "count": 99 }))).await;
    assert_eq!(answer(with_token("/api/tickets", THERE).json(&json!({ "seatNumber": 1 }))).await.0, 200);

    let sign_up = |client| from(app.request(Method::POST, "/api/users"), client).json(&json!({ "name": "Kim" }));
    let (sent, refused) = until_refused(|| sign_up(HERE)).await;
    assert!(sent >= BURST && retry_after(&refused) == 1, "{sent}");
    assert_eq!(answer(sign_up(THERE)).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_person_asks_and_changes_only_so_often() {
    let app = limited(|limits| limits.person_per_second = 1).await;
    let (person, other) = (app.sign_up("A").await, app.sign_up("B").await);
    let charge = || {
        let request = app.as_person(&person, Method::POST, "/api/users/me/balance/charges");
        request.header("Idempotency-Key", uuid::Uuid::now_v7().to_string()).json(&json!({ "amount": 1 }))
    };
    let (sent, refused) = until_refused(charge).await;
    assert!((BURST..BURST + 5).contains(&sent), "{sent}");
    assert_eq!(retry_after(&refused), 1);
    // Whatever else they ask about themselves counts too, and from any address.
    for path in ["", "/balance", "/balance/movements", "/tickets", "/payments", "/orders"] {
        until_refused(|| from(app.as_person(&person, Method::GET, &format!("/api/users/me{path}")), THERE)).await;
    }
    let ticket = format!("/api/tickets/{}", uuid::Uuid::now_v7());
    until_refused(|| app.as_person(&person, Method::GET, &ticket)).await;
    let account = || app.request(Method::GET, "/account").header("Cookie", format!("zt_key={}", person.key));
    until_refused(account).await;
    assert_eq!(app.balance(&other).await, 0, "another person is not held up");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_back_cancelling_and_guessing_keys_are_limited() {
    let app = limited(|limits| (limits.buy_per_second, limits.sign_up_per_second) = (1, 1)).await;
    let visitor = app.inside().await;
    let release = || from(app.request(Method::DELETE, "/api/seats/1/hold"), HERE).header("X-Queue-Token", &visitor.0);
    let (sent, refused) = until_refused(release).await;
    assert!(sent >= BURST, "{sent}");
    assert_eq!(refused.headers()["ratelimit-policy"], "\"buy\";q=10;w=10");
    assert_eq!(refused.headers()["ratelimit"], "\"buy\";r=0;t=1");
    let ticket = format!("/api/tickets/{}", uuid::Uuid::now_v7());
    until_refused(|| from(app.request(Method::DELETE, &ticket), HERE).header("X-Queue-Token", &visitor.0)).await;

    let guess = || from(app.request(Method::GET, "/api/users/me"), HERE).bearer_auth(format!("zt_{}", "0".repeat(64)));
    let (sent, _) = until_refused(guess).await;
    assert!(sent >= BURST, "{sent}");
    let form = || {
        let form =
            app.request(Method::POST, "/account/sign-in").header("Content-Type", "application/x-www-form-urlencoded");
        from(form.body("key=wrong"), HERE)
    };
    until_refused(form).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_over_the_limit_is_answered_by_a_page() {
    let app = limited(|limits| (limits.enter_per_second, limits.sign_up_per_second) = (1, 1)).await;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for (path, body) in [("/events/1/join", ""), ("/account/sign-up", "name=A")] {
        let (sent, page) = until_refused(|| {
            let form = client.post(app.url(path)).header("Content-Type", "application/x-www-form-urlencoded");
            from(form.header("Accept-Language", "en").body(body), HERE)
        })
        .await;
        assert!(sent >= BURST, "{sent}");
        assert_eq!(retry_after(&page), 1);
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
        assert!(page.headers().contains_key("content-security-policy"));
        assert_eq!(page.headers().get("set-cookie"), None);
        let text = page.text().await.unwrap();
        assert!(text.contains("Too many at once") && text.contains("<main"), "{text}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_limited_and_a_closed_one_makes_room() {
    let app = limited(|limits| limits.streams = 2).await;
    let mut visitors = Vec::new();
    for _ in 0..200 {
        visitors.push(app.enter().await);
    }
    app.look().await;
    let last = visitors.pop().unwrap();
    let open = |client| from(app.request(Method::GET, &format!("/api/queues/tokens/{}/events", last.0)), client);
    let (first, second) = (open(HERE).send().await.unwrap(), open(HERE).send().await.unwrap());
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    let refused = open(HERE).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), retry_after(&refused)), (429, 15));
    assert_eq!(refused.json::<serde_json::Value>().await.unwrap()["code"], "TOO_MANY_REQUESTS");
    let elsewhere = open(THERE).send().await.unwrap();
    assert_eq!(elsewhere.status(), 200);
    assert_eq!(answer(from(app.request(Method::GET, &format!("/api/queues/tokens/{}", last.0)), HERE)).await.0, 200);

    // The server notices a closed stream when it sends the next event.
    drop(first);
    let third = eventually("the slot is given back", async || {
        app.leave(&visitors.pop().unwrap()).await;
        app.look().await;
        let third = open(HERE).send().await.unwrap();
        (third.status() == 200).then_some(third)
    })
    .await;
    drop((second, third, elsewhere));
    app.finish().await;
}

/// Everything the server says until it closes the connection.
async fn hear(stream: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    let reading = stream.read_to_end(&mut heard);
    // A reset is an end too; what came before it counts.
    let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("cut off within 20 seconds");
    String::from_utf8(heard).unwrap()
}

async fn connect(app: &TestApp, first: &str) -> TcpStream {
    let mut stream = TcpStream::connect(app.server.as_ref().unwrap().addr).await.unwrap();
    stream.write_all(first.as_bytes()).await.unwrap();
    stream
}

/// The web server's clock for this ticks twice a second, so less would sometimes be nothing.
const REQUEST_TIME: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_dribbles_in_is_cut_off() {
    let app = TestApp::by_hand(|config| config.request_time = REQUEST_TIME).await;
    let head = "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    let json = "POST /api/users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{";
    let form = "POST /account/sign-up HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                Transfer-Encoding: chunked\r\n\r\n4\r\nname\r\n";
    let heard = async |begun| hear(&mut connect(&app, begun).await).await;
    let (head, json, form) = tokio::join!(heard(head), heard(json), heard(form));
    for heard in [&head, &json, &form] {
        assert!(heard.starts_with("HTTP/1.1 408 ") && heard.to_lowercase().contains("connection: close"), "{heard}");
    }
    assert!(json.contains("\"code\":\"REQUEST_TIMEOUT\""), "{json}");
    assert!(form.contains("<main"), "{form}");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM users").await.unwrap(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_nobody_asked_for_is_not_read_for_ever() {
    let app = TestApp::by_hand(|_| {}).await;
    let enter = "POST /api/queues/tokens HTTP/1.1\r\nHost: x\r\n";
    for body in ["Content-Length: 1000000000\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"] {
        let heard = hear(&mut connect(&app, &format!("{enter}{body}")).await).await;
        assert!(heard.starts_with("HTTP/1.1 200 ") && heard.to_lowercase().contains("connection: close"), "{heard}");
    }
    // After a body that was read to its end the connection stays open.
    let json = "POST /api/users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
                8\r\n{\"name\":\r\n4\r\n\"A\"}\r\n0\r\n\r\n";
    let mut stream = connect(&app, json).await;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let heard = hear(&mut stream).await;
    assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("ok"), "{heard}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_connection_is_closed() {
    let app = TestApp::by_hand(|config| config.request_time = REQUEST_TIME).await;
    let mut quiet = connect(&app, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(hear(&mut quiet).await.ends_with("ok"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_urls_headers_and_forms_are_refused() {
    let app = TestApp::by_hand(|_| {}).await;
    for path in [format!("/{}", "a".repeat(4096)), format!("/api/seats?x={}", "a".repeat(5000))] {
        let (status, body) = answer(app.request(Method::GET, &path)).await;
        assert_eq!((status.as_u16(), body["code"].as_str()), (414, Some("URI_TOO_LONG")));
    }
    assert_eq!(answer(app.request(Method::GET, &format!("/{}", "a".repeat(4095)))).await.0, 404);
    // Far too long: the web server itself refuses, without a body.
    for line in [
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(70_000)),
        "GET / HTTP/1.1\r\nX: ".to_owned() + &"x".repeat(200_000),
    ] {
        let mut stream = TcpStream::connect(app.server.as_ref().unwrap().addr).await.unwrap();
        let _ = stream.write_all(line.as_bytes()).await;
        let heard = hear(&mut stream).await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 4"), "{heard}");
    }
    let form =
        app.request(Method::POST, "/account/sign-up").header("Content-Type", "application/x-www-form-urlencoded");
    let page = form.body(format!("name={}", "a".repeat(20_000))).send().await.unwrap();
    assert_eq!(page.status(), 413);
    assert!(page.headers().contains_key("content-security-policy"));
    assert!(page.text().await.unwrap().contains("<main"));
    app.finish().await;
}
