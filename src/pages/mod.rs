//! The sale in a browser. Pages are made here, work without JavaScript and better with it; what they do is done by the same
//! stages as under `/api`. A visitor is known by cookies, which only pages read: one for the person, one for each place.

mod account;
mod assets;
mod concerts;
mod form;
mod layout;
mod queue;
mod reply;
mod seats;
pub mod text;
mod tickets;
mod visit;

use std::sync::Arc;

use actix_web::http::header::ACCEPT;
use actix_web::web::ServiceConfig;
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError};

use crate::app::App;
use crate::error::Error;
use crate::http::{get, path, post};
use crate::pages::reply::Reply;
use crate::pages::text::Lang;
use crate::pages::visit::{LANG, Visit};

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

    proptest! {
        #[test]
        fn no_text_leads_off_the_site(text in r"[/\\.:@?#a-z%\t\n ]{0,12}|(/|//|/\\)[a-z.:@/\\]{0,12}|(?s).{0,20}") {
            let here = Url::parse("http://zticket.example/account").unwrap();
            let there = here.join(&own_path(Some(&text), "/")).unwrap();
            prop_assert_eq!(there.origin(), here.origin());
        }
    }
}
