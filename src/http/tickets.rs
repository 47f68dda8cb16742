//! `/tickets`: stage 4.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Deserialize;

use crate::app::Lane;
use crate::error::Error;
use crate::http::extract::{Body, MayBuy, MaybePerson, Part, TicketBuyer, Visitor};
use crate::http::{private, public};
use crate::ids::{SeatNumber, TicketId};
use crate::seats::Party;
use crate::tickets::{self, Order};

/// One seat, or several: the answer is a ticket, or an order with its tickets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purchase {
    seat_number: Option<SeatNumber>,
    seat_numbers: Option<Vec<SeatNumber>>,
}

pub async fn buy(
    _: MayBuy,
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    MaybePerson(user): MaybePerson,
    Body(purchase): Body<Purchase>,
) -> Result<HttpResponse, Error> {
    let (party, one) = match (purchase.seat_number, purchase.seat_numbers) {
        (Some(seat), None) => (Party::one(seat), true),
        (None, Some(seats)) => (Party::new(seats)?, false),
        _ => return Err(Error::InvalidRequest("Send either seatNumber or seatNumbers.".to_owned())),
    };
    let tickets = tickets::buy(&lane, &event, token, user, &party).await?;
    let missing = || Error::Internal("a sale without a ticket".to_owned());
    if one {
        Ok(private(&tickets.into_iter().next().ok_or_else(missing)?))
    } else {
        Ok(private(&Order::of(tickets).ok_or_else(missing)?))
    }
}

pub async fn find(
    lane: Data<Lane>,
    TicketBuyer(buyer): TicketBuyer,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&tickets::find(&lane.app, &buyer, ticket).await?))
}

pub async fn cancel(
    lane: Data<Lane>,
    TicketBuyer(buyer): TicketBuyer,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&tickets::cancel(&lane.app, &buyer, ticket).await?))
}

/// With these a door checks the codes on tickets by itself.
pub async fn public_keys(lane: Data<Lane>) -> HttpResponse {
    public(&lane.app.seal.public_keys())
}
