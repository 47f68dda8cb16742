//! `/tickets`: stage 4.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Deserialize;

use crate::app::Lane;
use crate::error::Error;
use crate::http::extract::{Body, Part, Visitor};
use crate::http::private;
use crate::ids::{SeatNumber, TicketId};
use crate::tickets;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purchase {
    seat_number: SeatNumber,
}

pub async fn buy(
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    Body(purchase): Body<Purchase>,
) -> Result<HttpResponse, Error> {
    Ok(private(&tickets::buy(&lane, &event, token, purchase.seat_number).await?))
}

pub async fn find(
    lane: Data<Lane>,
    Visitor(token, _): Visitor,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&tickets::find(&lane.app, token, ticket).await?))
}
