//! Style, script and icon, part of the binary. Their addresses carry a hash of the content, so browsers keep them for good.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, VARY, X_CONTENT_TYPE_OPTIONS};
use bytes::Bytes;

use crate::error::Error;
use crate::http::gzip;
use crate::pages::Visit;

pub struct Asset {
    content: &'static str,
    kind: &'static str,
    /// Such as style-0a1b2c3d.css.
    name: LazyLock<String>,
    /// `None` where it could not be compressed.
    gzip: LazyLock<Option<Bytes>>,
}

macro_rules! asset {
    ($stem:literal, $ending:literal, $kind:literal) => {
        Asset {
            content: include_str!(concat!("assets/", $stem, ".", $ending)),
            kind: $kind,
            name: LazyLock::new(|| {
                let hash = blake3::hash(include_bytes!(concat!("assets/", $stem, ".", $ending))).to_hex();
                format!("{}-{}.{}", $stem, hash.as_str().split_at(12).0, $ending)
            }),
            gzip: LazyLock::new(|| gzip::compress(include_bytes!(concat!("assets/", $stem, ".", $ending))).ok()),
        }
    };
}

pub static STYLE: Asset = asset!("style", "css", "text/css; charset=utf-8");
pub static SCRIPT: Asset = asset!("app", "js", "text/javascript; charset=utf-8");
pub static ICON: Asset = asset!("icon", "svg", "image/svg+xml");

impl Asset {
    pub fn path(&self) -> String {
        format!("/assets/{}", *self.name)
    }
}

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
