//! From the line to the ticket, as a visitor sees it.

use zticket_testkit::eventually;

use crate::support::TestApp;

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_joins_is_let_in_holds_buys_and_sees_the_ticket() {
    let app = TestApp::start().await;
    let visitor = app.enter().await;
    eventually("the visitor is let in", async || (app.status(&visitor).await.1["status"] == "ACTIVE").then_some(()))
        .await;

    let (status, held) = app.hold(&visitor, 7).await;
    assert_eq!((status.as_u16(), &held["seatNumber"], &held["expiresInSeconds"]), (200, &7.into(), &300.into()));
    let mine = eventually("the map shows the hold", async || {
        app.seats(Some(&visitor)).await.into_iter().find(|seat| seat["status"] == "held")
    })
    .await;
    assert_eq!(mine["mine"], true);
    assert_eq!(mine["label"], "A7");

    let (status, ticket) = app.buy(&visitor, 7).await;
    assert_eq!(status, 200, "{ticket}");
    assert_eq!(ticket["status"], "PAID");
    let path = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
    let request = app.request(reqwest::Method::GET, &path).header("X-Queue-Token", &visitor.0);
    let (status, seen) = crate::support::app::answer(request).await;
    assert_eq!((status.as_u16(), &seen), (200, &ticket));

    eventually("the visit is over", async || (app.status(&visitor).await.0 == 410).then_some(())).await;
    app.finish().await;
}
