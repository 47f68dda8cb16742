//! People, balances, paying and taking back. Every test ends with the promises about money, checked by SQL.

use std::collections::HashMap;

use futures_util::future::{join, join_all};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use zticket::base::ids::{OrderId, PersonId, SeatNumber, TicketId};
use zticket::store::db::sell::{self, NewOrder, Sold};
use zticket_testkit::eventually;

use crate::support::app::answer;
use crate::support::{TestApp, Visitor, plan};

fn is(answer: &(reqwest::StatusCode, Value), status: u16, code: &str) {
    assert_eq!((answer.0.as_u16(), answer.1["code"].as_str()), (status, Some(code)), "{}", answer.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_up_charges_pays_and_cancels() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.sign_up("  김하늘 ").await;
    let me = app.get_as(&person, "/api/users/me").await;
    assert_eq!((&me["name"], &me["balance"], &me["currency"]), (&json!("김하늘"), &json!(0), &json!("KRW")));
    assert_eq!(me.get("apiKey"), None, "the key is shown once");
    app.charge(&person, "a", 200_000).await;

    let visitor = &app.inside_of(event, 1).await[0];
    let (_, held) = app.hold_seats_as(visitor, &person, &[10, 11]).await;
    assert_eq!(
        (&held["total"], &held["currency"], &held["expiresInSeconds"]),
        (&80_000.into(), &"KRW".into(), &300.into())
    );
    let (status, order) = app.pay(visitor, &person, &[10, 11]).await;
    assert_eq!((status.as_u16(), &order["total"], &order["status"]), (200, &80_000.into(), &"PAID".into()), "{order}");
    let labels: Vec<&Value> = order["tickets"].as_array().unwrap().iter().map(|ticket| &ticket["label"]).collect();
    assert_eq!(labels, ["R-A10", "S-A1"]);
    assert_eq!(app.balance(&person).await, 120_000);

    let tickets = app.get_as(&person, "/api/users/me/tickets").await;
    assert_eq!(tickets["items"].as_array().unwrap().len(), 2);
    assert_eq!(tickets["items"][0]["title"], "Night Train");
    let ticket = &order["tickets"][1];
    let (status, cancelled) = app.cancel(&person, &ticket["ticketId"]).await;
    assert_eq!((status.as_u16(), &cancelled["status"]), (200, &"CANCELLED".into()), "{cancelled}");
    assert_eq!(app.balance(&person).await, 150_000);
    assert_eq!(app.cancel(&person, &ticket["ticketId"]).await, (status, cancelled), "once more changes nothing");
    assert_eq!(app.balance(&person).await, 150_000);

    let payments = app.get_as(&person, "/api/users/me/payments").await;
    let payment = &payments["items"][0];
    assert_eq!((&payment["amount"], &payment["refunded"]), (&80_000.into(), &30_000.into()));
    assert_eq!((&payment["status"], &payment["orderId"]), (&"PARTLY_REFUNDED".into(), &order["orderId"]));
    let movements = app.get_as(&person, "/api/users/me/balance/movements").await;
    let moved: Vec<(&str, i64, i64)> = movements["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["kind"].as_str().unwrap(), one["amount"].as_i64().unwrap(), one["balance"].as_i64().unwrap()))
        .collect();
    assert_eq!(moved, [("REFUND", 30_000, 150_000), ("PAYMENT", -80_000, 120_000), ("CHARGE", 200_000, 200_000)]);

    app.settle().await;
    app.look().await;
    let other = &app.inside_of(event, 1).await[0];
    assert_eq!(app.pay(other, &person, &[11]).await.0, 200, "the seat is on sale again");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_is_made_once_for_each_key() {
    let app = TestApp::by_hand(|_| {}).await;
    let (person, other) = (app.sign_up("A").await, app.sign_up("B").await);
    let first = app.charge(&person, "key", 1000).await;
    assert_eq!(first.1["balance"], 1000);
    app.charge(&person, "another", 5).await;
    assert_eq!(app.charge(&person, "key", 1000).await, first, "the same key, the same answer");
    is(&app.charge(&person, "key", 1001).await, 422, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(app.charge(&other, "key", 7).await.1["balance"], 7, "keys are each person's own");

    // As if answers were lost: the same request many times, from several connections at once.
    let answers = join_all((0..20).map(|_| app.charge(&person, "lost", 300))).await;
    assert!(answers.iter().all(|one| *one == answers[0]), "{answers:?}");
    assert_eq!(app.balance(&person).await, 1305);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn amounts_have_limits_and_wrong_ones_are_refused() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.sign_up("A").await;
    for wrong in [0, -5, 10_000_001, i64::MAX, i64::MIN] {
        is(&app.charge(&person, "k", wrong).await, 400, "INVALID_REQUEST");
    }
    let charge = |body: Value, key: Option<&str>| {
        let mut request = app.as_person(&person, Method::POST, "/api/users/me/balance/charges").json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        answer(request)
    };
    for body in [json!({}), json!({ "amount": 1.5 }), json!({ "amount": "5" }), json!({ "amount": null }), json!([])] {
        is(&charge(body, Some("k")).await, 400, "INVALID_REQUEST");
    }
    is(&charge(json!({ "amount": 5 }), None).await, 400, "INVALID_REQUEST");
    is(&charge(json!({ "amount": 5 }), Some(&"x".repeat(101))).await, 400, "INVALID_REQUEST");
    assert_eq!(app.balance(&person).await, 0);

    app.db
        .execute(
            "UPDATE users SET balance = 999999990;
             INSERT INTO ledger (user_id, kind, amount, balance, charge_key)
             SELECT id, 'CHARGE', balance, balance, 'by hand' FROM users",
        )
        .await
        .unwrap();
    is(&app.charge(&person, "over", 11).await, 409, "BALANCE_LIMIT_EXCEEDED");
    assert_eq!(app.charge(&person, "up-to", 10).await.0, 200);

    for name in [json!(""), json!("  "), json!("x".repeat(51)), json!("a\u{0}b"), json!(5), Value::Null] {
        let request = app.request(Method::POST, "/api/users").json(&json!({ "name": name }));
        is(&answer(request).await, 400, "INVALID_REQUEST");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_charges_and_payments_on_one_balance_are_exact() {
    let app = TestApp::by_hand(|config| {
        config.policy.max_active = 1000;
        config.policy.batch = 1000;
        config.policy.tickets_per_person = 0;
    })
    .await;
    let mut hall = plan();
    hall["layout"] = json!({ "sections": [{ "name": "R", "price": 700, "rows": 50, "seatsPerRow": 10 }] });
    let event = app.concert(&hall).await.1[0];
    let person = app.rich("A", 350_000).await;
    let visitors = app.inside_of(event, 500).await;
    let charges = join_all((0..500).map(|at| {
        let (app, person) = (&app, &person);
        async move { app.charge(person, &format!("c{at}"), 11).await }
    }));
    let payments = join_all((1..).zip(&visitors).map(|(seat, visitor)| {
        let (app, person) = (&app, &person);
        async move { app.pay(visitor, person, &[seat]).await }
    }));
    let (charged, paid) = join(charges, payments).await;
    for (status, body) in charged.iter().chain(&paid) {
        assert_eq!(*status, 200, "{body}");
    }
    assert_eq!(app.balance(&person).await, 500 * 11);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM ledger").await.unwrap(), 1001);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_balance_pays_for_what_it_can_and_never_goes_below_zero() {
    let app = TestApp::by_hand(|config| {
        config.policy.max_active = 100;
        config.policy.batch = 100;
        config.policy.tickets_per_person = 0;
    })
    .await;
    let event = app.priced_event().await;
    // Enough for eight of twenty at 30,000, whoever comes first; two servers sell.
    let person = app.rich("A", 8 * 30_000 + 29_999).await;
    let second = app.another(zticket::server::run::Background::ByHand).await;
    let visitors = app.inside_of(event, 20).await;
    let answers = join_all((11..).zip(&visitors).map(|(seat, visitor)| {
        let (app, person, addr) = (&app, &person, second.addr);
        async move {
            if seat % 2 == 0 {
                return app.pay(visitor, person, &[seat]).await;
            }
            let request = app.client.post(format!("http://{addr}/api/tickets")).bearer_auth(&person.key);
            answer(request.header("X-Queue-Token", &visitor.0).json(&json!({ "seatNumbers": [seat] }))).await
        }
    }))
    .await;
    let mut tally: HashMap<String, usize> = HashMap::new();
    for (status, body) in &answers {
        *tally.entry(body["code"].as_str().map_or(status.to_string(), str::to_owned)).or_default() += 1;
    }
    assert_eq!(tally, [("200 OK".to_owned(), 8), ("INSUFFICIENT_BALANCE".to_owned(), 12)].into());
    assert_eq!(app.balance(&person).await, 29_999);
    second.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_money_keeps_the_hold_until_it_is_charged() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("A", 79_999).await;
    let visitors = app.inside_of(event, 2).await;
    app.hold_seats_as(&visitors[0], &person, &[1, 11]).await;
    let (status, body) = app.pay(&visitors[0], &person, &[1, 11]).await;
    assert_eq!((status.as_u16(), &body["code"]), (402, &"INSUFFICIENT_BALANCE".into()));
    assert_eq!((&body["balance"], &body["total"]), (&79_999.into(), &80_000.into()));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM orders").await.unwrap(), 0);
    is(&app.hold_seats_as(&visitors[1], &person, &[11]).await, 409, "SEAT_ALREADY_HELD");
    app.charge(&person, "more", 1).await;
    let (status, order) = app.pay(&visitors[0], &person, &[1, 11]).await;
    assert_eq!(status, 200, "{order}");
    assert_eq!(app.balance(&person).await, 0);
    assert_eq!(app.pay(&visitors[0], &person, &[1, 11]).await.1, order, "the same request, the same tickets");
    app.settle().await;
    assert_eq!(app.pay(&visitors[0], &person, &[1, 11]).await.1, order, "also when the pass is gone");
    assert_eq!(app.balance(&person).await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priced_seat_needs_a_person_and_a_free_one_does_not() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let visitor = &app.inside_of(event, 1).await[0];
    let (status, body) = app.buy(visitor, 1).await;
    assert_eq!((status.as_u16(), &body["code"]), (401, &"UNAUTHORIZED".into()));
    let free = app.inside().await;
    assert_eq!(app.buy(&free, 1).await.0, 200);
    // With a person a free seat is among that person's tickets, and costs nothing.
    let (person, free) = (app.sign_up("A").await, app.inside().await);
    assert_eq!(app.pay(&free, &person, &[2, 3]).await.0, 200);
    let tickets = app.get_as(&person, "/api/users/me/tickets?limit=1").await;
    assert_eq!(tickets["items"].as_array().unwrap().len(), 1);
    let next = format!("/api/users/me/tickets?limit=1&cursor={}", tickets["nextCursor"].as_str().unwrap());
    let last = app.get_as(&person, &next).await;
    assert_eq!((&last["items"][0]["seatNumber"], &last["nextCursor"]), (&2.into(), &Value::Null));
    assert_eq!(app.get_as(&person, "/api/users/me/payments").await["items"], json!([]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_price_charged_is_the_price_shown_and_cannot_change() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("A", 50_000).await;
    let visitor = &app.inside_of(event, 1).await[0];
    assert_eq!(app.hold_seats_as(visitor, &person, &[1]).await.1["total"], 50_000);
    let mut conn = app.db.connect().await.unwrap();
    let change = format!("UPDATE seats SET price = 60000 WHERE event_id = {event}");
    let refused = diesel_async::SimpleAsyncConnection::batch_execute(&mut conn, &change).await;
    assert!(refused.unwrap_err().to_string().contains("was announced and does not change"));
    assert_eq!(app.pay(visitor, &person, &[1]).await.1["total"], 50_000);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_parties_that_want_one_seat_one_gets_all_the_other_none() {
    let app = TestApp::by_hand(|config| {
        config.policy.max_active = 100;
        config.policy.batch = 100;
        config.policy.tickets_per_person = 0;
    })
    .await;
    let event = app.priced_event().await;
    let people = [app.rich("A", 1_000_000).await, app.rich("B", 1_000_000).await];
    for round in 0..6 {
        let visitors = app.inside_of(event, 2).await;
        let first = round * 5 + 1;
        let wanted = [[first, first + 1, first + 2], [first + 4, first + 3, first + 2]];
        let (one, other) =
            join(app.pay(&visitors[0], &people[0], &wanted[0]), app.pay(&visitors[1], &people[1], &wanted[1])).await;
        let (won, lost) = if one.0 == 200 { (one, other) } else { (other, one) };
        assert_eq!(won.0, 200, "{}", won.1);
        assert_eq!(won.1["tickets"].as_array().unwrap().len(), 3);
        assert_eq!(lost.0, 409, "{}", lost.1);
        let named: Vec<&Value> = lost.1["seats"].as_array().unwrap().iter().map(|seat| &seat["seatNumber"]).collect();
        assert_eq!(named, [first + 2], "the seat in common is named");
    }
    app.settle().await;
    app.look().await;
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 18);
    app.finish().await;
}

/// The hold does not decide here: Redis has not heard of a sale, and the party reaches the database.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_sells_a_party_all_or_nothing_too() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let (rich, late) = (app.rich("A", 1_000_000).await, app.rich("B", 1_000_000).await);
    let visitors = app.inside_of(event, 2).await;
    // Sold by a server that died before it settled.
    let order = NewOrder {
        id: OrderId(Uuid::now_v7()),
        event,
        place: visitors[0].place(),
        token: Uuid::parse_str(&visitors[0].0).unwrap(),
        person: Some(PersonId(Uuid::parse_str(&rich.id).unwrap())),
        seats: vec![(TicketId(Uuid::now_v7()), SeatNumber(3))],
        most: Some(4),
    };
    let sold = sell::sell(&mut app.parts().stores.db.get().await.unwrap(), &[order]).await.unwrap();
    assert!(matches!(sold.as_slice(), [Sold::Sold(_)]), "{sold:?}");
    let (status, body) = app.pay(&visitors[1], &late, &[2, 3, 4]).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"SEAT_ALREADY_SOLD".into()), "{body}");
    assert_eq!(body["seats"], json!([{ "seatNumber": 3, "status": "sold" }]));
    assert_eq!(app.balance(&late).await, 1_000_000);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    assert_eq!(app.pay(&visitors[1], &late, &[2, 4]).await.0, 200, "the others were let go of and are free");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_raced_with_itself_pays_back_once() {
    let app = TestApp::start().await;
    let event = app.priced_event().await;
    let person = app.rich("A", 100_000).await;
    let (_, body) = app.enter_as(event, None).await;
    let visitor = Visitor(body["uuid"].as_str().unwrap().to_owned());
    eventually("inside", async || (app.status(&visitor).await.1["status"] == "ACTIVE").then_some(())).await;
    let (_, order) = app.pay(&visitor, &person, &[1, 11]).await;
    let tickets: Vec<&Value> = order["tickets"].as_array().unwrap().iter().map(|ticket| &ticket["ticketId"]).collect();
    assert_eq!(tickets.len(), 2, "{order}");
    let answers = join_all((0..40).map(|at| app.cancel(&person, tickets[at % 2]))).await;
    assert!(answers.iter().all(|(status, body)| *status == 200 && body["status"] == "CANCELLED"), "{answers:?}");
    assert_eq!(app.balance(&person).await, 100_000);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM ledger WHERE kind = 'REFUND'").await.unwrap(), 2);
    let seats = format!("/api/events/{event}/seats/available-count");
    eventually("both seats are on sale again", async || {
        (answer(app.request(Method::GET, &seats)).await.1["count"] == 30).then_some(())
    })
    .await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_comes_before_the_deadline_of_the_event() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("A", 100_000).await;
    let visitors = app.inside_of(event, 2).await;
    let (_, first) = app.pay(&visitors[0], &person, &[1]).await;
    let (_, second) = app.pay(&visitors[1], &person, &[2]).await;
    let id = |order: &Value| order["tickets"][0]["ticketId"].clone();
    assert_eq!(app.cancel(&person, &id(&first)).await.0, 200);
    app.db.execute(&format!("UPDATE events SET cancel_until = now() WHERE id = {event}")).await.unwrap();
    app.learn().await;
    let (status, body) = app.cancel(&person, &id(&second)).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"CANCEL_DEADLINE_PASSED".into()));
    assert!(body["cancelUntil"].is_string());
    assert_eq!(app.cancel(&person, &id(&first)).await.0, 200, "what was cancelled in time stays so");
    assert_eq!(app.balance(&person).await, 50_000);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_between_commit_and_settling_loses_nothing() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("A", 200_000).await;
    let visitors = app.inside_of(event, 2).await;
    let (_, order) = app.pay(&visitors[0], &person, &[1, 2]).await;
    let (_, other) = app.pay(&visitors[1], &person, &[3]).await;
    app.cancel(&person, &other["tickets"][0]["ticketId"]).await;
    app.crash().await;
    // As if nothing of it had reached Redis.
    app.db.execute("UPDATE tickets SET settled_at = NULL, status = replace(status, 'SYNCED', 'PAID')").await.unwrap();
    app.restart_redis_empty().await;
    app.start_again().await;
    assert_eq!(app.pay(&visitors[0], &person, &[1, 2]).await.1, order, "the buyer who repeats gets the same tickets");
    app.settle().await;
    app.look().await;
    let left = answer(app.request(Method::GET, &format!("/api/events/{event}"))).await.1;
    assert_eq!((&left["seatsLeft"], &left["seatsAvailable"]), (&28.into(), &28.into()));
    assert_eq!(app.balance(&person).await, 100_000);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets WHERE settled_at IS NULL").await.unwrap(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_cannot_reach_what_belongs_to_others() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let (owner, thief) = (app.rich("A", 100_000).await, app.rich("B", 5).await);
    let visitors = app.inside_of(event, 2).await;
    let (_, order) = app.pay(&visitors[0], &owner, &[1]).await;
    let ticket = &order["tickets"][0]["ticketId"];
    let path = format!("/api/tickets/{}", ticket.as_str().unwrap());

    is(&answer(app.as_person(&thief, Method::GET, &path)).await, 404, "TICKET_NOT_FOUND");
    is(&app.cancel(&thief, ticket).await, 404, "TICKET_NOT_FOUND");
    let as_visitor = |method, at: usize| answer(app.request(method, &path).header("X-Queue-Token", &visitors[at].0));
    is(&as_visitor(Method::GET, 1).await, 404, "TICKET_NOT_FOUND");
    is(&as_visitor(Method::DELETE, 1).await, 404, "TICKET_NOT_FOUND");
    is(&answer(app.request(Method::GET, &path)).await, 401, "UNAUTHORIZED");
    is(
        &answer(app.as_person(&owner, Method::GET, &path.replace("/api/", "/api/events/1/"))).await,
        404,
        "TICKET_NOT_FOUND",
    );
    is(&as_visitor(Method::GET, 0).await, 401, "UNAUTHORIZED");
    is(&as_visitor(Method::DELETE, 0).await, 401, "UNAUTHORIZED");
    assert_eq!(answer(app.as_person(&owner, Method::GET, &path)).await.0, 200, "the person who bought it sees it");

    for path in ["/api/users/me", "/api/users/me/balance", "/api/users/me/tickets", "/api/users/me/payments"] {
        is(&answer(app.request(Method::GET, path)).await, 401, "UNAUTHORIZED");
        for key in ["", "zt_", &owner.id, &owner.key[..66], &format!("{}0", owner.key), &owner.key.to_uppercase()] {
            is(&answer(app.request(Method::GET, path).bearer_auth(key)).await, 401, "UNAUTHORIZED");
        }
        is(&answer(app.request(Method::GET, path).basic_auth(&owner.key, None::<&str>)).await, 401, "UNAUTHORIZED");
    }
    assert_eq!(app.get_as(&thief, "/api/users/me/tickets").await["items"], json!([]));
    assert_eq!(app.balance(&thief).await, 5);

    // Of the key only a hash is kept.
    let kept = format!("SELECT count(*) AS n FROM api_keys WHERE api_keys::text LIKE '%{}%'", &owner.key[3..]);
    assert_eq!(app.db.number(&kept).await.unwrap(), 0);
    let hash = blake3::hash(owner.key.as_bytes()).to_hex();
    assert_eq!(
        app.db.number(&format!("SELECT count(*) AS n FROM api_keys WHERE hash = '\\x{hash}'")).await.unwrap(),
        1
    );
    app.finish().await;
}
