//! How people prove who they are: API keys for programs, sessions for browsers, and taking both back.

use futures_util::future::join;
use reqwest::redirect::Policy as Redirects;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use zticket::base::ids::{OrderId, PersonId, TicketId};
use zticket::server::run::Background;
use zticket::store::db::tickets::{self, Claimed};
use zticket_testkit::eventually;

use crate::support::TestApp;
use crate::support::app::{Answer, answer};
use crate::support::people::Person;

/// A browser that keeps its cookies.
struct Browser<'a> {
    app: &'a TestApp,
    client: Client,
    cookies: Vec<(String, String)>,
}

impl<'a> Browser<'a> {
    fn new(app: &'a TestApp) -> Self {
        let client = Client::builder().redirect(Redirects::none()).build().unwrap();
        Self { app, client, cookies: Vec::new() }
    }

    async fn signed_up(app: &'a TestApp, name: &'static str) -> Self {
        let mut browser = Self::new(app);
        assert_eq!(browser.post("/account/sign-up", &format!("name={name}")).await.headers()["location"], "/account");
        browser
    }

    fn header(&self) -> String {
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }

    fn keep(&mut self, response: &Response) {
        for cookie in response.headers().get_all("set-cookie") {
            let (name, rest) = cookie.to_str().unwrap().split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !rest.contains("Max-Age=0") {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    async fn post(&mut self, path: &str, form: &str) -> Response {
        let request = self.client.post(self.app.url(path)).header("Cookie", self.header());
        let request =
            request.header("Content-Type", "application/x-www-form-urlencoded").header("User-Agent", "Tester/1");
        let response = request.body(form.to_owned()).send().await.unwrap();
        self.keep(&response);
        response
    }

    async fn page(&mut self, path: &str) -> String {
        let request =
            self.client.get(self.app.url(path)).header("Cookie", self.header()).header("Accept-Language", "en");
        let response = request.send().await.unwrap();
        self.keep(&response);
        response.text().await.unwrap()
    }

    fn session(&self) -> &str {
        &self.cookies.iter().find(|(name, _)| name == "zt_session").unwrap().1
    }
}

async fn me(app: &TestApp, key: &str) -> u16 {
    answer(app.request(Method::GET, "/api/users/me").bearer_auth(key)).await.0.as_u16()
}

async fn make_key(app: &TestApp, person: &Person, name: &str) -> Value {
    let (status, key) =
        answer(app.as_person(person, Method::POST, "/api/users/me/keys").json(&json!({ "name": name }))).await;
    assert_eq!(status, 200, "{key}");
    key
}

async fn revoke(app: &TestApp, person: &Person, key: &Value) -> Answer {
    let path = format!("/api/users/me/keys/{}", key["keyId"].as_str().unwrap());
    answer(app.as_person(person, Method::DELETE, &path)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_several_keys_and_a_revoked_one_is_refused_by_every_server() {
    let app = TestApp::by_hand(|_| {}).await;
    let other = app.another(Background::ByHand).await;
    let (person, stranger) = (app.sign_up("A").await, app.sign_up("B").await);
    let key = make_key(&app, &person, " box office ").await;
    let text = key["apiKey"].as_str().unwrap();
    assert!(key["name"] == "box office" && text.starts_with("zt_") && text != person.key);
    let names = app.get_as(&person, "/api/users/me/keys").await;
    let names: Vec<&Value> = names["items"].as_array().unwrap().iter().map(|key| &key["name"]).collect();
    assert_eq!(names, ["sign-up", "box office"]);
    let there = async || {
        let request = app.client.get(format!("http://{}/api/users/me", other.addr)).bearer_auth(text);
        answer(request).await.0.as_u16()
    };
    assert_eq!((me(&app, text).await, there().await), (200, 200));

    assert_eq!(revoke(&app, &stranger, &key).await.0, 404, "nobody else's key");
    assert_eq!(revoke(&app, &person, &key).await.0, 204);
    assert_eq!(me(&app, text).await, 401, "refused at once by the server that was told");
    let revoked = std::time::Instant::now();
    eventually("the other server refuses it", async || (there().await == 401).then_some(())).await;
    assert!(revoked.elapsed().as_secs() < 2, "{:?}", revoked.elapsed());
    assert_eq!(revoke(&app, &person, &key).await.0, 404);
    assert_eq!(me(&app, &person.key).await, 200, "the other key is as good as before");

    for at in 1..20 {
        make_key(&app, &person, &format!("key {at}")).await;
    }
    let one_more = app.as_person(&person, Method::POST, "/api/users/me/keys").json(&json!({ "name": "x" }));
    assert_eq!(answer(one_more).await.0, 400, "twenty are enough");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_keeps_a_session_that_ends_on_every_server_when_it_signs_out() {
    let app = TestApp::by_hand(|_| {}).await;
    let other = app.another(Background::ByHand).await;
    let mut browser = Browser::signed_up(&app, "Kim").await;
    assert!(!browser.session().starts_with("zt_"), "the cookie is no key");
    let page = browser.page("/account").await;
    assert!(page.contains("Hello, Kim") && !page.contains(browser.session()));
    let cookie = format!("zt_session={}", browser.session());
    let signed_in = async |addr: std::net::SocketAddr| {
        let request = browser.client.get(format!("http://{addr}/account")).header("Cookie", &cookie);
        request.header("Accept-Language", "en").send().await.unwrap().text().await.unwrap().contains("Hello, Kim")
    };
    assert!(signed_in(other.addr).await);
    let here = app.server.as_ref().unwrap().addr;
    let hash = blake3::hash(browser.session().as_bytes()).to_hex();
    let kept = format!("SELECT count(*) AS n FROM person_sessions WHERE hash = '\\x{hash}'");
    assert_eq!(app.db.number(&kept).await.unwrap(), 1, "the database has a hash of it");

    // Without a key there would be no way back.
    let mut leaving = Browser { app: &app, client: browser.client.clone(), cookies: browser.cookies.clone() };
    assert_eq!(leaving.post("/account/sign-out", "").await.headers()["location"], "/account?problem=no-key#access");
    assert!(leaving.page("/account?problem=no-key").await.contains("you cannot come back"));
    assert!(signed_in(here).await);
    let key_page = leaving.post("/account/keys", "name=home").await.text().await.unwrap();
    let key = key_page.split("class=\"code\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert_eq!(leaving.post("/account/sign-out", "").await.headers()["location"], "/");
    assert!(leaving.cookies.is_empty(), "{:?}", leaving.cookies);
    assert!(!signed_in(here).await, "the old cookie is worth nothing");
    eventually("the other server knows too", async || (!signed_in(other.addr).await).then_some(())).await;

    assert_eq!(leaving.post("/account/sign-in", &format!("key={key}")).await.headers()["location"], "/account");
    assert!(leaving.page("/account").await.contains("Hello, Kim"), "the key leads back");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_browser_can_be_signed_out_from_another_one() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.sign_up("Lee").await;
    let (mut lost, mut own) = (Browser::new(&app), Browser::new(&app));
    for browser in [&mut lost, &mut own] {
        browser.post("/account/sign-in", &format!("key={}", person.key)).await;
    }
    let sessions = app.get_as(&person, "/api/users/me/sessions").await;
    let sessions = sessions["items"].as_array().unwrap();
    assert_eq!(
        (sessions.len(), &sessions[0]["browser"], &sessions[0]["current"]),
        (2, &json!("Tester/1"), &json!(false))
    );
    let page = own.page("/account").await;
    assert!(page.contains("this browser"));
    let form = page.split("action=\"/account/browsers/").nth(1).unwrap().split('"').next().unwrap();
    let stranger = app.sign_up("B").await;
    let theirs = format!("/api/users/me/sessions/{}", sessions[0]["sessionId"].as_str().unwrap());
    assert_eq!(answer(app.as_person(&stranger, Method::DELETE, &theirs)).await.0, 404);
    own.post(&format!("/account/browsers/{form}"), "").await;
    assert!(!lost.page("/account").await.contains("Hello, Lee"));
    assert!(own.page("/account").await.contains("Hello, Lee"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_takes_a_session_from_our_own_pages_only() {
    let app = TestApp::by_hand(|_| {}).await;
    let browser = Browser::signed_up(&app, "Kim").await;
    let ask = async |headers: &[(&str, String)]| {
        let request = app.request(Method::GET, "/api/users/me").header("Cookie", browser.header());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        answer(request).await.0.as_u16()
    };
    assert_eq!(ask(&[]).await, 401, "a program sends a key");
    assert_eq!(ask(&[("Sec-Fetch-Site", "cross-site".to_owned())]).await, 401);
    assert_eq!(ask(&[("Origin", "https://evil.example".to_owned())]).await, 401);
    assert_eq!(ask(&[("Sec-Fetch-Site", "same-origin".to_owned())]).await, 200);
    assert_eq!(ask(&[("Origin", app.url(""))]).await, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_kept_the_key_itself_gets_a_session_for_it() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.sign_up("Old").await;
    let mut browser = Browser::new(&app);
    browser.cookies.push(("zt_key".to_owned(), person.key.clone()));
    browser.page("/account").await;
    assert!(browser.cookies.iter().all(|(name, _)| name != "zt_key"), "{:?}", browser.cookies);
    let page = browser.page("/account").await;
    assert!(page.contains("Hello, Old") && !page.contains(&person.key));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_use_lasts_longer_and_an_unused_one_ends() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut browser = Browser::signed_up(&app, "Kim").await;
    let age = "UPDATE person_sessions SET seen_at = now() - interval '2 days', expires_at = now() + interval '5 days'";
    app.db.execute(age).await.unwrap();
    let session = browser.session().to_owned();
    let request = browser.client.get(app.url("/account")).header("Cookie", browser.header());
    let renewed = request.send().await.unwrap().headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(renewed.starts_with(&format!("zt_session={session};")) && renewed.contains("Max-Age=2592000"), "{renewed}");
    let lasts = "SELECT extract(day FROM expires_at - now())::bigint AS n FROM person_sessions";
    assert_eq!(app.db.number(lasts).await.unwrap(), 29);

    app.db.execute("UPDATE person_sessions SET expires_at = now()").await.unwrap();
    eventually("signed out", async || {
        let request = browser.client.get(app.url("/account")).header("Cookie", browser.header());
        (!request.send().await.unwrap().text().await.unwrap().contains("Hello")).then_some(())
    })
    .await;
    // The next one who signs in clears it away.
    browser.post("/account/sign-up", "name=Next").await;
    assert_eq!(app.db.number("SELECT count(*) AS n FROM person_sessions").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_https_a_neighbouring_site_cannot_set_our_cookies() {
    let app = TestApp::by_hand(|config| config.public_url = "https://tickets.example".to_owned()).await;
    let mut browser = Browser::signed_up(&app, "Kim").await;
    let (name, value) = browser.cookies[0].clone();
    assert_eq!(name, "__Host-zt_session");
    assert!(browser.page("/account").await.contains("Hello, Kim"));
    browser.cookies = vec![("zt_session".to_owned(), value)];
    assert!(!browser.page("/account").await.contains("Hello, Kim"));
    // Nor sign somebody in as somebody else with a key, as browsers kept it before.
    let attacker = app.sign_up("Attacker").await;
    browser.cookies = vec![("zt_key".to_owned(), attacker.key)];
    assert!(!browser.page("/account").await.contains("Hello"));
    assert!(browser.cookies.iter().all(|(name, _)| !name.contains("session")), "{:?}", browser.cookies);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_bought_without_signing_in_survives_the_next_place_and_can_be_claimed() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut browser = Browser::new(&app);
    let buy = async |browser: &mut Browser<'_>, seat: u32| {
        browser.post("/events/1/join", "").await;
        app.admit().await;
        app.look().await;
        let bought = browser.post("/events/1/seats/pay", &format!("seats={seat}")).await;
        let to = bought.headers()["location"].to_str().unwrap().split('?').next().unwrap().to_owned();
        assert!(to.starts_with("/tickets/"), "{to}");
        app.settle().await;
        app.look().await;
        to
    };
    let first = buy(&mut browser, 1).await;
    let place = browser.cookies.iter().find(|(name, _)| name == "zt_place_1").unwrap().1.clone();
    let second = buy(&mut browser, 2).await;
    for ticket in [&first, &second] {
        assert!(browser.page(ticket).await.contains("<svg"), "both are still there");
    }
    let page = browser.page("/account").await;
    assert!(page.contains(&first) && page.contains(&second), "and can be found");

    // Never silently: somebody who signs in here decides.
    browser.post("/account/sign-up", "name=Kim").await;
    let counted = "SELECT coalesce(sum(living), 0)::bigint AS n FROM person_tickets";
    assert_eq!(app.db.number(counted).await.unwrap(), 0);
    assert!(browser.page(&first).await.contains("Keep it in my account"));
    let mut stranger = Browser::signed_up(&app, "Lee").await;
    assert_eq!(stranger.post(&format!("{first}/claim"), "").await.status(), 404);
    for _ in 0..2 {
        assert_eq!(browser.post(&format!("{first}/claim"), "").await.headers()["location"], first);
    }
    assert_eq!(app.db.number(counted).await.unwrap(), 1, "claiming twice counts once");
    let token = place.split('.').next().unwrap();
    let api = first.replace("/tickets/", "/api/tickets/");
    let with_token = app.request(Method::GET, &api).header("X-Queue-Token", token);
    assert_eq!(answer(with_token).await.0, 401, "it is the person's alone from now on");
    assert!(browser.page(&first).await.contains("<svg"));
    browser.post(&format!("{first}/cancel"), "").await;
    assert_eq!(app.db.number(counted).await.unwrap(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_raced_with_a_cancel_counts_what_is_left() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.sign_up("A").await;
    let id: uuid::Uuid = person.id.parse().unwrap();
    for seat in 1..=8 {
        let visitor = app.inside().await;
        let (status, ticket) = app.buy(&visitor, seat).await;
        assert_eq!(status, 200, "{ticket}");
        app.settle().await;
        let uuid = |field: &str| ticket[field].as_str().unwrap().parse::<uuid::Uuid>().unwrap();
        let (ticket, order) = (TicketId(uuid("ticketId")), OrderId(uuid("orderId")));
        let (pool, other) = (&app.parts().stores.db, &app.parts().stores.db);
        let claim = async { tickets::claim(&mut pool.get().await.unwrap(), order, PersonId(id), None).await.unwrap() };
        let cancel = async { tickets::cancel(&mut other.get().await.unwrap(), ticket, false).await.unwrap() };
        assert_eq!(join(claim, cancel).await, (Claimed::Done, true));
    }
    app.settle().await;
    // What is counted is compared with the tickets.
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_up_whose_answer_got_lost_can_be_repeated() {
    let app = TestApp::by_hand(|_| {}).await;
    let sign_up = async |name: &str, once: &str| {
        let request = app.request(Method::POST, "/api/users").header("Idempotency-Key", once);
        answer(request.json(&json!({ "name": name }))).await
    };
    let once = "8c0d6f3b9b1f4e5a9c7d2e4f6a8b0c1d";
    let together = futures_util::future::join_all((0..10).map(|_| sign_up("Kim", once))).await;
    assert!(together.iter().all(|one| one.0 == 200 && one.1 == together[0].1), "{together:?}");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM users").await.unwrap(), 1);
    assert_eq!(me(&app, together[0].1["apiKey"].as_str().unwrap()).await, 200);
    assert_eq!(sign_up("Lee", once).await.1["code"], "IDEMPOTENCY_KEY_REUSED");
    assert_ne!(sign_up("Kim", "9c0d6f3b9b1f4e5a9c7d2e4f6a8b0c1d").await.1["userId"], together[0].1["userId"]);
    for guessable in ["", "first", "0123456789"] {
        assert_eq!(sign_up("Kim", guessable).await.0, 400, "{guessable}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_began_with_a_key_ends_with_it() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.sign_up("Kim").await;
    let stolen = make_key(&app, &person, "stolen").await;
    let (mut thief, mut own) = (Browser::new(&app), Browser::new(&app));
    thief.post("/account/sign-in", &format!("key={}", stolen["apiKey"].as_str().unwrap())).await;
    own.post("/account/sign-in", &format!("key={}", person.key)).await;
    assert!(thief.page("/account").await.contains("Hello, Kim"));
    assert_eq!(revoke(&app, &person, &stolen).await.0, 204);
    eventually("the thief is out", async || (!thief.page("/account").await.contains("Hello")).then_some(())).await;
    assert!(own.page("/account").await.contains("Hello, Kim"));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_keys_are_the_most_however_many_are_made_at_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.sign_up("A").await;
    let make = async |_| {
        let request = app.as_person(&person, Method::POST, "/api/users/me/keys");
        answer(request.json(&json!({ "name": "x" }))).await.0.as_u16()
    };
    let made = futures_util::future::join_all((0..40).map(make)).await;
    assert_eq!(made.iter().filter(|status| **status == 200).count(), 19, "and the one of the sign-up");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM api_keys").await.unwrap(), 20);
    app.finish().await;
}
