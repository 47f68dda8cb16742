//! Orders: of every purchase, and those that are accepted first and written later.

mod faults;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::app::{Answer, answer};
use crate::support::people::Person;
use crate::support::{Stream, TestApp, Visitor};

impl TestApp {
    /// Asks to buy later.
    async fn order(&self, visitor: &Visitor, seats: &[u32], person: Option<&Person>) -> Answer {
        let mut request = self.request(Method::POST, "/api/tickets").header("X-Queue-Token", &visitor.0);
        if let Some(person) = person {
            request = request.bearer_auth(&person.key);
        }
        answer(request.header("Prefer", "respond-async").json(&json!({ "seatNumbers": seats }))).await
    }

    /// The same, accepted. Returns the number of the order.
    async fn ordered(&self, visitor: &Visitor, seats: &[u32]) -> String {
        let (status, body) = self.order(visitor, seats, None).await;
        assert_eq!((status.as_u16(), &body["status"]), (202, &"PENDING".into()), "{body}");
        body["orderId"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, method: Method, visitor: Option<&Visitor>, order: &str) -> Answer {
        let mut request = self.request(method, &format!("/api/orders/{order}"));
        if let Some(visitor) = visitor {
            request = request.header("X-Queue-Token", &visitor.0);
        }
        answer(request).await
    }

    /// The order as its buyer sees it.
    async fn order_of(&self, visitor: &Visitor, order: &str) -> Value {
        let (status, body) = self.ask(Method::GET, Some(visitor), order).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// One round of writing.
    async fn write(&self) {
        for event in self.parts().catalogue.all() {
            self.parts().writer.step(&event).await.unwrap();
        }
    }
}

fn seats(order: &Value) -> Vec<u64> {
    order["tickets"].as_array().unwrap().iter().map(|ticket| ticket["seatNumber"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_accepted_at_once_and_written_in_its_turn() {
    let app = TestApp::by_hand(|_| {}).await;
    let (first, second) = (app.inside().await, app.inside().await);
    let request = app.request(Method::POST, "/api/tickets").header("X-Queue-Token", &first.0);
    let response =
        request.header("Prefer", "wait=5, respond-async").json(&json!({ "seatNumber": 7 })).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    assert_eq!(response.headers()["preference-applied"], "respond-async");
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let body: Value = response.json().await.unwrap();
    let order = body["orderId"].as_str().unwrap().to_owned();
    assert_eq!(location, format!("/api/orders/{order}"));
    assert_eq!((&body["status"], &body["aheadCount"]), (&"PENDING".into(), &0.into()));

    let other = app.ordered(&second, &[8, 9]).await;
    assert_eq!(app.order_of(&second, &other).await["aheadCount"], 1);
    assert_eq!(app.order_of(&second, &other).await["seatNumbers"], json!([8, 9]));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM orders").await.unwrap(), 0);

    app.write().await;
    let paid = app.order_of(&first, &order).await;
    assert_eq!((&paid["status"], &paid["orderId"], seats(&paid)), (&"PAID".into(), &order.clone().into(), vec![7]));
    assert_eq!(seats(&app.order_of(&second, &other).await), [8, 9]);
    let (_, to_a_stranger) = app.ask(Method::GET, None, &order).await;
    assert_eq!((&to_a_stranger["status"], to_a_stranger.get("tickets")), (&"PAID".into(), None));
    app.write().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_came_first_gets_the_seats_and_a_party_gets_all_or_none() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors = [app.inside().await, app.inside().await, app.inside().await, app.inside().await];
    let wanted: [&[u32]; 4] = [&[5], &[4, 5], &[4], &[4, 6]];
    let mut orders = Vec::new();
    for (visitor, seats) in visitors.iter().zip(wanted) {
        orders.push(app.ordered(visitor, seats).await);
    }
    app.write().await;
    let mut outcomes = Vec::new();
    for (visitor, order) in visitors.iter().zip(&orders) {
        let order = app.order_of(visitor, order).await;
        outcomes.push(order["code"].as_str().map_or_else(|| seats(&order), |_| Vec::new()));
    }
    assert_eq!(outcomes, [vec![5], vec![], vec![4], vec![]]);
    let lost = app.order_of(&visitors[1], &orders[1]).await;
    assert_eq!(lost["status"], "FAILED");
    assert!(["SEAT_ALREADY_HELD", "SEAT_ALREADY_SOLD"].contains(&lost["code"].as_str().unwrap()), "{lost}");
    assert_eq!(lost["seats"][0]["seatNumber"], 5, "{lost}");
    // Their time goes on, and they may buy something else.
    let next = app.ordered(&visitors[1], &[8]).await;
    assert_ne!(next, orders[1]);
    app.write().await;
    assert_eq!(seats(&app.order_of(&visitors[1], &next).await), [8]);
    assert_eq!(app.order_of(&visitors[1], &orders[1]).await["status"], "FAILED", "what was told stays told");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seats_that_others_hold_are_not_sold() {
    let app = TestApp::by_hand(|_| {}).await;
    let (holder, buyer) = (app.inside().await, app.inside().await);
    assert_eq!(app.hold(&holder, 3).await.0, 200);
    let order = app.ordered(&buyer, &[3]).await;
    app.write().await;
    let failed = app.order_of(&buyer, &order).await;
    assert_eq!((&failed["status"], &failed["code"]), (&"FAILED".into(), &"SEAT_ALREADY_HELD".into()));
    assert_eq!(app.buy(&holder, 3).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_pay_is_told_the_sum_and_keeps_the_hold() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("Poor", 40_000).await;
    let visitor = app.inside_of(event, 1).await.remove(0);
    let (status, body) = app.order(&visitor, &[1], None).await;
    assert_eq!((status.as_u16(), &body["code"]), (401, &"UNAUTHORIZED".into()));
    let (status, body) = app.order(&visitor, &[1], Some(&person)).await;
    assert_eq!(status, 202, "{body}");
    let order = body["orderId"].as_str().unwrap().to_owned();
    app.write().await;
    let failed = app.order_of(&visitor, &order).await;
    assert_eq!(
        (&failed["code"], &failed["balance"], &failed["total"]),
        (&"INSUFFICIENT_BALANCE".into(), &40_000.into(), &50_000.into())
    );

    app.charge(&person, "second", 10_000).await;
    let (status, body) = app.order(&visitor, &[1], Some(&person)).await;
    assert_eq!(status, 202, "{body}");
    let order = body["orderId"].as_str().unwrap().to_owned();
    app.write().await;
    let (status, paid) = answer(app.as_person(&person, Method::GET, &format!("/api/orders/{order}"))).await;
    assert_eq!((status.as_u16(), &paid["status"], &paid["total"]), (200, &"PAID".into(), &50_000.into()), "{paid}");
    assert_eq!(app.balance(&person).await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_again_is_the_same_order() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let order = app.ordered(&visitor, &[7, 6]).await;
    assert_eq!(app.ordered(&visitor, &[6, 7]).await, order);
    let (status, body) = app.order(&visitor, &[6], None).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"ORDER_PENDING".into()));
    app.write().await;
    app.settle().await;
    app.look().await;
    let (status, body) = app.order(&visitor, &[6, 7], None).await;
    assert_eq!((status.as_u16(), &body["orderId"]), (200, &order.into()), "{body}");
    let (status, body) = app.order(&visitor, &[5], None).await;
    assert_eq!((status.as_u16(), &body["code"]), (403, &"NOT_ACTIVE_USER".into()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_bought_at_once_meanwhile_is_bought_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let order = app.ordered(&visitor, &[7]).await;
    let (status, ticket) = app.buy(&visitor, 7).await;
    assert_eq!(status, 200, "{ticket}");
    app.write().await;
    let paid = app.order_of(&visitor, &order).await;
    assert_eq!((&paid["status"], &paid["orderId"]), (&"PAID".into(), &ticket["orderId"]));
    assert_eq!(seats(&paid), [7]);
    let (_, to_a_stranger) = app.ask(Method::GET, None, &order).await;
    assert_eq!((&to_a_stranger["status"], to_a_stranger.get("tickets")), (&"PAID".into(), None));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_can_be_taken_back_until_it_is_decided() {
    let app = TestApp::by_hand(|_| {}).await;
    let (visitor, stranger) = (app.inside().await, app.inside().await);
    let order = app.ordered(&visitor, &[7]).await;
    for other in [Some(&stranger), None] {
        assert_eq!(app.ask(Method::DELETE, other, &order).await.1["code"], "ORDER_NOT_FOUND");
    }
    for _ in 0..2 {
        let (status, body) = app.ask(Method::DELETE, Some(&visitor), &order).await;
        assert_eq!(
            (status.as_u16(), &body["status"], &body["code"]),
            (200, &"FAILED".into(), &"ORDER_CANCELLED".into())
        );
    }
    app.write().await;
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 0);
    let order = app.ordered(&visitor, &[8]).await;
    app.write().await;
    let (status, body) = app.ask(Method::DELETE, Some(&visitor), &order).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"ORDER_NOT_PENDING".into()));
    assert_eq!(app.order_of(&visitor, &order).await["status"], "PAID");
    let (_, ticket) = app.buy(&stranger, 9).await;
    let (status, body) = app.ask(Method::DELETE, Some(&stranger), ticket["orderId"].as_str().unwrap()).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"ORDER_NOT_PENDING".into()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_how_an_order_goes() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors = [app.inside().await, app.inside().await];
    let orders = [app.ordered(&visitors[0], &[7]).await, app.ordered(&visitors[1], &[7]).await];
    let mut streams = Vec::new();
    for order in &orders {
        streams.push(Stream::at(&app, &format!("/api/orders/{order}/events")).await);
    }
    for (ahead, stream) in streams.iter_mut().enumerate() {
        let (name, status) = stream.next().await.unwrap();
        assert_eq!((name.as_str(), &status["status"]), ("status", &"PENDING".into()));
        assert_eq!(status["aheadCount"], ahead);
    }
    app.write().await;
    app.look().await;
    for (stream, outcome) in streams.iter_mut().zip(["PAID", "SEAT_ALREADY_HELD"]) {
        let (name, status) = stream.next().await.unwrap();
        let code = status["code"].as_str().unwrap_or("PAID");
        assert_eq!((name.as_str(), code), ("status", outcome));
        assert_eq!(stream.next().await.unwrap(), ("end".to_owned(), json!({ "code": outcome })));
        assert!(stream.next().await.is_none(), "and that is all");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_order_is_shown_to_its_buyer_and_listed_newest_first() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let (person, other) = (app.rich("Kim", 1_000_000).await, app.rich("Lee", 1_000_000).await);
    let mut orders = Vec::new();
    for seat in 1..=4_u32 {
        let visitor = app.inside_of(event, 1).await.remove(0);
        let order = if seat % 2 == 0 {
            let (_, body) = app.order(&visitor, &[seat], Some(&person)).await;
            app.write().await;
            body["orderId"].clone()
        } else {
            app.pay(&visitor, &person, &[seat]).await.1["orderId"].clone()
        };
        orders.insert(0, order.as_str().unwrap().to_owned());
    }
    for order in &orders {
        assert_eq!(app.get_as(&person, &format!("/api/orders/{order}")).await["status"], "PAID");
        let (status, body) = answer(app.as_person(&other, Method::GET, &format!("/api/orders/{order}"))).await;
        assert!(status == 404 || body.get("tickets").is_none(), "{body}");
    }
    for list in ["orders", "payments"] {
        let mut listed = Vec::new();
        let mut path = format!("/api/users/me/{list}?limit=3");
        loop {
            let page = app.get_as(&person, &path).await;
            listed.extend(
                page["items"].as_array().unwrap().iter().map(|item| item["orderId"].as_str().unwrap().to_owned()),
            );
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            path = format!("/api/users/me/{list}?limit=3&cursor={cursor}");
        }
        assert_eq!(listed, orders, "{list}");
    }
    for none in ["x", "01a1e3a3-5fef-7387-8226-d31f5b6e4d49", "00000200-0000-800b-bf4f-4e79db2f800d"] {
        let (status, body) = answer(app.as_person(&person, Method::GET, &format!("/api/orders/{none}"))).await;
        assert_eq!((status.as_u16(), &body["code"]), (404, &"ORDER_NOT_FOUND".into()), "{none}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_take_an_order_back_gets_the_same_answer_again() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("Kim", 1_000_000).await;
    let visitor = app.inside_of(event, 1).await.remove(0);
    let (_, accepted) = app.order(&visitor, &[1], Some(&person)).await;
    let path = format!("/api/orders/{}", accepted["orderId"].as_str().unwrap());
    for _ in 0..2 {
        let (status, body) = answer(app.as_person(&person, Method::DELETE, &path)).await;
        assert_eq!((status.as_u16(), &body["code"]), (200, &"ORDER_CANCELLED".into()), "{body}");
    }
    assert_eq!(app.balance(&person).await, 1_000_000);
    app.finish().await;
}
