//! What the seat map sends: choosing, giving back, paying.

use std::sync::Arc;

use actix_web::HttpResponse;
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::ids::SeatNumber;
use crate::base::token::Token;
use crate::event::Event;
use crate::sale::orders::Accepted;
use crate::sale::seats::{Party, Wish};
use crate::web::pages::form::Posted;
use crate::web::pages::layout::encode;
use crate::web::pages::reply::Reply;
use crate::web::pages::seats::{AT_ONCE, token};
use crate::web::pages::visit::Visit;

#[derive(Deserialize)]
pub struct OneSeat {
    seat: SeatNumber,
    view: Option<String>,
}

#[derive(Deserialize)]
pub struct BestSeats {
    count: u32,
    section: Option<String>,
}

#[derive(Deserialize)]
pub struct Basket {
    seats: String,
}

/// What went wrong with choosing, shown on the map.
fn explained(event: &Event, view: Option<&str>, error: Error) -> Result<Reply, Error> {
    let mut look = Vec::new();
    if let Some(view) = view.filter(|view| !view.is_empty()) {
        look.push(format!("section={}", encode(view)));
    }
    match error {
        Error::SeatsTaken(seats) => {
            let seats: Vec<String> = seats.iter().map(|(seat, _)| seat.to_string()).collect();
            look.push(format!("taken={}", seats.join(",")));
        }
        Error::InvalidRequest(_) => look.push("problem=too-many".to_owned()),
        Error::NotTogether => look.push("problem=not-together".to_owned()),
        Error::TicketLimit { .. } => look.push("problem=limit".to_owned()),
        Error::PlaceOfAnother => look.push("problem=another".to_owned()),
        Error::Unauthorized(_) => {
            return Ok(Reply::see(format!("/account?next={}", encode(&map_path(event, view)))));
        }
        Error::NotActive | Error::TokenExpired => return Ok(Reply::see(format!("/events/{}/queue", event.id))),
        error => return Err(error),
    }
    Ok(Reply::see(format!("/events/{}/seats?{}", event.id, look.join("&"))))
}

fn map_path(event: &Event, view: Option<&str>) -> String {
    let view = view.filter(|view| !view.is_empty()).map(|view| format!("?section={}", encode(view)));
    format!("/events/{}/seats{}", event.id, view.unwrap_or_default())
}

/// Does what a form asks for a visitor with a place. A visitor without one is sent to the line.
async fn with_place<T>(
    visit: &Visit,
    form: Result<T, Error>,
    act: impl AsyncFnOnce(T, &Arc<Event>, Token) -> Result<Reply, Error>,
) -> HttpResponse {
    let reply = async {
        let form = form?;
        let event = visit.event().await?;
        match token(visit, &event) {
            Ok(token) => act(form, &event, token).await,
            Err(reply) => Ok(reply),
        }
    };
    visit.answer(reply.await)
}

pub async fn hold(visit: Visit, Posted(form): Posted<OneSeat>) -> HttpResponse {
    with_place(&visit, form, async |OneSeat { seat, view }, event, token| {
        visit.within(|limits| &limits.buy)?;
        let guest = visit.guest(token).await?;
        match visit.site().seats.hold(&visit.worker.lane, event, guest, &Party::one(seat)).await {
            Ok(_) => Ok(Reply::see(map_path(event, view.as_deref()))),
            Err(error) => explained(event, view.as_deref(), error),
        }
    })
    .await
}

pub async fn release(visit: Visit, Posted(form): Posted<OneSeat>) -> HttpResponse {
    with_place(&visit, form, async |OneSeat { seat, view }, event, token| {
        visit.within(|limits| &limits.buy)?;
        match visit.site().seats.release(&visit.worker.lane, event, token, &[seat]).await {
            // Someone else has it by now: then it is not theirs any more either.
            Ok(()) | Err(Error::SeatsTaken(_)) => Ok(Reply::see(map_path(event, view.as_deref()))),
            Err(error) => Err(error),
        }
    })
    .await
}

pub async fn best(visit: Visit, Posted(form): Posted<BestSeats>) -> HttpResponse {
    with_place(&visit, form, async |BestSeats { count, section }, event, token| {
        visit.within(|limits| &limits.buy)?;
        let section = section.filter(|section| !section.is_empty());
        let wish = Wish { count, section: section.clone() };
        let guest = visit.guest(token).await?;
        match visit.site().seats.best(&visit.worker.lane, event, guest, &wish).await {
            Ok(held) => {
                let view = held.seat_numbers.first().and_then(|seat| section_of(event, *seat));
                Ok(Reply::see(map_path(event, view.filter(|_| event.seats.len() > AT_ONCE).as_deref())))
            }
            Err(error) => explained(event, section.as_deref(), error),
        }
    })
    .await
}

fn section_of(event: &Event, seat: SeatNumber) -> Option<String> {
    let at = seat.index()?;
    event.hall.sections.iter().find(|section| section.seats().contains(&at)).map(|section| section.name.clone())
}

pub async fn pay(visit: Visit, Posted(form): Posted<Basket>) -> HttpResponse {
    with_place(&visit, form, async |Basket { seats }, event, token| {
        let party = Party::parse(&seats)?;
        let map = format!("/events/{}/seats", event.id);
        visit.within(|limits| &limits.buy)?;
        let guest = visit.guest(token).await?;
        match visit.site().orders.buy_soon(&visit.worker.lane, event, guest, &party).await {
            Ok(Accepted::Later(order)) => Ok(Reply::see(format!("/orders/{}", order.id()))),
            Ok(Accepted::Bought(tickets)) => {
                let ticket = tickets.first().ok_or_else(|| Error::internal("a sale without a ticket"))?;
                Ok(Reply::see(format!("/tickets/{}?new=1", ticket.ticket_id)))
            }
            Err(Error::InsufficientBalance { total, .. }) => {
                Ok(Reply::see(format!("/account?need={total}&next={}", encode(&map))))
            }
            // Sent twice, with other seats: the first one is being written.
            Err(Error::OrderPending) => Ok(Reply::see(map)),
            Err(error) => explained(event, None, error),
        }
    })
    .await
}
