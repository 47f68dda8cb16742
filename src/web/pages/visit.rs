//! Who looks at a page: the language and the cookies.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::dev::Payload;
use actix_web::http::header::{ACCEPT_LANGUAGE, COOKIE};
use actix_web::web::{Data, Query};
use actix_web::{FromRequest, HttpRequest};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{EventId, PersonId};
use crate::base::token::{Claim, Token};
use crate::event::Event;
use crate::sale::seats::Guest;
use crate::web::client::Client;
use crate::web::extract;
use crate::web::limits::{Limits, Rate};
use crate::web::pages::text::{Lang, Texts};
use crate::web::site::{Site, Worker};

pub const LANG: &str = "zt_lang";
pub const KEY: &str = "zt_key";
pub const PLACE: &str = "zt_place_";
/// Cookies outlast the sale they are for, so that a ticket can be looked at again.
const REMEMBERED: Duration = Duration::days(90);

/// More place cookies than a browser keeps for one site.
const MOST_PLACES: usize = 200;

/// Someone at a page.
pub struct Visit {
    pub worker: Data<Worker>,
    pub lang: Lang,
    pub request: HttpRequest,
}

impl FromRequest for Visit {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let worker = extract::worker(request);
        ready(worker.map(|worker| Self { worker, lang: lang_of(request), request: request.clone() }))
    }
}

fn lang_of(request: &HttpRequest) -> Lang {
    let chosen = cookie(request, LANG).and_then(|code| Lang::parse(&code));
    let accepted = || request.headers().get(ACCEPT_LANGUAGE).and_then(|header| header.to_str().ok());
    chosen.unwrap_or_else(|| Lang::accepted(accepted().unwrap_or_default()))
}

/// The cookies that can be read. A foreign cookie that is not text does not hide the others.
fn cookies(request: &HttpRequest) -> Vec<(String, String)> {
    let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let texts = request.headers().get_all(COOKIE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    texts.flat_map(|text| text.split(';').filter_map(pair).collect::<Vec<_>>()).collect()
}

fn cookie(request: &HttpRequest, name: &str) -> Option<String> {
    cookies(request).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

impl Visit {
    pub fn site(&self) -> &Site {
        &self.worker.site
    }

    pub fn texts(&self) -> &'static Texts {
        self.lang.texts()
    }

    /// Refuses a client that did this too often lately.
    pub fn within(&self, rate: impl FnOnce(&Limits) -> &Rate<Client>) -> Result<(), Error> {
        extract::within(self.site(), &self.request, rate)
    }

    /// The same for the person who is signed in and asks about what is theirs.
    pub async fn owner(&self) -> Result<Option<PersonId>, Error> {
        let person = self.person().await?;
        person.map_or(Ok(()), |person| extract::within_person(&self.request, person))?;
        Ok(person)
    }

    /// The event named in the path.
    pub async fn event(&self) -> Result<Arc<Event>, Error> {
        let id = self.part::<EventId>("event").ok_or(Error::EventNotFound)?;
        self.site().catalogue.get(id).await
    }

    pub fn part<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.request.match_info().get(name)?.parse().ok()
    }

    /// The values of the query; unknown or unreadable ones count as missing.
    pub fn query<T: DeserializeOwned + Default>(&self) -> T {
        Query::<T>::from_query(self.request.query_string()).map(Query::into_inner).unwrap_or_default()
    }

    pub fn cookie(&self, name: &str) -> Option<String> {
        cookie(&self.request, name)
    }

    /// The person who is signed in. An unknown key counts as nobody.
    pub async fn person(&self) -> Result<Option<PersonId>, Error> {
        let Some(key) = self.cookie(KEY) else { return Ok(None) };
        match self.site().people.by_key(&key).await {
            Ok(person) => Ok(Some(person)),
            Err(Error::Unauthorized(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Who holds and buys with this token here.
    pub async fn guest(&self, token: Token) -> Result<Guest, Error> {
        Ok(Guest { token, person: self.person().await? })
    }

    /// The place this browser has in the event's line, and the rank it had at first.
    pub fn place(&self, event: &Event) -> Option<(Token, Option<u64>)> {
        let text = self.cookie(&format!("{PLACE}{}", event.id))?;
        let (token, rank) = read_place(&text);
        Some((event.token(token)?, rank))
    }

    /// All places this browser has or had, unchecked.
    pub fn claims(&self) -> Vec<Claim> {
        let places = cookies(&self.request).into_iter().filter(|(name, _)| name.starts_with(PLACE));
        places.filter_map(|(_, value)| Claim::parse(read_place(&value).0)).take(MOST_PLACES).collect()
    }

    /// A cookie hidden from scripts, not sent along from other sites, and kept to https if the page came by it.
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
