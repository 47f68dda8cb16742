//! The JSON API: every route in one table.

pub mod concerts;
pub mod queue;
pub mod seats;
pub mod tickets;
pub mod users;

use std::sync::Arc;

use actix_web::web::{self, JsonConfig, ServiceConfig};

use crate::base::metrics::Metrics;
use crate::web::extract;
use crate::web::route::{delete, get, not_found, path, post};

/// A purchase is some twenty bytes; nothing needs more than this.
const BODY_LIMIT: usize = 16 * 1024;

pub fn routes(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    config
        .app_data(JsonConfig::default().limit(BODY_LIMIT).error_handler(|error, _| extract::bad_body(&error).into()))
        .service(
            // Plain paths first: matching a pattern costs, and most requests name no event.
            web::scope("/api")
                .configure(|config| sale(config, metrics, "/api"))
                .configure(|config| house(config, metrics))
                .service(
                    web::scope("/events/{event}")
                        .configure(|config| sale(config, metrics, "/api/events/{event}"))
                        .default_service(web::to(not_found)),
                )
                .default_service(web::to(not_found)),
        );
}

/// The sale: the same handlers under `/api` and under `/api/events/{event}`.
fn sale(config: &mut ServiceConfig, metrics: &Arc<Metrics>, prefix: &str) {
    let path = |pattern: &str, allowed| path(metrics, prefix, pattern, allowed);
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
fn house(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    let path = |pattern: &str, allowed| path(metrics, "/api", pattern, allowed);
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
