//! The web: every route in one table. Handlers extract, call and render; rules live in the stages.

mod chunked;
pub mod client;
mod concerts;
pub mod extract;
pub mod gzip;
mod management;
mod measured;
mod queue;
mod seats;
mod tickets;
mod users;

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::dev::{Server, Service};
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::http::{ConnectionType, Method};
use actix_web::web::{self, Data, JsonConfig, ServiceConfig};
use actix_web::{App as Web, HttpResponse, HttpServer, Resource, ResponseError, Route, guard};

use crate::app::{App, Lane};
use crate::error::Error;
use crate::http::measured::Measured;
use crate::pages;

/// A purchase is some twenty bytes; nothing needs more than this.
const BODY_LIMIT: usize = 16 * 1024;
/// Path and query of a request. The longest that pages and scripts ever send is a tenth of it.
const URI_LIMIT: usize = 4096;
/// What was sent and not taken for so long was sent to nobody, or to someone who reads on purpose very slowly.
#[cfg(target_os = "linux")]
const UNREAD_TIME: Duration = Duration::from_secs(30);
/// Accepted requests get so long to finish when the server stops.
const STOP_SECONDS: u64 = 20;
/// Answers about a person are nobody else's.
const PRIVATE: (actix_web::http::header::HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// The same handlers under `/api` and under `/api/events/{event}`.
fn api(config: &mut ServiceConfig, app: &Arc<App>, prefix: &str) {
    let path = |pattern: &str, allowed| path(app, prefix, pattern, allowed);
    config
        .service(path("/queues/tokens", "POST").route(post(queue::enter)))
        .service(
            path("/queues/tokens/{uuid}", "GET, HEAD, DELETE").route(get(queue::status)).route(delete(queue::leave)),
        )
        .service(path("/queues/tokens/{uuid}/events", "GET, HEAD").route(get(queue::events)))
        .service(path("/seats", "GET, HEAD").route(get(seats::map)))
        .service(path("/seats/available-count", "GET, HEAD").route(get(seats::available)))
        .service(path("/seats/hold", "POST, DELETE").route(post(seats::hold_party)).route(delete(seats::release_party)))
        .service(path("/seats/best", "POST").route(post(seats::best)))
        .service(path("/seats/{seat}/hold", "POST, DELETE").route(post(seats::hold)).route(delete(seats::release)))
        .service(path("/tickets", "POST").route(post(tickets::buy)))
        .service(
            path("/tickets/{ticket}", "GET, HEAD, DELETE").route(get(tickets::find)).route(delete(tickets::cancel)),
        );
}

/// What is offered, and people with their money.
fn house(config: &mut ServiceConfig, app: &Arc<App>) {
    let path = |pattern: &str, allowed| path(app, "/api", pattern, allowed);
    config
        .service(path("/users", "POST").route(post(users::sign_up)))
        .service(path("/users/me", "GET, HEAD").route(get(users::me)))
        .service(path("/users/me/balance", "GET, HEAD").route(get(users::balance)))
        .service(path("/users/me/balance/charges", "POST").route(post(users::charge)))
        .service(path("/users/me/balance/movements", "GET, HEAD").route(get(users::movements)))
        .service(path("/users/me/tickets", "GET, HEAD").route(get(users::tickets)))
        .service(path("/users/me/payments", "GET, HEAD").route(get(users::payments)))
        .service(path("/concerts", "GET, HEAD").route(get(concerts::list)))
        .service(path("/concerts/{concert}", "GET, HEAD").route(get(concerts::find)))
        .service(path("/concerts/{concert}/dates", "GET, HEAD").route(get(concerts::dates)))
        .service(path("/rankings/sold-out", "GET, HEAD").route(get(concerts::sold_out)))
        .service(path("/rankings/best-selling", "GET, HEAD").route(get(concerts::best_selling)))
        .service(path("/keys/tickets", "GET, HEAD").route(get(tickets::public_keys)))
        .service(path("/events/{event}", "GET, HEAD").route(get(concerts::event)));
}

fn routes(config: &mut ServiceConfig, app: &Arc<App>) {
    config
        .app_data(JsonConfig::default().limit(BODY_LIMIT).error_handler(|error, _| extract::bad_body(&error).into()))
        .service(path(app, "", "/livez", "GET, HEAD").route(get(livez)))
        .service(
            // Plain paths first: matching a pattern costs, and most requests name no event.
            web::scope("/api")
                .configure(|config| api(config, app, "/api"))
                .configure(|config| house(config, app))
                .service(
                    web::scope("/events/{event}")
                        .configure(|config| api(config, app, "/api/events/{event}"))
                        .default_service(web::to(not_found)),
                )
                .default_service(web::to(not_found)),
        )
        .configure(|config| pages::routes(config, app))
        .default_service(web::to(pages::not_found));
}

pub fn path(app: &Arc<App>, prefix: &str, pattern: &str, allowed: &'static str) -> Resource {
    web::resource(pattern)
        .app_data(Measured::new(app, format!("{prefix}{pattern}")))
        .default_service(web::to(move || async move { Err::<HttpResponse, _>(Error::MethodNotAllowed(allowed)) }))
}

pub fn get<F, Args>(handler: F) -> Route
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    web::route().guard(guard::Any(guard::Get()).or(guard::Head())).to(handler)
}

pub fn post<F, Args>(handler: F) -> Route
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    web::method(Method::POST).to(handler)
}

fn delete<F, Args>(handler: F) -> Route
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    web::method(Method::DELETE).to(handler)
}

/// Alive: a constant, touching nothing.
async fn livez() -> &'static str {
    "ok"
}

async fn not_found() -> Result<HttpResponse, Error> {
    Err(Error::NotFound)
}

/// How many web workers a server has.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

pub fn serve(app: Arc<App>, listener: TcpListener) -> Result<Server, Error> {
    let (request_time, most) = (app.config.request_time, app.config.max_connections);
    let workers = workers();
    cut_off_unread(&listener);
    let server = HttpServer::new(move || {
        let lane = Lane::new(app.clone());
        let stopping = Rc::new(app.stopping.subscribe());
        let unknown = Rc::new(Measured::new(&app, "none".to_owned()));
        let app = app.clone();
        Web::new()
            .wrap_fn(move |mut request, service| {
                let (unknown, started) = (unknown.clone(), Instant::now());
                let stopping = stopping.clone();
                let long = request.uri().path_and_query().is_some_and(|path| path.as_str().len() > URI_LIMIT);
                let kept = chunked::keep(&mut request);
                let answer = if long { Err(request) } else { Ok(service.call(request)) };
                async move {
                    let mut response = match answer {
                        Ok(answer) => answer.await?,
                        Err(request) => request.into_response(Error::UriTooLong.error_response()),
                    };
                    // It changes once.
                    if stopping.has_changed().unwrap_or(true) {
                        // The next request on this connection is for another server.
                        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
                    }
                    let route = response.request().app_data::<Measured>().unwrap_or(&unknown);
                    route.answered(response.request().method(), response.status(), started.elapsed());
                    Ok(match kept {
                        Some(kept) => response.map_body(|_, body| chunked::answer(body, kept)),
                        None => response,
                    })
                }
            })
            .configure(move |config| match lane {
                Ok(lane) => drop(config.app_data(Data::new(lane))),
                // Handlers then answer 500, and this line says why.
                Err(error) => tracing::error!(%error, "a web worker has no way to Redis"),
            })
            .configure(move |config| routes(config, &app))
    })
    .shutdown_timeout(STOP_SECONDS)
    .workers(workers)
    .max_connections(most.div_ceil(workers))
    .keep_alive(request_time)
    .client_request_timeout(request_time)
    .disable_signals()
    .listen(listener)
    .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(server.run())
}

/// Has the system close connections whose other end takes nothing any more, all that are accepted here.
fn cut_off_unread(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(listener).set_tcp_user_timeout(Some(UNREAD_TIME)) {
        tracing::warn!(%error, "clients that do not read are not cut off");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

/// A JSON answer that is nobody else's.
fn private<T: serde::Serialize>(body: &T) -> HttpResponse {
    let mut response = HttpResponse::Ok().json(body);
    response.headers_mut().insert(PRIVATE.0, HeaderValue::from_static(PRIVATE.1));
    response
}

/// A JSON answer that is the same for all, and soon another.
fn public<T: serde::Serialize>(body: &T) -> HttpResponse {
    let mut response = HttpResponse::Ok().json(body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn no_content() -> HttpResponse {
    HttpResponse::NoContent().insert_header(PRIVATE).finish()
}

/// Health and metrics, on an address of their own.
pub fn serve_management(app: Arc<App>, listener: TcpListener) -> Result<Server, Error> {
    let server = HttpServer::new(move || {
        Web::new()
            .app_data(Data::from(app.clone()))
            .service(path(&app, "", "/actuator/health", "GET, HEAD").route(get(management::health)))
            .service(path(&app, "", "/actuator/prometheus", "GET, HEAD").route(get(management::prometheus)))
            .default_service(web::to(not_found))
    })
    .workers(1)
    .disable_signals()
    .listen(listener)
    .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(server.run())
}
