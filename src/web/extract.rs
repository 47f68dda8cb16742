//! What handlers take: who asks, and about which event. Raw text ends here.

use std::future::{Ready, ready};
use std::str::FromStr;
use std::sync::Arc;

use actix_web::cookie::Cookie;
use actix_web::dev::Payload;
use actix_web::error::JsonPayloadError;
use actix_web::http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use actix_web::rt::time::timeout;
use actix_web::web::{Data, Json, Query};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;

use crate::base::error::Error;
use crate::base::ids::{EventId, PersonId};
use crate::base::token::{Claim, Token};
use crate::event::Event;
use crate::event::facts::Booking;
use crate::house::people::{IdempotencyKey, StrangersKey};
use crate::sale::seats::Guest;
use crate::sale::tickets::Buyer;
use crate::web::client::Client;
use crate::web::cookies::{self, KEY, SESSION};
use crate::web::limits::{self, Limits, Rate, Slot};
use crate::web::origin;
use crate::web::site::{Site, Worker};

const TOKEN_HEADER: &str = "X-Queue-Token";
const NO_TOKEN: Error = Error::Unauthorized("Send your queue token in the X-Queue-Token header.");
const NO_KEY: Error = Error::Unauthorized("Send your API key as Authorization: Bearer.");

/// The event a request names in its path; `None` under `/api` itself.
fn named_event(request: &HttpRequest) -> Result<Option<EventId>, Error> {
    let named = request.match_info().get("event");
    named.map(|text| text.parse().map_err(|_| Error::EventNotFound)).transpose()
}

pub fn worker(request: &HttpRequest) -> Result<Data<Worker>, Error> {
    request.app_data::<Data<Worker>>().cloned().ok_or_else(no_worker)
}

fn site(request: &HttpRequest) -> Result<&Site, Error> {
    request.app_data::<Data<Worker>>().map(|worker| worker.site.as_ref()).ok_or_else(no_worker)
}

fn no_worker() -> Error {
    Error::internal("this web worker cannot connect to Redis")
}

/// A token with its event, which must be the one in the path if one is named there.
async fn token(request: &HttpRequest, text: &str) -> Result<(Token, Arc<Event>), Error> {
    let worker = worker(request)?;
    let named = named_event(request)?;
    let (token, event) = worker.site.catalogue.token(text).await?;
    if named.is_some_and(|named| named != token.event()) {
        return Err(Error::TokenNotFound);
    }
    Ok((token, event))
}

/// The text of the token header: `None` if there is none. Anything but plain text is not a token.
fn token_header(request: &HttpRequest) -> Result<Option<String>, Error> {
    let Some(value) = request.headers().get(TOKEN_HEADER) else { return Ok(None) };
    value.to_str().map(|text| Some(text.to_owned())).map_err(|_| Error::TokenNotFound)
}

/// The person whose API key a request carries, or who is signed in at the page that sends it: `None` without either. A wrong
/// key is an error.
async fn person(request: &HttpRequest) -> Result<Option<PersonId>, Error> {
    let Some(value) = request.headers().get(AUTHORIZATION) else {
        // Cookies come along with requests from other sites too.
        return if origin::is_from_our_page(request) { signed_in(request).await } else { Ok(None) };
    };
    let key = bearer(value).ok_or(NO_KEY)?;
    match worker(request)?.site.credentials.by_key(key).await {
        Err(error @ Error::Unauthorized(_)) => {
            // Guessing is as limited as signing up.
            within(site(request)?, request, |limits| &limits.sign_up)?;
            Err(error)
        }
        found => found.map(Some),
    }
}

/// A session that was just made to last longer: the browser has to keep its cookie longer too.
struct Renewed(String);

/// The cookie of a session that was made to last longer while this request was answered.
pub fn renewed(request: &HttpRequest) -> Option<Cookie<'static>> {
    let Renewed(session) = request.extensions_mut().remove::<Renewed>()?;
    let cookies = site(request).ok()?.settings.cookies;
    Some(cookies.session(request, session))
}

/// Who is signed in at this browser.
pub async fn signed_in(request: &HttpRequest) -> Result<Option<PersonId>, Error> {
    let worker = worker(request)?;
    let (credentials, cookies) = (&worker.site.credentials, worker.site.settings.cookies);
    if let Some(session) = cookies.get(request, SESSION)
        && let Some(found) = credentials.by_session(&session).await?
    {
        if found.renewed {
            request.extensions_mut().insert(Renewed(session));
        }
        return Ok(Some(found.person));
    }
    // Under https a neighbouring site could set this one.
    match cookies::plain(request, KEY).filter(|_| !cookies.https) {
        Some(key) => match credentials.by_key(&key).await {
            Err(Error::Unauthorized(_)) => {
                within(&worker.site, request, |limits| &limits.sign_up)?;
                Ok(None)
            }
            found => found.map(Some),
        },
        None => Ok(None),
    }
}

/// The text after the word Bearer.
pub fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then_some(key.trim())
}

/// The event a request is about: the one in the path, or the default one while that is not over.
pub struct About(pub Arc<Event>);

/// The token in the path, with its event.
pub struct PathToken(pub Token, pub Arc<Event>);

/// The token in the header, which must be there, with its event.
pub struct Visitor(pub Token, pub Arc<Event>);

/// The same, and the person whose API key is sent, if one is: who holds and buys.
pub struct Holder(pub Guest, pub Arc<Event>);

/// The token in the header, if there is one, with its event, or the event of the path, or the default one.
pub struct Looker(pub Option<Token>, pub Arc<Event>);

/// The person whose API key is sent; without one the request is refused.
pub struct Person(pub PersonId);

/// The person whose API key is sent, if one is.
pub struct MaybePerson(pub Option<PersonId>);

/// A caller who asks about a ticket, with a queue token, an API key, or both.
pub struct TicketBuyer(pub Buyer);

/// A caller who asks about an order, who may be anyone.
pub struct OrderBuyer(pub Buyer);

/// Whether the caller would rather be answered at once than when it is done.
pub struct PrefersAsync(pub bool);

/// The Idempotency-Key header, which must be there.
pub struct OnceKey(pub IdempotencyKey);

/// The same from somebody who has no account yet, if it is there.
pub struct MaybeStrangersKey(pub Option<StrangersKey>);

/// Permission to open a stream: its slot, until that is dropped.
pub struct StreamSlot(pub Slot);

/// Permission of the address to join a line. Handlers take it first, so that a refused request costs nothing else.
pub struct MayEnter;

/// No page of a site that the operator did not name sent this: it could put its visitors' browsers into a line.
pub struct NotFromElsewhere;

/// Permission of the address to hold or buy.
pub struct MayBuy;

/// Permission of the address to sign someone up.
pub struct MaySignUp;

/// The values of the query string.
pub struct Asked<T>(pub T);

/// A value in the path. Text that is not one has an error of its own.
pub struct Part<T>(pub T);

/// A JSON body.
pub struct Body<T>(pub T);

/// The same, or nothing.
pub struct MaybeBody<T>(pub T);

/// The second only after the first: who may not act is told so, whatever the body is.
pub struct Then<A, B>(pub A, pub B);

macro_rules! extract {
    ($name:ty, |$request:ident| $body:expr) => {
        impl FromRequest for $name {
            type Error = Error;
            type Future = LocalBoxFuture<'static, Result<Self, Error>>;

            fn from_request($request: &HttpRequest, _: &mut Payload) -> Self::Future {
                let $request = $request.clone();
                Box::pin(async move { $body })
            }
        }
    };
}

extract!(About, |request| {
    let worker = worker(&request)?;
    match named_event(&request)? {
        Some(event) => Ok(About(worker.site.catalogue.get(event).await?)),
        None => {
            let event = worker.site.catalogue.default()?;
            if event.booking() == Booking::Over { Err(Error::EventClosed) } else { Ok(About(event)) }
        }
    }
});

extract!(PathToken, |request| {
    let text = request.match_info().get("uuid").unwrap_or_default();
    let (token, event) = token(&request, text).await?;
    Ok(PathToken(token, event))
});

extract!(Visitor, |request| {
    let text = token_header(&request)?.ok_or(NO_TOKEN)?;
    let (token, event) = token(&request, &text).await?;
    Ok(Visitor(token, event))
});

extract!(Holder, |request| {
    let Visitor(token, event) = Visitor::extract(&request).await?;
    Ok(Holder(Guest { token, person: person(&request).await? }, event))
});

extract!(Looker, |request| {
    match token_header(&request)? {
        Some(text) => token(&request, &text).await.map(|(token, event)| Looker(Some(token), event)),
        None => About::extract(&request).await.map(|About(event)| Looker(None, event)),
    }
});

extract!(Person, |request| {
    let person = person(&request).await?.ok_or(NO_KEY)?;
    within_person(&request, person)?;
    Ok(Person(person))
});

extract!(MaybePerson, |request| person(&request).await.map(MaybePerson));

extract!(TicketBuyer, |request| {
    let buyer = buyer(&request).await?;
    if buyer.claims.is_empty() && buyer.person.is_none() {
        return Err(Error::Unauthorized("Send the queue token you bought with, or your API key."));
    }
    Ok(TicketBuyer(buyer))
});

extract!(OrderBuyer, |request| buyer(&request).await.map(OrderBuyer));

extract!(PrefersAsync, |request| {
    let wishes = request.headers().get_all("Prefer").filter_map(|value| value.to_str().ok());
    let mut wishes = wishes.flat_map(|value| value.split([',', ';']));
    Ok(PrefersAsync(wishes.any(|wish| wish.trim().eq_ignore_ascii_case("respond-async"))))
});

/// Whoever asks about what was bought: with a queue token, an API key, both or neither.
async fn buyer(request: &HttpRequest) -> Result<Buyer, Error> {
    let named = named_event(request)?;
    let claims = match token_header(request)? {
        Some(text) => {
            let claim = Claim::parse(&text).filter(|claim| named.is_none_or(|named| named == claim.event()));
            let claim = claim.ok_or(Error::TokenNotFound)?;
            let site = site(request)?;
            // A token that is void may still have bought a ticket. To try made-up ones is limited like buying.
            if site.catalogue.known(claim.event()).and_then(|event| event.verify(claim)).is_none() {
                within(site, request, |limits| &limits.buy)?;
            }
            vec![claim]
        }
        None => Vec::new(),
    };
    let person = person(request).await?;
    person.map_or(Ok(()), |person| within_person(request, person))?;
    Ok(Buyer { claims, person, event: named })
}

extract!(OnceKey, |request| {
    let text = request.headers().get("Idempotency-Key").map(|value| value.to_str().unwrap_or_default());
    IdempotencyKey::parse(text.unwrap_or_default()).map(OnceKey)
});

extract!(MaybeStrangersKey, |request| {
    let text = request.headers().get("Idempotency-Key").map(|value| value.to_str().unwrap_or_default());
    text.map(StrangersKey::parse).transpose().map(MaybeStrangersKey)
});

macro_rules! limited {
    ($name:ident, $rate:expr) => {
        impl FromRequest for $name {
            type Error = Error;
            type Future = Ready<Result<Self, Error>>;

            fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
                ready(site(request).and_then(|site| within(site, request, $rate)).map(|()| Self))
            }
        }
    };
}

limited!(MayEnter, |limits| &limits.enter);
limited!(MayBuy, |limits| &limits.buy);
limited!(MaySignUp, |limits| &limits.sign_up);

/// Refuses a client that did this too often lately.
pub fn within(site: &Site, request: &HttpRequest, rate: impl FnOnce(&Limits) -> &Rate<Client>) -> Result<(), Error> {
    limits::note(request, rate(&site.limits).check(|| Client::of(request, &site.settings.trusted_proxies)))
}

/// The same for a person who asks about what is theirs.
pub fn within_person(request: &HttpRequest, person: PersonId) -> Result<(), Error> {
    limits::note(request, site(request)?.limits.person.check(|| person))
}

impl FromRequest for NotFromElsewhere {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let allowed = site(request).map(|site| origin::is_allowed(request, &site.settings.allowed_origins));
        ready(allowed.and_then(|allowed| if allowed { Ok(Self) } else { Err(Error::CrossSite) }))
    }
}

impl FromRequest for StreamSlot {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let slot = site(request).and_then(|site| {
            site.limits.streams.take(|| Client::of(request, &site.settings.trusted_proxies)).map(StreamSlot)
        });
        ready(slot)
    }
}

impl<T: DeserializeOwned> FromRequest for Asked<T> {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let query = Query::<T>::from_query(request.query_string());
        let wrong = |_| Error::InvalidRequest("The query has a field that is unknown or of the wrong kind.".to_owned());
        ready(query.map(|Query(asked)| Asked(asked)).map_err(wrong))
    }
}

/// A kind of path value: its name in the pattern, and the error for text that is not one.
pub trait PathValue: FromStr {
    const NAME: &'static str;
    const WRONG: fn() -> Error;
}

impl PathValue for crate::base::ids::SeatNumber {
    const NAME: &'static str = "seat";
    const WRONG: fn() -> Error = || Error::InvalidSeat;
}

impl PathValue for crate::base::ids::ConcertId {
    const NAME: &'static str = "concert";
    const WRONG: fn() -> Error = || Error::ConcertNotFound;
}

impl PathValue for crate::base::ids::TicketId {
    const NAME: &'static str = "ticket";
    const WRONG: fn() -> Error = || Error::TicketNotFound;
}

impl PathValue for crate::base::ids::OrderId {
    const NAME: &'static str = "order";
    const WRONG: fn() -> Error = || Error::OrderNotFound;
}

impl PathValue for crate::base::ids::KeyId {
    const NAME: &'static str = "key";
    const WRONG: fn() -> Error = || Error::NotFound;
}

impl PathValue for crate::base::ids::SessionId {
    const NAME: &'static str = "session";
    const WRONG: fn() -> Error = || Error::NotFound;
}

impl<T: PathValue> FromRequest for Part<T> {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get(T::NAME).unwrap_or_default();
        ready(text.parse().map(Part).map_err(|_| (T::WRONG)()))
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for Body<T> {
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let body = in_time(request, Json::<T>::from_request(request, payload));
        Box::pin(async move { body.await?.map(|Json(body)| Body(body)) })
    }
}

impl<T: DeserializeOwned + Default + 'static> FromRequest for MaybeBody<T> {
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let headers = request.headers();
        let length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
        if length == Some(b"0") || length.is_none() && !headers.contains_key(TRANSFER_ENCODING) {
            return Box::pin(ready(Ok(Self(T::default()))));
        }
        let body = Body::<T>::from_request(request, payload);
        Box::pin(async move { body.await.map(|Body(body)| Self(body)) })
    }
}

impl<A: FromRequest + 'static, B: FromRequest + 'static> FromRequest for Then<A, B> {
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, mut payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let first = A::from_request(&request, &mut Payload::None).await.map_err(Into::into)?;
            let second = B::from_request(&request, &mut payload).await.map_err(Into::into)?;
            Ok(Self(first, second))
        })
    }
}

/// Cuts off a body that arrives too slowly: the web server itself only watches the head.
pub fn in_time<F: Future>(request: &HttpRequest, body: F) -> impl Future<Output = Result<F::Output, Error>> + use<F> {
    let time = site(request).map(|site| site.settings.request_time);
    async move { timeout(time?, body).await.map_err(|_| Error::RequestTimeout) }
}

/// The error for a body that cannot be read. The parser's message repeats parts of it, so it is not passed on.
pub fn bad_body(error: &JsonPayloadError) -> Error {
    match error {
        JsonPayloadError::OverflowKnownLength { .. } | JsonPayloadError::Overflow { .. } => Error::PayloadTooLarge,
        JsonPayloadError::ContentType => Error::UnsupportedMediaType,
        JsonPayloadError::Deserialize(error) if error.is_data() => {
            let text = error.to_string();
            // What is wrong with a hall is said by us.
            let ours = text.starts_with("layout: ").then(|| text.rsplit_once(" at line ")).flatten();
            let said = ours.map_or("The JSON lacks a field or has one of the wrong kind", |(problem, _)| problem);
            Error::InvalidRequest(format!("{said}."))
        }
        _ => Error::InvalidRequest("The body is not valid JSON.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn request(name: &'static str, bytes: &[u8]) -> Option<HttpRequest> {
        let value = HeaderValue::from_bytes(bytes).ok()?;
        Some(TestRequest::default().insert_header((name, value)).to_http_request())
    }

    proptest! {
        #[test]
        fn a_key_is_found_behind_its_scheme(scheme in "[A-Za-z]{0,7}|[Bb][Ee]arer", gap in " {0,3}", key in "[!-~]{1,80}") {
            let value = HeaderValue::from_str(&format!("{scheme}{gap}{key}")).unwrap();
            let ours = scheme.eq_ignore_ascii_case("bearer") && !gap.is_empty();
            prop_assert_eq!(bearer(&value), ours.then_some(key.as_str()));
        }

        #[test]
        fn any_header_is_read_or_refused_without_a_panic(bytes in vec(any::<u8>(), 0..60)) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let _ = bearer(&value);
            }
            if let Some(request) = request(TOKEN_HEADER, &bytes) {
                let plain = bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
                prop_assert_eq!(token_header(&request).is_ok(), plain);
            }
        }
    }
}
