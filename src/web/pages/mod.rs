//! The sale in a browser. Pages work without JavaScript and better with it; they call the same stages as the API. Cookies
//! that only pages read identify a visitor: one for the person, one for each place.

mod account;
mod answer;
mod assets;
mod concerts;
mod files;
mod form;
mod layout;
mod path;
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

use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::web::pages::path::own_path;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::Lang;
use crate::web::pages::visit::{LANG, Visit};
use crate::web::route::{get, path, post};

pub fn routes(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    let page = |pattern: &str| path(metrics, "", pattern, "GET, HEAD");
    // A visitor who follows a link to the address of a form is sent to its page.
    let form = |pattern: &str| path(metrics, "", pattern, "GET, HEAD, POST").route(get(to_page));
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
        .service(page("/assets/{name}").route(get(files::file)));
}

async fn to_page(visit: Visit) -> HttpResponse {
    let page = visit.request.path().rsplit_once('/').map_or("/", |(page, _)| page);
    visit.answer(Ok(Reply::see(own_path(Some(page), "/"))))
}

#[derive(Default, serde::Deserialize)]
struct Back {
    to: Option<String>,
}

/// Remembers the chosen language.
async fn language(visit: Visit) -> HttpResponse {
    let reply = async {
        let lang = visit.request.match_info().get("lang").and_then(Lang::parse).ok_or(Error::NotFound)?;
        let to = own_path(visit.query::<Back>().to.as_deref(), "/");
        Ok(Reply::see(to).with_cookie(visit.remember(LANG, lang.code())))
    };
    visit.answer(reply.await)
}

/// For unknown paths: a page for browsers, JSON for programs.
pub async fn not_found(request: HttpRequest) -> HttpResponse {
    let browser = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match Visit::extract(&request).await {
        Ok(visit) if browser.is_some_and(|accept| accept.contains("text/html")) => visit.answer(Err(Error::NotFound)),
        _ => Error::NotFound.error_response(),
    }
}
