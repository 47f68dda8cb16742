//! What is on: the home page, a concert, a date.

use std::sync::Arc;

use actix_web::HttpResponse;
use chrono::Utc;
use futures_util::future::join_all;
use maud::{Markup, html};

use crate::base::error::Error;
use crate::event::Event;
use crate::event::facts::Booking;
use crate::house::concerts::{ConcertDetails, DateView, EventView, Status};
use crate::house::rankings::Period;
use crate::sale::line;
use crate::web::pages::layout::{count, encode};
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// Concerts and ranks on the home page.
const SHOWN: usize = 50;
const RANKS: usize = 5;

pub async fn home(visit: Visit) -> HttpResponse {
    let reply = home_page(&visit).await;
    visit.answer(reply)
}

pub async fn concert(visit: Visit) -> HttpResponse {
    let reply = concert_page(&visit).await;
    visit.answer(reply)
}

pub async fn event(visit: Visit) -> HttpResponse {
    let reply = event_page(&visit).await;
    visit.answer(reply)
}

async fn home_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let now = Utc::now();
    // Only concerts that can still be booked: asking about the others would keep them fresh for nothing.
    let concerts = site.catalogue.concerts();
    let mut open: Vec<_> = concerts.values().filter(|concert| concert.closes_at > now).collect();
    open.sort_by_key(|concert| (concert.opens_at > now, concert.opens_at));
    let cards = join_all(open.iter().take(SHOWN).map(|concert| site.concerts.find(concert.id))).await;
    let mut cards = readable(cards);
    // What can be bought now comes first.
    cards.sort_by_key(|card| {
        (card.concert.status != Status::OnSale, card.dates.first().and_then(|date| date.starts_at))
    });
    let alone = |event: &Arc<Event>| event.facts().concert.is_none() && event.booking() != Booking::Over;
    let mut events: Vec<Arc<Event>> = site.catalogue.all().into_iter().filter(alone).collect();
    events.sort_by_key(|event| event.id);
    let alone = readable(join_all(events.iter().take(SHOWN).map(|event| site.concerts.event(event))).await);
    let sold_out = readable(vec![site.rankings.sold_out(RANKS).await]).concat();
    let best = readable(vec![site.rankings.best_selling(Period::All, RANKS).await]).concat();
    let main = html! {
        div.hero { h1 { "ZTicket" } p.lead { (t.home_lead) } }
        section aria-labelledby="on" {
            h2 #on { (t.on_now) }
            @if cards.is_empty() && alone.is_empty() { p { (t.nothing_on) } }
            ul.cards {
                @for card in &cards { li { (card_of(visit, card)) } }
                @for event in &alone { li { (event_card(visit, event)) } }
            }
        }
        div.columns {
            section aria-labelledby="fast" {
                h2 #fast { (t.fastest) }
                @if sold_out.is_empty() { p.muted { (t.nothing_yet) } }
                ol.ranks {
                    @for entry in &sold_out {
                        li { a href={ "/concerts/" (entry.concert_id) } { (entry.title) }
                             span.score { (fill(t.sold_out_in, &[&visit.span(entry.sold_out_after_ms.unsigned_abs().div_ceil(1000))])) } }
                    }
                }
            }
            section aria-labelledby="best" {
                h2 #best { (t.best_selling) }
                @if best.is_empty() { p.muted { (t.nothing_yet) } }
                ol.ranks {
                    @for entry in &best {
                        li { a href={ "/concerts/" (entry.concert_id) } { (entry.title) }
                             span.score { (fill(t.n_tickets, &[&count(entry.ticket_count)])) } }
                    }
                }
            }
        }
    };
    Ok(Reply::page(t.concerts, main))
}

/// A part that cannot be read now does not take the rest of the page with it.
fn readable<T>(parts: Vec<Result<T, Error>>) -> Vec<T> {
    let noted = parts
        .into_iter()
        .map(|part| part.inspect_err(|error| tracing::warn!(error = error.to_string(), "left out of the home page")));
    noted.filter_map(Result::ok).collect()
}

fn card_of(visit: &Visit, card: &ConcertDetails) -> Markup {
    let (t, concert) = (visit.texts(), &card.concert);
    let left: u64 = card.dates.iter().map(|date| date.seats_left).sum();
    let waiting: u64 = card.dates.iter().map(|date| date.waiting_count).sum();
    let dates = card.dates.len();
    html! {
        article.card {
            div.card-top {
                h3 { a href={ "/concerts/" (concert.concert_id) } { (concert.title) } }
                (visit.badge(if left == 0 && concert.status == Status::OnSale { Status::SoldOut } else { concert.status }))
            }
            p { (concert.description) }
            p.facts {
                span { @if dates == 1 { (t.one_date) } @else { (fill(t.n_dates, &[&dates])) } }
                @if let Some(starts_at) = card.dates.first().and_then(|date| date.starts_at) { span { (visit.time(starts_at)) } }
                span { (fill_price(visit, concert.price_from, concert.price_to)) }
                span { (fill(t.seats_left, &[&count(left)])) }
                @if waiting > 0 { span { (fill(t.n_waiting, &[&count(waiting)])) } }
            }
        }
    }
}

fn event_card(visit: &Visit, event: &EventView) -> Markup {
    let t = visit.texts();
    html! {
        article.card {
            div.card-top {
                h3 { a href={ "/events/" (event.date.event_id) } { (event.title) " · " (t.open_event) } }
                (visit.badge(event.date.status))
            }
            (date_facts(visit, &event.date))
        }
    }
}

fn fill_price(visit: &Visit, from: i64, to: i64) -> String {
    if from == to { visit.money(from) } else { fill(visit.texts().from_price, &[&visit.money(from)]) }
}

fn date_facts(visit: &Visit, date: &DateView) -> Markup {
    let t = visit.texts();
    html! {
        p.facts {
            span { (fill_price(visit, date.price_from, date.price_to)) }
            span { (fill(t.seats_left, &[&count(date.seats_left)])) }
            @if date.waiting_count > 0 { span { (fill(t.n_waiting, &[&count(date.waiting_count)])) } }
        }
    }
}

async fn concert_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let id = visit.part("concert").ok_or(Error::ConcertNotFound)?;
    let ConcertDetails { concert, dates } = site.concerts.find(id).await?;
    let main = html! {
        h1 { (concert.title) }
        p.lead { (concert.description) }
        p.facts {
            (visit.badge(concert.status))
            @if concert.status == Status::Scheduled {
                span { (gap(t.booking_from, visit.time(concert.booking_opens_at))) }
            } @else {
                span { (gap(t.booking_until, visit.time(concert.booking_closes_at))) }
            }
        }
        (opening(visit, concert.status, Some(concert.booking_opens_at)))
        section aria-labelledby="dates" {
            h2 #dates { (t.dates) }
            ul.cards {
                @for date in &dates {
                    li { article.card {
                        div.card-top {
                            h3 { a href={ "/events/" (date.event_id) } {
                                @if let Some(starts_at) = date.starts_at { (visit.time(starts_at)) }
                            } }
                            (visit.badge(date.status))
                        }
                        (date_facts(visit, date))
                    } }
                }
            }
        }
    };
    Ok(Reply::page(concert.title.clone(), main))
}

/// A text with markup in its gap.
pub fn gap(text: &str, inside: Markup) -> Markup {
    let (before, after) = text.split_once("{}").unwrap_or((text, ""));
    html! { (before) (inside) (after) }
}

fn opening(visit: &Visit, status: Status, opens_at: Option<chrono::DateTime<Utc>>) -> Markup {
    let t = visit.texts();
    let Some(opens_at) = opens_at.filter(|_| status == Status::Scheduled) else { return html! {} };
    let seconds = (opens_at - Utc::now()).num_seconds().max(0);
    html! {
        p.opening { (t.opens_in) " " span.countdown.big data-left=(seconds) data-reload="true" { (visit.span(seconds.unsigned_abs())) } }
    }
}

async fn event_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let event = visit.event().await?;
    let view = site.concerts.event(&event).await?;
    let signed_in = visit.person().await?.is_some();
    let standing = match visit.place(&event) {
        Some((token, _)) => site.line.status(&event, token).await.ok(),
        None => None,
    };
    let path = format!("/events/{}", event.id);
    let join = html! {
        @match standing {
            Some(line::Status::Active { .. }) => a.button.primary href={ (path) "/seats" } { (t.to_my_seats) },
            Some(_) => a.button.primary href={ (path) "/queue" } { (t.to_my_place) },
            None if !matches!(view.date.status, Status::OnSale | Status::Paused) => {},
            None if view.one_place_per_person && !signed_in =>
                a.button.primary href={ "/account?next=" (encode(&path)) } { (t.sign_up_first) },
            None => form method="post" action={ (path) "/join" } { button.button.primary type="submit" { (t.join) } },
        }
    };
    let main = html! {
        @if let Some(concert) = view.concert_id { p.crumb { a href={ "/concerts/" (concert) } { "← " (view.title) } } }
        h1 { (view.title) }
        p.facts {
            (visit.badge(view.date.status))
            @if let Some(starts_at) = view.date.starts_at { span.strong { (visit.time(starts_at)) } }
            span { (fill(t.seats_left, &[&count(view.date.seats_left)])) }
            @if view.date.waiting_count > 0 { span { (fill(t.n_waiting, &[&count(view.date.waiting_count)])) } }
        }
        (opening(visit, view.date.status, view.booking_opens_at))
        p.actions { (join) }
        section aria-labelledby="sections" {
            h2 #sections { (t.sections) }
            table {
                thead { tr { th scope="col" { (t.section) } th.number scope="col" { (t.price) } th.number scope="col" { (t.left) } } }
                tbody {
                    @for section in &view.sections {
                        tr {
                            th scope="row" { @if section.name.is_empty() { (t.hall) } @else { (section.name) } }
                            td.number { (visit.money(section.price)) }
                            td.number { (count(section.seats_left as u64)) }
                        }
                    }
                }
            }
        }
        ul.rules {
            @if view.one_place_per_person { li { (t.rule_one_place) } }
            li { (fill(t.rule_max, &[&view.max_seats_per_order])) }
            @if let Some(until) = view.cancel_until { li { (gap(t.rule_cancel, visit.time(until))) } }
        }
    };
    Ok(Reply::page(view.title.clone(), main))
}
