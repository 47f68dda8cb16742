//! The seat map page. `seat_forms.rs` has what it sends.

use std::collections::BTreeSet;
use std::ops::Range;

use actix_web::HttpResponse;
use maud::{Markup, html};
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::hall::Section;
use crate::base::ids::SeatNumber;
use crate::base::seat::SeatState;
use crate::base::token::Token;
use crate::event::Event;
use crate::event::snapshot::Snapshot;
use crate::sale::line::Status;
use crate::web::pages::layout::{count, countdown, encode};
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// A larger hall is shown one section at a time.
pub const AT_ONCE: usize = 400;

/// What the page should show.
#[derive(Default, Deserialize)]
struct Look {
    section: Option<String>,
    /// Seats that someone else got first.
    taken: Option<String>,
    problem: Option<String>,
}

pub async fn page(visit: Visit) -> HttpResponse {
    let reply = seat_page(&visit).await;
    visit.answer(reply)
}

/// The place of a visitor, or where to go without one.
pub fn token(visit: &Visit, event: &Event) -> Result<Token, Reply> {
    visit.place(event).map(|(token, _)| token).ok_or_else(|| Reply::see(format!("/events/{}/queue", event.id)))
}

async fn seat_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let event = visit.event().await?;
    let token = match token(visit, &event) {
        Ok(token) => token,
        Err(reply) => return Ok(reply),
    };
    // The visitor must see what they just held.
    let snapshot = site.views.fresh(&event).await?;
    let left = match site.line.status(&event, token).await {
        Ok(Status::Active { expires_in_seconds, .. }) => expires_in_seconds,
        Ok(_) | Err(Error::TokenExpired | Error::EventClosed) => {
            return Ok(Reply::see(format!("/events/{}/queue", event.id)));
        }
        Err(error) => return Err(error),
    };
    if let Some(frozen) = snapshot.frozen.get(&token.place()) {
        return Ok(Reply::see(format!("/orders/{}", frozen.order)));
    }
    let (look, person): (Look, _) = (visit.query(), visit.person().await?);
    let mine = snapshot.seats.held_by(token.place());
    let whole = event.seats.len() <= AT_ONCE || event.hall.sections.len() == 1;
    let shown: Vec<&Section> = event
        .hall
        .sections
        .iter()
        .filter(|section| whole || look.section.as_deref() == Some(section.name.as_str()))
        .collect();
    let main = html! {
        div #seats data-events={ "/api/queues/tokens/" (token.uuid()) "/events" } data-map={ "/api/events/" (event.id) "/seats" }
            data-available=(t.available) data-held=(t.held) data-sold=(t.sold) data-hurry=(t.hurry)
            data-version=(snapshot.meta.seats_version) {
            p.crumb { a href={ "/events/" (event.id) } { "← " (event.facts().title) } }
            h1 { (t.seats_title) }
            p.timer { span { (t.time_left) } " " (countdown(left)) }
            div #say .sr role="status" aria-live="polite" {}
            (alerts(visit, &event, &snapshot, &look))
            @if event.priced && person.is_none() {
                div.alert { p { (t.person_first) }
                    p { a.button href={ "/account?next=" (encode(&format!("/events/{}/seats", event.id))) } { (t.sign_in) } }
                }
            }
            div.sale {
                div.map-side {
                    (best_form(visit, &event, &snapshot))
                    @if !whole && !shown.is_empty() {
                        p.crumb { a href={ "/events/" (event.id) "/seats" } { "← " (t.back_to_sections) } }
                    }
                    @if shown.is_empty() { (section_list(visit, &event, &snapshot)) }
                    @else { (hall(visit, &event, &snapshot, &mine, &shown, look.section.as_deref())) }
                }
                (basket(visit, &event, &snapshot, &mine).await?)
            }
            form method="post" action={ "/events/" (event.id) "/leave" } { button.button.quiet type="submit" { (t.done_choosing) } }
        }
    };
    Ok(Reply::page(t.seats_title, main).again_after(20))
}

fn alerts(visit: &Visit, event: &Event, snapshot: &Snapshot, look: &Look) -> Markup {
    let t = visit.texts();
    let taken: Vec<SeatNumber> =
        look.taken.iter().flat_map(|text| text.split(',')).filter_map(|seat| seat.parse().ok()).collect();
    let labels: Vec<&str> = taken.iter().filter_map(|seat| Some(event.seat(*seat)?.label.as_str())).collect();
    let free = |at: usize| snapshot.seats.is_available(at);
    let nearest = taken.first().and_then(|seat| event.hall.nearest(*seat, free));
    let problem = match look.problem.as_deref() {
        Some("too-many") => Some(t.too_many),
        Some("not-together") => Some(t.not_together),
        Some("limit") => Some(t.ticket_limit),
        Some("another") => Some(t.place_of_another),
        _ => None,
    };
    html! {
        @if !labels.is_empty() {
            div.alert.warn role="alert" {
                p { (fill(if labels.len() == 1 { t.taken_one } else { t.taken_more }, &[&labels.join(", ")])) }
                @if let Some((seat, free)) = nearest.and_then(|seat| Some((seat, event.seat(seat)?))) {
                    form method="post" action={ "/events/" (event.id) "/seats/hold" } data-swap {
                        (view_field(look.section.as_deref()))
                        button.button type="submit" name="seat" value=(seat) { (fill(t.nearest, &[&free.label])) }
                    }
                }
            }
        }
        @if let Some(problem) = problem { div.alert.warn role="alert" { p { (problem) } } }
    }
}

fn view_field(section: Option<&str>) -> Markup {
    html! { @if let Some(section) = section { input type="hidden" name="view" value=(section); } }
}

fn best_form(visit: &Visit, event: &Event, snapshot: &Snapshot) -> Markup {
    let t = visit.texts();
    html! {
        form.best method="post" action={ "/events/" (event.id) "/seats/best" } data-swap aria-label=(t.best_title) {
            label { span { (t.how_many) }
                select name="count" {
                    @for many in 1..=snapshot.policy.seats_per_pass { option value=(many) selected[many == 2] { (many) } }
                }
            }
            @if event.hall.sections.len() > 1 {
                label { span { (t.section) }
                    select name="section" {
                        option value="" { (t.all_sections) }
                        @for section in &event.hall.sections { option value=(section.name) { (section.name) } }
                    }
                }
            }
            button.button type="submit" { (t.find_best) }
        }
    }
}

fn section_list(visit: &Visit, event: &Event, snapshot: &Snapshot) -> Markup {
    let t = visit.texts();
    let free = |section: &Section| snapshot.seats.count_in(section.seats(), |state| state == SeatState::Available);
    html! {
        h2 { (t.pick_section) }
        div.stage { (t.stage) }
        ul.blocks {
            @for section in &event.hall.sections {
                li { a.block href={ "/events/" (event.id) "/seats?section=" (encode(&section.name)) } {
                    span.strong { (section.name) }
                    span { (visit.money(event.seat(section.first_seat).map_or(0, |seat| seat.price))) }
                    span { (fill(t.seats_left, &[&count(free(section) as u64)])) }
                } }
            }
        }
    }
}

fn hall(
    visit: &Visit,
    event: &Event,
    snapshot: &Snapshot,
    mine: &BTreeSet<SeatNumber>,
    shown: &[&Section],
    view: Option<&str>,
) -> Markup {
    let t = visit.texts();
    html! {
        p.legend aria-label=(t.legend) {
            span { span.seat.available aria-hidden="true" { "1" } " " (t.available) }
            span { span.seat.held aria-hidden="true" { "1" } " " (t.held) }
            span { span.seat.sold aria-hidden="true" { "1" } " " (t.sold) }
            span { span.seat.mine aria-hidden="true" { "1" } " " (t.mine) }
        }
        a.skip href="#basket" { (t.skip_map) }
        form.hall method="post" action={ "/events/" (event.id) "/seats/hold" } data-swap {
            (view_field(view))
            div.stage { (t.stage) }
            @for section in shown {
                fieldset.section {
                    legend { @if section.name.is_empty() { (t.hall) } @else { (section.name) }
                        " · " (visit.money(event.seat(section.first_seat).map_or(0, |seat| seat.price))) }
                    div.rows {
                        @for (number, row) in section.row_ranges().enumerate() {
                            div.row role="group" aria-label=(fill(t.row, &[&row_name(event, &row, number)])) {
                                span.row-name aria-hidden="true" { (row_name(event, &row, number)) }
                                @for at in row { (seat_button(visit, event, snapshot, mine, at)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The letters of a row, as they stand in the labels of its seats.
fn row_name(event: &Event, row: &Range<usize>, number: usize) -> String {
    let label = event.seats.get(row.start).map_or("", |seat| seat.label.as_str());
    let row = label.rsplit('-').next().unwrap_or_default().trim_end_matches(|digit: char| digit.is_ascii_digit());
    if row.is_empty() { (number + 1).to_string() } else { row.to_owned() }
}

fn seat_button(visit: &Visit, event: &Event, snapshot: &Snapshot, mine: &BTreeSet<SeatNumber>, at: usize) -> Markup {
    let t = visit.texts();
    let number = SeatNumber::at(at);
    let Some(seat) = event.seats.get(at) else { return html! {} };
    let (class, text) = match snapshot.seats.states.get(at) {
        _ if mine.contains(&number) => ("mine", t.mine),
        Some(SeatState::Available) => ("available", t.available),
        Some(SeatState::Held) => ("held", t.held),
        _ => ("sold", t.sold),
    };
    let short = seat.label.trim_start_matches(|letter: char| !letter.is_ascii_digit() || letter == '-');
    let short = short.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap_or(short);
    html! {
        // A seat of one's own is given back: the same button, another address.
        button id={ "s" (number) } class={ "seat " (class) } type="submit" name="seat" value=(number)
            formaction=[(class == "mine").then(|| format!("/events/{}/seats/release", event.id))]
            data-label=(seat.label) aria-label={ (seat.label) ", " (text) } aria-pressed=[(class == "mine").then_some("true")]
            disabled[class == "held" || class == "sold"] { (short) }
    }
}

async fn basket(
    visit: &Visit,
    event: &Event,
    snapshot: &Snapshot,
    mine: &BTreeSet<SeatNumber>,
) -> Result<Markup, Error> {
    let t = visit.texts();
    let seats: Vec<SeatNumber> = mine.iter().copied().collect();
    let total = event.total(&seats).unwrap_or(0);
    let now = snapshot.event_time();
    let held = seats.iter().filter_map(|seat| snapshot.seats.holds.get(seat));
    let left = held.map(|held| held.deadline_ms.saturating_sub(now) / 1000).min();
    let person = visit.person().await?;
    let balance = match person {
        Some(person) if total > 0 => Some(visit.site().people.balance(person).await?.balance),
        _ => None,
    };
    let path = format!("/events/{}", event.id);
    let list: Vec<String> = seats.iter().map(ToString::to_string).collect();
    Ok(html! {
        aside #basket tabindex="-1" aria-labelledby="basket-title" {
            div.title-row {
                h2 #basket-title { (t.basket) }
                @if let Some(left) = left { p { (t.held_for) " " (countdown(left)) } }
            }
            @if seats.is_empty() { p.muted { (t.basket_empty) } }
            @else {
                ul.chosen {
                    @for seat in &seats {
                        @if let Some(known) = event.seat(*seat) {
                            li {
                                span.strong { (known.label) } span { (visit.money(known.price)) }
                                form method="post" action={ (path) "/seats/release" } data-swap {
                                    button.button.small type="submit" name="seat" value=(seat) aria-label={ (t.give_back) ": " (known.label) } { (t.give_back) }
                                }
                            }
                        }
                    }
                }
                p.total { span { (t.total) } strong { (visit.money(total)) } }
                @if let Some(balance) = balance { p.muted { (t.your_balance) ": " (visit.amount(balance)) } }
                @if total > 0 && person.is_none() {
                    a.button.primary href={ "/account?next=" (encode(&format!("{path}/seats"))) } { (t.sign_up_to_pay) }
                } @else {
                    form method="post" action={ (path) "/seats/pay" } {
                        input type="hidden" name="seats" value=(list.join(","));
                        button.button.primary type="submit" { @if total > 0 { (fill(t.pay, &[&visit.amount(total)])) } @else { (t.take_free) } }
                    }
                }
            }
        }
    })
}
