//! Compressed answers, for who takes them. Worth it for what is large; small answers go as they are.

use std::io::Write;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, Header};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::Error;

/// Whether the caller takes gzip, and prefers it.
pub fn accepted(request: &HttpRequest) -> bool {
    let supported = [Encoding::gzip(), Encoding::identity()];
    let accepted = AcceptEncoding::parse(request).ok();
    accepted.and_then(|accepted| accepted.negotiate(supported.iter())) == Some(Encoding::gzip())
}

/// Fast rather than small: it is done while someone waits.
pub fn compress(bytes: &[u8]) -> Result<Bytes, Error> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.map(Bytes::from).map_err(|error| Error::Internal(error.to_string()))
}
