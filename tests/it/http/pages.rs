//! Pages without a browser: their headers and cookies.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use zticket_testkit::eventually;

use crate::support::TestApp;

fn browser() -> Client {
    Client::builder().redirect(Policy::none()).build().unwrap()
}

async fn get(app: &TestApp, path: &str) -> Response {
    browser().get(app.url(path)).header("Accept", "text/html").send().await.unwrap()
}

async fn post(app: &TestApp, path: &str, body: &str, headers: &[(&str, &str)]) -> Response {
    let form = "application/x-www-form-urlencoded";
    let request = browser().post(app.url(path)).header("Content-Type", form).body(body.to_owned());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.send().await.unwrap()
}

fn cookie(response: &Response) -> String {
    response.headers()["set-cookie"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_forbids_what_it_does_not_need() {
    let app = TestApp::by_hand(|_| {}).await;
    app.look().await;
    for path in ["/", "/events/1", "/events/1/queue", "/account", "/nothing", "/tickets/x", "/events/99"] {
        let response = get(&app, path).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("cache-control"), "no-store");
        let text = response.text().await.unwrap();
        assert!(!text.contains(" style=") && !text.contains(" onclick="), "{path}");
        // The only script is a file of ours.
        assert_eq!(text.matches("<script").count(), 1, "{path}");
        assert!(text.contains("<script src=\"/assets/app-"), "{path}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_http_only_same_site_and_secure_behind_https() {
    let app = TestApp::by_hand(|_| {}).await;
    let joined = post(&app, "/events/1/join", "", &[]).await;
    assert_eq!((joined.status().as_u16(), joined.headers()["location"].to_str().unwrap()), (303, "/events/1/queue"));
    let place = cookie(&joined);
    assert!(place.starts_with("zt_place_1=00000100-"), "{place}");
    assert!(place.contains("; HttpOnly") && place.contains("; SameSite=Lax") && !place.contains("Secure"), "{place}");
    let session = cookie(&post(&app, "/account/sign-up", "name=A", &[("X-Forwarded-Proto", "https")]).await);
    assert!(session.starts_with("zt_session=") && session.contains("; Secure"), "{session}");
    assert!(session.contains("; HttpOnly") && session.contains("; SameSite=Lax"), "{session}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_lead_to_own_paths_only() {
    let app = TestApp::by_hand(|_| {}).await;
    for (next, to) in [
        ("/events/1", "/events/1"),
        ("//evil.example", "/account"),
        ("https://evil.example/", "/account"),
        ("/%5Cevil.example", "/account"),
    ] {
        let response = post(&app, "/account/sign-up", &format!("name=A&next={next}"), &[]).await;
        assert_eq!(response.headers()["location"], to, "{next}");
    }
    let response = get(&app, "/language/ko?to=//evil.example").await;
    assert_eq!(response.headers()["location"], "/");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_elsewhere_or_without_its_fields_is_refused() {
    let app = TestApp::by_hand(|_| {}).await;
    for headers in [[("Sec-Fetch-Site", "cross-site")], [("Origin", "https://evil.example")]] {
        let response = post(&app, "/events/1/join", "", &headers).await;
        assert_eq!(response.status(), 403);
        assert_eq!(response.headers().get("set-cookie"), None);
    }
    for (path, body) in [("/account/sign-up", ""), ("/events/1/seats/hold", "seat=x"), ("/account/charge", "amount=5")]
    {
        assert_eq!(post(&app, path, body, &[]).await.status(), 400, "{path}");
    }
    assert_eq!(app.meta("entered").await, 0);
    for (form, page) in
        [("/events/1/join", "/events/1"), ("/events/1/seats/pay", "/events/1/seats"), ("/account/charge", "/account")]
    {
        assert_eq!(get(&app, form).await.headers()["location"], page, "{form}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_alone_does_not_change_the_place() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.enter().await;
    app.look().await;
    let page = get(&app, &format!("/events/1/queue?place={}", visitor.0)).await;
    assert_eq!((page.status().as_u16(), page.headers().get("set-cookie")), (200, None));
    let taken = post(&app, "/events/1/queue/place", &format!("place={}", visitor.0), &[]).await;
    assert!(cookie(&taken).starts_with(&format!("zt_place_1={}", visitor.0)));
    assert_eq!(post(&app, "/events/1/queue/place", "place=x", &[]).await.status(), 404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_pages_for_browsers_and_json_for_programs() {
    let mut app = TestApp::by_hand(|_| {}).await;
    app.look().await;
    let page = get(&app, "/nothing").await;
    assert_eq!(
        (page.status().as_u16(), page.headers()["content-type"].to_str().unwrap()),
        (404, "text/html; charset=utf-8")
    );
    let json = browser().get(app.url("/nothing")).send().await.unwrap();
    assert_eq!((json.status().as_u16(), json.headers()["content-type"].to_str().unwrap()), (404, "application/json"));
    app.redis.kill();
    let page = post(&app, "/events/1/join", "", &[]).await;
    assert_eq!(page.status(), 503);
    assert!(page.headers().contains_key("retry-after"));
    assert!(page.text().await.unwrap().contains("Nothing is lost"));
    app.restart_redis().await;
    eventually("it works again", async || (post(&app, "/events/1/join", "", &[]).await.status() == 303).then_some(()))
        .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_in_is_shown_as_text() {
    let app = TestApp::by_hand(|_| {}).await;
    let key = cookie(&post(&app, "/account/sign-up", "name=%3Cscript%3Ealert(1)%3C%2Fscript%3E", &[]).await);
    let key = key.split(';').next().unwrap().to_owned();
    let page = browser().get(app.url("/account?next=%22%3E%3Cb%3E")).header("Cookie", key).send().await.unwrap();
    let text = page.text().await.unwrap();
    assert!(text.contains("Hello, &lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!text.contains("\"><b>"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_seat_map_is_compressed_and_a_small_page_is_not() {
    let app = TestApp::by_hand(|config| config.seat_count = 400).await;
    let visitor = app.inside().await;
    let ask = |path: &str| {
        let request = browser().get(app.url(path)).header("Accept-Encoding", "gzip");
        request.header("Cookie", format!("zt_place_1={}", visitor.0)).send()
    };
    let map = ask("/events/1/seats").await.unwrap();
    assert_eq!((map.status().as_u16(), map.headers()["content-encoding"].to_str().unwrap()), (200, "gzip"));
    assert!(map.bytes().await.unwrap().len() < 16_000);
    assert_eq!(ask("/account").await.unwrap().headers().get("content-encoding"), None);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn style_and_script_are_cached_for_good_under_a_hashed_name() {
    let app = TestApp::by_hand(|_| {}).await;
    app.look().await;
    let text = get(&app, "/").await.text().await.unwrap();
    let style =
        text.split("href=\"").find(|part| part.starts_with("/assets/style-")).unwrap().split('"').next().unwrap();
    let response = get(&app, style).await;
    assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(response.headers()["content-type"], "text/css; charset=utf-8");
    let small = browser().get(app.url(style)).header("Accept-Encoding", "gzip").send().await.unwrap();
    assert_eq!(small.headers()["content-encoding"], "gzip");
    assert!(small.bytes().await.unwrap().len() * 2 < response.text().await.unwrap().len());
    assert_eq!(get(&app, "/assets/style-000000000000.css").await.status(), 404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_places_in_cookies_hold_nobody_up() {
    let app = TestApp::by_hand(|_| {}).await;
    // Each is of an event that does not exist.
    let made_up = |at: u128| uuid::Uuid::from_u128((0xff_0000 + at) << 104 | 0x8000_8000_0000_0000_0000);
    let cookies: Vec<String> = (0..20).map(|at| format!("zt_place_{at}={}", made_up(at))).collect();
    let ticket = format!("/tickets/{}", uuid::Uuid::now_v7());
    let request = app.request(Method::GET, &ticket).header("Cookie", cookies.join("; "));
    let answer = tokio::time::timeout(Duration::from_secs(5), request.send()).await.expect("within five seconds");
    assert_eq!(answer.unwrap().status(), 404);
    app.finish().await;
}
