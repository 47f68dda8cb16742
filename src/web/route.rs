//! How a route is written: a pattern, its methods, its handlers.

use std::future::ready;
use std::sync::Arc;

use actix_web::web;
use actix_web::{HttpResponse, Resource, Route, guard};

use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::web::measured::Measured;

/// A path that counts its answers, and refuses all methods but those that get a route.
pub fn path(metrics: &Arc<Metrics>, prefix: &str, pattern: &str, allowed: &str) -> Resource {
    let allowed = allowed.to_owned();
    let refuse = move || ready(Err::<HttpResponse, _>(Error::MethodNotAllowed(allowed.clone())));
    web::resource(pattern)
        .app_data(Measured::new(metrics, format!("{prefix}{pattern}")))
        .default_service(web::to(refuse))
}

/// A route for GET, and for HEAD as well.
pub fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

pub async fn not_found() -> Result<HttpResponse, Error> {
    Err(Error::NotFound)
}
