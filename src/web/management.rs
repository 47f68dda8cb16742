//! Health and metrics, for operators and their machines.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::web::Data;
use prometheus::TextEncoder;
use serde::Serialize;

use crate::base::error::Error;
use crate::web::site::Site;

/// Slower than this is as good as away.
const ANSWER: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Health {
    status: &'static str,
    components: Components,
}

#[derive(Serialize)]
struct Components {
    server: Component,
    postgres: Component,
    redis: Component,
}

#[derive(Serialize)]
struct Component {
    status: &'static str,
    detail: String,
}

impl Component {
    fn of(outcome: Result<String, Error>) -> Self {
        match outcome {
            Ok(detail) => Self { status: "UP", detail },
            Err(error) => Self { status: "DOWN", detail: error.to_string() },
        }
    }

    fn up(&self) -> bool {
        self.status == "UP"
    }
}

/// Whether a balancer should send requests here: not while the server stops or does not reach what it needs.
pub async fn health(site: Data<Site>) -> HttpResponse {
    let (postgres, redis) = tokio::join!(soon(site.stores.postgres_health()), soon(site.stores.redis_health()));
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    let stopping = *site.stopping.borrow();
    let server = if stopping {
        Component { status: "DOWN", detail: format!("{version}, stopping") }
    } else {
        Component::of(Ok(version))
    };
    let components = Components { server, postgres: Component::of(postgres), redis: Component::of(redis) };
    let up = components.server.up() && components.postgres.up() && components.redis.up();
    let mut response = if up { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    let status = if up { "UP" } else { "DOWN" };
    response.insert_header((CACHE_CONTROL, "no-store")).json(Health { status, components })
}

/// The caller wants to know now.
async fn soon(answer: impl Future<Output = Result<String, Error>>) -> Result<String, Error> {
    tokio::time::timeout(ANSWER, answer).await.unwrap_or(Err(Error::TooSlow("an answer")))
}

pub async fn prometheus(site: Data<Site>) -> Result<HttpResponse, Error> {
    let mut families = site.metrics.gather();
    families.extend(site.scrape.families(site.catalogue.all()).map_err(Error::internal)?);
    let text = TextEncoder::new().encode_to_string(&families).map_err(Error::internal)?;
    Ok(HttpResponse::Ok().insert_header(ContentType::plaintext()).body(text))
}
