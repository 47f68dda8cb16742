//! `/tickets`: stage 4.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::ids::{SeatNumber, TicketId};
use crate::sale::seats::Party;
use crate::sale::tickets::Order;
use crate::web::answer::{private, public};
use crate::web::extract::{Body, MayBuy, MaybePerson, Part, TicketBuyer, Visitor};
use crate::web::site::Worker;

/// One seat, or several: the answer is a ticket, or an order with its tickets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purchase {
    seat_number: Option<SeatNumber>,
    seat_numbers: Option<Vec<SeatNumber>>,
}

pub async fn buy(
    _: MayBuy,
    worker: Data<Worker>,
    Visitor(token, event): Visitor,
    MaybePerson(person): MaybePerson,
    Body(purchase): Body<Purchase>,
) -> Result<HttpResponse, Error> {
    let (party, one) = match (purchase.seat_number, purchase.seat_numbers) {
        (Some(seat), None) => (Party::one(seat), true),
        (None, Some(seats)) => (Party::new(seats)?, false),
        _ => return Err(Error::InvalidRequest("Send either seatNumber or seatNumbers.".to_owned())),
    };
    let tickets = worker.site.tickets.buy(&worker.lane, &event, token, person, &party).await?;
    let missing = || Error::internal("a sale without a ticket");
    if one {
        Ok(private(&tickets.into_iter().next().ok_or_else(missing)?))
    } else {
        Ok(private(&Order::of(tickets).ok_or_else(missing)?))
    }
}

pub async fn find(
    worker: Data<Worker>,
    TicketBuyer(buyer): TicketBuyer,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.tickets.find(&buyer, ticket).await?))
}

pub async fn cancel(
    worker: Data<Worker>,
    TicketBuyer(buyer): TicketBuyer,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.tickets.cancel(&buyer, ticket).await?))
}

/// The keys with which a door checks the codes on tickets by itself.
pub async fn public_keys(worker: Data<Worker>) -> HttpResponse {
    public(&worker.site.seal.public_keys())
}
