//! The sale in a browser. Pages work without JavaScript and better with it; they call the same stages as the API. Cookies
//! identify a visitor: one for the person, one for each place.

mod access;
mod account;
mod admin;
mod answer;
mod assets;
mod concerts;
mod docs;
mod files;
mod form;
mod layout;
mod orders;
mod path;
mod queue;
mod reply;
mod seat_forms;
mod seats;
pub mod text;
mod tickets;
mod visit;

use std::sync::Arc;

use actix_web::http::header::ACCEPT;
use actix_web::web::{FormConfig, ServiceConfig, post};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError};

use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::web::api::PLAN_LIMIT;
use crate::web::cookies::LANG;
use crate::web::pages::path::own_path;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::Lang;
use crate::web::pages::visit::Visit;
use crate::web::route::{get, path};

pub fn routes(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    let page = |pattern: &str| path(metrics, "", pattern, "GET, HEAD");
    // A visitor who follows a link to the address of a form is sent to its page.
    let form = |pattern: &str| path(metrics, "", pattern, "GET, HEAD, POST").route(get().to(to_page));
    config
        .service(page("/").route(get().to(concerts::home)))
        .service(page("/concerts/{concert}").route(get().to(concerts::concert)))
        .service(page("/events/{event}").route(get().to(concerts::event)))
        .service(form("/events/{event}/join").route(post().to(queue::join)))
        .service(page("/events/{event}/queue").route(get().to(queue::page)))
        .service(form("/events/{event}/queue/place").route(post().to(queue::take_place)))
        .service(form("/events/{event}/leave").route(post().to(queue::leave)))
        .service(page("/events/{event}/seats").route(get().to(seats::page)))
        .service(form("/events/{event}/seats/hold").route(post().to(seat_forms::hold)))
        .service(form("/events/{event}/seats/release").route(post().to(seat_forms::release)))
        .service(form("/events/{event}/seats/best").route(post().to(seat_forms::best)))
        .service(form("/events/{event}/seats/pay").route(post().to(seat_forms::pay)))
        .service(page("/orders/{order}").route(get().to(orders::page)))
        .service(form("/orders/{order}/cancel").route(post().to(orders::cancel)))
        .service(page("/tickets/{ticket}").route(get().to(tickets::page)))
        .service(form("/tickets/{ticket}/claim").route(post().to(tickets::claim)))
        .service(form("/tickets/{ticket}/cancel").route(post().to(tickets::cancel)))
        .service(page("/account").route(get().to(account::page)))
        .service(form("/account/sign-up").route(post().to(access::sign_up)))
        .service(form("/account/sign-in").route(post().to(access::sign_in)))
        .service(form("/account/sign-out").route(post().to(access::sign_out)))
        .service(form("/account/keys").route(post().to(access::make_key)))
        .service(form("/account/keys/{key}/revoke").route(post().to(access::revoke_key)))
        .service(form("/account/browsers/{session}/sign-out").route(post().to(access::end_session)))
        .service(form("/account/charge").route(post().to(account::charge)))
        .service(page("/admin").route(get().to(admin::overview::page)))
        .service(page("/admin/").route(get().to(to_page)))
        .service(page("/admin/sign-in").route(get().to(admin::entrance::page)))
        .service(form("/admin/sign-in/key").route(post().to(admin::entrance::sign_in)))
        .service(form("/admin/sign-out").route(post().to(admin::entrance::sign_out)))
        .service(page("/admin/tickets").route(get().to(admin::tickets::page)))
        .service(form("/admin/tickets/{ticket}/cancel").route(post().to(admin::tickets::cancel)))
        .service(page("/admin/concerts/new").route(get().to(admin::concerts::page)))
        .service(
            form("/admin/concerts/new/plan")
                .app_data(FormConfig::default().limit(PLAN_LIMIT))
                .route(post().to(admin::concerts::send)),
        )
        .service(page("/admin/audit").route(get().to(admin::audit::page)))
        .service(page("/admin/events/{event}").route(get().to(admin::sale::page)))
        .service(page("/admin/events/{event}/live").route(get().to(admin::sale::live)))
        .service(form("/admin/events/{event}/pause").route(post().to(admin::actions::pause)))
        .service(form("/admin/events/{event}/resume").route(post().to(admin::actions::resume)))
        .service(form("/admin/events/{event}/close").route(post().to(admin::actions::close)))
        .service(form("/admin/events/{event}/reopen").route(post().to(admin::actions::reopen)))
        .service(form("/admin/events/{event}/policy").route(post().to(admin::actions::policy)))
        .service(form("/admin/events/{event}/kick").route(post().to(admin::actions::kick)))
        .service(page("/docs").route(get().to(docs::page)))
        .service(page("/language/{lang}").route(get().to(language)))
        .service(page("/assets/{name}").route(get().to(files::file)));
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
