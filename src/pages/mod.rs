//! The sale in a browser. Pages are made here, work without JavaScript and better with it; what they do is done by the same
//! stages as under `/api`. A visitor is known by cookies, which only pages read: one for the person, one for each place.

mod account;
mod assets;
mod concerts;
mod layout;
mod queue;
mod seats;
pub mod text;
mod tickets;

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::dev::Payload;
use actix_web::error::UrlencodedError;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT, ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN,
    REFERRER_POLICY, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::web::{Data, Form, Query, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError};
use futures_util::future::LocalBoxFuture;
use maud::Markup;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::app::{App, Lane};
use crate::error::Error;
use crate::events::Event;
use crate::http::{extract, get, gzip, path, post};
use crate::ids::{EventId, UserId};
use crate::limits::{Limits, Rate};
use crate::pages::text::{Lang, Texts};
use crate::people;
use crate::token::Token;

const LANG: &str = "zt_lang";
const KEY: &str = "zt_key";
const PLACE: &str = "zt_place_";
/// Cookies outlast the sale they are for, so that a ticket can be looked at again.
const REMEMBERED: Duration = Duration::days(90);

/// Pages from this many bytes on, such as seat maps, are compressed. Smaller ones may show a secret beside something from
/// the address, and their length should say nothing about it.
const LARGE: usize = 32 * 1024;

/// Scripts and styles come from this server alone, and nothing is written into the page that a browser would run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub fn routes(config: &mut ServiceConfig, app: &Arc<App>) {
    let page = |pattern: &str| path(app, "", pattern, "GET, HEAD");
    // Whoever comes to the address of a form by a link is sent to the page it stands on.
    let form = |pattern: &str| path(app, "", pattern, "GET, HEAD, POST").route(get(to_page));
    config
        .service(page("/").route(get(concerts::home)))
        .service(page("/concerts/{concert}").route(get(concerts::concert)))
        .service(page("/events/{event}").route(get(concerts::event)))
        .service(form("/events/{event}/join").route(post(queue::join)))
        .service(page("/events/{event}/queue").route(get(queue::page)))
        .service(form("/events/{event}/queue/place").route(post(queue::take_place)))
        .service(form("/events/{event}/leave").route(post(queue::leave)))
        .service(page("/events/{event}/seats").route(get(seats::page)))
        .service(form("/events/{event}/seats/hold").route(post(seats::hold)))
        .service(form("/events/{event}/seats/release").route(post(seats::release)))
        .service(form("/events/{event}/seats/best").route(post(seats::best)))
        .service(form("/events/{event}/seats/pay").route(post(seats::pay)))
        .service(page("/tickets/{ticket}").route(get(tickets::page)))
        .service(form("/tickets/{ticket}/cancel").route(post(tickets::cancel)))
        .service(page("/account").route(get(account::page)))
        .service(form("/account/sign-up").route(post(account::sign_up)))
        .service(form("/account/sign-in").route(post(account::sign_in)))
        .service(form("/account/sign-out").route(post(account::sign_out)))
        .service(form("/account/charge").route(post(account::charge)))
        .service(page("/language/{lang}").route(get(language)))
        .service(page("/assets/{name}").route(get(assets::file)));
}

/// Someone at a page.
pub struct Visit {
    lane: Data<Lane>,
    lang: Lang,
    request: HttpRequest,
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
    fn app(&self) -> &Arc<App> {
        &self.lane.app
    }

    fn texts(&self) -> &'static Texts {
        self.lang.texts()
    }

    /// Refuses a client that did this too often of late.
    fn within(&self, rate: impl FnOnce(&Limits) -> &Rate) -> Result<(), Error> {
        extract::within(self.app(), &self.request, rate)
    }

    /// The event named in the path.
    async fn event(&self) -> Result<Arc<Event>, Error> {
        let id = self.part::<EventId>("event").ok_or(Error::EventNotFound)?;
        self.app().events.get(&self.app().db, id).await
    }

    fn part<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.request.match_info().get(name)?.parse().ok()
    }

    /// The values after the question mark; what is unknown or unreadable counts as not given.
    fn query<T: DeserializeOwned + Default>(&self) -> T {
        Query::<T>::from_query(self.request.query_string()).map(Query::into_inner).unwrap_or_default()
    }

    fn cookie(&self, name: &str) -> Option<String> {
        cookie(&self.request, name)
    }

    /// Who is signed in. A key that is none of ours counts as nobody.
    async fn person(&self) -> Result<Option<UserId>, Error> {
        let Some(key) = self.cookie(KEY) else { return Ok(None) };
        match people::by_key(self.app(), &key).await {
            Ok(user) => Ok(Some(user)),
            Err(Error::Unauthorized(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place this browser has in the event's line, and the rank it had at first.
    fn place(&self, event: &Event) -> Option<(Token, Option<u64>)> {
        let text = self.cookie(&format!("{PLACE}{}", event.id))?;
        let (token, rank) = read_place(&text);
        Some((event.open(token)?, rank))
    }

    /// All places this browser has or had.
    async fn tokens(&self) -> Result<Vec<Token>, Error> {
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
    fn remember(&self, name: impl Into<String>, value: impl Into<String>) -> Cookie<'static> {
        let secure = self.request.connection_info().scheme() == "https";
        Cookie::build(name.into(), value.into())
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(secure)
            .max_age(REMEMBERED)
            .finish()
    }

    fn remember_place(&self, token: Token, rank: Option<u64>) -> Cookie<'static> {
        self.remember(format!("{PLACE}{}", token.event()), write_place(token.uuid(), rank))
    }

    fn forget(&self, name: impl Into<String>) -> Cookie<'static> {
        let mut cookie = self.remember(name, "");
        cookie.make_removal();
        cookie.set_path("/");
        cookie
    }

    fn answer(&self, reply: Result<Reply, Error>) -> HttpResponse {
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

/// What a page answers.
pub struct Reply {
    status: StatusCode,
    what: What,
    cookies: Vec<Cookie<'static>>,
    /// Told to programs, in seconds.
    retry_after: Option<u64>,
}

enum What {
    Page(Page),
    See(String),
}

struct Page {
    title: String,
    main: Markup,
    /// Without JavaScript the page loads itself again after so many seconds.
    refresh: Option<u64>,
}

impl Reply {
    fn page(title: impl Into<String>, main: Markup) -> Self {
        let what = What::Page(Page { title: title.into(), main, refresh: None });
        Self { status: StatusCode::OK, what, cookies: Vec::new(), retry_after: None }
    }

    /// After a form: the browser goes on there, and loading that again repeats nothing.
    fn see(to: impl Into<String>) -> Self {
        Self { status: StatusCode::SEE_OTHER, what: What::See(to.into()), cookies: Vec::new(), retry_after: None }
    }

    fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    fn retry_after(self, retry_after: Option<u64>) -> Self {
        Self { retry_after, ..self }
    }

    fn with_cookie(mut self, cookie: Cookie<'static>) -> Self {
        self.cookies.push(cookie);
        self
    }

    fn again_after(mut self, seconds: u64) -> Self {
        if let What::Page(page) = &mut self.what {
            page.refresh = Some(seconds);
        }
        self
    }
}

/// A form that was sent from one of our own pages.
pub struct Posted<T>(Result<T, Error>);

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

/// What is said about a form that cannot be read.
fn bad_form(error: &actix_web::Error) -> Error {
    match error.as_error::<UrlencodedError>() {
        Some(UrlencodedError::Overflow { .. }) => Error::PayloadTooLarge,
        _ => Error::InvalidRequest("The form lacks a field or has one of the wrong kind.".to_owned()),
    }
}

/// Browsers say where a form comes from; those that do not say it send no cookies of ours with it either.
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

/// Where to go on: a path of ours, or else `otherwise`.
fn own_path(to: Option<&str>, otherwise: &str) -> String {
    let own = |to: &&str| {
        to.starts_with('/') && !to.starts_with("//") && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    to.filter(own).unwrap_or(otherwise).to_owned()
}

async fn to_page(visit: Visit) -> HttpResponse {
    let page = visit.request.path().rsplit_once('/').map_or("/", |(page, _)| page);
    visit.answer(Ok(Reply::see(own_path(Some(page), "/"))))
}

#[derive(Default, serde::Deserialize)]
struct Back {
    to: Option<String>,
}

/// Keeps the language that was chosen.
async fn language(visit: Visit) -> HttpResponse {
    let reply = async {
        let lang = visit.request.match_info().get("lang").and_then(Lang::parse).ok_or(Error::NotFound)?;
        let to = own_path(visit.query::<Back>().to.as_deref(), "/");
        Ok(Reply::see(to).with_cookie(visit.remember(LANG, lang.code())))
    };
    visit.answer(reply.await)
}

/// For paths that are none: a page for browsers, JSON for programs.
pub async fn not_found(request: HttpRequest) -> HttpResponse {
    let browser = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match Visit::extract(&request).await {
        Ok(visit) if browser.is_some_and(|accept| accept.contains("text/html")) => visit.answer(Err(Error::NotFound)),
        _ => Error::NotFound.error_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use reqwest::Url;

    #[test]
    fn one_goes_on_to_own_paths_only() {
        for own in ["/", "/account", "/events/2/seats?section=R"] {
            assert_eq!(own_path(Some(own), "/x"), own);
        }
        for foreign in ["", "account", "//evil.example", "/\\evil.example", "https://evil.example", "/a b", "/\n", "/é"]
        {
            assert_eq!(own_path(Some(foreign), "/x"), "/x", "{foreign:?}");
        }
        assert_eq!(own_path(None, "/x"), "/x");
    }

    #[test]
    fn a_form_from_another_site_is_told_apart() {
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

    proptest! {
        #[test]
        fn no_text_leads_off_the_site(text in r"[/\\.:@?#a-z%\t\n ]{0,12}|(/|//|/\\)[a-z.:@/\\]{0,12}|(?s).{0,20}") {
            let here = Url::parse("http://zticket.example/account").unwrap();
            let there = here.join(&own_path(Some(&text), "/")).unwrap();
            prop_assert_eq!(there.origin(), here.origin());
        }

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
