//! How a route is written: a pattern, its methods, its handlers.

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::web;
use actix_web::{HttpResponse, Resource, Route, guard};

use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::web::measured::Measured;

/// A path that counts its answers, and refuses all methods but those that get a route.
pub fn path(metrics: &Arc<Metrics>, prefix: &str, pattern: &str, allowed: &'static str) -> Resource {
    web::resource(pattern)
        .app_data(Measured::new(metrics, format!("{prefix}{pattern}")))
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

pub fn delete<F, Args>(handler: F) -> Route
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    web::method(Method::DELETE).to(handler)
}

pub async fn not_found() -> Result<HttpResponse, Error> {
    Err(Error::NotFound)
}
