//! `/tickets`: stage 4.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, LOCATION};
use actix_web::web::Data;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::{SeatNumber, TicketId};
use crate::sale::orders::{Accepted, OrderView};
use crate::sale::seats::Party;
use crate::sale::tickets::{self, Order, Ticket};
use crate::web::answer::{private, public};
use crate::web::extract::{Body, Holder, MayBuy, Part, PrefersAsync, TicketBuyer};
use crate::web::site::Worker;

/// Either of the two: the answer is a ticket, or an order with its tickets.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Purchase {
    /// For one seat.
    seat_number: Option<SeatNumber>,
    /// For one or several.
    #[schema(min_items = 1, max_items = 50)]
    seat_numbers: Option<Vec<SeatNumber>>,
}

/// For `seatNumber` the ticket, for `seatNumbers` the order.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Bought {
    Ticket(Ticket),
    Order(Order),
}

pub async fn buy(
    _: MayBuy,
    worker: Data<Worker>,
    Holder(guest, event): Holder,
    PrefersAsync(later): PrefersAsync,
    Body(purchase): Body<Purchase>,
) -> Result<HttpResponse, Error> {
    let (party, one) = match (purchase.seat_number, purchase.seat_numbers) {
        (Some(seat), None) => (Party::one(seat), true),
        (None, Some(seats)) => (Party::new(seats)?, false),
        _ => return Err(Error::InvalidRequest("Send either seatNumber or seatNumbers.".to_owned())),
    };
    let site = &worker.site;
    let tickets = if later {
        match site.orders.accept(&worker.lane, &event, guest, &party).await? {
            Accepted::Later(order) => return Ok(accepted(&order)),
            Accepted::Bought(tickets) => tickets,
        }
    } else {
        site.tickets.buy(&worker.lane, &event, &tickets::Purchase::new(guest, &party)).await?
    };
    let bought =
        if one { tickets.into_iter().next().map(Bought::Ticket) } else { Order::of(tickets).map(Bought::Order) };
    Ok(private(&bought.ok_or_else(|| Error::internal("a sale without a ticket"))?))
}

/// Says where to ask how it went.
fn accepted(order: &OrderView) -> HttpResponse {
    let location = format!("/api/orders/{}", order.id());
    HttpResponse::Accepted()
        .insert_header((LOCATION, location))
        .insert_header(("Preference-Applied", "respond-async"))
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(order)
}

pub async fn find(
    worker: Data<Worker>,
    TicketBuyer(buyer): TicketBuyer,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.tickets.find(&buyer, ticket).await?))
}

pub async fn cancel(
    _: MayBuy,
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
