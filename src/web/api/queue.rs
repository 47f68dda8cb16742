//! `/queues/tokens`: stage 1.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::base::error::Error;
use crate::web::answer::{event_stream, no_content, private};
use crate::web::extract::{About, MayEnter, MaybePerson, NotFromElsewhere, PathToken, StreamSlot};
use crate::web::push;
use crate::web::site::Worker;

pub async fn enter(
    _: NotFromElsewhere,
    _: MayEnter,
    worker: Data<Worker>,
    About(event): About,
    MaybePerson(person): MaybePerson,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.line.enter(&worker.entrance, &event, person).await?))
}

pub async fn status(worker: Data<Worker>, PathToken(token, event): PathToken) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.line.status(&event, token).await?))
}

pub async fn leave(worker: Data<Worker>, PathToken(token, event): PathToken) -> Result<HttpResponse, Error> {
    worker.site.line.leave(&worker.lane, &event, token).await?;
    Ok(no_content())
}

/// A stream of server-sent events. If the token is over already, a plain error.
pub async fn events(
    worker: Data<Worker>,
    PathToken(token, event): PathToken,
    StreamSlot(slot): StreamSlot,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let first = worker.site.line.status(&event, token).await?;
    Ok(event_stream(&request, || push::stream(worker.site.clone(), event, token, first, slot)))
}
