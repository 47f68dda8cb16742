//! Who looks at a page: the language, the cookies, and how they are answered.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, COOKIE, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::web::{Data, Query};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::app::{App, Lane};
use crate::error::Error;
use crate::events::Event;
use crate::http::{extract, gzip};
use crate::ids::{EventId, UserId};
use crate::limits::{Limits, Rate};
use crate::pages::layout;
use crate::pages::reply::{Reply, What};
use crate::pages::text::{Lang, Texts};
use crate::people;
use crate::token::Token;

pub const LANG: &str = "zt_lang";
pub const KEY: &str = "zt_key";
pub const PLACE: &str = "zt_place_";
/// Cookies outlast the sale they are for, so that a ticket can be looked at again.
const REMEMBERED: Duration = Duration::days(90);

/// Pages from this many bytes on, such as seat maps, are compressed. Smaller ones may show a secret beside something from
/// the address, and their length should say nothing about it.
const LARGE: usize = 32 * 1024;

/// Scripts and styles come from this server alone, and nothing is written into the page that a browser would run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Someone at a page.
pub struct Visit {
    pub lane: Data<Lane>,
    pub lang: Lang,
    pub request: HttpRequest,
}

impl FromRequest for Visit {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let Some(lane) = request.app_data::<Data<Lane>>().cloned() else {
            return ready(Err(Error::Internal("no way to Redis".to_owned())));
        };
        ready(Ok(Self { lane, lang: lang_of(request), request: request.clone() }))
    }
}

fn lang_of(request: &HttpRequest) -> Lang {
    let chosen = cookie(request, LANG).and_then(|code| Lang::parse(&code));
    let accepted = || request.headers().get(ACCEPT_LANGUAGE).and_then(|header| header.to_str().ok());
    chosen.unwrap_or_else(|| Lang::accepted(accepted().unwrap_or_default()))
}

/// The cookies that can be read. One of someone else that is no text does not hide the others.
fn cookies(request: &HttpRequest) -> Vec<(String, String)> {
    let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let texts = request.headers().get_all(COOKIE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    texts.flat_map(|text| text.split(';').filter_map(pair).collect::<Vec<_>>()).collect()
}

fn cookie(request: &HttpRequest, name: &str) -> Option<String> {
    cookies(request).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

impl Visit {
    pub fn app(&self) -> &Arc<App> {
        &self.lane.app
    }

    pub fn texts(&self) -> &'static Texts {
        self.lang.texts()
    }

    /// Refuses a client that did this too often of late.
    pub fn within(&self, rate: impl FnOnce(&Limits) -> &Rate) -> Result<(), Error> {
        extract::within(self.app(), &self.request, rate)
    }

    /// The event named in the path.
    pub async fn event(&self) -> Result<Arc<Event>, Error> {
        let id = self.part::<EventId>("event").ok_or(Error::EventNotFound)?;
        self.app().events.get(&self.app().db, id).await
    }

    pub fn part<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.request.match_info().get(name)?.parse().ok()
    }

    /// The values after the question mark; what is unknown or unreadable counts as not given.
    pub fn query<T: DeserializeOwned + Default>(&self) -> T {
        Query::<T>::from_query(self.request.query_string()).map(Query::into_inner).unwrap_or_default()
    }

    pub fn cookie(&self, name: &str) -> Option<String> {
        cookie(&self.request, name)
    }

    /// Who is signed in. A key that is none of ours counts as nobody.
    pub async fn person(&self) -> Result<Option<UserId>, Error> {
        let Some(key) = self.cookie(KEY) else { return Ok(None) };
        match people::by_key(self.app(), &key).await {
            Ok(user) => Ok(Some(user)),
            Err(Error::Unauthorized(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place this browser has in the event's line, and the rank it had at first.
    pub fn place(&self, event: &Event) -> Option<(Token, Option<u64>)> {
        let text = self.cookie(&format!("{PLACE}{}", event.id))?;
        let (token, rank) = read_place(&text);
        Some((event.open(token)?, rank))
    }

    /// All places this browser has or had.
    pub async fn tokens(&self) -> Result<Vec<Token>, Error> {
        let mut tokens = Vec::new();
        for (_, value) in cookies(&self.request).iter().filter(|(name, _)| name.starts_with(PLACE)) {
            let (text, _) = read_place(value);
            match self.app().events.open(&self.app().db, text).await {
                Ok((token, _)) => tokens.push(token),
                Err(Error::TokenNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tokens)
    }

    /// Hidden from scripts, not sent along from other sites, and kept to https where the page came by it.
    pub fn remember(&self, name: impl Into<String>, value: impl Into<String>) -> Cookie<'static> {
        let secure = self.request.connection_info().scheme() == "https";
        Cookie::build(name.into(), value.into())
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(secure)
            .max_age(REMEMBERED)
            .finish()
    }

    pub fn remember_place(&self, token: Token, rank: Option<u64>) -> Cookie<'static> {
        self.remember(format!("{PLACE}{}", token.event()), write_place(token.uuid(), rank))
    }

    pub fn forget(&self, name: impl Into<String>) -> Cookie<'static> {
        let mut cookie = self.remember(name, "");
        cookie.make_removal();
        cookie.set_path("/");
        cookie
    }

    pub fn answer(&self, reply: Result<Reply, Error>) -> HttpResponse {
        let reply = reply.unwrap_or_else(|error| self.error(&error));
        let mut response = HttpResponse::build(reply.status);
        response
            .insert_header((CACHE_CONTROL, "no-store"))
            .insert_header((VARY, "Cookie, Accept-Language, Accept-Encoding"))
            .insert_header((CONTENT_SECURITY_POLICY, POLICY))
            .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .insert_header((X_FRAME_OPTIONS, "DENY"))
            .insert_header((REFERRER_POLICY, "same-origin"));
        if let Some(seconds) = reply.retry_after {
            response.insert_header((RETRY_AFTER, seconds));
        }
        for cookie in reply.cookies {
            response.cookie(cookie);
        }
        match reply.what {
            What::See(to) => response.insert_header((LOCATION, to)).finish(),
            What::Page(page) => {
                response.content_type("text/html; charset=utf-8");
                let html = layout::shell(self, &page).into_string();
                match (html.len() > LARGE && gzip::accepted(&self.request)).then(|| gzip::compress(html.as_bytes())) {
                    Some(Ok(small)) => response.insert_header((CONTENT_ENCODING, "gzip")).body(small),
                    _ => response.body(html),
                }
            }
        }
    }

    fn error(&self, error: &Error) -> Reply {
        let (t, status) = (self.texts(), error.status_code());
        if status.is_server_error() {
            tracing::warn!(code = error.code(), error = error.to_string(), "a page failed");
        }
        let (title, hint) = match status {
            StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED => (t.error_404, t.error_404_hint),
            StatusCode::SERVICE_UNAVAILABLE => (t.error_503, t.error_503_hint),
            StatusCode::FORBIDDEN => (t.error_403, t.error_403_hint),
            StatusCode::TOO_MANY_REQUESTS => (t.error_429, t.error_429_hint),
            StatusCode::PAYLOAD_TOO_LARGE => (t.error_400, t.error_413_hint),
            StatusCode::REQUEST_TIMEOUT => (t.error_400, t.error_408_hint),
            status if status.is_server_error() => (t.error_500, t.error_500_hint),
            _ => (t.error_400, t.error_400_hint),
        };
        let away = status == StatusCode::SERVICE_UNAVAILABLE;
        let again = away || status == StatusCode::TOO_MANY_REQUESTS;
        let reply = Reply::page(title, layout::notice(self, title, hint, again)).with_status(status);
        let reply = reply.retry_after(error.retry_after());
        // Who waits with hands off comes back by itself; a form is not sent again.
        if away && self.request.method().is_safe() { reply.again_after(5) } else { reply }
    }
}

/// A place as its cookie has it: the token, and the rank it had at first.
fn write_place(token: Uuid, rank: Option<u64>) -> String {
    rank.map_or_else(|| token.to_string(), |rank| format!("{token}.{rank}"))
}

fn read_place(text: &str) -> (&str, Option<u64>) {
    let (token, rank) = text.split_once('.').unwrap_or((text, ""));
    (token, rank.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_cookie_of_a_place_is_read_as_it_was_written(token: u128, rank: Option<u64>) {
            let token = Uuid::from_u128(token);
            let (text, written) = (token.to_string(), write_place(token, rank));
            prop_assert_eq!(read_place(&written), (text.as_str(), rank));
        }

        #[test]
        fn cookies_of_others_do_not_hide_ours(before in vec(b' '..=0xff, 0..20), after in vec(b' '..=0xff, 0..20)) {
            let header = [&before, &b"; zt_key=zt_1; "[..], &after].concat();
            let Ok(header) = HeaderValue::from_bytes(&header) else { return Ok(()) };
            let request = TestRequest::default().insert_header((COOKIE, header)).to_http_request();
            prop_assert_eq!(cookie(&request, KEY), Some("zt_1".to_owned()));
        }
    }
}
