//! Serves the assets.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, VARY, X_CONTENT_TYPE_OPTIONS};

use crate::base::error::Error;
use crate::web::gzip;
use crate::web::pages::assets::{ICON, SCRIPT, STYLE};
use crate::web::pages::visit::Visit;

pub async fn file(visit: Visit) -> HttpResponse {
    let wanted: String = visit.part("name").unwrap_or_default();
    let Some(asset) = [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| *asset.name == wanted) else {
        return visit.answer(Err(Error::NotFound));
    };
    let mut response = HttpResponse::Ok();
    response
        .content_type(asset.kind)
        .insert_header((CACHE_CONTROL, "public, max-age=31536000, immutable"))
        .insert_header((VARY, "Accept-Encoding"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"));
    match &*asset.gzip {
        Some(small) if gzip::accepted(&visit.request) => {
            response.insert_header((CONTENT_ENCODING, "gzip")).body(small.clone())
        }
        _ => response.body(asset.content),
    }
}
