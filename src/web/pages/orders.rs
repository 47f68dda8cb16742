//! An order that is being written, for its buyer: until it is bought, or there is a way on.

use actix_web::HttpResponse;
use maud::html;

use crate::base::error::{Error, Problem};
use crate::base::ids::{EventId, OrderId};
use crate::sale::orders::OrderView;
use crate::web::pages::form::{Nothing, Posted};
use crate::web::pages::layout::{count, encode};
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// Without JavaScript the page asks again after this many seconds.
const AGAIN_AFTER: u64 = 2;

pub async fn page(visit: Visit) -> HttpResponse {
    let reply = order_page(&visit).await;
    visit.answer(reply)
}

async fn order_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let id: OrderId = visit.part("order").ok_or(Error::OrderNotFound)?;
    let (seats, state, event) = match site.orders.find(&visit.buyer().await?, id).await? {
        OrderView::Paid { tickets, .. } => {
            // Somebody who has the number alone sees no tickets.
            let Some(ticket) = tickets.as_deref().and_then(<[_]>::first) else {
                return if visit.person().await?.is_none() {
                    Ok(visit.to_sign_in())
                } else {
                    Err(Error::OrderNotFound)
                };
            };
            return Ok(Reply::see(format!("/tickets/{}?new=1", ticket.ticket_id)));
        }
        OrderView::Failed { event_id, problem, .. } => return Ok(failed(visit, event_id, &problem)),
        OrderView::Processing { seat_numbers, event_id, .. } => (seat_numbers, t.order_now.to_owned(), event_id),
        OrderView::Pending { ahead_count, seat_numbers, event_id, .. } => {
            let ahead = ahead_count.unwrap_or(0);
            let state = if ahead == 0 { t.order_next.to_owned() } else { fill(t.order_ahead, &[&count(ahead)]) };
            (seat_numbers, state, event_id)
        }
    };
    let event = site.catalogue.get(event).await?;
    let labels: Vec<&str> = seats.iter().filter_map(|seat| Some(event.seat(*seat)?.label.as_str())).collect();
    let status = format!("/api/orders/{id}");
    let main = html! {
        div #pending data-status=(status) data-events={ (status) "/events" } data-ahead=(t.order_ahead)
            data-next=(t.order_next) data-now=(t.order_now) {
            p.crumb { a href={ "/events/" (event.id) } { "← " (event.facts().title) } }
            h1 { (t.order_title) }
            p #ahead role="status" { (state) }
            progress aria-label=(t.order_title) {}
            @if !labels.is_empty() { p { (fill(t.order_seats, &[&labels.join(", ")])) } }
            p { (t.order_hint) }
            p.muted { (t.order_number) ": " span.code { (id) } }
            form method="post" action={ "/orders/" (id) "/cancel" } { button.button.quiet type="submit" { (t.order_back) } }
        }
    };
    Ok(Reply::page(t.order_title, main).again_after(AGAIN_AFTER))
}

/// The way on after an order that sold nothing, as after a purchase that was refused at once.
fn failed(visit: &Visit, event: EventId, problem: &Problem) -> Reply {
    let t = visit.texts();
    let map = format!("/events/{event}/seats");
    match problem.code.as_str() {
        "SEAT_ALREADY_HELD" | "SEAT_ALREADY_SOLD" => {
            let taken: Vec<String> = problem.details.taken().map(|seat| seat.to_string()).collect();
            Reply::see(format!("{map}?taken={}", taken.join(",")))
        }
        "INSUFFICIENT_BALANCE" => {
            Reply::see(format!("/account?need={}&next={}", problem.details.total.unwrap_or(0), encode(&map)))
        }
        "TICKET_LIMIT_REACHED" => Reply::see(format!("{map}?problem=limit")),
        "PLACE_OF_ANOTHER" => Reply::see(format!("{map}?problem=another")),
        "NOT_ACTIVE_USER" => Reply::see(format!("/events/{event}/queue")),
        "ORDER_CANCELLED" => Reply::see(map),
        _ => Reply::page(
            t.order_failed,
            html! {
                div.notice {
                    h1 { (t.order_failed) }
                    p { (t.order_failed_hint) }
                    p.actions { a.button.primary href=(map) { (t.order_again) } }
                }
            },
        ),
    }
}

pub async fn cancel(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let id: OrderId = visit.part("order").ok_or(Error::OrderNotFound)?;
        match visit.site().orders.cancel(&visit.buyer().await?, id).await {
            // Decided already: its page knows the way.
            Ok(_) | Err(Error::OrderNotPending) => Ok(Reply::see(format!("/orders/{id}"))),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}
