//! `/seats`: stage 3.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, EntityTag, Header, IfNoneMatch, VARY};
use actix_web::web::Data;
use serde::Deserialize;

use crate::app::Lane;
use crate::error::Error;
use crate::http::extract::{About, Body, Looker, MayBuy, Part, Visitor};
use crate::http::{gzip, no_content, private};
use crate::ids::SeatNumber;
use crate::seats::{self, Party, Wish};

/// Seat maps change by the second, so caches ask each time and mostly hear that nothing did.
const ASK_FIRST: (actix_web::http::header::HeaderName, &str) = (CACHE_CONTROL, "private, no-cache");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    seat_numbers: Vec<SeatNumber>,
}

pub async fn map(
    lane: Data<Lane>,
    Looker(token, event): Looker,
    request: actix_web::HttpRequest,
) -> Result<HttpResponse, Error> {
    let map = seats::map(&lane.app, &event, token.map(|token| token.place())).await?;
    let tag = EntityTag::new_weak(map.etag());
    let known = match IfNoneMatch::parse(&request) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(&tag)),
        Err(_) => false,
    };
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

pub async fn available(lane: Data<Lane>, About(event): About) -> Result<HttpResponse, Error> {
    Ok(HttpResponse::Ok().insert_header(ASK_FIRST).json(seats::available(&lane.app, &event).await?))
}

pub async fn hold(
    _: MayBuy,
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    Part(seat): Part<SeatNumber>,
) -> Result<HttpResponse, Error> {
    Ok(private(&seats::hold_one(&lane, &event, token, seat).await?))
}

pub async fn release(
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    Part(seat): Part<SeatNumber>,
) -> Result<HttpResponse, Error> {
    seats::release(&lane, &event, token, &[seat]).await?;
    Ok(no_content())
}

pub async fn hold_party(
    _: MayBuy,
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    Body(wanted): Body<Wanted>,
) -> Result<HttpResponse, Error> {
    Ok(private(&seats::hold(&lane, &event, token, &Party::new(wanted.seat_numbers)?).await?))
}

pub async fn release_party(
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    Body(wanted): Body<Wanted>,
) -> Result<HttpResponse, Error> {
    seats::release(&lane, &event, token, Party::new(wanted.seat_numbers)?.seats()).await?;
    Ok(no_content())
}

pub async fn best(
    _: MayBuy,
    lane: Data<Lane>,
    Visitor(token, event): Visitor,
    Body(wish): Body<Wish>,
) -> Result<HttpResponse, Error> {
    Ok(private(&seats::best(&lane, &event, token, &wish).await?))
}
