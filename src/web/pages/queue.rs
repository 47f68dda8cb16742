//! The line: joining it, waiting in it, leaving it.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::token::Token;
use crate::event::Event;
use crate::sale::line::Status;
use crate::web::cookies::PLACE;
use crate::web::pages::form::{Nothing, Posted};
use crate::web::pages::layout::{count, encode};
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

#[derive(Deserialize)]
pub struct Place {
    place: String,
}

#[derive(Default, Deserialize)]
struct Link {
    place: Option<String>,
}

pub async fn join(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let event = visit.event().await?;
        join_line(&visit, &event).await
    };
    visit.answer(reply.await)
}

async fn join_line(visit: &Visit, event: &Arc<Event>) -> Result<Reply, Error> {
    let queue = format!("/events/{}/queue", event.id);
    // A visitor with a place keeps it, however often they press the button.
    let mut kept = None;
    if let Some((token, _)) = visit.place(event) {
        match visit.site().line.status(event, token).await {
            Ok(_) => return Ok(Reply::see(queue)),
            // Unknown is not over.
            Err(error) if error.is_fault() => return Err(error),
            Err(_) => kept = visit.keep(event, token).await?,
        }
    }
    visit.within(|limits| &limits.enter)?;
    match visit.site().line.enter(&visit.worker.entrance, event, visit.person().await?).await {
        Ok(status) => {
            let rank = status.gist().0;
            Ok(Reply::see(queue).with_cookie(visit.remember_place(status.token(), rank)).with_cookies(kept))
        }
        Err(Error::Unauthorized(_)) => {
            Ok(Reply::see(format!("/account?next={}", encode(&format!("/events/{}", event.id)))))
        }
        Err(error) => closed_door(visit, event, error),
    }
}

/// Why the visitor does not get in, with a way on.
fn closed_door(visit: &Visit, event: &Event, error: Error) -> Result<Reply, Error> {
    let t = visit.texts();
    let (status, title, hint) = match &error {
        Error::QueueFull => (StatusCode::TOO_MANY_REQUESTS, t.full_title, t.full_hint),
        Error::EventClosed => (StatusCode::OK, t.closed_title, t.closed_hint),
        Error::SoldOut => (StatusCode::OK, t.sold_out_title, t.closed_hint),
        Error::NotOpen { .. } => return Ok(Reply::see(format!("/events/{}", event.id))),
        _ => return Err(error),
    };
    Ok(Reply::page(title, state(visit, event, title, hint, html! {}))
        .with_status(status)
        .retry_after(error.retry_after()))
}

pub async fn page(visit: Visit) -> HttpResponse {
    let reply = queue_page(&visit).await;
    visit.answer(reply)
}

async fn queue_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let event = visit.event().await?;
    let path = format!("/events/{}", event.id);
    if let Some(place) = visit.query::<Link>().place {
        // Ask first: a link from someone else must not silently replace one's own place.
        let token = event.token(&place).ok_or(Error::TokenNotFound)?;
        let take = html! {
            form method="post" action={ (path) "/queue/place" } {
                input type="hidden" name="place" value=(token.uuid());
                button.button.primary type="submit" { (t.take_place) }
            }
        };
        return Ok(Reply::page(t.take_place_title, state(visit, &event, t.take_place_title, t.take_place_hint, take)));
    }
    let Some((token, first)) = visit.place(&event) else {
        let join = join_button(&event, t.join);
        return Ok(Reply::page(t.no_place_title, state(visit, &event, t.no_place_title, "", join)));
    };
    match site.line.status(&event, token).await {
        Ok(Status::Active { .. }) => Ok(Reply::see(format!("{path}/seats"))),
        Ok(status @ Status::Waiting { poll_after_ms, .. }) => {
            let main = waiting(visit, &event, token, first, &status);
            Ok(Reply::page(t.queue_title, main).again_after(poll_after_ms.div_ceil(1000)))
        }
        Ok(Status::SoldOut { poll_after_ms, .. }) => {
            let main = live(
                visit,
                &event,
                token,
                0,
                state(visit, &event, t.sold_out_title, t.sold_out_hint, leave_button(visit, &event)),
            );
            Ok(Reply::page(t.sold_out_title, main).again_after(poll_after_ms.div_ceil(1000)))
        }
        Err(Error::TokenExpired) => {
            let bought = site.tickets.of_guest(&event, visit.guest(token).await?).await?;
            let more = html! {
                @if !bought.is_empty() {
                    p { (t.bought_hint) }
                    ul { @for ticket in &bought { li { a href={ "/tickets/" (ticket.ticket_id) } { (t.ticket) " " (ticket.label) } } } }
                }
                (join_button(&event, t.join_again))
            };
            Ok(Reply::page(t.expired_title, state(visit, &event, t.expired_title, t.expired_hint, more)))
        }
        Err(error) => closed_door(visit, &event, error),
    }
}

/// A place brought from another device.
pub async fn take_place(visit: Visit, Posted(form): Posted<Place>) -> HttpResponse {
    let reply = async {
        let Place { place } = form?;
        let event = visit.event().await?;
        let token = event.token(&place).ok_or(Error::TokenNotFound)?;
        let kept = match visit.place(&event) {
            Some((own, _)) if own != token => visit.keep(&event, own).await?,
            _ => None,
        };
        let reply = Reply::see(format!("/events/{}/queue", event.id)).with_cookies(kept);
        Ok(reply.with_cookie(visit.remember_place(token, None)))
    };
    visit.answer(reply.await)
}

/// A state of the line that is not waiting.
fn state(visit: &Visit, event: &Event, title: &str, hint: &str, more: Markup) -> Markup {
    let t = visit.texts();
    html! {
        p.crumb { a href={ "/events/" (event.id) } { "← " (event.facts().title) } }
        div.notice {
            h1 { (title) }
            @if !hint.is_empty() { p { (hint) } }
            (more)
            p.actions { a.button href="/" { (t.other_events) } }
        }
    }
}

fn join_button(event: &Event, text: &str) -> Markup {
    html! { form method="post" action={ "/events/" (event.id) "/join" } { button.button.primary type="submit" { (text) } } }
}

fn leave_button(visit: &Visit, event: &Event) -> Markup {
    html! {
        form method="post" action={ "/events/" (event.id) "/leave" } { button.button.quiet type="submit" { (visit.texts().leave) } }
    }
}

/// The part the browser script keeps up to date: it listens for the token's status.
fn live(visit: &Visit, event: &Event, token: Token, first: u64, inside: Markup) -> Markup {
    let status = format!("/api/queues/tokens/{}", token.uuid());
    let t = visit.texts();
    html! {
        div #queue data-status=(status) data-events={ (status) "/events" } data-seats={ "/events/" (event.id) "/seats" }
            data-first=(first) data-turn=(t.your_turn) data-ahead=(t.ahead) data-nobody=(t.nobody_ahead) data-one=(t.one_ahead)
            data-range=(t.wait_range) data-unknown=(t.wait_unknown) data-enough=(t.enough) data-scarce=(t.scarce)
            data-hours=(t.hours) data-minutes=(t.minutes) data-seconds=(t.seconds) { (inside) }
    }
}

fn waiting(visit: &Visit, event: &Event, token: Token, first: Option<u64>, status: &Status) -> Markup {
    let t = visit.texts();
    let Status::Waiting { rank, ahead_count, waiting_count, seats_left, estimated_wait_seconds, pause, .. } = status
    else {
        return html! {};
    };
    let first = first.unwrap_or(*rank).max(*rank);
    // From the rank at joining to the door.
    let done = if first > 1 { (first - rank).saturating_mul(100) / (first - 1) } else { 0 };
    let here = visit.request.connection_info();
    let link = format!("{}://{}/events/{}/queue?place={}", here.scheme(), here.host(), event.id, token.uuid());
    let inside = html! {
        p.crumb { a href={ "/events/" (event.id) } { "← " (event.facts().title) } }
        h1 { (t.queue_title) }
        @if let Some(pause) = pause {
            div.alert.warn role="status" { strong { (t.pause_title) } p { (pause.reason.as_ref().map_or(t.pause_hint, |reason| visit.lang.of(reason))) } }
        }
        div.place {
            p.label #number-label { (t.your_number) }
            p.number #rank aria-labelledby="number-label rank" { (count(*rank)) }
            p #ahead { @if *ahead_count == 0 { (t.nobody_ahead) } @else if *ahead_count == 1 { (t.one_ahead) } @else { (fill(t.ahead, &[&count(*ahead_count)])) } }
            progress #way max="100" value=(done) aria-label=(t.progress) { (done) "%" }
        }
        dl.figures {
            div { dt { (t.wait) } dd #wait {
                @match estimated_wait_seconds {
                    Some(wait) => (fill(t.wait_range, &[&visit.span(wait.low), &visit.span(wait.high)])),
                    None => (t.wait_unknown),
                }
            } }
            div { dt { (t.left_for_you) } dd #left { (count(*seats_left)) } }
            div { dt { (t.waiting_behind) } dd #line { (count(*waiting_count)) } }
        }
        p #chance .hint { @if seats_left > ahead_count { (t.enough) } @else { (t.scarce) } }
        p { (t.next_hint) }
        noscript { p.hint { (t.no_script_hint) } }
        div #say .sr role="status" aria-live="polite" {}
        details { summary { (t.other_device) }
            p { (t.other_device_hint) }
            p { a.link href=(link) { (link) } }
        }
        (leave_button(visit, event))
    };
    live(visit, event, token, first, inside)
}

pub async fn leave(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let event = visit.event().await?;
        if let Some((token, _)) = visit.place(&event) {
            visit.site().line.leave(&visit.worker.lane, &event, token).await?;
        }
        Ok(Reply::see(format!("/events/{}", event.id)).with_cookie(visit.forget(&format!("{PLACE}{}", event.id))))
    };
    visit.answer(reply.await)
}
