//! The web servers: pages and API on one address, health and metrics on another.

use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::{Server, Service};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::web::{self, Data};
use actix_web::{App, HttpServer, ResponseError};
use opentelemetry::trace::TraceContextExt;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::base::error::Error;
use crate::web::measured::{Measured, name};
use crate::web::route::{get, not_found, path};
use crate::web::site::{Site, Worker};
use crate::web::{api, chunked, extract, limits, listener, machine, management, pages};

/// Path and query of a request. The longest that pages and scripts ever send is a tenth of it.
const URI_LIMIT: usize = 4096;
/// How long accepted requests get to finish when the server stops.
const STOP_SECONDS: u64 = 20;

/// Pages and API.
pub fn serve(site: Arc<Site>, listener: TcpListener) -> Result<Server, Error> {
    let (request_time, most) = (site.settings.request_time, site.settings.max_connections);
    // One for each processor.
    let workers = machine::processor_count();
    listener::cut_off_unread(&listener);
    let server = HttpServer::new(move || {
        let worker = Worker::new(site.clone(), workers);
        let stopping = Rc::new(site.stopping.subscribe());
        let (metrics, allowed_origins) = (site.metrics.clone(), site.settings.allowed_origins.clone());
        site.workers.join(|worker| metrics.worker_lag_seconds.with_label_values(&[worker]));
        let unknown = Rc::new(Measured::new(&metrics, "none".to_owned()));
        App::new()
            .wrap_fn(move |mut request, service| {
                let (unknown, started) = (unknown.clone(), Instant::now());
                let stopping = stopping.clone();
                let span = traced(request.method());
                let long = request.uri().path_and_query().is_some_and(|path| path.as_str().len() > URI_LIMIT);
                let kept = chunked::keep(&mut request);
                let answer = if long { Err(request) } else { Ok(service.call(request)) };
                async move {
                    let mut response = match answer {
                        Ok(answer) => answer.await?,
                        Err(request) => request.into_response(Error::UriTooLong.error_response()),
                    };
                    // It changes once, when the server stops.
                    if stopping.has_changed().unwrap_or(true) {
                        // The next request on this connection is for another server.
                        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
                    }
                    {
                        let (request, response) = (response.request().clone(), response.response_mut());
                        limits::tell(&request, response.headers_mut());
                        if let Some(cookie) = extract::renewed(&request) {
                            // It is made of letters that a header takes.
                            let _ = response.add_cookie(&cookie);
                        }
                    }
                    let route = response.request().app_data::<Measured>().unwrap_or(&unknown);
                    route.answered(response.request().method(), response.status(), started.elapsed());
                    note(route, response.request().method(), response.status());
                    Ok(match kept {
                        Some(kept) => response.map_body(|_, body| chunked::answer(body, kept)),
                        None => response,
                    })
                }
                .instrument(span)
            })
            .configure(move |config| match worker {
                Ok(worker) => drop(config.app_data(Data::new(worker))),
                // Handlers then answer 500, and this line says why.
                Err(error) => tracing::error!(%error, "a web worker cannot connect to Redis"),
            })
            .service(path(&metrics, "", "/livez", "GET, HEAD").route(get().to(livez)))
            .configure(|config| api::routes(config, &metrics, &allowed_origins))
            .configure(|config| pages::routes(config, &metrics))
            .default_service(web::to(pages::not_found))
    })
    .shutdown_timeout(STOP_SECONDS)
    .workers(workers)
    .max_connections(most.div_ceil(workers))
    .keep_alive(request_time)
    .client_request_timeout(request_time)
    .disable_signals()
    .listen(listener)
    .map_err(Error::internal)?;
    Ok(server.run())
}

/// The span of a request, for traces. Without them it is nothing.
fn traced(method: &Method) -> Span {
    tracing::debug_span!(
        "request",
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = name(method),
        http.route = Empty,
        http.response.status_code = Empty,
    )
}

/// What is known of the request at its end. The path itself stays out of it: it may have a token in it.
fn note(route: &Measured, method: &Method, status: StatusCode) {
    let span = Span::current();
    if !span.is_disabled() {
        span.record("http.route", route.pattern());
        span.record("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            span.record("otel.status_code", "ERROR");
        }
        let context = span.context();
        context.span().update_name(format!("{} {}", name(method), route.pattern()));
        // Work for it may go on behind its back, but the request is answered.
        context.span().end();
    }
}

/// Alive: a constant, touching nothing.
async fn livez() -> &'static str {
    "ok"
}

/// Health and metrics, on an address of their own.
pub fn serve_management(site: Arc<Site>, listener: TcpListener) -> Result<Server, Error> {
    let server = HttpServer::new(move || {
        let page = |pattern: &str| path(&site.metrics, "", pattern, "GET, HEAD");
        App::new()
            .app_data(Data::from(site.clone()))
            .service(page("/actuator/health").route(get().to(management::health)))
            .service(page("/actuator/health/liveness").route(get().to(management::liveness)))
            .service(page("/actuator/health/readiness").route(get().to(management::readiness)))
            .service(page("/actuator/info").route(get().to(management::info)))
            .service(page("/actuator/prometheus").route(get().to(management::prometheus)))
            .service(page("/actuator/metrics").route(get().to(management::names)))
            .service(page("/actuator/metrics/{name}").route(get().to(management::one)))
            .default_service(web::to(not_found))
    })
    .workers(1)
    .disable_signals()
    .listen(listener)
    .map_err(Error::internal)?;
    Ok(server.run())
}
