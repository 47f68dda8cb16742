//! Operators: what they see, what they change, and who may.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use zticket::house::operators::{self, Role};
use zticket::server::run::Background;
use zticket_testkit::{Refusal, eventually};

use crate::support::app::{Answer, answer};
use crate::support::{TestApp, plan, single_redis};

const TOKEN: &str = "the token of the house";

async fn app(background: Background) -> TestApp {
    TestApp::start_with(background, |config| config.admin_token = Some(TOKEN.to_owned())).await
}

/// A call with the configured token.
async fn admin(app: &TestApp, method: Method, path: &str, body: Value) -> Answer {
    call(app, TOKEN, method, path, body).await
}

async fn call(app: &TestApp, key: &str, method: Method, path: &str, body: Value) -> Answer {
    let request = app.request(method.clone(), &format!("/api/admin{path}")).bearer_auth(key);
    answer(if method == Method::GET { request } else { request.json(&body) }).await
}

async fn operator(app: &TestApp, name: &str, role: Role) -> String {
    operators::add(&app.parts().stores.db, name, role).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_shown_with_its_figures_and_settings() {
    let app = app(Background::ByHand).await;
    let event = app.priced_event().await;
    let buyer = app.rich("Kim", 200_000).await;
    let visitors = app.inside_of(event, 2).await;
    app.enter_as(event, None).await;
    assert_eq!(app.pay(&visitors[0], &buyer, &[1, 11]).await.0, 200);
    app.hold_seats_as(&visitors[1], &buyer, &[2]).await;
    app.settle().await;
    app.parts().views.fresh(&app.parts().catalogue.known(event).unwrap()).await.unwrap();
    let (status, sale) = admin(&app, Method::GET, &format!("/events/{event}"), Value::Null).await;
    assert_eq!(status, 200, "{sale}");
    let figures = &sale["figures"];
    let expected = json!({
        "seats": 30, "waiting": 1, "absent": 0, "inside": 1, "held": 1, "sold": 2, "left": 28, "available": 27, "revenue": 80_000,
        "entered": 3, "admitted": 2, "swept": 0, "gaveUp": 0, "overdue": 0, "refused": {},
    });
    assert_eq!(figures, &expected);
    assert_eq!((&sale["eventId"], &sale["state"], &sale["reason"]), (&json!(event), &json!("OPEN"), &Value::Null));
    assert_eq!(sale["title"], "Night Train");
    let policy = json!({
        "version": 0, "batch": 200, "intervalMs": 50, "maxActive": 200, "activeTtlSeconds": 300, "holdTtlSeconds": 300,
        "queueTtlSeconds": 180, "maxQueue": 0, "seatsPerPass": 4, "ticketsPerPerson": 4, "changed": [],
    });
    assert_eq!(sale["policy"], policy);

    let (status, page) = admin(&app, Method::GET, "/events?limit=1", Value::Null).await;
    assert_eq!((status.as_u16(), page["items"].as_array().unwrap().len()), (200, 1));
    let next = page["nextCursor"].as_str().unwrap();
    let (_, page) = admin(&app, Method::GET, &format!("/events?cursor={next}"), Value::Null).await;
    assert_eq!((&page["items"][0]["eventId"], &page["nextCursor"]), (&json!(event), &Value::Null));
    app.finish().await;
}

/// Takes a change that lets two people inside instead of one, and sees that another server does so within a second.
pub async fn is_in_force_on_another_server(change: impl AsyncFnOnce(&TestApp)) {
    let app = TestApp::start_with(Background::Running, |config| {
        config.admin_token = Some(TOKEN.to_owned());
        (config.policy.max_active, config.policy.interval_ms) = (1, 20);
    })
    .await;
    let other = app.another(Background::Running).await;
    let visitors = [app.enter().await, app.enter().await, app.enter().await];
    app.wait_inside(&visitors[0]).await;
    let status_there = async |visitor: usize| {
        let url = format!("http://{}/api/queues/tokens/{}", other.addr, visitors[visitor].0);
        answer(app.client.get(url)).await.1["status"].clone()
    };
    assert_eq!(status_there(1).await, "WAITING");
    let began = Instant::now();
    change(&app).await;
    eventually("the other server lets one more in", async || (status_there(1).await == "ACTIVE").then_some(())).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(status_there(2).await, "WAITING");
    let event = other.parts.catalogue.known(app.event().id).unwrap();
    assert_eq!(event.snapshot.load_full().unwrap().policy.max_active, 2);
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_in_force_on_every_server_within_a_second() {
    is_in_force_on_another_server(async |app| {
        assert_eq!(admin(app, Method::PATCH, "/events/1/policy", json!({ "maxActive": 2 })).await.0, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_based_on_old_settings_is_refused() {
    let app = app(Background::ByHand).await;
    let patch = async |version: &str, batch: u64| {
        let request = app.request(Method::PATCH, "/api/admin/events/1/policy").bearer_auth(TOKEN);
        let response = request.header("If-Match", version).json(&json!({ "batch": batch })).send().await.unwrap();
        let tag = response.headers().get("ETag").map(|tag| tag.to_str().unwrap().to_owned());
        (response.status().as_u16(), tag, response.json::<Value>().await.unwrap())
    };
    let (status, tag, sale) = patch("\"0\"", 5).await;
    assert_eq!((status, tag.as_deref(), &sale["policy"]["batch"]), (200, Some("\"1\""), &json!(5)));
    assert_eq!(sale["policy"]["changed"], json!(["batch"]));
    let (status, _, body) = patch("\"0\"", 6).await;
    assert_eq!((status, &body["code"], &body["version"]), (409, &json!("POLICY_CHANGED"), &json!(1)));
    assert_eq!(patch("1", 6).await.0, 200);
    assert_eq!(patch("seven", 6).await.0, 400);
    assert_eq!(app.look().await.policy.batch, 6);
    // The same again is no new decision.
    assert_eq!(patch("2", 6).await.1.as_deref(), Some("\"2\""));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_break_a_rule_are_refused_by_its_name() {
    let app = app(Background::ByHand).await;
    for (change, rule) in [
        (json!({ "batch": 0 }), "batch is a whole number from 1 to 1000000."),
        (json!({ "batch": 1.5 }), "batch is a whole number"),
        (json!({ "batch": "5" }), "batch is a whole number"),
        (json!({ "maxActive": -1 }), "maxActive is a whole number"),
        (json!({ "queueTtlSeconds": 3 }), "queueTtlSeconds is a whole number from 4"),
        (json!({ "holdTtlSeconds": 301 }), "activeTtlSeconds must be at least holdTtlSeconds"),
        (json!({ "holdTtlSeconds": 5 }), "ZTICKET_SYNC_INTERVAL_MS"),
        (json!({ "syncIntervalMs": 100 }), "cannot change while servers run: set ZTICKET_SYNC_INTERVAL_MS"),
        (json!({ "colour": 1 }), "no such setting"),
    ] {
        let (status, body) = admin(&app, Method::PATCH, "/events/1/policy", change.clone()).await;
        assert_eq!((status.as_u16(), &body["code"]), (422, &json!("INVALID_POLICY")), "{change}: {body}");
        assert!(body["rule"].as_str().unwrap().contains(rule), "{change}: {body}");
    }
    let both = json!({ "holdTtlSeconds": 400, "activeTtlSeconds": 500, "batch": 7 });
    assert_eq!(admin(&app, Method::PATCH, "/events/1/policy", both).await.0, 200);
    let back = json!({ "holdTtlSeconds": null, "activeTtlSeconds": null });
    let (_, sale) = admin(&app, Method::PATCH, "/events/1/policy", back).await;
    assert_eq!((&sale["policy"]["holdTtlSeconds"], &sale["policy"]["changed"]), (&json!(300), &json!(["batch"])));
    for body in [json!([]), json!("x"), Value::Null] {
        assert_eq!(admin(&app, Method::PATCH, "/events/1/policy", body).await.0, 400);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_explained_to_visitors_in_their_language() {
    let app = app(Background::ByHand).await;
    let visitor = app.enter().await;
    let reason = json!({ "ko": "밴드가 늦어요.", "en": "The band is late." });
    let (status, sale) = admin(&app, Method::POST, "/events/1/pause", json!({ "reason": reason })).await;
    assert_eq!((status.as_u16(), &sale["state"], &sale["reason"]), (200, &json!("PAUSED"), &reason));
    app.admit().await;
    let (_, status) = app.status(&visitor).await;
    assert_eq!((&status["status"], &status["pause"]["reason"]), (&json!("WAITING"), &reason));
    for (language, text) in [("ko", "밴드가 늦어요."), ("en", "The band is late.")] {
        let page = app.request(Method::GET, "/events/1/queue");
        let page = page.header("Accept-Language", language).header("Cookie", format!("zt_place_1={}", visitor.0));
        assert!(page.send().await.unwrap().text().await.unwrap().contains(text), "{language}");
    }
    for wrong in [json!({ "ko": "", "en": "x" }), json!({ "en": "x" }), json!("x"), json!({ "ko": "x", "en": "a\nb" })]
    {
        assert_eq!(admin(&app, Method::POST, "/events/1/pause", json!({ "reason": wrong })).await.0, 400, "{wrong}");
    }
    let (_, sale) = admin(&app, Method::POST, "/events/1/resume", json!({})).await;
    assert_eq!((&sale["state"], &sale["reason"]), (&json!("OPEN"), &Value::Null));
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&visitor).await.1["status"], "ACTIVE");

    assert_eq!(admin(&app, Method::POST, "/events/1/close", json!({})).await.1["state"], "CLOSED");
    assert_eq!(app.join().await.1["code"], "EVENT_CLOSED");
    assert_eq!(admin(&app, Method::POST, "/events/1/reopen", json!({})).await.1["state"], "OPEN");
    assert_eq!(app.join().await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_redis_cannot_take_is_kept_and_comes_later() {
    let app = TestApp::start_on(single_redis().await, Background::ByHand, |config| {
        config.admin_token = Some(TOKEN.to_owned());
    })
    .await;
    app.look().await;
    Refusal::NoReplicas.begin(&app.redis).await.unwrap();
    let (status, sale) = admin(&app, Method::POST, "/events/1/pause", json!({})).await;
    assert_eq!((status.as_u16(), &sale["state"]), (202, &json!("PAUSED")));
    assert_eq!(app.look().await.meta.state.word(), "open");
    assert!(app.parts().controls.catch_up().await.is_err());
    Refusal::NoReplicas.end(&app.redis).await.unwrap();
    app.parts().controls.catch_up().await.unwrap();
    assert_eq!(app.look().await.meta.state.word(), "paused");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_of_another_server_is_brought_to_redis_by_any() {
    let app = app(Background::ByHand).await;
    let other = app.another(Background::ByHand).await;
    // Kept by a server that died before it could tell Redis.
    let control = "INSERT INTO controls (event_id, version, state, reason, settings) VALUES (1, 1, 'paused', '', '{}')";
    app.db.execute(control).await.unwrap();
    other.parts.catalogue.refresh().await.unwrap();
    other.parts.controls.catch_up().await.unwrap();
    assert_eq!(app.look().await.meta.state.word(), "paused");
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kicked_visitor_loses_place_pass_and_seats() {
    let app = app(Background::ByHand).await;
    let inside = app.inside().await;
    let waiting = app.enter().await;
    assert_eq!(app.hold(&inside, 3).await.0, 200);
    for visitor in [&inside, &waiting] {
        let (status, _) = admin(&app, Method::POST, "/events/1/kick", json!({ "uuid": visitor.0 })).await;
        assert_eq!(status, 204);
        assert_eq!(app.status(visitor).await.0, 410);
    }
    assert_eq!(app.look().await.seats.available, 50);
    let forged = "00000100-0000-8000-8000-000000000000";
    for wrong in [forged, "x"] {
        assert_eq!(admin(&app, Method::POST, "/events/1/kick", json!({ "uuid": wrong })).await.0, 404);
    }
    let (_, log) = admin(&app, Method::GET, "/audit?event=1", Value::Null).await;
    let before = |at: usize| &log["items"][at]["before"];
    assert_eq!(before(0), &json!({ "place": waiting.place().0, "status": "WAITING" }));
    assert_eq!(before(1), &json!({ "place": inside.place().0, "status": "ACTIVE", "seats": [3] }));
    assert!(!log.to_string().contains(&waiting.0), "a token is nobody else's business");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_tells_a_kick_that_failed_and_none_that_ended_nothing() {
    let redis = single_redis().await;
    let app = TestApp::start_on(redis, Background::ByHand, |config| config.admin_token = Some(TOKEN.to_owned())).await;
    let visitor = app.enter().await;
    let kick = async || admin(&app, Method::POST, "/events/1/kick", json!({ "uuid": visitor.0 })).await.0.as_u16();
    Refusal::NoReplicas.begin(&app.redis).await.unwrap();
    assert_eq!(kick().await, 503);
    Refusal::NoReplicas.end(&app.redis).await.unwrap();
    app.look().await;
    assert_eq!(app.status(&visitor).await.1["status"], "WAITING");
    assert_eq!((kick().await, kick().await), (204, 204), "doing it again is fine");
    let (_, log) = admin(&app, Method::GET, "/audit", Value::Null).await;
    let actions: Vec<&Value> = log["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["kick", "kick failed", "kick"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_needs_no_body_and_outlasts_a_close() {
    let app = app(Background::ByHand).await;
    let post = async |action: &str, body: Option<Value>| {
        let request = app.request(Method::POST, &format!("/api/admin/events/1/{action}")).bearer_auth(TOKEN);
        let (status, sale) = answer(if let Some(body) = body { request.json(&body) } else { request }).await;
        assert_eq!(status, 200, "{sale}");
        (sale["state"].clone(), sale["reason"].clone())
    };
    assert_eq!(post("pause", None).await, (json!("PAUSED"), Value::Null));
    let reason = json!({ "ko": "잠시만요.", "en": "One moment." });
    post("pause", Some(json!({ "reason": reason }))).await;
    assert_eq!(post("close", None).await, (json!("CLOSED"), Value::Null));
    assert_eq!(post("reopen", None).await, (json!("PAUSED"), reason));
    assert_eq!(post("resume", None).await, (json!("OPEN"), Value::Null));
    post("close", None).await;
    assert_eq!(post("reopen", None).await, (json!("OPEN"), Value::Null));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concert_that_cannot_be_is_refused_with_its_problem() {
    let app = app(Background::ByHand).await;
    let refused = async |change: &dyn Fn(&mut Value)| {
        let mut plan = plan();
        change(&mut plan);
        let (status, body) = admin(&app, Method::POST, "/concerts", plan).await;
        assert_eq!((status.as_u16(), &body["code"]), (400, &json!("INVALID_REQUEST")), "{body}");
        body["message"].as_str().unwrap().to_owned()
    };
    let section = |plan: &mut Value, name: &str, rows: Value| {
        plan["layout"]["sections"][1] = json!({ "name": name, "price": 1, "rows": rows });
    };
    assert_eq!(refused(&|plan| section(plan, "R", json!([1]))).await, "layout: two sections are called \"R\".");
    assert!(refused(&|plan| section(plan, "A-B", json!([1]))).await.contains("is no name of a section"));
    assert!(refused(&|plan| section(plan, "S", json!([501]))).await.contains("rows of 1 to 500 seats"));
    assert!(refused(&|plan| section(plan, "S", json!("x"))).await.starts_with("The JSON lacks a field"));
    let date = |plan: &Value| plan["dates"][0].clone();
    assert!(refused(&|plan| plan["dates"] = json!([date(plan), date(plan)])).await.contains("twice"));
    assert!(refused(&|plan| plan["dates"][0]["startsAt"] = json!("+99999-12-31T23:59:59Z")).await.contains("99999"));
    assert!(
        refused(&|plan| plan["dates"][0]["cancelUntil"] = json!("2999-01-01T00:00:00Z")).await.contains("cancelUntil")
    );

    let event = app.priced_event().await;
    let path = format!("/events/{event}");
    for change in [json!({ "startsAt": "2021-01-01T00:00:00Z" }), json!({ "cancelUntil": "2999-01-01T00:00:00Z" })] {
        assert_eq!(admin(&app, Method::PATCH, &path, change.clone()).await.0, 400, "{change}");
    }
    let entries = app.db.number("SELECT count(*) AS n FROM audit_log").await.unwrap();
    assert_eq!(admin(&app, Method::PATCH, &path, json!({})).await.0, 200);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM audit_log").await.unwrap(), entries, "nothing changed");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_house_cancels_a_ticket_after_the_deadline_and_pays_back() {
    let app = app(Background::ByHand).await;
    let event = app.priced_event().await;
    let buyer = app.rich("Kim", 60_000).await;
    let visitor = app.inside_of(event, 1).await.remove(0);
    let (_, order) = app.pay(&visitor, &buyer, &[1]).await;
    let ticket = order["tickets"][0]["ticketId"].clone();
    app.db.execute(&format!("UPDATE events SET cancel_until = now() WHERE id = {event}")).await.unwrap();
    assert_eq!(app.cancel(&buyer, &ticket).await.1["code"], "CANCEL_DEADLINE_PASSED");
    let path = format!("/tickets/{}/cancel", ticket.as_str().unwrap());
    for why in ["", " ", "a\nb"] {
        assert_eq!(admin(&app, Method::POST, &path, json!({ "why": why })).await.0, 400, "{why:?}");
    }
    for _ in 0..2 {
        let (status, cancelled) = admin(&app, Method::POST, &path, json!({ "why": "Row A is gone." })).await;
        assert_eq!((status.as_u16(), &cancelled["status"]), (200, &json!("CANCELLED")));
    }
    assert_eq!(app.balance(&buyer).await, 60_000);
    let (_, log) = admin(&app, Method::GET, &format!("/audit?event={event}"), Value::Null).await;
    let entries = log["items"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "done once");
    assert_eq!(
        (&entries[0]["action"], &entries[0]["after"]["why"]),
        (&json!("cancel ticket"), &json!("Row A is gone."))
    );
    let nobody = "/tickets/00000000-0000-7000-8000-000000000000/cancel";
    assert_eq!(admin(&app, Method::POST, nobody, json!({ "why": "x" })).await.0, 404);
    app.settle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concert_is_set_up_and_changed_and_what_was_announced_stays() {
    let app = app(Background::ByHand).await;
    let (status, concert) = admin(&app, Method::POST, "/concerts", plan()).await;
    assert_eq!((status.as_u16(), &concert["title"]), (200, &json!("Night Train")), "{concert}");
    let (id, event) = (concert["concertId"].clone(), concert["dates"][0]["eventId"].clone());
    let path = format!("/concerts/{id}");
    let (status, changed) = admin(&app, Method::PATCH, &path, json!({ "title": "Day Train" })).await;
    assert_eq!((status.as_u16(), &changed["title"]), (200, &json!("Day Train")));
    for (wrong, says) in [
        (json!({ "layout": {} }), "do not change"),
        (json!({ "dates": [] }), "do not change"),
        (json!({ "bookingClosesAt": Utc::now() - TimeDelta::days(9) }), "bookingClosesAt"),
        (json!({ "title": "" }), "title must be"),
        (json!({ "colour": "red" }), "field"),
    ] {
        let (status, body) = admin(&app, Method::PATCH, &path, wrong.clone()).await;
        assert!(status == 400 && body["message"].as_str().unwrap().contains(says), "{wrong}: {body}");
    }
    assert_eq!(
        admin(&app, Method::PATCH, "/concerts/999", json!({ "title": "x" })).await.1["code"],
        "CONCERT_NOT_FOUND"
    );

    let path = format!("/events/{event}");
    let starts_at = Utc::now() + TimeDelta::days(40);
    let change =
        json!({ "startsAt": starts_at, "cancelUntil": starts_at - TimeDelta::days(2), "onePlacePerPerson": true });
    let (status, changed) = admin(&app, Method::PATCH, &path, change).await;
    assert_eq!((status.as_u16(), &changed["onePlacePerPerson"]), (200, &json!(true)), "{changed}");
    let (_, changed) = admin(&app, Method::PATCH, &path, json!({ "cancelUntil": null })).await;
    assert_eq!(changed["cancelUntil"], changed["startsAt"]);
    let (status, body) = admin(&app, Method::PATCH, &path, json!({ "price": 1 })).await;
    assert!(status == 400 && body["message"].as_str().unwrap().contains("do not change"), "{body}");
    let (_, log) = admin(&app, Method::GET, "/audit", Value::Null).await;
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["change event", "change event", "change concert", "add concert"]);
    assert_eq!(log["items"][2]["before"]["title"], "Night Train");
    app.finish().await;
}

/// Every route of operators, with the role it takes.
fn routes() -> Vec<(Method, &'static str, Role)> {
    let ticket = "/tickets/00000000-0000-7000-8000-000000000000/cancel";
    vec![
        (Method::GET, "/events", Role::Viewer),
        (Method::GET, "/events/1", Role::Viewer),
        (Method::GET, "/events/1/history", Role::Viewer),
        (Method::GET, "/audit", Role::Viewer),
        (Method::PATCH, "/events/1/policy", Role::Operator),
        (Method::POST, "/events/1/pause", Role::Operator),
        (Method::POST, "/events/1/resume", Role::Operator),
        (Method::POST, "/events/1/close", Role::Operator),
        (Method::POST, "/events/1/reopen", Role::Operator),
        (Method::POST, "/events/1/kick", Role::Operator),
        (Method::POST, ticket, Role::Operator),
        (Method::PATCH, "/events/1", Role::Admin),
        (Method::POST, "/concerts", Role::Admin),
        (Method::PATCH, "/concerts/1", Role::Admin),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_takes_its_role_and_nobody_else() {
    let app = app(Background::ByHand).await;
    let mut keys = Vec::new();
    for role in [Role::Viewer, Role::Operator, Role::Admin, Role::Door] {
        keys.push((role, operator(&app, role.word(), role).await));
    }
    for (method, path, needed) in routes() {
        let refused = answer(app.request(method.clone(), &format!("/api/admin{path}"))).await;
        assert_eq!((refused.0.as_u16(), &refused.1["code"]), (401, &json!("UNAUTHORIZED")), "{method} {path}");
        let (status, _) = call(&app, "zto_wrong", method.clone(), path, json!({})).await;
        assert_eq!(status, 401, "{method} {path}");
        for (role, key) in &keys {
            // What changes nothing leaves no entry.
            let change = if path == "/events/1" { json!({ "title": role.word() }) } else { json!({}) };
            let (status, body) = call(&app, key, method.clone(), path, change).await;
            let rank = |role: &Role| [Role::Viewer, Role::Operator, Role::Admin].iter().position(|known| known == role);
            let may = rank(role).is_some_and(|own| Some(own) >= rank(&needed));
            assert_eq!(status == StatusCode::FORBIDDEN, !may, "{role}: {method} {path}: {body}");
            assert!(may || body["message"].as_str().unwrap().contains(needed.word()), "{body}");
        }
    }
    let (_, log) = admin(&app, Method::GET, "/audit?limit=100", Value::Null).await;
    let who: BTreeSet<_> = log["items"].as_array().unwrap().iter().map(|entry| entry["who"].to_string()).collect();
    assert_eq!(who, ["\"admin\"", "\"operator\""].map(str::to_owned).into());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_operator_is_refused_within_two_seconds() {
    let app = app(Background::ByHand).await;
    let key = operator(&app, "Lee", Role::Viewer).await;
    assert!(operators::add(&app.parts().stores.db, "Lee", Role::Admin).await.is_err());
    assert_eq!(call(&app, &key, Method::GET, "/events", Value::Null).await.0, 200);
    operators::remove(&app.parts().stores.db, "Lee").await.unwrap();
    let removed = Instant::now();
    eventually("the key is refused", async || {
        (call(&app, &key, Method::GET, "/events", Value::Null).await.0 == 401).then_some(())
    })
    .await;
    assert!(removed.elapsed() < Duration::from_secs(2));
    assert!(operators::remove(&app.parts().stores.db, "Lee").await.is_err());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_and_operators_nobody_gets_in() {
    let app = TestApp::by_hand(|_| {}).await;
    for key in ["", "null", TOKEN] {
        assert_eq!(call(&app, key, Method::GET, "/events", Value::Null).await.0, 401);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guessing_keys_is_limited_and_right_keys_are_not() {
    let app = TestApp::by_hand(|config| {
        config.admin_token = Some(TOKEN.to_owned());
        config.limits.sign_up_per_second = 1;
    })
    .await;
    let mut refused = 0;
    for _ in 0..15 {
        assert_eq!(admin(&app, Method::GET, "/events", Value::Null).await.0, 200);
        refused += u32::from(call(&app, "wrong", Method::GET, "/events", Value::Null).await.0 == 429);
    }
    assert!(refused > 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_all_servers_refused_is_counted_by_reason() {
    let app = app(Background::ByHand).await;
    let other = app.another(Background::ByHand).await;
    let old = "INSERT INTO refusals VALUES (1, now() - interval '61 minutes', 'SOLD_OUT', 5)";
    app.db.execute(old).await.unwrap();
    let holder = app.inside().await;
    app.hold_seats(&holder, &[1]).await;
    let (rival, waiting) = (app.inside().await, app.enter().await);
    assert_eq!(app.hold_seats(&rival, &[1]).await.0, 409);
    let hold = async |token: &str, seat: u32| {
        let url = format!("http://{}/api/seats/{seat}/hold", other.addr);
        answer(app.client.post(url).header("X-Queue-Token", token)).await.0.as_u16()
    };
    assert_eq!((hold(&rival.0, 1).await, hold(&waiting.0, 2).await), (409, 403));
    let refused = async || admin(&app, Method::GET, "/events/1", Value::Null).await.1["figures"]["refused"].clone();
    app.parts().history.step().await.unwrap();
    other.parts.history.step().await.unwrap();
    assert_eq!(refused().await, json!({ "NOT_ACTIVE_USER": 1, "SEAT_ALREADY_HELD": 2 }));
    app.parts().history.step().await.unwrap();
    assert_eq!(refused().await, json!({ "NOT_ACTIVE_USER": 1, "SEAT_ALREADY_HELD": 2 }), "nothing counts twice");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM refusals WHERE times = 5").await.unwrap(), 0);
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_hour_has_a_point_every_five_seconds_whichever_server_saves_it() {
    let app = app(Background::ByHand).await;
    let other = app.another(Background::ByHand).await;
    app.enter().await;
    app.look().await;
    let old = "INSERT INTO figures VALUES (1, now() - interval '61 minutes', 1, 1, 1, 1, 1, 1, 1),
        (1, now() - interval '30 minutes', 7, 1, 1, 1, 1, 1, 1)";
    app.db.execute(old).await.unwrap();
    let history = async |minutes: u32| {
        let path = format!("/events/1/history?minutes={minutes}");
        admin(&app, Method::GET, &path, Value::Null).await.1["items"].as_array().unwrap().clone()
    };
    app.parts().history.step().await.unwrap();
    other.parts.history.step().await.unwrap();
    let points = history(60).await;
    // Two, if a step of five seconds began in between.
    assert!((2..=3).contains(&points.len()), "{points:?}");
    assert_eq!((&points[0]["waiting"], &points[1]["waiting"]), (&json!(7), &json!(1)));
    assert!(history(10).await.len() < points.len());
    assert_eq!(
        app.db.number("SELECT count(*) AS n FROM figures WHERE at < now() - interval '1 hour'").await.unwrap(),
        0
    );
    for wrong in ["0", "61", "-1", "x"] {
        assert_eq!(admin(&app, Method::GET, &format!("/events/1/history?minutes={wrong}"), Value::Null).await.0, 400);
    }
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_who_what_before_and_after_newest_first() {
    let app = app(Background::ByHand).await;
    let key = operator(&app, "Park", Role::Operator).await;
    for batch in 1..=3 {
        call(&app, &key, Method::PATCH, "/events/1/policy", json!({ "batch": batch })).await;
    }
    let (_, page) = admin(&app, Method::GET, "/audit?limit=2", Value::Null).await;
    let entry = &page["items"][0];
    assert_eq!((&entry["who"], &entry["action"], &entry["event"]), (&json!("Park"), &json!("policy"), &json!(1)));
    assert_eq!((&entry["before"]["policy"]["batch"], &entry["after"]["policy"]["batch"]), (&json!(2), &json!(3)));
    let path = format!("/audit?cursor={}", page["nextCursor"].as_str().unwrap());
    let (_, rest) = admin(&app, Method::GET, &path, Value::Null).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
    assert_eq!(rest["items"][0]["before"]["policy"]["batch"], 200);
    for wrong in ["?event=0", "?cursor=x", "?limit=0", "?colour=red"] {
        assert!(admin(&app, Method::GET, &format!("/audit{wrong}"), Value::Null).await.0.is_client_error(), "{wrong}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_both_count() {
    let app = app(Background::ByHand).await;
    let changes = (1..=20).map(|batch| admin(&app, Method::PATCH, "/events/1/policy", json!({ "batch": batch })));
    for (status, body) in futures_util::future::join_all(changes).await {
        assert_eq!(status, 200, "{body}");
    }
    let (_, sale) = admin(&app, Method::GET, "/events/1", Value::Null).await;
    assert_eq!(sale["policy"]["version"], 20);
    let seen = app.look().await;
    assert_eq!((seen.in_force.version, &json!(seen.policy.batch)), (20, &sale["policy"]["batch"]));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM audit_log").await.unwrap(), 20);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_counts_also_if_the_database_lost_the_one_before() {
    let app = app(Background::ByHand).await;
    for action in ["pause", "resume", "pause"] {
        assert_eq!(admin(&app, Method::POST, &format!("/events/1/{action}"), json!({})).await.0, 200);
    }
    // A standby takes over that has missed the last two.
    app.db.execute("UPDATE controls SET version = 1, state = 'open'").await.unwrap();
    assert_eq!(app.look().await.meta.state.word(), "paused");
    assert_eq!(admin(&app, Method::POST, "/events/1/resume", json!({})).await.0, 200);
    assert_eq!(app.look().await.meta.state.word(), "open");
    assert_eq!(app.look().await.in_force.version, 4);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_does_not_go_with_the_changes_of_operators_stops_no_server() {
    let mut app = app(Background::ByHand).await;
    let longer = json!({ "holdTtlSeconds": 600, "activeTtlSeconds": 900 });
    assert_eq!(admin(&app, Method::PATCH, "/events/1/policy", longer).await.0, 200);
    assert_eq!(admin(&app, Method::PATCH, "/events/1/policy", json!({ "activeTtlSeconds": 700 })).await.0, 200);
    // Written while the configured pass lasted longer: alone it breaks the rule.
    app.db.execute(r#"UPDATE controls SET version = 3, settings = '{"holdTtlSeconds":600}'"#).await.unwrap();
    app.restart().await;
    let seen = app.look().await;
    assert_eq!((seen.policy.hold_ttl_ms, seen.policy.active_ttl_ms), (600_000, 600_000));
    let (_, sale) = admin(&app, Method::GET, "/events/1", Value::Null).await;
    assert_eq!(sale["policy"]["activeTtlSeconds"], 600, "what is shown is what is in force");
    assert_eq!(admin(&app, Method::POST, "/events/1/pause", json!({})).await.0, 200, "a pause changes no setting");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_page_does_not_undo_what_another_operator_decided_since() {
    let app = app(Background::ByHand).await;
    let post = async |action: &str| admin(&app, Method::POST, &format!("/events/1/{action}"), json!({})).await;
    assert_eq!(post("close").await.0, 200);
    for action in ["pause", "resume"] {
        let (status, body) = post(action).await;
        assert!(status == 422 && body["rule"].as_str().unwrap().contains("Reopen it first"), "{action}: {body}");
    }
    assert_eq!(post("reopen").await.0, 200);
    assert_eq!(post("pause").await.0, 200);
    assert_eq!(post("reopen").await.0, 422);
    assert_eq!(post("resume").await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_can_be_paused() {
    let app = TestApp::start_on(single_redis().await, Background::ByHand, |config| {
        config.admin_token = Some(TOKEN.to_owned());
    })
    .await;
    Refusal::Full.begin(&app.redis).await.unwrap();
    assert_eq!(admin(&app, Method::POST, "/events/1/pause", json!({})).await.0, 200);
    assert_eq!(app.look().await.meta.state.word(), "paused");
    Refusal::Full.end(&app.redis).await.unwrap();
    app.finish().await;
}
