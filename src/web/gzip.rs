//! Compressed answers, for callers that accept them. Only large answers are worth it.

use std::io::Write;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, Header};
use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress};

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

/// Compressed bytes that can be joined with others, so that a large answer of which little changed is not compressed anew.
pub struct Packed {
    deflated: Vec<u8>,
    checksum: Crc,
}

impl Packed {
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let mut compress = Compress::new(Compression::fast(), false);
        let mut deflated = Vec::with_capacity(bytes.len() / 4 + 64);
        // Ends at a whole byte, and refers to nothing before it.
        while compress.total_in() < bytes.len() as u64 || deflated.len() == deflated.capacity() {
            deflated.reserve(bytes.len() / 4 + 64);
            let rest = usize::try_from(compress.total_in()).ok().and_then(|done| bytes.get(done..)).unwrap_or_default();
            compress.compress_vec(rest, &mut deflated, FlushCompress::Full).map_err(Error::internal)?;
        }
        let mut checksum = Crc::new();
        checksum.update(bytes);
        Ok(Self { deflated, checksum })
    }
}

/// The parts one after the other, as one gzip file.
pub fn join<'a>(parts: impl Iterator<Item = &'a Packed> + Clone) -> Bytes {
    // A file of the deflate method without name, time or flags, made on an unknown system.
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    // An empty last block.
    const END: [u8; 2] = [3, 0];
    let length: usize = parts.clone().map(|part| part.deflated.len()).sum();
    let mut file = Vec::with_capacity(HEAD.len() + length + END.len() + 8);
    file.extend_from_slice(&HEAD);
    let mut checksum = Crc::new();
    for part in parts {
        file.extend_from_slice(&part.deflated);
        checksum.combine(&part.checksum);
    }
    file.extend_from_slice(&END);
    file.extend_from_slice(&checksum.sum().to_le_bytes());
    file.extend_from_slice(&checksum.amount().to_le_bytes());
    file.into()
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

    proptest! {
        #[test]
        fn joined_parts_read_back(parts in vec((vec(any::<u8>(), 0..200), 0..200_usize), 0..5)) {
            let parts: Vec<Vec<u8>> = parts.into_iter().map(|(bytes, times)| bytes.repeat(times)).collect();
            let packed: Vec<Packed> = parts.iter().map(|part| Packed::new(part).unwrap()).collect();
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(&*join(packed.iter())).read_to_end(&mut out).unwrap();
            prop_assert_eq!(out, parts.concat());
        }
    }

    #[test]
    fn gzip_follows_the_accept_encoding_header() {
        for (header, taken) in [("gzip", true), ("gzip, br", true), ("br", false), ("gzip;q=0", false), ("", false)] {
            assert_eq!(asks(header.as_bytes()), Some(taken), "{header}");
        }
    }
}
