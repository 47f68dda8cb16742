//! How a route is written: a pattern, its methods, its handlers.

use std::sync::Arc;

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

/// A route for GET, and for HEAD as well.
pub fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

pub async fn not_found() -> Result<HttpResponse, Error> {
    Err(Error::NotFound)
}
