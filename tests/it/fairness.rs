//! What keeps one visitor, one person or another site from taking what belongs to the crowd.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use zticket::server::run::Background;
use zticket::store::redis::keys::Key;

use crate::support::app::{Answer, answer};
use crate::support::people::Person;
use crate::support::{TestApp, Visitor, plan};

fn is(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.0.as_u16(), answer.1["code"].as_str()), (status, Some(code)), "{}", answer.1);
}

/// Joins as a browser would that shows a page of this origin.
async fn join_from(app: &TestApp, site: &str, origin: Option<&str>) -> reqwest::Response {
    let mut request = app.request(Method::POST, "/api/queues/tokens").header("Sec-Fetch-Site", site);
    if let Some(origin) = origin {
        request = request.header("Origin", origin);
    }
    request.send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_cannot_put_its_visitors_into_a_line() {
    let app = TestApp::by_hand(|config| config.allowed_origins = vec!["https://shop.example".to_owned()]).await;
    for (site, origin) in [("cross-site", None), ("cross-site", Some("https://evil.example")), ("same-site", None)] {
        assert_eq!(join_from(&app, site, origin).await.status(), 403, "{site} {origin:?}");
    }
    let foreign = app.request(Method::POST, "/api/queues/tokens").header("Origin", "https://evil.example");
    is(&answer(foreign).await, 403, "CROSS_SITE_REQUEST");
    assert_eq!(app.meta("waiting").await, 0);

    assert_eq!(join_from(&app, "same-origin", None).await.status(), 200);
    assert_eq!(app.join().await.0, 200, "a program says nothing about its site");
    let allowed = join_from(&app, "cross-site", Some("https://shop.example")).await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(
        allowed.headers()["access-control-allow-origin"],
        "https://shop.example",
        "and its page may read the answer"
    );
    let preflight = app
        .request(Method::OPTIONS, "/api/tickets")
        .header("Origin", "https://shop.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "x-queue-token, content-type");
    assert_eq!(preflight.send().await.unwrap().status(), 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priced_seat_is_held_by_a_person() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let visitor = &app.inside_of(event, 1).await[0];
    is(&app.hold_seats(visitor, &[1]).await, 401, "UNAUTHORIZED");
    is(&app.hold(visitor, 1).await, 401, "UNAUTHORIZED");
    is(&app.best(visitor, json!({ "count": 2 })).await, 401, "UNAUTHORIZED");
    assert_eq!(app.look_at(event).await.seats.available, 30, "nothing is held, and the best seats are free again");
    let person = app.sign_up("A").await;
    assert_eq!(app.hold_seats_as(visitor, &person, &[1]).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_seat_beside_priced_ones_counts_too() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut hall = plan();
    hall["layout"] = json!({ "sections": [{ "name": "R", "price": 100, "rows": [4] }, { "name": "Lawn", "price": 0, "rows": [4] }] });
    let event = app.concert(&hall).await.1[0];
    let visitor = &app.inside_of(event, 1).await[0];
    is(&app.hold_seats(visitor, &[5]).await, 401, "UNAUTHORIZED");
    let person = app.rich("A", 1000).await;
    assert_eq!(app.pay(visitor, &person, &[1, 2, 3, 5]).await.0, 200);
    is(&buy_in_a_new_visit(&app, event, &person, &[6]).await, 409, "TICKET_LIMIT_REACHED");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_first_with_a_place_is_the_one_who_buys_with_it() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let (owner, other) = (app.rich("A", 200_000).await, app.rich("B", 200_000).await);
    let visitor = &app.inside_of(event, 1).await[0];
    assert_eq!(app.hold_seats_as(visitor, &owner, &[1]).await.0, 200);
    is(&app.hold_seats_as(visitor, &other, &[2]).await, 403, "PLACE_OF_ANOTHER");
    is(&app.pay(visitor, &other, &[1]).await, 403, "PLACE_OF_ANOTHER");
    let later = app.as_person(&other, Method::POST, "/api/tickets").header("Prefer", "respond-async");
    let later = answer(later.header("X-Queue-Token", &visitor.0).json(&json!({ "seatNumber": 1 }))).await;
    is(&later, 403, "PLACE_OF_ANOTHER");
    assert_eq!(app.pay(visitor, &owner, &[1]).await.0, 200);
    is(&app.pay(visitor, &other, &[1]).await, 403, "PLACE_OF_ANOTHER");
    app.settle().await;
    is(&app.pay(visitor, &other, &[1]).await, 403, "PLACE_OF_ANOTHER");
    assert_eq!(app.pay(visitor, &owner, &[1]).await.0, 200, "the same request, the same ticket");
    let known: Vec<String> = app.people_of(event).await;
    assert!(known.is_empty(), "nobody is remembered after the visit: {known:?}");
    app.finish().await;
}

async fn buy_in_a_new_visit(
    app: &TestApp,
    event: zticket::base::ids::EventId,
    person: &Person,
    seats: &[u32],
) -> Answer {
    let visitor: &Visitor = &app.inside_of(event, 1).await[0];
    app.pay(visitor, person, seats).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_only_so_many_tickets_however_often_they_join() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("A", 1_000_000).await;
    assert_eq!(buy_in_a_new_visit(&app, event, &person, &[1, 2, 3]).await.0, 200);
    let refused = buy_in_a_new_visit(&app, event, &person, &[4, 5]).await;
    is(&refused, 409, "TICKET_LIMIT_REACHED");
    assert_eq!((&refused.1["limit"], &refused.1["owned"]), (&json!(4), &json!(3)));
    let (status, order) = buy_in_a_new_visit(&app, event, &person, &[6]).await;
    assert_eq!(status, 200, "{order}");
    is(&buy_in_a_new_visit(&app, event, &person, &[7]).await, 409, "TICKET_LIMIT_REACHED");

    assert_eq!(app.cancel(&person, &order["tickets"][0]["ticketId"]).await.0, 200);
    assert_eq!(buy_in_a_new_visit(&app, event, &person, &[8]).await.0, 200, "a cancelled ticket does not count");
    let elsewhere = app.priced_event().await;
    assert_eq!(buy_in_a_new_visit(&app, elsewhere, &person, &[1]).await.0, 200, "another event counts for itself");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_together_sell_no_more_than_a_person_may_have() {
    let app = TestApp::start_with(Background::ByHand, |_| {}).await;
    let event = app.priced_event().await;
    let other = app.another(Background::ByHand).await;
    let person = app.rich("A", 10_000_000).await;
    let visitors = app.inside_of(event, 12).await;
    let buy = async |at: usize, visitor: &Visitor| {
        let addr = if at.is_multiple_of(2) { app.url("") } else { format!("http://{}", other.addr) };
        let request = app.client.post(format!("{addr}/api/tickets")).bearer_auth(&person.key);
        let seats = json!({ "seatNumbers": [2 * at + 1, 2 * at + 2] });
        answer(request.header("X-Queue-Token", &visitor.0).json(&seats)).await
    };
    let answers = join_all(visitors.iter().enumerate().map(|(at, visitor)| buy(at, visitor))).await;
    let sold = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(sold, 2, "two parties of two: {answers:?}");
    assert!(
        answers.iter().all(|(status, body)| *status == 200 || body["code"] == "TICKET_LIMIT_REACHED"),
        "{answers:?}"
    );
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sets_how_many_tickets_a_person_may_have() {
    let app = TestApp::by_hand(|config| config.admin_token = Some("an admin's token".to_owned())).await;
    let (free, priced) = (app.event().id, app.priced_event().await);
    let set = async |event, most: Value| {
        let request = app.request(Method::PATCH, &format!("/api/admin/events/{event}/policy"));
        let (status, sale) =
            answer(request.bearer_auth("an admin's token").json(&json!({ "ticketsPerPerson": most }))).await;
        assert_eq!(status, 200, "{sale}");
        app.look().await;
        sale["policy"]["ticketsPerPerson"].clone()
    };
    let person = app.rich("A", 10_000_000).await;
    assert_eq!(set(priced, json!(0)).await, 0);
    assert_eq!(buy_in_a_new_visit(&app, priced, &person, &[1, 2, 3, 4]).await.0, 200);
    assert_eq!(buy_in_a_new_visit(&app, priced, &person, &[5]).await.0, 200, "0 is no limit");
    assert_eq!(set(priced, Value::Null).await, 4, "the default where seats are priced");
    is(&buy_in_a_new_visit(&app, priced, &person, &[6]).await, 409, "TICKET_LIMIT_REACHED");

    let (_, sale) =
        answer(app.request(Method::GET, &format!("/api/admin/events/{free}")).bearer_auth("an admin's token")).await;
    assert_eq!(sale["policy"]["ticketsPerPerson"], 0, "the default where seats are free");
    assert_eq!(set(free, json!(1)).await, 1);
    let visitor = app.inside().await;
    is(&app.hold(&visitor, 1).await, 401, "UNAUTHORIZED");
    assert_eq!(
        app.pay(&visitor, &person, &[1]).await.0,
        200,
        "where tickets are counted, a free seat needs a person too"
    );
    is(&buy_in_a_new_visit(&app, free, &person, &[2]).await, 409, "TICKET_LIMIT_REACHED");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_bought_is_shown_to_that_person_alone() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let (owner, other) = (app.rich("A", 200_000).await, app.sign_up("B").await);
    let visitor = &app.inside_of(event, 1).await[0];
    let (_, order) = app.pay(visitor, &owner, &[1]).await;
    let ticket = format!("/api/tickets/{}", order["tickets"][0]["ticketId"].as_str().unwrap());
    let with_token = |method| app.request(method, &ticket).header("X-Queue-Token", &visitor.0);
    is(&answer(with_token(Method::GET)).await, 401, "UNAUTHORIZED");
    is(&answer(with_token(Method::DELETE)).await, 401, "UNAUTHORIZED");
    is(&answer(app.as_person(&other, Method::GET, &ticket)).await, 404, "TICKET_NOT_FOUND");
    let order = format!("/api/orders/{}", order["orderId"].as_str().unwrap());
    is(&answer(app.request(Method::GET, &order).header("X-Queue-Token", &visitor.0)).await, 404, "ORDER_NOT_FOUND");
    assert_eq!(app.get_as(&owner, &ticket).await["status"], "PAID");

    // Nor does the page show it to the next one at that browser.
    let page = async |cookies: String| {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let page =
            client.get(app.url(ticket.trim_start_matches("/api"))).header("Cookie", cookies).send().await.unwrap();
        (page.status().as_u16(), page.text().await.unwrap())
    };
    let place = format!("zt_place_{event}={}", visitor.0);
    let (status, text) = page(place.clone()).await;
    assert!(status == 303 && text.is_empty(), "{status}: whoever it is has to sign in");
    let (status, text) = page(format!("{place}; zt_key={}", owner.key)).await;
    assert!(status == 200 && text.contains("<svg"), "{status}");

    // A ticket that nobody in particular bought belongs to whoever has the token.
    let guest = app.inside().await;
    let (_, ticket) = app.buy(&guest, 1).await;
    let ticket = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
    assert_eq!(answer(app.request(Method::GET, &ticket).header("X-Queue-Token", &guest.0)).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_person_of_a_place_is_forgotten_when_its_pass_ends() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.sign_up("A").await;
    let visitors = app.inside_of(event, 2).await;
    for (seat, visitor) in (1..).zip(&visitors) {
        assert_eq!(app.hold_seats_as(visitor, &person, &[seat]).await.0, 200);
    }
    assert_eq!(app.people_of(event).await.len(), 2);
    assert_eq!(app.leave(&visitors[0]).await, 204);
    assert_eq!(app.people_of(event).await, [visitors[1].place().0.to_string()]);
    let keys = app.parts().catalogue.known(event).unwrap().keys.clone();
    let mut conn = app.redis.connect_for(&keys).await.unwrap();
    let _: () =
        redis::cmd("HINCRBY").arg(keys.get(Key::Meta)).arg("skew").arg(3_600_000).query_async(&mut conn).await.unwrap();
    app.expire().await;
    app.admit().await;
    assert!(app.people_of(event).await.is_empty());
    app.finish().await;
}
