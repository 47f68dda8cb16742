//! Health and metrics, for operators and their machines.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::web::Data;
use serde::Serialize;

use crate::app::App;
use crate::db;
use crate::error::Error;

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

/// Whether requests are best sent here. Who stops, or does not reach what it needs, says no.
pub async fn health(app: Data<App>) -> HttpResponse {
    let (postgres, redis) = tokio::join!(soon(ask_postgres(app.clone())), soon(ask_redis(app.clone())));
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    let stopping = *app.stopping.borrow();
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

/// Who asks wants to know now.
async fn soon(answer: impl Future<Output = Result<String, Error>>) -> Result<String, Error> {
    tokio::time::timeout(ANSWER, answer).await.unwrap_or(Err(Error::TooSlow("an answer")))
}

async fn ask_postgres(app: Data<App>) -> Result<String, Error> {
    let pool = app.db.clone();
    app.run(async move { db::ping(&pool).await }).await?;
    let status = app.db.status();
    Ok(format!("answers; {} of {} connections open", status.size, status.max_size))
}

async fn ask_redis(app: Data<App>) -> Result<String, Error> {
    let pool = app.redis.clone();
    app.run(async move { pool.health().await }).await
}

pub async fn prometheus(app: Data<App>) -> Result<HttpResponse, Error> {
    for event in app.events.all() {
        if let Some(snapshot) = event.snapshot.load_full() {
            let label = event.id.to_string();
            app.metrics.snapshot_age.with_label_values(&[&label]).set(snapshot.age().as_secs_f64());
        }
    }
    let text = app.metrics.render().map_err(|error| Error::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok().insert_header(ContentType::plaintext()).body(text))
}
