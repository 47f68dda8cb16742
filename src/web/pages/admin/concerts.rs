//! Setting up a concert: a form, and a preview of the hall before anything is made.

use std::fmt::Display;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use chrono::{DateTime, NaiveDateTime, TimeDelta, TimeZone, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::base::hall::{BadLayout, HIGHEST_PRICE, Layout, MOST_PER_ROW, MOST_SEATS, SectionPlan};
use crate::base::seat::SeatState;
use crate::house::operators::Role;
use crate::house::setup::{BadPlan, ConcertPlan, DatePlan};
use crate::web::pages::admin::text::Console;
use crate::web::pages::admin::{AtDesk, charts, with_operator};
use crate::web::pages::form::{Posted, incomplete};
use crate::web::pages::layout::count;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// Ten years.
const MOST_HOURS: u32 = 87_600;

/// The form, as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Typed {
    title: String,
    description: String,
    opens_at: String,
    closes_at: String,
    dates: String,
    cancel_hours: String,
    one_place: Option<String>,
    hall: String,
    what: String,
}

pub async fn page(visit: Visit) -> HttpResponse {
    with_operator(visit, Role::Admin, async |desk| Ok(form_page(desk, &Typed::default(), None))).await
}

pub async fn send(visit: Visit, Posted(form): Posted<Typed>) -> HttpResponse {
    with_operator(visit, Role::Admin, async |desk| {
        let typed = form?;
        let checked = |plan: ConcertPlan| match plan.check(Utc::now()) {
            Ok(()) => Ok(plan),
            Err(problem) => Err(told(desk, &problem)),
        };
        let plan = match (typed.plan(desk).and_then(checked), typed.what.as_str()) {
            (Ok(plan), "create") => plan,
            (Ok(_), "preview") => return Ok(form_page(desk, &typed, None)),
            // While someone types, most is still missing: only the preview of the hall speaks.
            (Err(_), "preview") if typed.dates.trim().is_empty() => return Ok(form_page(desk, &typed, None)),
            (Err(problem), "create" | "preview") => {
                return Ok(form_page(desk, &typed, Some(&problem)).with_status(StatusCode::UNPROCESSABLE_ENTITY));
            }
            _ => return Err(incomplete()),
        };
        let concert = desk.visit.site().programme.add_concert(&desk.operator, plan).await?;
        Ok(Reply::see(format!("/concerts/{concert}")))
    })
    .await
}

/// What is wrong with a plan, in the language of the page.
fn told(desk: &AtDesk, problem: &BadPlan) -> String {
    let t = desk.visit.console();
    match problem {
        BadPlan::Title => t.bad_title.to_owned(),
        BadPlan::Description => t.bad_description.to_owned(),
        BadPlan::ClosesFirst => t.bad_window.to_owned(),
        BadPlan::ClosedAlready => t.bad_closed.to_owned(),
        BadPlan::Dates => t.bad_dates.to_owned(),
        BadPlan::Past(date) => fill(t.bad_past, &[&written(desk, *date)]),
        BadPlan::Twice(date) => fill(t.bad_twice, &[&written(desk, *date)]),
        BadPlan::BeforeBooking(date) => fill(t.bad_early, &[&written(desk, *date)]),
        BadPlan::CancelAfterStart => t.bad_cancel.to_owned(),
        BadPlan::Year(year) => fill(t.bad_year, &[year]),
        BadPlan::Layout(problem) => hall_told(t, problem),
    }
}

/// A time as it is typed into the form.
fn written(desk: &AtDesk, time: DateTime<Utc>) -> impl Display {
    time.with_timezone(&desk.visit.site().settings.time_zone).format("%Y-%m-%d %H:%M")
}

fn hall_told(t: &Console, problem: &BadLayout) -> String {
    match problem {
        BadLayout::Name(name) => fill(t.bad_name, &[name]),
        BadLayout::Twice(name) => fill(t.bad_section_twice, &[name]),
        BadLayout::Price(name) => fill(t.bad_price, &[name, &count(HIGHEST_PRICE.unsigned_abs())]),
        BadLayout::Rows(name) | BadLayout::Described(name) => fill(t.bad_rows, &[name, &MOST_PER_ROW]),
        BadLayout::Seats(seats) => fill(t.bad_seats, &[&count(MOST_SEATS as u64), &count(*seats)]),
    }
}

impl Typed {
    fn plan(&self, desk: &AtDesk) -> Result<ConcertPlan, String> {
        let t = desk.visit.console();
        let time = |text: &str| self.time(desk, text);
        let hours = match self.cancel_hours.trim() {
            "" => None,
            hours => {
                let hours = hours.parse::<u32>().ok().filter(|hours| *hours <= MOST_HOURS);
                Some(hours.ok_or_else(|| fill(t.refused_hours, &[&count(MOST_HOURS)]))?)
            }
        };
        let date = |line: &str| {
            let starts_at = time(line)?;
            let cancel_until = hours.map(|hours| starts_at - TimeDelta::hours(hours.into()));
            Ok(DatePlan { starts_at, cancel_until, one_place_per_person: self.one_place.is_some() })
        };
        Ok(ConcertPlan {
            title: self.title.trim().to_owned(),
            // Browsers count a line break as one letter and send two.
            description: self.description.trim().replace("\r\n", "\n"),
            booking_opens_at: time(&self.opens_at)?,
            booking_closes_at: time(&self.closes_at)?,
            dates: lines(&self.dates).map(date).collect::<Result<_, String>>()?,
            layout: self.layout(t)?,
        })
    }

    /// A time as people or browsers write it, in the time zone of the house.
    fn time(&self, desk: &AtDesk, text: &str) -> Result<DateTime<Utc>, String> {
        let (text, t) = (text.trim(), desk.visit.console());
        if text.is_empty() {
            return Err(t.refused_no_time.to_owned());
        }
        let zone = desk.visit.site().settings.time_zone;
        let forms = ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
        let local = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
        let local = local.ok_or_else(|| fill(t.refused_time, &[&text]))?;
        let time = zone.from_local_datetime(&local).earliest();
        time.map(|time| time.to_utc()).ok_or_else(|| fill(t.refused_skipped, &[&zone.name(), &text]))
    }

    fn layout(&self, t: &Console) -> Result<Layout, String> {
        let section = |(at, line): (usize, &str)| section(line).ok_or_else(|| fill(t.refused_line, &[&(at + 1)]));
        let sections = lines(&self.hall).enumerate().map(section).collect::<Result<_, _>>()?;
        Layout::new(sections).map_err(|problem| hall_told(t, &problem))
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// `R, 132000, 18 20 22` or `S, 99,000, 30 × 40`: the price may have its digits in groups.
fn section(line: &str) -> Option<SectionPlan> {
    let (name, rest) = line.split_once(',')?;
    let (price, rows) = rest.rsplit_once(',')?;
    let price = price.chars().filter(|letter| !matches!(letter, ',' | ' ')).collect::<String>().parse().ok()?;
    let rows = match rows.split_once(['×', 'x', 'X', '*']) {
        Some((rows, seats)) => {
            let (rows, seats): (u32, u32) = (rows.trim().parse().ok()?, seats.trim().parse().ok()?);
            // Bounded before it is expanded: it was typed by somebody.
            if rows > 50_000 {
                return None;
            }
            vec![seats; rows as usize]
        }
        None => rows.split_whitespace().map(|row| row.parse().ok()).collect::<Option<_>>()?,
    };
    Some(SectionPlan { name: name.trim().to_owned(), price, rows })
}

fn form_page(desk: &AtDesk, typed: &Typed, problem: Option<&str>) -> Reply {
    let t = desk.visit.console();
    let zone = desk.visit.site().settings.time_zone.name();
    let time = |name: &'static str, label: &'static str, value: &str| {
        html! { label { span { (label) } input type="datetime-local" name=(name) required value=(value); } }
    };
    let main = html! {
        h1 { (t.new_concert) }
        @if let Some(problem) = problem { div.alert.warn role="alert" { strong { (t.refused) } p { (problem) } } }
        form.panel method="post" action="/admin/concerts/new/plan" data-preview {
            label { span { (t.title) } input type="text" name="title" required maxlength="200" value=(typed.title); }
            label { span { (t.description) } textarea name="description" maxlength="5000" { (typed.description) } }
            p.hint { (fill(t.time_zone, &[&zone])) }
            div.columns { (time("opens_at", t.opens_at, &typed.opens_at)) (time("closes_at", t.closes_at, &typed.closes_at)) }
            label { span { (t.starts_at) } textarea name="dates" required maxlength="5000" placeholder="2027-03-01 19:30" { (typed.dates) } }
            label { span { (t.cancel_hours) } input type="text" inputmode="numeric" name="cancel_hours" value=(typed.cancel_hours); }
            label.check { input type="checkbox" name="one_place" value="yes" checked[typed.one_place.is_some()]; (t.one_place) }
            label { span { (t.hall_plan) } textarea name="hall" required maxlength="20000" placeholder=(t.hall_plan_example) { (typed.hall) } }
            (preview(desk, typed))
            p.hint { (t.create_hint) }
            p.actions {
                button.button.primary type="submit" name="what" value="create" { (t.create) }
                button.button type="submit" name="what" value="preview" formnovalidate { (t.preview) }
            }
        }
    };
    desk.page(t.new_concert, &main)
}

/// The hall as it is typed so far.
fn preview(desk: &AtDesk, typed: &Typed) -> Markup {
    let (visit, t) = (&desk.visit, desk.visit.console());
    if lines(&typed.hall).next().is_none() {
        return html! { div #preview {} };
    }
    let layout = match typed.layout(t) {
        Ok(layout) => layout,
        Err(problem) => return html! { div #preview { p.problem { (problem) } } },
    };
    let prices: Vec<i64> = layout.seats().map(|(_, price)| price).collect();
    let total = fill(t.hall_total, &[&count(prices.len() as u64), &visit.amount(prices.iter().sum())]);
    html! {
        div #preview aria-live="polite" {
            p.strong { (total) }
            div.halls {
                @for section in layout.sections() {
                    @let rows: Vec<usize> = section.rows.iter().map(|length| *length as usize).collect();
                    @let seats = rows.iter().sum::<usize>();
                    @let name = if section.name.is_empty() { t.hall } else { &section.name };
                    @let label = fill(t.section_total, &[&name, &count(seats as u64), &visit.money(section.price)]);
                    figure.chart {
                        figcaption { (label) }
                        @if prices.len() <= charts::MOST_SEATS { (charts::drawn(&rows, &label, |_| SeatState::Available)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_section_is_read_as_people_write_it() {
        let plan =
            |name: &str, price, rows: &[u32]| Some(SectionPlan { name: name.to_owned(), price, rows: rows.to_vec() });
        assert_eq!(section("R, 132000, 18 20 22"), plan("R", 132_000, &[18, 20, 22]));
        assert_eq!(section("S,99,000,2×3"), plan("S", 99_000, &[3, 3]));
        assert_eq!(section("Stall 1, 0, 2 x 10"), plan("Stall 1", 0, &[10, 10]));
        for wrong in ["", "R", "R, 1", "R, x, 1", "R, 1, x", "R, 1, 2×", "R, 1, 99999999×1", "R, 1, -5"] {
            assert_eq!(section(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_section_or_none(line in r"[A-Z, 0-9x×*-]{0,30}|(?s).{0,30}") {
            if let Some(plan) = section(&line) {
                prop_assert!(plan.rows.len() <= 50_000);
            }
        }
    }
}
