//! JSON answers and streams, and who may keep them.

use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, EntityTag, Header, HeaderName, HeaderValue, IfNoneMatch};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::Stream;
use serde::Serialize;

use crate::base::error::Error;

/// A list that is short enough for one answer.
#[derive(Debug, Serialize)]
pub struct Items<T> {
    pub items: Vec<T>,
}

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

/// Server-sent events for this caller alone.
pub fn event_stream<S>(request: &HttpRequest, open: impl FnOnce() -> S) -> HttpResponse
where
    S: Stream<Item = Result<Bytes, Error>> + 'static,
{
    let mut response = HttpResponse::Ok();
    response.content_type("text/event-stream").insert_header(PRIVATE);
    // Proxies that buffer would hold back the good news.
    response.insert_header(("X-Accel-Buffering", "no"));
    // A client that asks for the head alone would wait for the end of a stream.
    if request.method() == Method::HEAD { response.finish() } else { response.streaming(open()) }
}

fn json<T: serde::Serialize>(body: &T, cache: &'static str) -> HttpResponse {
    let mut response = HttpResponse::Ok().json(body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

/// Whether the caller has it already.
pub fn knows(request: &HttpRequest, tag: &EntityTag) -> bool {
    match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(tag)),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderValue, IF_NONE_MATCH};
    use actix_web::test::TestRequest;
    use proptest::prelude::*;

    fn asks(bytes: &[u8], tag: &EntityTag) -> Option<bool> {
        let value = HeaderValue::from_bytes(bytes).ok()?;
        Some(knows(&TestRequest::default().insert_header((IF_NONE_MATCH, value)).to_http_request(), tag))
    }

    proptest! {
        #[test]
        fn a_caller_that_names_the_tag_has_the_answer(tag in "[0-9a-f]{24}", before in "[0-9a-f]{0,24}", weak: bool) {
            let named = if weak { format!("W/\"{tag}\"") } else { format!("\"{tag}\"") };
            let ours = EntityTag::new_weak(tag);
            prop_assert_eq!(asks(named.as_bytes(), &ours), Some(true));
            prop_assert_eq!(asks(format!("\"{before}\", {named}").as_bytes(), &ours), Some(true));
            prop_assert_eq!(asks(b"*", &ours), Some(true));
            prop_assert_eq!(asks(format!("\"{before}x\"").as_bytes(), &ours), Some(false));
        }

        #[test]
        fn any_other_header_names_nothing(
            text in r#"[W/"*, a-f]{0,20}"#,
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let ours = EntityTag::new_weak("0123456789abcdef01234567".to_owned());
            for bytes in [text.as_bytes(), &bytes] {
                prop_assert!(bytes.contains(&b'*') || asks(bytes, &ours) != Some(true));
            }
        }
    }
}
