//! `/queues/tokens`: stage 1.

use actix_web::http::Method;
use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::app::Lane;
use crate::error::Error;
use crate::http::extract::{About, Holder, MayEnter, MaybePerson, StreamSlot};
use crate::http::{no_content, private};
use crate::{line, push};

pub async fn enter(
    _: MayEnter,
    lane: Data<Lane>,
    About(event): About,
    MaybePerson(user): MaybePerson,
) -> Result<HttpResponse, Error> {
    Ok(private(&line::enter(&lane, &event, user).await?))
}

pub async fn status(lane: Data<Lane>, Holder(token, event): Holder) -> Result<HttpResponse, Error> {
    Ok(private(&line::status(&lane.app, &event, token).await?))
}

pub async fn leave(lane: Data<Lane>, Holder(token, event): Holder) -> Result<HttpResponse, Error> {
    line::leave(&lane, &event, token).await?;
    Ok(no_content())
}

/// A stream of server-sent events. What is over already is told as a plain error.
pub async fn events(
    lane: Data<Lane>,
    Holder(token, event): Holder,
    StreamSlot(slot): StreamSlot,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let first = line::status(&lane.app, &event, token).await?;
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((CACHE_CONTROL, "no-store"))
        // Proxies that gather answers would hold back the turn.
        .insert_header(("X-Accel-Buffering", "no"));
    // Who asks for the head alone would wait, unheard, for the end of a stream.
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    Ok(response.streaming(push::stream(lane.app.clone(), event, token, first, slot)))
}
