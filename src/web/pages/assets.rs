//! Style, script and icon, embedded in the binary. Their addresses contain a hash of the content, so browsers keep them for
//! good.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::web::gzip;

pub struct Asset {
    pub content: &'static str,
    pub kind: &'static str,
    /// Such as style-0a1b2c3d.css.
    pub name: LazyLock<String>,
    /// `None` where it could not be compressed.
    pub gzip: LazyLock<Option<Bytes>>,
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
