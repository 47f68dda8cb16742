//! JSON answers and who may keep them.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};

/// For answers about a person.
const PRIVATE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// An answer for this caller alone.
pub fn private<T: serde::Serialize>(body: &T) -> HttpResponse {
    json(body, PRIVATE.1)
}

/// An answer that is the same for everyone, and soon outdated.
pub fn public<T: serde::Serialize>(body: &T) -> HttpResponse {
    json(body, "no-cache")
}

pub fn no_content() -> HttpResponse {
    HttpResponse::NoContent().insert_header(PRIVATE).finish()
}

fn json<T: serde::Serialize>(body: &T, cache: &'static str) -> HttpResponse {
    let mut response = HttpResponse::Ok().json(body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}
