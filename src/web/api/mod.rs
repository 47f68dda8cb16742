//! The JSON API: every route in one table.

pub mod admin;
pub mod concerts;
pub mod queue;
pub mod seats;
pub mod tickets;
pub mod users;

use std::sync::Arc;

use actix_web::web::{self, JsonConfig, ServiceConfig, delete, patch, post};

use crate::base::metrics::Metrics;
use crate::web::extract;
use crate::web::route::{get, not_found, path};

/// A purchase is some twenty bytes; nothing needs more than this.
const BODY_LIMIT: usize = 16 * 1024;

/// A concert has a text of 5,000 letters and the lengths of its rows.
pub const PLAN_LIMIT: usize = 128 * 1024;

fn bodies(limit: usize) -> JsonConfig {
    JsonConfig::default().limit(limit).error_handler(|error, _| extract::bad_body(&error).into())
}

pub fn routes(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    config.app_data(bodies(BODY_LIMIT)).service(
        // Plain paths first: matching a pattern costs, and most requests name no event.
        web::scope("/api")
            .configure(|config| sale(config, metrics, "/api"))
            .configure(|config| house(config, metrics))
            .configure(|config| operators(config, metrics))
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
        .service(path("/queues/tokens", "POST").route(post().to(queue::enter)))
        .service(
            path("/queues/tokens/{uuid}", "GET, HEAD, DELETE")
                .route(get().to(queue::status))
                .route(delete().to(queue::leave)),
        )
        .service(path("/queues/tokens/{uuid}/events", "GET, HEAD").route(get().to(queue::events)))
        .service(path("/seats", "GET, HEAD").route(get().to(seats::map)))
        .service(path("/seats/available-count", "GET, HEAD").route(get().to(seats::available)))
        .service(
            path("/seats/hold", "POST, DELETE")
                .route(post().to(seats::hold_party))
                .route(delete().to(seats::release_party)),
        )
        .service(path("/seats/best", "POST").route(post().to(seats::best)))
        .service(
            path("/seats/{seat}/hold", "POST, DELETE").route(post().to(seats::hold)).route(delete().to(seats::release)),
        )
        .service(path("/tickets", "POST").route(post().to(tickets::buy)))
        .service(
            path("/tickets/{ticket}", "GET, HEAD, DELETE")
                .route(get().to(tickets::find))
                .route(delete().to(tickets::cancel)),
        );
}

/// What is offered, and people with their money.
fn house(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    let path = |pattern: &str, allowed| path(metrics, "/api", pattern, allowed);
    config
        .service(path("/users", "POST").route(post().to(users::sign_up)))
        .service(path("/users/me", "GET, HEAD").route(get().to(users::me)))
        .service(path("/users/me/balance", "GET, HEAD").route(get().to(users::balance)))
        .service(path("/users/me/balance/charges", "POST").route(post().to(users::charge)))
        .service(path("/users/me/balance/movements", "GET, HEAD").route(get().to(users::movements)))
        .service(path("/users/me/tickets", "GET, HEAD").route(get().to(users::tickets)))
        .service(path("/users/me/payments", "GET, HEAD").route(get().to(users::payments)))
        .service(path("/concerts", "GET, HEAD").route(get().to(concerts::list)))
        .service(path("/concerts/{concert}", "GET, HEAD").route(get().to(concerts::find)))
        .service(path("/concerts/{concert}/dates", "GET, HEAD").route(get().to(concerts::dates)))
        .service(path("/rankings/sold-out", "GET, HEAD").route(get().to(concerts::sold_out)))
        .service(path("/rankings/best-selling", "GET, HEAD").route(get().to(concerts::best_selling)))
        .service(path("/keys/tickets", "GET, HEAD").route(get().to(tickets::public_keys)))
        .service(path("/events/{event}", "GET, HEAD").route(get().to(concerts::event)));
}

/// What operators see and do.
fn operators(config: &mut ServiceConfig, metrics: &Arc<Metrics>) {
    let path = |pattern: &str, allowed| path(metrics, "/api", pattern, allowed);
    config
        .service(path("/admin/events", "GET, HEAD").route(get().to(admin::sales)))
        .service(
            path("/admin/events/{event}", "GET, HEAD, PATCH")
                .route(get().to(admin::sale))
                .route(patch().to(admin::change_event)),
        )
        .service(path("/admin/events/{event}/policy", "PATCH").route(patch().to(admin::policy)))
        .service(path("/admin/events/{event}/pause", "POST").route(post().to(admin::pause)))
        .service(path("/admin/events/{event}/resume", "POST").route(post().to(admin::resume)))
        .service(path("/admin/events/{event}/close", "POST").route(post().to(admin::close)))
        .service(path("/admin/events/{event}/reopen", "POST").route(post().to(admin::reopen)))
        .service(path("/admin/events/{event}/history", "GET, HEAD").route(get().to(admin::history)))
        .service(path("/admin/events/{event}/kick", "POST").route(post().to(admin::kick)))
        .service(path("/admin/concerts", "POST").app_data(bodies(PLAN_LIMIT)).route(post().to(admin::add_concert)))
        .service(
            path("/admin/concerts/{concert}", "PATCH")
                .app_data(bodies(PLAN_LIMIT))
                .route(patch().to(admin::change_concert)),
        )
        .service(path("/admin/tickets/{ticket}/cancel", "POST").route(post().to(admin::cancel)))
        .service(path("/admin/audit", "GET, HEAD").route(get().to(admin::audit)));
}
