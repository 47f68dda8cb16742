//! Forms. Only those of our own pages are accepted.

use actix_web::dev::Payload;
use actix_web::error::UrlencodedError;
use actix_web::http::header::{HOST, ORIGIN};
use actix_web::web::Form;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::base::error::Error;
use crate::web::extract;

/// A form without fields.
#[derive(Deserialize)]
pub struct Nothing {}

/// A form that was sent from one of our own pages.
pub struct Posted<T>(pub Result<T, Error>);

impl<T: DeserializeOwned + 'static> FromRequest for Posted<T> {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let ours = from_our_pages(request);
        let form = extract::in_time(request, Form::<T>::from_request(request, payload));
        Box::pin(async move {
            if !ours {
                return Ok(Self(Err(Error::CrossSite)));
            }
            Ok(Self(form.await.and_then(|form| form.map(Form::into_inner).map_err(|error| bad_form(&error)))))
        })
    }
}

/// The error for a form that cannot be read.
fn bad_form(error: &actix_web::Error) -> Error {
    match error.as_error::<UrlencodedError>() {
        Some(UrlencodedError::Overflow { .. }) => Error::PayloadTooLarge,
        _ => incomplete(),
    }
}

pub fn incomplete() -> Error {
    Error::InvalidRequest("The form lacks a field or has one of the wrong kind.".to_owned())
}

/// Browsers say where a form comes from. Those that do not also send no SameSite cookies with it.
fn from_our_pages(request: &HttpRequest) -> bool {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = header("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    match (header(ORIGIN.as_str()), header(HOST.as_str())) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn a_form_from_another_site_is_refused() {
        let ours = |headers: &[(&'static str, &'static str)]| {
            let request = headers.iter().fold(TestRequest::post(), |request, header| request.insert_header(*header));
            from_our_pages(&request.to_http_request())
        };
        assert!(ours(&[("sec-fetch-site", "same-origin"), ("origin", "http://a.example"), ("host", "b.example")]));
        assert!(ours(&[("sec-fetch-site", "none")]));
        assert!(!ours(&[("sec-fetch-site", "cross-site")]));
        assert!(!ours(&[("sec-fetch-site", "same-site")]));
        assert!(ours(&[("origin", "http://a.example:8080"), ("host", "a.example:8080")]));
        assert!(!ours(&[("origin", "http://evil.example"), ("host", "a.example")]));
        assert!(!ours(&[("origin", "null"), ("host", "a.example")]));
        assert!(ours(&[("host", "a.example")]));
    }
}
