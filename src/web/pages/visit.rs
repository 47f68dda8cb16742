//! Who looks at a page: the language and the cookies.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::cookie::Cookie;
use actix_web::cookie::time::Duration;
use actix_web::dev::Payload;
use actix_web::http::header::{ACCEPT_LANGUAGE, USER_AGENT};
use actix_web::web::{Data, Query};
use actix_web::{FromRequest, HttpRequest};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{EventId, PersonId};
use crate::base::token::{Claim, Token};
use crate::event::Event;
use crate::sale::seats::Guest;
use crate::sale::tickets::Ticket;
use crate::web::client::Client;
use crate::web::cookies::{KEPT, LANG, PLACE, SESSION};
use crate::web::extract;
use crate::web::limits::{Limits, Rate};
use crate::web::pages::text::{Lang, Texts};
use crate::web::site::{Site, Worker};

/// Cookies outlast the sale they are for, so that a ticket can be looked at again.
const REMEMBERED: Duration = Duration::days(90);

/// Places that are kept because of their tickets.
const MOST_KEPT: usize = 20;

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
    let cookies = request.app_data::<Data<Worker>>().map(|worker| worker.site.settings.cookies);
    let chosen = cookies.and_then(|cookies| cookies.get(request, LANG)).and_then(|code| Lang::parse(&code));
    let accepted = || request.headers().get(ACCEPT_LANGUAGE).and_then(|header| header.to_str().ok());
    chosen.unwrap_or_else(|| Lang::accepted(accepted().unwrap_or_default()))
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
        self.site().settings.cookies.get(&self.request, name)
    }

    /// The person who is signed in. An unknown session counts as nobody.
    pub async fn person(&self) -> Result<Option<PersonId>, Error> {
        extract::signed_in(&self.request).await
    }

    /// Signs this browser in, with a key or without. Returns the cookie that it keeps; the session it had before ends.
    pub async fn sign_in(&self, person: PersonId, key: Option<&str>) -> Result<Cookie<'static>, Error> {
        let credentials = &self.site().credentials;
        if let Some(before) = self.cookie(SESSION) {
            credentials.end_session(&before).await?;
        }
        let browser = self.request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let session = credentials.begin_session(person, key, browser.unwrap_or_default()).await?;
        Ok(self.site().settings.cookies.session(&self.request, session))
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
        let places = self.site().settings.cookies.beginning_with(&self.request, PLACE);
        let places = places.filter_map(|value| Claim::parse(read_place(&value).0)).take(MOST_PLACES);
        self.kept().into_iter().chain(places).collect()
    }

    /// The places this browser keeps because of their tickets, newest first.
    fn kept(&self) -> Vec<Claim> {
        let text = self.cookie(KEPT).unwrap_or_default();
        text.split('.').filter_map(Claim::parse).take(MOST_KEPT).collect()
    }

    /// What was bought at this browser without signing in, newest first.
    pub async fn tickets_of_nobody(&self) -> Result<Vec<Ticket>, Error> {
        let claims: Vec<Claim> = self.claims().into_iter().take(MOST_KEPT).collect();
        self.site().tickets.of_claims(&claims).await
    }

    /// Keeps a place whose cookie is about to be replaced, if it bought tickets that are nobody's in particular.
    pub async fn keep(&self, event: &Event, token: Token) -> Result<Option<Cookie<'static>>, Error> {
        let guest = Guest { token, person: None };
        if self.site().tickets.of_guest(event, guest).await?.is_empty() {
            return Ok(None);
        }
        let others = self.kept().into_iter().map(|claim| claim.uuid()).filter(|other| *other != token.uuid());
        let kept: Vec<String> =
            std::iter::once(token.uuid()).chain(others).take(MOST_KEPT).map(|one| one.to_string()).collect();
        Ok(Some(self.remember(KEPT, kept.join("."))))
    }

    pub fn remember(&self, name: &str, value: impl Into<String>) -> Cookie<'static> {
        self.site().settings.cookies.make(&self.request, name, value, REMEMBERED)
    }

    pub fn remember_place(&self, token: Token, rank: Option<u64>) -> Cookie<'static> {
        self.remember(&format!("{PLACE}{}", token.event()), write_place(token.uuid(), rank))
    }

    pub fn forget(&self, name: &str) -> Cookie<'static> {
        self.site().settings.cookies.forget(&self.request, name)
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
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_cookie_of_a_place_is_read_as_it_was_written(token: u128, rank: Option<u64>) {
            let token = Uuid::from_u128(token);
            let (text, written) = (token.to_string(), write_place(token, rank));
            prop_assert_eq!(read_place(&written), (text.as_str(), rank));
        }
    }
}
