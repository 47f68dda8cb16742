//! The console in a real browser: live figures, phone width, keyboard.

use serde_json::Value;

use super::{House, accessible, house};
use zticket_testkit::Tab;

const TOKEN: &str = "the token of the house";

async fn console() -> House {
    house(|config| {
        config.admin_token = Some(TOKEN.to_owned());
        (config.seat_count, config.policy.max_active) = (200, 5);
    })
    .await
}

async fn sign_in(house: &House) -> Tab {
    let tab = house.visitor().await;
    house.go(&tab, "/admin").await;
    tab.at("/admin/sign-in").await;
    tab.fill("input[name=key]", TOKEN).await;
    tab.press("Enter").await;
    // Its path begins like that of the sign-in page.
    tab.reads("Sign out").await;
    tab
}

#[tokio::test(flavor = "multi_thread")]
async fn the_figures_of_a_sale_stay_fresh_by_themselves() {
    let house = console().await;
    let points = "INSERT INTO figures SELECT 1, now() - n * interval '1 minute', 40 + 30 * sin(n / 8.0), 5, 3, 60 - n,
        500 - n * 5, 400 - n * 6, 0 FROM generate_series(1, 55) n";
    house.app.db.execute(points).await.unwrap();
    let tab = sign_in(&house).await;
    tab.shot("console-sales").await;
    tab.click("a[href='/admin/events/1']").await;
    tab.at("/admin/events/1").await;
    tab.reads("The last hour").await;
    for _ in 0..8 {
        house.app.enter().await;
    }
    tab.until("document.querySelector('dl.figures dd').textContent.trim() === '3'").await;
    tab.shot("console-sale").await;
    tab.dark(true).await;
    tab.shot("console-sale-dark").await;
    tab.dark(false).await;
    tab.size(390, 844, true).await;
    tab.shot("console-sale-phone").await;
    let too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(tab.eval(too_wide).await, Value::Bool(false), "no scrolling sideways on a phone");
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_paused_and_changed_by_keyboard() {
    let house = console().await;
    let tab = sign_in(&house).await;
    house.go(&tab, "/admin/events/1").await;
    tab.tab_to("input[name=ko]").await;
    tab.write("잠시만요.").await;
    tab.press("Tab").await;
    tab.write("One moment.").await;
    tab.tab_to("button[name=what][value=pause]").await;
    tab.press("Enter").await;
    tab.reads("It is in force").await;
    tab.reads("One moment.").await;
    tab.tab_to("form[action$='/resume'] button").await;
    tab.press("Enter").await;
    tab.sees("form[action$='/pause']").await;
    tab.fill("input[name=maxActive]", "0").await;
    tab.press("Enter").await;
    tab.reads("Most people inside is a whole number").await;
    tab.fill("input[name=maxActive]", "7").await;
    tab.press("Enter").await;
    tab.reads("changed").await;
    tab.reads("0 of 7").await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slider_shows_what_a_setting_would_do_before_it_is_saved() {
    let house = console().await;
    let tab = sign_in(&house).await;
    house.go(&tab, "/admin/events/1").await;
    let slider = "label:has(input[name=maxActive]) + input[type=range]";
    tab.sees(slider).await;
    let move_it = format!(
        "{{ const s = document.querySelector('{slider}'); s.value = 20; s.dispatchEvent(new Event('input', {{ bubbles: true }})); }}"
    );
    tab.eval(&move_it).await;
    assert_eq!(tab.eval("document.querySelector('input[name=maxActive]').value").await, "20", "four times five");
    tab.reads("Nobody can tell yet how long").await;
    tab.eval(&move_it.replace("20;", "-30;")).await;
    assert_eq!(tab.eval("document.querySelector('input[name=maxActive]').value").await, "1");
    tab.shot("console-settings").await;
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hall_appears_while_it_is_typed() {
    let house = console().await;
    let tab = sign_in(&house).await;
    house.go(&tab, "/admin/concerts/new").await;
    tab.fill("textarea[name=hall]", "R, 132000, 18 20 22 24").await;
    tab.reads("84 seats").await;
    tab.sees("#preview svg").await;
    tab.fill("textarea[name=hall]", "R, 132000").await;
    tab.reads("Line 1 of the hall").await;
    tab.shot("console-concert").await;
    house.quiet(&tab);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_of_the_console_violates_the_accessibility_guidelines() {
    let house = console().await;
    let points = "INSERT INTO figures SELECT 1, now() - n * interval '1 minute', n, 5, 3, 60 - n, 500, 400, 0
        FROM generate_series(1, 55) n";
    house.app.db.execute(points).await.unwrap();
    let event = house.app.priced_event().await;
    let buyer = house.app.rich("Han", 200_000).await;
    let visitor = house.app.inside_of(event, 1).await.remove(0);
    assert_eq!(house.app.pay(&visitor, &buyer, &[1, 2]).await.0, 200);
    let tab = house.visitor().await;
    house.go(&tab, "/admin/sign-in").await;
    accessible(&tab, "console-sign-in").await;
    tab.fill("input[name=key]", "wrong").await;
    tab.press("Enter").await;
    tab.reads("no operator with this key").await;
    accessible(&tab, "console-wrong-key").await;
    let tab = sign_in(&house).await;
    accessible(&tab, "console-sales").await;
    house.go(&tab, "/admin/events/1").await;
    tab.sees("input[type=range]").await;
    accessible(&tab, "console-sale").await;
    tab.fill("input[name=ko]", "잠시만요.").await;
    tab.click("button[name=what][value=pause]").await;
    tab.reads("in both languages").await;
    accessible(&tab, "console-refused").await;
    tab.fill("input[name=en]", "One moment.").await;
    tab.click("button[name=what][value=pause]").await;
    tab.reads("It is in force").await;
    accessible(&tab, "console-paused").await;
    house.go(&tab, "/admin/tickets?wanted=Han").await;
    tab.click("details.cancel summary").await;
    accessible(&tab, "console-tickets").await;
    house.go(&tab, "/admin/audit").await;
    accessible(&tab, "console-audit").await;
    house.go(&tab, "/admin/concerts/new").await;
    tab.fill("textarea[name=hall]", "R, 132000, 18 20 22\nS, 99000, 5×20").await;
    tab.sees("#preview svg").await;
    accessible(&tab, "console-concert").await;
    house.finish().await;
}
