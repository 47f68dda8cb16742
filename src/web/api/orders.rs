//! `/orders`: every purchase, also one that is not written yet.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::base::error::Error;
use crate::base::ids::OrderId;
use crate::web::answer::{event_stream, private};
use crate::web::extract::{OrderBuyer, Part, StreamSlot};
use crate::web::order_push;
use crate::web::site::Worker;

pub async fn find(
    worker: Data<Worker>,
    OrderBuyer(buyer): OrderBuyer,
    Part(order): Part<OrderId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.orders.find(&buyer, order).await?))
}

pub async fn cancel(
    worker: Data<Worker>,
    OrderBuyer(buyer): OrderBuyer,
    Part(order): Part<OrderId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.orders.cancel(&buyer, order).await?))
}

/// A stream of server-sent events until the order is decided.
pub async fn events(
    worker: Data<Worker>,
    OrderBuyer(buyer): OrderBuyer,
    Part(order): Part<OrderId>,
    StreamSlot(slot): StreamSlot,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let first = worker.site.orders.find(&buyer, order).await?;
    Ok(event_stream(&request, || order_push::stream(worker.site.clone(), buyer, order, first, slot)))
}
