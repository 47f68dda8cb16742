//! `/queues/tokens`: stage 1.

use actix_web::HttpResponse;
use actix_web::web::Data;

use crate::app::Lane;
use crate::error::Error;
use crate::http::extract::{About, Holder, MaybePerson};
use crate::http::{no_content, private};
use crate::line;

pub async fn enter(
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
