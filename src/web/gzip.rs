//! Compressed answers, for callers that accept them. Only large answers are worth it.

use std::io::Write;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, Header};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::base::error::Error;

/// Whether the caller accepts gzip, and prefers it.
pub fn accepted(request: &HttpRequest) -> bool {
    let supported = [Encoding::gzip(), Encoding::identity()];
    let accepted = AcceptEncoding::parse(request).ok();
    accepted.and_then(|accepted| accepted.negotiate(supported.iter())) == Some(Encoding::gzip())
}

/// Fast rather than small: someone waits for it.
pub fn compress(bytes: &[u8]) -> Result<Bytes, Error> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.map(Bytes::from).map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{ACCEPT_ENCODING, HeaderValue};
    use actix_web::test::TestRequest;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::io::Read;

    fn asks(bytes: &[u8]) -> Option<bool> {
        let value = HeaderValue::from_bytes(bytes).ok()?;
        Some(accepted(&TestRequest::default().insert_header((ACCEPT_ENCODING, value)).to_http_request()))
    }

    proptest! {
        #[test]
        fn only_callers_that_name_gzip_get_it(text in r"[a-z*;=q0-9., ]{0,30}", bytes in vec(any::<u8>(), 0..40)) {
            for bytes in [text.as_bytes(), &bytes] {
                let named = String::from_utf8_lossy(bytes).to_ascii_lowercase().contains("gzip");
                prop_assert!(named || asks(bytes) != Some(true));
            }
        }

        #[test]
        fn compressed_bytes_read_back(bytes in vec(any::<u8>(), 0..5000)) {
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(&*compress(&bytes).unwrap()).read_to_end(&mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn gzip_follows_the_accept_encoding_header() {
        for (header, taken) in [("gzip", true), ("gzip, br", true), ("br", false), ("gzip;q=0", false), ("", false)] {
            assert_eq!(asks(header.as_bytes()), Some(taken), "{header}");
        }
    }
}
