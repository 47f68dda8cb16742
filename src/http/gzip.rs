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
        fn gzip_goes_to_who_names_it(text in r"[a-z*;=q0-9., ]{0,30}", bytes in vec(any::<u8>(), 0..40)) {
            for bytes in [text.as_bytes(), &bytes] {
                let named = String::from_utf8_lossy(bytes).to_ascii_lowercase().contains("gzip");
                prop_assert!(named || asks(bytes) != Some(true));
            }
        }

        #[test]
        fn what_is_compressed_comes_out_again(bytes in vec(any::<u8>(), 0..5000)) {
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(&*compress(&bytes).unwrap()).read_to_end(&mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn gzip_is_taken_as_it_is_offered() {
        for (header, taken) in [("gzip", true), ("gzip, br", true), ("br", false), ("gzip;q=0", false), ("", false)] {
            assert_eq!(asks(header.as_bytes()), Some(taken), "{header}");
        }
    }
}
