//! Signing up, in and out; the keys and browsers of a person.

use actix_web::HttpResponse;
use actix_web::cookie::Cookie;
use maud::{Markup, html};
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::ids::{KeyId, PersonId, SessionId};
use crate::house::credentials::{Key, NewKey, Session};
use crate::house::people::Name;
use crate::web::cookies::{self, Cookies, KEY, SESSION};
use crate::web::extract;
use crate::web::pages::form::{Nothing, Posted};
use crate::web::pages::layout::encode;
use crate::web::pages::path::own_path;
use crate::web::pages::reply::Reply;
use crate::web::pages::visit::Visit;

#[derive(Deserialize)]
pub struct SignUp {
    name: String,
    next: Option<String>,
}

#[derive(Deserialize)]
pub struct SignIn {
    key: String,
    next: Option<String>,
}

#[derive(Deserialize)]
pub struct SignOut {
    /// Somebody without a key says that they will not come back.
    sure: Option<u8>,
}

#[derive(Deserialize)]
pub struct KeyName {
    name: String,
}

pub fn next_field(next: Option<&str>) -> Markup {
    html! { @if let Some(next) = next { input type="hidden" name="next" value=(next); } }
}

/// For somebody who is not signed in.
pub fn welcome(visit: &Visit, problem: Option<&str>, next: Option<&str>) -> Markup {
    let t = visit.texts();
    let problem = |name: &str| problem == Some(name);
    html! {
        h1 { (t.sign_up) }
        div.columns {
            form.panel method="post" action="/account/sign-up" {
                h2 { (t.sign_up) }
                p.hint #name-hint { (t.name_hint) }
                @if problem("name") { p.problem #name-problem role="alert" { (t.wrong_name) } }
                label { span { (t.name) }
                    input type="text" name="name" required maxlength="50" autocomplete="name" aria-describedby="name-hint"
                        aria-invalid=[problem("name").then_some("true")];
                }
                (next_field(next))
                button.button.primary type="submit" { (t.sign_up) }
            }
            form.panel method="post" action="/account/sign-in" {
                h2 { (t.have_key) }
                p.hint #key-hint { (t.key_hint) }
                @if problem("key") { p.problem role="alert" { (t.wrong_key) } }
                label { span { (t.api_key) }
                    input type="password" name="key" required autocomplete="current-password" aria-describedby="key-hint"
                        aria-invalid=[problem("key").then_some("true")];
                }
                (next_field(next))
                button.button type="submit" { (t.sign_in) }
            }
        }
    }
}

/// How a person gets into the account: keys, signed-in browsers, and the way out.
pub async fn panel(visit: &Visit, person: PersonId, problem: Option<&str>) -> Result<Markup, Error> {
    let (credentials, t) = (&visit.site().credentials, visit.texts());
    let keys = credentials.keys_of(person).await?;
    let browsers = credentials.sessions_of(person, visit.cookie(SESSION).as_deref()).await?;
    Ok(html! {
        section #access .panel.access aria-labelledby="access-title" {
            h2 #access-title { (t.access) }
            p { (t.keys_hint) }
            ul.list { @for key in &keys { li { (key_row(visit, key)) } } }
            form.inline method="post" action="/account/keys" {
                @if problem == Some("key-name") { p.problem role="alert" { (t.wrong_name) } }
                @if problem == Some("keys") { p.problem role="alert" { (t.too_many_keys) } }
                label { span { (t.key_for) } input type="text" name="name" required maxlength="50" autocomplete="off"; }
                button.button type="submit" { (t.make_key) }
            }
            h3 { (t.browsers) }
            ul.list { @for browser in &browsers { li { (browser_row(visit, browser)) } } }
            @if keys.is_empty() {
                @if problem == Some("no-key") { div.alert.warn role="alert" { p { (t.no_key) } } } @else { p { (t.no_key) } }
            }
            form method="post" action="/account/sign-out" {
                @if keys.is_empty() && problem == Some("no-key") { input type="hidden" name="sure" value="1"; }
                button.button.quiet type="submit" { @if problem == Some("no-key") { (t.sign_out_anyway) } @else { (t.sign_out) } }
            }
        }
    })
}

fn key_row(visit: &Visit, key: &Key) -> Markup {
    let t = visit.texts();
    html! {
        span { (key.name) " · " span.muted { (visit.time(key.created_at)) } }
        form.inline method="post" action={ "/account/keys/" (key.key_id) "/revoke" } {
            button.button.quiet type="submit" aria-label={ (t.revoke) ": " (key.name) } { (t.revoke) }
        }
    }
}

fn browser_row(visit: &Visit, browser: &Session) -> Markup {
    let t = visit.texts();
    let name = described(&browser.browser).unwrap_or_else(|| t.some_browser.to_owned());
    html! {
        span { (name) " · " span.muted { (visit.time(browser.seen_at)) } }
        @if browser.current { " " span.badge { (t.this_browser) } } @else {
            form.inline method="post" action={ "/account/browsers/" (browser.session_id) "/sign-out" } {
                button.button.quiet type="submit" aria-label={ (t.sign_out) ": " (name) } { (t.sign_out) }
            }
        }
    }
}

/// What people call a browser, from the long line that it calls itself.
fn described(agent: &str) -> Option<String> {
    const BROWSERS: [(&str, &str); 5] =
        [("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari")];
    const SYSTEMS: [(&str, &str); 6] = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS", "Mac"),
        ("Linux", "Linux"),
    ];
    let first =
        |known: &[(&str, &'static str)]| known.iter().find(|(word, _)| agent.contains(word)).map(|(_, name)| *name);
    match (first(&BROWSERS), first(&SYSTEMS)) {
        (Some(browser), Some(system)) => Some(format!("{browser} · {system}")),
        (Some(name), None) | (None, Some(name)) => Some(name.to_owned()),
        (None, None) => None,
    }
}

/// The account page again, with what was wrong and where to go on.
pub fn again(problem: &str, next: Option<&str>) -> Reply {
    let next = next.map(|next| format!("&next={}", encode(next))).unwrap_or_default();
    Reply::see(format!("/account?problem={problem}{next}"))
}

impl Visit {
    /// Asks somebody to sign in, and to come back here then.
    pub fn to_sign_in(&self) -> Reply {
        Reply::see(format!("/account?next={}", encode(self.request.path())))
    }
}

pub async fn sign_up(visit: Visit, Posted(form): Posted<SignUp>) -> HttpResponse {
    let reply = async {
        let SignUp { name, next } = form?;
        let Ok(name) = Name::parse(&name) else { return Ok(again("name", next.as_deref())) };
        visit.within(|limits| &limits.sign_up)?;
        let person = visit.site().people.sign_up_here(name).await?;
        Ok(Reply::see(own_path(next.as_deref(), "/account")).with_cookie(visit.sign_in(person, None).await?))
    };
    visit.answer(reply.await)
}

pub async fn sign_in(visit: Visit, Posted(form): Posted<SignIn>) -> HttpResponse {
    let reply = async {
        let SignIn { key, next } = form?;
        match visit.site().credentials.by_key(key.trim()).await {
            Ok(person) => {
                extract::within_person(&visit.request, person)?;
                let cookie = visit.sign_in(person, Some(key.trim())).await?;
                Ok(Reply::see(own_path(next.as_deref(), "/account")).with_cookie(cookie))
            }
            Err(Error::Unauthorized(_)) => {
                // Guessing is as limited as signing up.
                visit.within(|limits| &limits.sign_up)?;
                Ok(again("key", next.as_deref()))
            }
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

/// Before there were sessions, browsers kept the key itself: from now on they keep a session.
pub async fn exchange_old_key(visit: &Visit, person: PersonId) -> Result<Reply, Error> {
    let here = visit.request.uri().path_and_query().map_or("/account", |path| path.as_str());
    let key = cookies::plain(&visit.request, KEY);
    let session = visit.sign_in(person, key.as_deref()).await?;
    Ok(Reply::see(here).with_cookie(session).with_cookie(forget_key(visit)))
}

/// Under its own name, which it had from before cookies were named by how visitors come.
fn forget_key(visit: &Visit) -> Cookie<'static> {
    Cookies { https: false }.forget(&visit.request, KEY)
}

/// Signs out. Somebody who could not come back is told so first.
pub async fn sign_out(visit: Visit, Posted(form): Posted<SignOut>) -> HttpResponse {
    let reply = async {
        let SignOut { sure } = form?;
        let credentials = &visit.site().credentials;
        if sure.is_none()
            && let Some(person) = visit.person().await?
            && credentials.keys_of(person).await?.is_empty()
        {
            return Ok(Reply::see("/account?problem=no-key#access"));
        }
        if let Some(session) = visit.cookie(SESSION) {
            credentials.end_session(&session).await?;
        }
        Ok(Reply::see("/").with_cookie(visit.forget(SESSION)).with_cookie(forget_key(&visit)))
    };
    visit.answer(reply.await)
}

/// Makes a key, and shows it this once: a redirect could not.
pub async fn make_key(visit: Visit, Posted(form): Posted<KeyName>) -> HttpResponse {
    let reply = async {
        let KeyName { name } = form?;
        let Some(person) = visit.owner().await? else { return Ok(Reply::see("/account")) };
        let Ok(name) = Name::parse(&name) else { return Ok(again("key-name", None)) };
        match visit.site().credentials.make_key(person, &name).await {
            Ok(key) => Ok(new_key(&visit, &key)),
            Err(Error::InvalidRequest(_)) => Ok(again("keys", None)),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

fn new_key(visit: &Visit, key: &NewKey) -> Reply {
    let t = visit.texts();
    let main = html! {
        div.notice {
            h1 { (t.new_key) }
            p { (t.new_key_hint) }
            p.code { (key.api_key) }
            p.hint { (t.key_warning) }
            p.actions { a.button.primary href="/account#access" { (t.noted) } }
        }
    };
    Reply::page(t.new_key, main)
}

pub async fn revoke_key(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let key: KeyId = visit.part("key").ok_or(Error::NotFound)?;
        let Some(person) = visit.owner().await? else { return Ok(Reply::see("/account")) };
        match visit.site().credentials.revoke_key(person, key).await {
            // Pressed twice.
            Ok(()) | Err(Error::NotFound) => Ok(Reply::see("/account#access")),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

/// Signs another browser of the same person out.
pub async fn end_session(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let session: SessionId = visit.part("session").ok_or(Error::NotFound)?;
        let Some(person) = visit.owner().await? else { return Ok(Reply::see("/account")) };
        match visit.site().credentials.end_session_of(person, session).await {
            Ok(()) | Err(Error::NotFound) => Ok(Reply::see("/account#access")),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_called_what_people_call_it() {
        for (agent, name) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
                "Chrome · Linux",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1 Version/19.0 Mobile Safari/604.1",
                "Safari · iPhone",
            ),
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:150.0) Gecko/20100101 Firefox/150.0", "Firefox · Windows"),
            ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/156.0 Safari/537.36 Edg/156.0", "Edge · Windows"),
        ] {
            assert_eq!(described(agent).as_deref(), Some(name));
        }
        assert_eq!((described(""), described("curl/8")), (None, None));
    }
}
