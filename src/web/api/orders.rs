//! `/orders`: every purchase, also one that is not written yet.

use actix_web::http::Method;
use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::base::error::Error;
use crate::base::ids::OrderId;
use crate::web::answer::private;
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
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((CACHE_CONTROL, "no-store"))
        // Proxies that buffer would hold back the good news.
        .insert_header(("X-Accel-Buffering", "no"));
    // A client that asks for the head alone would wait for the end of a stream.
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    Ok(response.streaming(order_push::stream(worker.site.clone(), buyer, order, first, slot)))
}
