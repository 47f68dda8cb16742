//! `/seats`: stage 3.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, EntityTag, VARY};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::SeatNumber;
use crate::sale::seats::{Party, Wish};
use crate::web::answer::{knows, no_content, private};
use crate::web::extract::{About, Body, Holder, Looker, MayBuy, Part, Visitor};
use crate::web::gzip;
use crate::web::site::Worker;

/// Seat maps change by the second, so caches ask each time and mostly hear that nothing changed.
const ASK_FIRST: (actix_web::http::header::HeaderName, &str) = (CACHE_CONTROL, "private, no-cache");

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    #[schema(min_items = 1, max_items = 50)]
    seat_numbers: Vec<SeatNumber>,
}

pub async fn map(
    worker: Data<Worker>,
    Looker(token, event): Looker,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let map = worker.site.seat_maps.view(&event, token.map(|token| token.place())).await?;
    let tag = EntityTag::new_weak(map.etag());
    let known = knows(&request, &tag);
    let mut response = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response.insert_header(ASK_FIRST).insert_header((ETAG, tag.to_string())).insert_header((VARY, "Accept-Encoding"));
    if known {
        return Ok(response.finish());
    }
    let gzip = gzip::accepted(&request);
    if gzip {
        response.insert_header((CONTENT_ENCODING, "gzip"));
    }
    Ok(response.content_type("application/json").body(map.json(gzip)?))
}

pub async fn available(worker: Data<Worker>, About(event): About) -> Result<HttpResponse, Error> {
    Ok(HttpResponse::Ok().insert_header(ASK_FIRST).json(worker.site.seats.available(&event).await?))
}

pub async fn hold(
    _: MayBuy,
    worker: Data<Worker>,
    Holder(guest, event): Holder,
    Part(seat): Part<SeatNumber>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.seats.hold_one(&worker.lane, &event, guest, seat).await?))
}

pub async fn release(
    _: MayBuy,
    worker: Data<Worker>,
    Visitor(token, event): Visitor,
    Part(seat): Part<SeatNumber>,
) -> Result<HttpResponse, Error> {
    worker.site.seats.release(&worker.lane, &event, token, &[seat]).await?;
    Ok(no_content())
}

pub async fn hold_party(
    _: MayBuy,
    worker: Data<Worker>,
    Holder(guest, event): Holder,
    Body(wanted): Body<Wanted>,
) -> Result<HttpResponse, Error> {
    let party = Party::new(wanted.seat_numbers)?;
    Ok(private(&worker.site.seats.hold(&worker.lane, &event, guest, &party).await?))
}

pub async fn release_party(
    _: MayBuy,
    worker: Data<Worker>,
    Visitor(token, event): Visitor,
    Body(wanted): Body<Wanted>,
) -> Result<HttpResponse, Error> {
    let party = Party::new(wanted.seat_numbers)?;
    worker.site.seats.release(&worker.lane, &event, token, party.seats()).await?;
    Ok(no_content())
}

pub async fn best(
    _: MayBuy,
    worker: Data<Worker>,
    Holder(guest, event): Holder,
    Body(wish): Body<Wish>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.seats.best(&worker.lane, &event, guest, &wish).await?))
}
