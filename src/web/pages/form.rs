//! Forms. Only those of our own pages are accepted.

use actix_web::dev::Payload;
use actix_web::error::UrlencodedError;
use actix_web::web::Form;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::base::error::Error;
use crate::web::{extract, origin};

/// A form without fields.
#[derive(Deserialize)]
pub struct Nothing {}

/// A form that was sent from one of our own pages.
pub struct Posted<T>(pub Result<T, Error>);

impl<T: DeserializeOwned + 'static> FromRequest for Posted<T> {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let ours = origin::is_ours(request);
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
