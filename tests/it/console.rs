//! The console, as a browser without JavaScript uses it.

use reqwest::redirect::Policy as Redirects;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use zticket::house::operators::{self, Role};

use crate::admin::is_in_force_on_another_server;
use crate::support::TestApp;
use crate::support::app::answer;

const TOKEN: &str = "the token of the house";

/// Someone at the console.
struct Browser<'a> {
    app: &'a TestApp,
    client: Client,
    cookie: String,
}

struct Page {
    status: StatusCode,
    to: Option<String>,
    text: String,
}

impl<'a> Browser<'a> {
    fn new(app: &'a TestApp) -> Self {
        let client = Client::builder().redirect(Redirects::none()).build().unwrap();
        Self { app, client, cookie: String::new() }
    }

    async fn signed_in(app: &'a TestApp, key: &str) -> Self {
        let mut browser = Self::new(app);
        assert_eq!(browser.post("/admin/sign-in/key", &[("key", key)]).await.to.as_deref(), Some("/admin"));
        browser
    }

    async fn get(&self, path: &str) -> Page {
        let request = self.client.get(self.app.url(path)).header("Cookie", &self.cookie);
        let response = request.header("Accept-Language", "en").send().await.unwrap();
        page(response).await
    }

    async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> Page {
        let request = self.client.post(self.app.url(path)).header("Cookie", &self.cookie);
        let request = request.header("Sec-Fetch-Site", "same-origin").header("Accept-Language", "en");
        let body: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(body.join("&"));
        let response = request.send().await.unwrap();
        if let Some(cookie) = response.headers().get("Set-Cookie").map(|cookie| cookie.to_str().unwrap()) {
            assert!(
                cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/admin")
            );
            self.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        page(response).await
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn page(response: reqwest::Response) -> Page {
    let status = response.status();
    let to = response.headers().get("Location").map(|to| to.to_str().unwrap().to_owned());
    Page { status, to, text: response.text().await.unwrap() }
}

async fn app() -> TestApp {
    TestApp::by_hand(|config| config.admin_token = Some(TOKEN.to_owned())).await
}

async fn sale(app: &TestApp) -> Value {
    answer(app.request(Method::GET, "/api/admin/events/1").bearer_auth(TOKEN)).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_for_operators_who_are_signed_in() {
    let app = app().await;
    let pages = ["/admin", "/admin/audit", "/admin/events/1", "/admin/events/1/live"];
    let mut browser = Browser::new(&app);
    for path in pages {
        assert_eq!(browser.get(path).await.to.as_deref(), Some("/admin/sign-in"), "{path}");
    }
    for action in ["pause", "resume", "close", "reopen", "policy", "kick"] {
        let page = browser.post(&format!("/admin/events/1/{action}"), &[("ko", ""), ("en", ""), ("uuid", "")]).await;
        assert_eq!(page.to.as_deref(), Some("/admin/sign-in"), "{action}");
    }
    let wrong = browser.post("/admin/sign-in/key", &[("key", "wrong")]).await;
    assert!(wrong.status == 401 && wrong.text.contains("no operator with this key"));
    for made_up in ["x", &"0".repeat(96)] {
        browser.cookie = format!("zt_operator={made_up}");
        assert_eq!(browser.get("/admin").await.to.as_deref(), Some("/admin/sign-in"));
    }
    let mut browser = Browser::signed_in(&app, TOKEN).await;
    for path in pages {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }
    let kept = browser.cookie.clone();
    browser.post("/admin/sign-out", &[]).await;
    browser.cookie = kept;
    assert_eq!(
        browser.get("/admin").await.to.as_deref(),
        Some("/admin/sign-in"),
        "the session is over, not only the cookie"
    );
    let browser = Browser::signed_in(&app, TOKEN).await;
    assert_eq!(browser.get("/admin/").await.to.as_deref(), Some("/admin"));
    let missing = browser.get("/admin/events/99").await;
    assert!(missing.status == 404 && missing.text.contains("To the console"), "{}", missing.text);
    let sale = async || answer(app.request(Method::GET, "/api/admin/events/1").bearer_auth(TOKEN)).await.1;
    assert_eq!(sale().await["booking"], "OPEN");
    assert!(browser.get("/admin").await.text.contains("Open"));
    app.db.execute("UPDATE events SET on_sale = false").await.unwrap();
    app.parts().catalogue.refresh().await.unwrap();
    assert_eq!(sale().await["booking"], "OVER");
    for path in ["/admin", "/admin/events/1"] {
        assert!(browser.get(path).await.text.contains("Booking is over"), "{path}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_the_key_and_a_viewer_only_looks() {
    let app = app().await;
    let key = operators::add(&app.parts().stores.db, "Choi", Role::Viewer).await.unwrap();
    let mut browser = Browser::signed_in(&app, &key).await;
    let page = browser.get("/admin/events/1").await;
    assert!(page.text.contains("Choi (viewer)") && !page.text.contains("/admin/events/1/pause"));
    let refused = browser.post("/admin/events/1/close", &[]).await;
    assert!(refused.status == 403 && refused.text.contains("Your role does not allow this"), "{}", refused.text);
    assert_eq!(sale(&app).await["state"], "OPEN");
    operators::remove(&app.parts().stores.db, "Choi").await.unwrap();
    zticket_testkit::eventually("the session ends", async || {
        browser.get("/admin").await.to.filter(|to| to == "/admin/sign-in")
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_paused_with_a_reason_that_was_looked_at_first() {
    let app = app().await;
    let mut browser = Browser::signed_in(&app, TOKEN).await;
    let reason = [("ko", "곧 시작해요."), ("en", "We <start> soon.")];
    let preview = browser.post("/admin/events/1/pause", &[reason[0], reason[1], ("what", "preview")]).await;
    assert!(
        preview.status == 200
            && preview.text.contains("We &lt;start&gt; soon.")
            && preview.text.contains("곧 시작해요.")
    );
    assert_eq!(sale(&app).await["state"], "OPEN");
    let half = browser.post("/admin/events/1/pause", &[reason[0], ("en", ""), ("what", "pause")]).await;
    assert!(
        half.status == 422 && half.text.contains("both languages") && half.text.contains("곧 시작해요."),
        "typed text stays"
    );
    let done = browser.post("/admin/events/1/pause", &[reason[0], reason[1], ("what", "pause")]).await;
    assert_eq!(done.to.as_deref(), Some("/admin/events/1?done=now"));
    assert_eq!(sale(&app).await["reason"]["en"], "We <start> soon.");
    let page = browser.get("/admin/events/1?done=now").await;
    assert!(page.text.contains("It is in force") && page.text.contains("Resume"));
    browser.post("/admin/events/1/resume", &[]).await;
    assert_eq!(sale(&app).await["state"], "OPEN");
    browser.post("/admin/events/1/close", &[]).await;
    assert!(browser.get("/admin/events/1").await.text.contains("Reopen the sale"));
    browser.post("/admin/events/1/reopen", &[]).await;
    assert_eq!(sale(&app).await["state"], "OPEN");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_changed_one_by_one_and_refusals_keep_what_was_typed() {
    let app = app().await;
    let mut browser = Browser::signed_in(&app, TOKEN).await;
    let form = |max_active: &'static str, version: &'static str, what: &'static str| {
        let rest = [("batch", "200"), ("intervalMs", "50"), ("activeTtlSeconds", "300"), ("holdTtlSeconds", "300")];
        let more = [("queueTtlSeconds", "180"), ("maxQueue", "0"), ("seatsPerPass", "4"), ("ticketsPerPerson", "0")];
        let own = [("maxActive", max_active), ("version", version), ("what", what)];
        [&rest[..], &more, &own].concat()
    };
    let saved = browser.post("/admin/events/1/policy", &form("4 00", "0", "save")).await;
    assert_eq!(saved.to.as_deref(), Some("/admin/events/1?done=now"), "{}", saved.text);
    let policy = sale(&app).await["policy"].clone();
    assert_eq!((&policy["maxActive"], &policy["changed"]), (&json!(400), &json!(["maxActive"])));
    let stale = browser.post("/admin/events/1/policy", &form("500", "0", "save")).await;
    assert!(stale.status == 422 && stale.text.contains("Someone else changed") && stale.text.contains("value=\"400\""));
    for wrong in ["0", "x", "-1", "99999999999"] {
        let refused = browser.post("/admin/events/1/policy", &form(wrong, "1", "save")).await;
        assert!(
            refused.status == 422 && refused.text.contains("Most people inside is a whole number from 1 to 10,000,000"),
            "{wrong}"
        );
    }
    let preview = browser.post("/admin/events/1/policy", &form("900", "1", "preview")).await;
    assert!(preview.status == 200 && preview.text.contains("Nobody can tell yet"));
    let mut rule = form("400", "1", "save");
    rule[3] = ("holdTtlSeconds", "301");
    for what in ["save", "preview"] {
        rule[10] = ("what", what);
        let refused = browser.post("/admin/events/1/policy", &rule).await;
        assert!(refused.status == 422 && refused.text.contains("A pass has to last at least as long"), "{what}");
    }
    for lacking in ["version", "what", "batch"] {
        let form: Vec<_> = form("500", "1", "save").into_iter().filter(|(name, _)| *name != lacking).collect();
        assert_eq!(browser.post("/admin/events/1/policy", &form).await.status, 400, "{lacking}");
    }
    assert_eq!(browser.post("/admin/events/1/policy", &[]).await.status, 400);
    assert_eq!(sale(&app).await["policy"]["maxActive"], 400);
    browser.cookie += "; zt_lang=ko";
    let refused = browser.post("/admin/events/1/policy", &rule).await;
    assert!(refused.status == 422 && refused.text.contains("입장 유지 시간은"), "{}", refused.text);
    browser.post("/admin/events/1/policy", &form("", "1", "save")).await;
    assert_eq!(sale(&app).await["policy"]["changed"], json!([]), "an empty field goes back to the configuration");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_the_console_is_in_force_on_every_server_within_a_second() {
    is_in_force_on_another_server(async |app| {
        let mut browser = Browser::signed_in(app, TOKEN).await;
        let rest = [("batch", "200"), ("intervalMs", "20"), ("activeTtlSeconds", "300"), ("holdTtlSeconds", "300")];
        let more = [("queueTtlSeconds", "180"), ("maxQueue", "0"), ("seatsPerPass", "4"), ("ticketsPerPerson", "0")];
        let own = [("maxActive", "2"), ("version", "0"), ("what", "save")];
        browser.post("/admin/events/1/policy", &[&rest[..], &more, &own].concat()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_hall_and_audit_log_are_on_the_page_of_a_sale() {
    let app = app().await;
    let visitor = app.inside().await;
    assert_eq!(app.buy(&visitor, 3).await.0, 200);
    let waiting = app.enter().await;
    app.settle().await;
    app.look().await;
    let mut browser = Browser::signed_in(&app, TOKEN).await;
    let live = browser.get("/admin/events/1/live").await.text;
    assert!(!live.contains("<html") && live.contains("1 of 50 sold"), "{live}");
    let kicked = browser.post("/admin/events/1/kick", &[("uuid", &waiting.0)]).await;
    assert_eq!(kicked.to.as_deref(), Some("/admin/events/1?done=now"));
    assert_eq!(app.status(&waiting).await.0, 410);
    let over = browser.post("/admin/events/1/kick", &[("uuid", &waiting.0)]).await;
    assert!(over.status == 422 && over.text.contains("over already"), "{}", over.text);
    let wrong = browser.post("/admin/events/1/kick", &[("uuid", "made up")]).await;
    assert!(wrong.status == 422 && wrong.text.contains("no token of this event") && wrong.text.contains("made up"));
    let page = browser.get("/admin/events/1").await.text;
    assert!(page.contains("ended a place") && page.contains("place: ") && page.contains("ZTICKET_ADMIN_TOKEN"));
    let overview = browser.get("/admin").await.text;
    assert!(overview.contains("/admin/events/1") && overview.contains("1 of 50"));
    assert!(browser.get("/admin/audit").await.text.contains("place: "));
    assert_eq!(browser.get("/admin/events/99").await.status, 404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_another_site_changes_nothing() {
    let app = app().await;
    let browser = Browser::signed_in(&app, TOKEN).await;
    let request = browser.client.post(app.url("/admin/events/1/close")).header("Cookie", &browser.cookie);
    let response = request.header("Sec-Fetch-Site", "cross-site").send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(sale(&app).await["state"], "OPEN");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_found_by_number_buyer_name_or_seat_and_cancelled_with_a_reason() {
    let app = app().await;
    let event = app.priced_event().await;
    let buyer = app.rich("Yoon Sora", 60_000).await;
    let visitor = app.inside_of(event, 1).await.remove(0);
    let (_, order) = app.pay(&visitor, &buyer, &[10]).await;
    let ticket = order["tickets"][0]["ticketId"].as_str().unwrap();
    let mut browser = Browser::signed_in(&app, TOKEN).await;
    let seat = format!("r-a10&event={event}");
    for wanted in [ticket, &buyer.id, "Yoon%20Sora", &seat] {
        let page = browser.get(&format!("/admin/tickets?wanted={wanted}")).await;
        assert!(page.text.contains(ticket) && page.text.contains("R-A10"), "{wanted}");
    }
    for nothing in
        ["R-A10", "Yoon", "a%00b", "r-a99&event=2", "r-a1&event=99", "00000000-0000-7000-8000-000000000000", ""]
    {
        let page = browser.get(&format!("/admin/tickets?wanted={nothing}")).await;
        assert!(page.status == 200 && page.text.contains("No ticket was found"), "{nothing}");
    }
    let path = format!("/admin/tickets/{ticket}/cancel");
    let refused = browser.post(&path, &[("why", " ")]).await;
    assert!(refused.status == 422 && refused.text.contains("Say why"));
    let done = browser.post(&path, &[("why", "Broken seat.")]).await;
    assert_eq!(done.to, Some(format!("/admin/tickets?wanted={ticket}")));
    assert!(browser.get(&done.to.unwrap()).await.text.contains("Cancelled"));
    assert_eq!(app.balance(&buyer).await, 60_000);
    assert!(browser.get("/admin/audit").await.text.contains("Broken seat."));
    let nobody = "/admin/tickets/00000000-0000-7000-8000-000000000000/cancel";
    assert_eq!(browser.post(nobody, &[("why", "x")]).await.status, 404);
    app.settle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concert_is_previewed_and_set_up_from_a_form() {
    let app = app().await;
    let mut browser = Browser::signed_in(&app, TOKEN).await;
    assert_eq!(browser.get("/admin/concerts/new").await.status, 200);
    let form = |dates: &'static str, hall: &'static str, what: &'static str| {
        [
            ("title", "Night <Train>"),
            ("description", ""),
            ("opens_at", "2026-01-01T10:00"),
            ("closes_at", "2036-01-01T10:00"),
            ("dates", dates),
            ("cancel_hours", "24"),
            ("hall", hall),
            ("what", what),
        ]
    };
    let path = "/admin/concerts/new/plan";
    let (dates, hall) = ("2035-03-01 19:30\r\n\r\n2035-03-02T19:30", "R, 132,000, 18 20\r\nS, 99000, 2×5");
    let preview = browser.post(path, &form(dates, hall, "preview")).await;
    assert!(preview.status == 200 && preview.text.contains("48 seats") && preview.text.contains("Night &lt;Train&gt;"));
    for (dates, hall, says) in [
        ("tomorrow", hall, "Write times as"),
        ("", hall, "Give 1 to 100 dates"),
        ("2021-03-01 19:30", hall, "in the past: 2021-03-01 19:30"),
        ("2035-03-01 19:30\n2035-03-01 19:30", hall, "there twice"),
        (dates, "R, 1", "Line 1 of the hall"),
        (dates, "R, 1, 0", "rows of 1 to"),
        (dates, "R, 1, 5\nR, 2, 5", "Two sections"),
    ] {
        let refused = browser.post(path, &form(dates, hall, "create")).await;
        assert!(refused.status == 422 && refused.text.contains(says), "{says}: {}", refused.text);
        assert!(refused.text.contains("Night &lt;Train&gt;"), "typed text stays");
    }
    let early = browser.post(path, &form("2021-03-01 19:30", hall, "preview")).await;
    assert!(early.status == 422 && early.text.contains("in the past"), "a preview says so too");
    assert_eq!(browser.post(path, &form(dates, hall, "")).await.status, 400);
    let mut korean = Browser { cookie: browser.cookie.clone() + "; zt_lang=ko", ..Browser::new(&app) };
    let refused = korean.post(path, &form(dates, "R, 1, 5\nR, 2, 5", "create")).await;
    assert!(refused.status == 422 && refused.text.contains("R 구역이 두 번 있습니다"), "{}", refused.text);
    let made = browser.post(path, &form(dates, hall, "create")).await;
    assert!(made.to.as_deref().is_some_and(|to| to.starts_with("/concerts/")), "{}", made.text);
    let concert = answer(app.request(Method::GET, &format!("/api{}", made.to.unwrap()))).await.1;
    assert_eq!((&concert["title"], concert["dates"].as_array().unwrap().len()), (&json!("Night <Train>"), 2));
    assert_eq!(concert["dates"][0]["startsAt"], "2035-03-01T10:30:00Z", "the time zone of the house is Seoul");
    assert_eq!((&concert["dates"][0]["seatsTotal"], &concert["priceTo"]), (&json!(48), &json!(132_000)));
    // As long as may be: in a form, each of these letters takes nine bytes.
    let text = "가나다라\r\n".repeat(1000);
    let mut long = form(dates, hall, "create");
    long[1] = ("description", &text);
    let made = browser.post(path, &long).await;
    let concert = answer(app.request(Method::GET, &format!("/api{}", made.to.unwrap()))).await.1;
    assert_eq!(concert["description"], text.trim().replace("\r\n", "\n"), "{}", made.text);
    let key = operators::add(&app.parts().stores.db, "Jo", Role::Operator).await.unwrap();
    let mut operator = Browser::signed_in(&app, &key).await;
    assert_eq!(operator.post(path, &form(dates, hall, "create")).await.status, 403);
    app.finish().await;
}
