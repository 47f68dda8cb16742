//! Operators at the API: who sends the key, and whether the role allows it.

use actix_web::dev::Payload;
use actix_web::http::header::{AUTHORIZATION, IF_MATCH};
use actix_web::{FromRequest, HttpRequest};
use futures_util::future::LocalBoxFuture;

use crate::base::error::Error;
use crate::house::operators::{Operator, Role};
use crate::web::extract::{bearer, within, worker};

const NO_KEY: Error = Error::Unauthorized("Send the key of an operator as Authorization: Bearer.");

/// An operator who may see everything.
pub struct Viewer(pub Operator);

/// An operator who may change how a sale runs.
pub struct Acting(pub Operator);

/// An operator who may set up concerts.
pub struct Admin(pub Operator);

macro_rules! with_role {
    ($name:ident, $role:expr) => {
        impl FromRequest for $name {
            type Error = Error;
            type Future = LocalBoxFuture<'static, Result<Self, Error>>;

            fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
                let request = request.clone();
                Box::pin(async move { operator(&request, $role).await.map(Self) })
            }
        }
    };
}

with_role!(Viewer, Role::Viewer);
with_role!(Acting, Role::Operator);
with_role!(Admin, Role::Admin);

async fn operator(request: &HttpRequest, needed: Role) -> Result<Operator, Error> {
    let site = &worker(request)?.site;
    let key = request.headers().get(AUTHORIZATION).and_then(bearer).ok_or(NO_KEY)?;
    match site.operators.by_key(key).await {
        Ok(operator) => operator.check(needed).map(|()| operator),
        Err(error @ Error::Unauthorized(_)) => {
            // Guessing is as limited as signing up.
            within(site, request, |limits| &limits.sign_up)?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// The version of the settings that a change is based on; `None`: whichever is there.
pub struct BasedOn(pub Option<i64>);

impl FromRequest for BasedOn {
    type Error = Error;
    type Future = std::future::Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.headers().get(IF_MATCH).map(|value| value.to_str().unwrap_or_default());
        std::future::ready(based_on(text).map(Self))
    }
}

fn based_on(text: Option<&str>) -> Result<Option<i64>, Error> {
    let Some(text) = text.map(str::trim).filter(|text| *text != "*") else { return Ok(None) };
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let version = quoted.unwrap_or(text).parse().ok().filter(|version| *version >= 0);
    let wrong =
        || Error::InvalidRequest("If-Match is the version of the settings that you saw, such as \"3\".".to_owned());
    version.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_with_and_without_quotes() {
        for (text, version) in [(None, None), (Some("*"), None), (Some("\"7\""), Some(7)), (Some(" 0 "), Some(0))] {
            assert_eq!(based_on(text).unwrap(), version, "{text:?}");
        }
        for wrong in ["", "\"", "\"7", "-1", "x", "W/\"7\"", "\"1\", \"2\""] {
            assert!(based_on(Some(wrong)).is_err(), "{wrong:?}");
        }
    }
}
