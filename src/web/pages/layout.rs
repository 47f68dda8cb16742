//! What all pages share: the shell, and how times, money and states are written.

use chrono::{DateTime, Datelike, Timelike, Utc};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::house::concerts::Status;
use crate::web::cookies::{self, KEY, SESSION};
use crate::web::pages::assets;
use crate::web::pages::reply::Page;
use crate::web::pages::text::{Lang, fill};
use crate::web::pages::visit::Visit;

pub fn shell(visit: &Visit, page: &Page) -> Markup {
    let t = visit.texts();
    let here = visit.request.uri().path_and_query().map_or("/", |path| path.as_str());
    let signed_in = visit.cookie(SESSION).is_some() || cookies::plain(&visit.request, KEY).is_some();
    html! {
        (DOCTYPE)
        html lang=(visit.lang.code()) {
            head {
                meta charset="utf-8";
                title { (page.title) " · ZTicket" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href=(assets::ICON.path()) type="image/svg+xml";
                link rel="stylesheet" href=(assets::STYLE.path());
                script src=(assets::SCRIPT.path()) defer {}
                @if let Some(seconds) = page.refresh {
                    noscript { meta http-equiv="refresh" content=(seconds); }
                }
            }
            body {
                a.skip href="#main" { (t.skip) }
                header.top {
                    a.brand href="/" { "ZTicket" }
                    nav aria-label="ZTicket" {
                        a href="/" { (t.concerts) }
                        a href="/account" { @if signed_in { (t.account) } @else { (t.sign_in) } }
                    }
                    nav.langs aria-label=(t.language) {
                        @for lang in Lang::ALL {
                            a href={ "/language/" (lang.code()) "?to=" (encode(here)) } lang=(lang.code()) hreflang=(lang.code())
                                rel="nofollow" aria-current=[(lang == visit.lang).then_some("true")] { (lang.name()) }
                        }
                    }
                }
                main #main tabindex="-1" data-offline=(t.offline) { (page.main) }
                footer.bottom { p { (t.footer) } }
            }
        }
    }
}

/// A page with one message and a way on.
pub fn notice(visit: &Visit, title: &str, hint: &str, again: bool) -> Markup {
    let t = visit.texts();
    html! {
        div.notice {
            h1 { (title) }
            p { (hint) }
            p.actions {
                @if again { a.button.primary href=(visit.request.uri().path()) { (t.try_again) } }
                @if visit.request.path().starts_with("/admin") { a.button href="/admin" { (visit.lang.console().to_console) } }
                @else { a.button href="/" { (t.home) } }
            }
        }
    }
}

/// What stays as it is in a query value.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Encodes a value for a query.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, &PLAIN).to_string()
}

/// 1234567 → 1,234,567
pub fn number(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value < 0 { format!("−{grouped}") } else { grouped }
}

pub fn count(value: impl TryInto<i64>) -> String {
    number(value.try_into().unwrap_or(i64::MAX))
}

impl Visit {
    /// As the reader writes it: ₩132,000 or 132,000원. Zero is "free".
    pub fn money(&self, amount: i64) -> String {
        if amount == 0 { self.texts().free.to_owned() } else { self.amount(amount) }
    }

    /// The same, but zero is 0.
    pub fn amount(&self, amount: i64) -> String {
        match (self.lang, self.site().settings.currency.as_str()) {
            (Lang::Ko, "KRW") => format!("{}원", number(amount)),
            (Lang::En, "KRW") if amount < 0 => format!("−₩{}", number(-amount)),
            (Lang::En, "KRW") => format!("₩{}", number(amount)),
            (_, currency) => format!("{} {currency}", number(amount)),
        }
    }

    /// Day and time in the configured time zone.
    pub fn time(&self, time: DateTime<Utc>) -> Markup {
        let local = time.with_timezone(&self.site().settings.time_zone);
        let t = self.texts();
        let word = |words: &'static str, at: u32| words.split(' ').nth(at as usize).unwrap_or_default();
        let (weekday, month) =
            (word(t.weekdays, local.weekday().num_days_from_monday()), word(t.months, local.month0()));
        let (year, day, hour, minute) = (local.year(), local.day(), local.hour(), local.minute());
        let text = match self.lang {
            Lang::En => format!("{weekday} {day} {month} {year}, {hour:02}:{minute:02}"),
            Lang::Ko => format!("{year}년 {month}월 {day}일 ({weekday}) {hour:02}:{minute:02}"),
        };
        html! { time datetime=(time.to_rfc3339()) { (text) } }
    }

    /// A span of time in words.
    pub fn span(&self, seconds: u64) -> String {
        let t = self.texts();
        match seconds {
            0..60 => fill(t.seconds, &[&seconds]),
            60..3600 => fill(t.minutes, &[&seconds.div_ceil(60)]),
            _ => fill(t.hours, &[&(seconds / 3600), &(seconds % 3600 / 60)]),
        }
    }

    pub fn badge(&self, status: Status) -> Markup {
        let t = self.texts();
        let (class, text) = match status {
            Status::Scheduled => ("soon", t.scheduled),
            Status::OnSale => ("open", t.on_sale),
            Status::Paused => ("soon", t.paused),
            Status::Closed => ("over", t.closed),
            Status::SoldOut => ("over", t.sold_out),
        };
        html! { span class={ "badge " (class) } { (text) } }
    }
}

/// Minutes and seconds that count down.
pub fn countdown(seconds: u64) -> Markup {
    html! { span.countdown data-left=(seconds) { (seconds / 60) ":" (format!("{:02}", seconds % 60)) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::web::Query;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (value, text) in
            [(0, "0"), (7, "7"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567"), (-50_000, "−50,000")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_path_is_encoded_for_a_query() {
        assert_eq!(encode("/events/2/seats?section=R&x=1 2"), "/events/2/seats%3Fsection%3DR%26x%3D1%202");
        assert_eq!(encode("한"), "%ED%95%9C");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_again(text in r"(?s).{0,40}") {
            let query = format!("a={}", encode(&text));
            prop_assert!(query.bytes().all(|byte| byte.is_ascii_graphic()));
            let Query(read) = Query::<Vec<(String, String)>>::from_query(&query).unwrap();
            prop_assert_eq!(read, [("a".to_owned(), text)]);
        }
    }
}
