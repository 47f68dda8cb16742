//! The sale with a mouse, and what can go wrong in it.

use std::time::{Duration, Instant};

use diesel_async::SimpleAsyncConnection;
use serde_json::{Value, json};
use zticket::base::ids::EventId;
use zticket::base::seal::Sealed;
use zticket_testkit::eventually;

use super::{accessible, house};

/// What a scanner at the door reads.
fn read_code(picture: &[u8]) -> String {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(picture));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let (width, samples) = (info.width as usize, info.color_type.samples());
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(width, info.height as usize, |x, y| {
        pixels[(y * width + x) * samples]
    });
    let grids = image.detect_grids();
    assert_eq!(grids.len(), 1, "one code");
    grids[0].decode().unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_are_let_in_in_order_and_one_sees_what_the_other_holds() {
    let house = house(|config| config.policy.max_active = 1).await;
    let (first, second) = (house.visitor().await, house.visitor().await);
    house.set(1, &[("state", "paused"), ("reason", r#"{"ko":"잠시만요.","en":"The band is late."}"#)]).await;
    for (tab, rank) in [(&first, "1"), (&second, "2")] {
        house.go(tab, "/").await;
        tab.click("a[href='/events/1']").await;
        tab.at("/events/1").await;
        tab.click("form[action$='/join'] button").await;
        tab.at("/events/1/queue").await;
        tab.reads("The band is late.").await;
        assert_eq!(tab.text("#rank").await, rank);
    }
    second.shot("queue-paused").await;
    second.size(390, 760, true).await;
    second.shot("queue-paused-phone").await;
    second.size(1280, 900, false).await;
    let resumed = Instant::now();
    house.set(1, &[("state", "open")]).await;
    first.at("/events/1/seats").await;
    first.sees(".seat.available").await;
    println!("from resuming admission to the seat page on screen: {:?}", resumed.elapsed());
    // There is room for one: the other is next.
    second.until("document.querySelector('#rank').textContent === '1'").await;
    second.reads("You are next").await;
    second.shot("queue-next").await;
    second.size(390, 760, true).await;
    second.shot("queue-phone").await;
    second.size(1280, 900, false).await;
    assert_eq!(second.path().await, "/events/1/queue");
    let opened = Instant::now();
    house.set(1, &[("max_active", "2")]).await;
    second.at("/events/1/seats").await;
    second.sees(".seat.available").await;
    println!("from the admission to the seat page on screen: {:?}", opened.elapsed());

    first.click("#s1").await;
    first.sees("#s1.mine").await;
    first.reads("Kept for you for").await;
    let held = Instant::now();
    second.sees("#s1.held:disabled").await;
    println!("from one person's hold to the other's screen: {:?}", held.elapsed());
    assert_eq!(second.eval("document.querySelector('#s1').getAttribute('aria-label')").await, "A1, held by someone");
    first.click("#s2").await;
    first.sees("#s2.mine").await;
    first.shot("seats").await;
    first.click("#s2").await;
    first.sees("#s2.available").await;

    first.click("form[action$='/pay'] button").await;
    first.at("/tickets/").await;
    first.reads("Here is your ticket").await;
    second.sees("#s1.sold").await;
    let code = read_code(&first.picture(Some(".qr svg")).await);
    let ticket: uuid::Uuid = first.path().await["/tickets/".len()..].parse().unwrap();
    let genuine = house.app.parts().site.seal.check(&code).unwrap();
    let expected = Sealed {
        ticket: zticket::base::ids::TicketId(ticket),
        event: EventId::new(1).unwrap(),
        seat: zticket::base::ids::SeatNumber(1),
    };
    assert_eq!(genuine, expected);
    first.shot("ticket").await;

    // The ticket is its buyer's alone.
    house.go(&second, &format!("/tickets/{ticket}")).await;
    second.reads("There is nothing here").await;
    house.go(&first, "/events/1/queue").await;
    first.reads("Your place is over").await;
    first.click(&format!("a[href='/tickets/{ticket}']")).await;
    first.reads("A1").await;
    house.quiet(&first);
    let other: Vec<String> = second.complaints(&house.app.url(""));
    assert!(other.iter().all(|text| text.contains("404")), "{other:?}");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_priced_pair_is_bought_after_charging_and_a_cancel_pays_back() {
    let house = house(|_| {}).await;
    let event = house.app.priced_event().await;
    let tab = house.visitor().await;
    tab.size(390, 844, true).await;
    house.go(&tab, &format!("/events/{event}")).await;
    tab.shot("event-phone").await;
    tab.click("form[action$='/join'] button").await;
    tab.at(&format!("/events/{event}/seats")).await;
    // A priced seat is for somebody who is signed in.
    tab.reads("Sign in to choose seats that cost something").await;
    tab.click(".best button").await;
    tab.at("/account").await;
    tab.shot("sign-up-phone").await;
    tab.fill("input[name=name]", "Kim Haneul").await;
    tab.click("form[action='/account/sign-up'] button").await;
    tab.at(&format!("/events/{event}/seats")).await;
    tab.click(".best button").await;
    tab.reads("R-A5").await;
    tab.reads("R-A6").await;
    tab.shot("seats-phone").await;
    tab.size(1180, 600, false).await;
    tab.shot("seats-priced").await;
    tab.size(390, 844, true).await;
    tab.click("form[action$='/pay'] button").await;
    tab.at("/account").await;
    tab.reads("You need ₩100,000 and have ₩0").await;
    tab.shot("charge-phone").await;
    tab.click("form[action='/account/charge'] button").await;
    tab.at(&format!("/events/{event}/seats")).await;
    tab.reads("Your balance: ₩100,000").await;
    // Two clicks before the page can change: still one order.
    tab.click_times("form[action$='/pay'] button", 2).await;
    tab.at("/tickets/").await;
    tab.reads("Bought together").await;
    tab.shot("ticket-phone").await;
    tab.click("details.cancel summary").await;
    tab.click("details.cancel button").await;
    tab.reads("Cancelled").await;
    house.go(&tab, "/account").await;
    tab.reads("Hello, Kim Haneul").await;
    assert_eq!(tab.text(".big").await, "₩50,000");
    tab.shot("account-phone").await;
    let moved: Value = tab.eval("[...document.querySelectorAll('tbody tr')].map(r => r.cells[1].textContent + ' ' + r.cells[2].textContent)").await;
    assert_eq!(moved, json!(["Refund ₩50,000", "Payment −₩100,000", "Charge ₩100,000"]));
    assert_eq!(house.app.db.number("SELECT count(*) AS n FROM orders").await.unwrap(), 1);
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reloading_going_back_and_pressing_twice_are_safe() {
    let house = house(|_| {}).await;
    house.set(1, &[("state", "paused")]).await;
    let tab = house.visitor().await;
    house.go(&tab, "/events/1").await;
    tab.click_times("form[action$='/join'] button", 2).await;
    tab.at("/events/1/queue").await;
    tab.reads("Paused for a moment").await;
    tab.reload().await;
    assert_eq!(tab.text("#rank").await, "1");
    house.go(&tab, "/events/1").await;
    tab.click("a[href$='/queue']").await;
    tab.at("/events/1/queue").await;
    assert_eq!(house.app.meta("entered").await, 1, "one place, however often the visitor joins");

    // The place can be taken to another device.
    let link = tab.eval("document.querySelector('details a.link').href").await;
    let other = house.visitor().await;
    other.open(link.as_str().unwrap()).await;
    other.reads("Go on with a place from another device?").await;
    other.click("form[action$='/place'] button").await;
    other.sees("#rank").await;
    assert_eq!(other.text("#rank").await, "1");
    assert_eq!(other.eval("location.search").await, "", "the place does not stay in the address");

    house.set(1, &[("state", "open")]).await;
    tab.at("/events/1/seats").await;
    tab.click_times("#s7", 2).await;
    tab.until("document.querySelector('#s7.mine, #s7.available')").await;
    tab.until("!document.querySelector('[aria-busy]')").await;
    if tab.eval("document.querySelector('#s7').classList.contains('available')").await == true {
        tab.click("#s7").await;
    }
    tab.sees("#s7.mine").await;
    tab.reload().await;
    tab.sees("#s7.mine").await;
    tab.click("form[action$='/pay'] button").await;
    tab.at("/tickets/").await;
    tab.eval("history.back()").await;
    // The visit is over, and going back to the seats says so.
    tab.at("/events/1/queue").await;
    tab.reads("Your place is over").await;
    assert_eq!(house.app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slower_visitor_is_offered_the_nearest_free_seat() {
    let house = house(|_| {}).await;
    let tab = house.visitor().await;
    house.go(&tab, "/events/1").await;
    tab.click("form[action$='/join'] button").await;
    tab.at("/events/1/seats").await;
    tab.sees("#s5.available").await;
    // Someone takes the seat just before the click lands: the map still shows it free, because it cannot be refreshed.
    tab.eval("document.querySelector('#seats').dataset.map = '/api/events/1/seats/none'").await;
    let rival = house.app.enter().await;
    eventually("the rival is inside", async || (house.app.status(&rival).await.1["status"] == "ACTIVE").then_some(()))
        .await;
    house.app.hold(&rival, 5).await;
    tab.click("#s5").await;
    tab.reads("Someone was faster: A5 is taken.").await;
    tab.shot("seat-taken").await;
    assert_eq!(tab.eval("document.activeElement.getAttribute('role')").await, "alert", "the focus is on the news");
    tab.click("[role=alert] button").await;
    tab.sees("#s4.mine").await;
    let complaints = tab.complaints(&house.app.url(""));
    assert!(complaints.iter().all(|text| text.contains("404")), "{complaints:?}");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_the_page_stays_and_goes_on_by_itself() {
    let mut house = house(|_| {}).await;
    let (inside, waiting) = (house.visitor().await, house.visitor().await);
    house.go(&inside, "/events/1").await;
    inside.click("form[action$='/join'] button").await;
    inside.at("/events/1/seats").await;
    house.set(1, &[("state", "paused")]).await;
    house.go(&waiting, "/events/1").await;
    waiting.click("form[action$='/join'] button").await;
    waiting.reads("Paused for a moment").await;
    house.app.redis.save().await.unwrap();
    house.app.redis.kill();
    inside.click("#s3").await;
    inside.reads("No connection").await;
    inside.sees("#s3.available").await;
    house.app.redis.restart().await.unwrap();
    // Each web worker notices a broken connection at its next call, which fails.
    eventually("the seat can be held again", async || {
        if inside.eval("Boolean(document.querySelector('#s3.available'))").await == true {
            inside.click("#s3").await;
            inside.until("!document.querySelector('[aria-busy]')").await;
        }
        (inside.eval("Boolean(document.querySelector('#s3.mine'))").await == true).then_some(())
    })
    .await;
    house.set(1, &[("state", "open")]).await;
    waiting.at("/events/1/seats").await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_sold_out_closed_and_out_of_time() {
    let house = house(|config| config.seat_count = 1).await;
    let (quick, slow) = (house.visitor().await, house.visitor().await);
    for tab in [&quick, &slow] {
        house.go(tab, "/events/1").await;
        tab.click("form[action$='/join'] button").await;
    }
    quick.at("/events/1/seats").await;
    slow.reads("You are next").await;
    // The first visitor is too slow, and the turn passes to the next.
    house.app.pass_time(Duration::from_secs(301)).await;
    quick.at("/events/1/queue").await;
    quick.reads("Your place is over").await;
    quick.shot("queue-expired").await;
    slow.at("/events/1/seats").await;
    quick.click("form[action$='/join'] button").await;
    quick.at("/events/1/queue").await;
    slow.click("#s1").await;
    slow.sees("#s1.mine").await;
    slow.click("form[action$='/pay'] button").await;
    slow.at("/tickets/").await;
    quick.reads("Everything is sold").await;
    quick.shot("queue-sold-out").await;
    // A cancelled seat goes to the next in line.
    slow.click("details.cancel summary").await;
    slow.click("details.cancel button").await;
    quick.at("/events/1/seats").await;
    house.set(1, &[("state", "closed")]).await;
    let late = house.visitor().await;
    house.go(&late, "/events/1").await;
    late.reads("Closed").await;
    assert_eq!(late.eval("document.querySelector('form[action$=\"/join\"]')").await, Value::Null);
    for tab in [&slow, &late] {
        house.quiet(tab);
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_another_site_changes_nothing() {
    let house = house(|_| {}).await;
    let tab = house.visitor().await;
    house.go(&tab, "/events/1").await;
    let (addr, other) = (house.app.server.as_ref().unwrap().addr, "http://localhost");
    let foreign = format!("{other}:{}/events/1", addr.port());
    tab.open(&foreign).await;
    // Another name for the same server is another site to a browser.
    let post = format!(
        "(() => {{ const f = document.createElement('form'); f.method = 'post'; f.action = 'http://{addr}/events/1/join';
          document.body.append(f); f.submit(); }})()"
    );
    tab.call("Page.setBypassCSP", json!({ "enabled": true })).await;
    tab.open(&foreign).await;
    tab.eval(&post).await;
    tab.reads("This came from another site").await;
    assert_eq!(house.app.meta("entered").await, 0);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_takes_long_has_a_page_of_its_own() {
    let house = house(|_| {}).await;
    let tab = house.visitor().await;
    house.go(&tab, "/events/1").await;
    tab.click("form[action$='/join'] button").await;
    tab.at("/events/1/seats").await;
    tab.click(".best button").await;
    tab.reads("Kept for you for").await;
    // While the table is locked, nothing is sold.
    let mut conn = house.app.db.connect().await.unwrap();
    conn.batch_execute("BEGIN; LOCK TABLE tickets IN ACCESS EXCLUSIVE MODE").await.unwrap();
    tab.click("form[action$='/pay'] button").await;
    tab.at("/orders/").await;
    tab.reads("Your order is being written").await;
    accessible(&tab, "order").await;
    // Whoever comes back to the seats is shown the order.
    house.go(&tab, "/events/1/seats").await;
    tab.at("/orders/").await;
    tab.size(390, 760, true).await;
    tab.shot("order-phone").await;
    conn.batch_execute("COMMIT").await.unwrap();
    tab.at("/tickets/").await;
    tab.reads("Here is your ticket").await;
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_can_be_taken_back_on_its_page() {
    let house = house(|_| {}).await;
    let tab = house.visitor().await;
    house.go(&tab, "/events/1").await;
    tab.click("form[action$='/join'] button").await;
    tab.at("/events/1/seats").await;
    tab.click(".best button").await;
    tab.reads("Kept for you for").await;
    let mut conn = house.app.db.connect().await.unwrap();
    conn.batch_execute("BEGIN; LOCK TABLE seats IN ACCESS EXCLUSIVE MODE").await.unwrap();
    tab.click("form[action$='/pay'] button").await;
    tab.at("/orders/").await;
    tab.click("form[action$='/cancel'] button").await;
    tab.at("/events/1/seats").await;
    conn.batch_execute("COMMIT").await.unwrap();
    tab.click("form[action$='/pay'] button").await;
    tab.at("/tickets/").await;
    house.quiet(&tab);
    house.finish().await;
}
