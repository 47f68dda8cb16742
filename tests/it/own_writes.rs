//! Whoever changed something and asks the same server sees it at once, whatever its snapshot shows.

use reqwest::Method;
use serde_json::{Value, json};
use zticket::server::run::Background;

use crate::support::app::answer;
use crate::support::{TestApp, Visitor};

/// Status and `mine` of a seat, as this visitor sees it.
async fn seat(app: &TestApp, visitor: &Visitor, number: usize) -> (String, bool) {
    let seats = app.seats(Some(visitor)).await;
    let Value::Object(seat) = &seats[number - 1] else { panic!("{seats:?}") };
    (seat["status"].as_str().unwrap().to_owned(), seat["mine"].as_bool().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_sees_a_hold_a_release_a_purchase_and_a_farewell_at_once() {
    // No loop renews the snapshot, and nothing is settled: what a visitor sees comes from their own request.
    let app = TestApp::by_hand(|_| {}).await;
    let (buyer, leaver) = (app.inside().await, app.inside().await);
    let is = |status: &str, mine: bool| (status.to_owned(), mine);
    assert_eq!(seat(&app, &buyer, 3).await, is("available", false));
    for _ in 0..10 {
        assert_eq!(app.hold(&buyer, 3).await.0, 200);
        assert_eq!(seat(&app, &buyer, 3).await, is("held", true));
        assert_eq!(app.release(&buyer, 3).await.0, 204);
        assert_eq!(seat(&app, &buyer, 3).await, is("available", false));
    }
    assert_eq!(app.buy(&buyer, 3).await.0, 200);
    assert_eq!(seat(&app, &buyer, 3).await, is("sold", false));
    assert_eq!(app.status(&buyer).await.0, 410, "the buyer is done");

    assert_eq!(app.hold(&leaver, 4).await.0, 200);
    assert_eq!(app.leave(&leaver).await, 204);
    assert_eq!(app.status(&leaver).await.0, 410);
    assert_eq!(seat(&app, &leaver, 4).await, is("available", false));
    let waiting = app.enter().await;
    assert_eq!(app.status(&waiting).await.1["status"], "WAITING");
    assert_eq!(app.leave(&waiting).await, 204);
    assert_eq!(app.status(&waiting).await.0, 410);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_seats_asked_for_again_at_once_are_the_same() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let best = async || {
        let request = app.request(Method::POST, "/api/seats/best").header("X-Queue-Token", &visitor.0);
        let (status, body) = answer(request.json(&json!({ "count": 2 }))).await;
        assert_eq!(status, 200, "{body}");
        body["seatNumbers"].clone()
    };
    let first = best().await;
    for _ in 0..5 {
        assert_eq!(best().await, first);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_ticket_is_not_shown_as_sold_for_longer_than_it_takes_to_settle() {
    let app = TestApp::start_with(Background::Running, |_| {}).await;
    let visitor = app.enter().await;
    app.wait_inside(&visitor).await;
    let (status, ticket) = app.buy(&visitor, 9).await;
    assert_eq!(status, 200, "{ticket}");
    let path = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
    let cancel = app.request(Method::DELETE, &path).header("X-Queue-Token", &visitor.0);
    assert_eq!(answer(cancel).await.1["status"], "CANCELLED");
    zticket_testkit::eventually("the seat is free again", async || {
        (seat(&app, &visitor, 9).await.0 == "available").then_some(())
    })
    .await;
    app.finish().await;
}
