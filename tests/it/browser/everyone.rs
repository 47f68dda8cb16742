//! The sale for everyone: without JavaScript, without a mouse, in two languages, with a screen reader.

use std::time::Duration;

use serde_json::json;

use super::{accessible, house};
use crate::support::plan;

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_way_works_without_javascript() {
    let house = house(|_| {}).await;
    let event = house.app.priced_event().await;
    house.set(event.get(), &[("state", "paused")]).await;
    let tab = house.visitor().await;
    tab.without_javascript().await;
    house.go(&tab, "/account").await;
    tab.fill("input[name=name]", "Park").await;
    tab.click("form[action='/account/sign-up'] button").await;
    tab.reads("Hello, Park").await;
    tab.fill("input[name=amount]", "80,000").await;
    tab.click("form[action='/account/charge'] button").await;
    tab.reads("Your balance is ₩80,000").await;
    house.go(&tab, &format!("/events/{event}")).await;
    tab.click("form[action$='/join'] button").await;
    tab.at(&format!("/events/{event}/queue")).await;
    tab.reads("This page loads itself again").await;
    house.set(event.get(), &[("state", "open")]).await;
    // The page reloads itself, and the visitor is let in.
    tab.at(&format!("/events/{event}/seats")).await;
    tab.click("#s10").await;
    tab.sees("#s10.mine").await;
    tab.click("#s11").await;
    tab.sees("#s11.mine").await;
    tab.shot("seats-no-script").await;
    tab.click("form[action$='/pay'] button").await;
    tab.at("/tickets/").await;
    tab.reads("R-A10").await;
    tab.click("details.cancel summary").await;
    tab.click("details.cancel button").await;
    tab.reads("Cancelled").await;
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_way_works_by_keyboard_alone() {
    let house = house(|_| {}).await;
    let tab = house.visitor().await;
    house.go(&tab, "/").await;
    tab.press("Tab").await;
    assert_eq!(tab.eval("document.activeElement.className").await, "skip", "first a way past the header");
    tab.tab_to("a[href='/events/1']").await;
    tab.press("Enter").await;
    tab.at("/events/1").await;
    tab.tab_to("form[action$='/join'] button").await;
    tab.press("Enter").await;
    tab.at("/events/1/seats").await;
    tab.sees("#s1[tabindex='0']").await;
    tab.tab_to("#s1").await;
    tab.press("ArrowRight").await;
    tab.press("ArrowDown").await;
    assert_eq!(tab.eval("document.activeElement.id").await, "s12");
    tab.press(" ").await;
    tab.sees("#s12.mine").await;
    tab.until("document.activeElement.id === 's12'").await;
    tab.tab_to("form[action$='/pay'] button").await;
    tab.press("Enter").await;
    tab.at("/tickets/").await;
    tab.reads("B2").await;
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_speak_korean_and_english_as_asked() {
    let house = house(|_| {}).await;
    let event = house.app.priced_event().await;
    let tab = house.browser.visitor("ko-KR,ko;q=0.9,en;q=0.5").await;
    house.go(&tab, &format!("/events/{event}")).await;
    tab.reads("구역과 가격").await;
    tab.reads("50,000원").await;
    tab.shot("event-korean").await;
    assert_eq!(tab.eval("document.documentElement.lang").await, "ko");
    tab.click("a[hreflang=en]").await;
    tab.reads("Sections and prices").await;
    assert_eq!(tab.path().await, format!("/events/{event}"), "the same page in another language");
    tab.click("form[action$='/join'] button").await;
    tab.at(&format!("/events/{event}/seats")).await;
    tab.reads("Choose your seats").await;
    tab.click("a[hreflang=ko]").await;
    tab.reads("좌석 선택").await;
    tab.shot("seats-korean").await;
    house.quiet(&tab);
    house.finish().await;
}

/// axe-core checks every page and state, and finds nothing against WCAG 2.2 AA.
#[tokio::test(flavor = "multi_thread")]
async fn no_page_violates_the_accessibility_guidelines() {
    let house = house(|_| {}).await;
    let event = house.app.priced_event().await;
    let mut large = plan();
    large["layout"] = json!({ "sections": [{ "name": "Floor", "price": 1000, "rows": 20, "seatsPerRow": 20 },
                                           { "name": "Tribune", "price": 500, "rows": 20, "seatsPerRow": 20 }] });
    let big = house.app.concert(&large).await.1[0];
    let tab = house.visitor().await;
    let check = async |name: &str| accessible(&tab, name).await;
    house.go(&tab, "/docs").await;
    tab.click("summary:has(+ #post_tickets)").await;
    tab.click("#post_tickets a[href='#type-Bought']").await;
    tab.sees("details[open] > #type-Bought").await;
    check("docs").await;
    house.go(&tab, "/").await;
    check("home").await;
    house.go(&tab, "/concerts/1").await;
    check("concert").await;
    house.go(&tab, "/nothing").await;
    check("not-found").await;
    house.go(&tab, "/account").await;
    check("sign-up").await;
    house.go(&tab, "/account?problem=name").await;
    check("sign-up-problem").await;
    tab.fill("input[name=name]", "Lee").await;
    tab.click("form[action='/account/sign-up'] button").await;
    tab.reads("Hello, Lee").await;
    tab.fill("input[name=amount]", "500000").await;
    tab.click("form[action='/account/charge'] button").await;
    tab.reads("Your balance is").await;
    house.go(&tab, &format!("/events/{event}/queue")).await;
    check("no-place").await;
    house.set(event.get(), &[("state", "paused"), ("reason", r#"{"ko":"잠시만요.","en":"One moment."}"#)]).await;
    house.go(&tab, &format!("/events/{event}")).await;
    check("event").await;
    tab.click("form[action$='/join'] button").await;
    tab.at(&format!("/events/{event}/queue")).await;
    check("queue").await;
    house.set(event.get(), &[("state", "open")]).await;
    tab.at(&format!("/events/{event}/seats")).await;
    tab.click(".best button").await;
    tab.reads("Kept for you for").await;
    house.go(&tab, &format!("/events/{event}/seats?taken=1&problem=too-many")).await;
    check("seats").await;
    tab.click("form[action$='/pay'] button").await;
    tab.at("/tickets/").await;
    check("ticket").await;
    tab.click("details.cancel summary").await;
    check("ticket-cancel").await;
    house.go(&tab, "/account").await;
    check("account").await;
    tab.click("form[action='/account/sign-out'] button").await;
    tab.reads("you cannot come back").await;
    check("sign-out-warning").await;
    tab.fill("#access input[name=name]", "phone").await;
    tab.click("form[action='/account/keys'] button").await;
    tab.reads("Your new key").await;
    check("new-key").await;
    tab.click("main a.primary").await;
    tab.reads("phone").await;
    house.go(&tab, &format!("/events/{event}/queue")).await;
    check("over").await;
    house.go(&tab, &format!("/events/{big}")).await;
    tab.click("form[action$='/join'] button").await;
    tab.at(&format!("/events/{big}/seats")).await;
    check("sections").await;
    tab.click("a[href$='section=Tribune']").await;
    tab.sees("#s401").await;
    check("section").await;
    house.set(event.get(), &[("state", "closed")]).await;
    tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            house.go(&tab, &format!("/events/{event}")).await;
            if tab.text(".badge").await == "Closed" {
                break;
            }
        }
    })
    .await
    .unwrap();
    check("closed").await;
    house.finish().await;
}
