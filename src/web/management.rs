//! Health and metrics, for operators and their machines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::web::{Data, Path};
use prometheus::TextEncoder;
use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde::Serialize;
use serde_json::json;

use crate::base::error::Error;
use crate::web::gauges;
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

impl Health {
    async fn of(site: &Site) -> Self {
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
        Self { status: if up { "UP" } else { "DOWN" }, components }
    }
}

/// The caller wants to know now.
async fn soon(answer: impl Future<Output = Result<String, Error>>) -> Result<String, Error> {
    tokio::time::timeout(ANSWER, answer).await.unwrap_or(Err(Error::TooSlow("an answer")))
}

/// Never kept by anyone in between.
fn fresh(up: bool, body: impl Serialize) -> HttpResponse {
    let mut response = if up { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.insert_header((CACHE_CONTROL, "no-store")).json(body)
}

/// Whether the server and what it needs are well.
pub async fn health(site: Data<Site>) -> HttpResponse {
    let health = Health::of(&site).await;
    fresh(health.status == "UP", health)
}

/// Whether the process works at all. If not, only a restart helps.
pub async fn liveness() -> HttpResponse {
    fresh(true, json!({ "status": "UP" }))
}

/// Whether a balancer should send requests here: not while the server stops or does not reach what it needs.
pub async fn readiness(site: Data<Site>) -> HttpResponse {
    let status = Health::of(&site).await.status;
    fresh(status == "UP", json!({ "status": status }))
}

/// Which build this is, and how it was set up.
pub async fn info(site: Data<Site>) -> HttpResponse {
    let settings = &site.settings;
    fresh(
        true,
        json!({
            "build": { "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") },
            "events": site.catalogue.all().len(),
            "currency": settings.currency,
            "timeZone": settings.time_zone.name(),
        }),
    )
}

fn families(site: &Site) -> Result<Vec<MetricFamily>, Error> {
    let mut families = site.metrics.gather();
    families.extend(site.scrape.families(site.catalogue.all()).map_err(Error::internal)?);
    families.extend(gauges::families(site).map_err(Error::internal)?);
    families.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(families)
}

/// Everything, in the text format that Prometheus scrapes.
pub async fn prometheus(site: Data<Site>) -> Result<HttpResponse, Error> {
    let text = TextEncoder::new().encode_to_string(&families(&site)?).map_err(Error::internal)?;
    Ok(HttpResponse::Ok().insert_header(ContentType::plaintext()).body(text))
}

/// The names of all metrics.
pub async fn names(site: Data<Site>) -> Result<HttpResponse, Error> {
    let families = families(&site)?;
    Ok(fresh(true, json!({ "names": families.iter().map(MetricFamily::name).collect::<Vec<_>>() })))
}

/// One metric: its series, and the values that its labels have.
pub async fn one(site: Data<Site>, name: Path<String>) -> Result<HttpResponse, Error> {
    let families = families(&site)?;
    let family = families.iter().find(|family| family.name() == name.as_str()).ok_or(Error::NotFound)?;
    let series: Vec<Series> = family.get_metric().iter().map(|metric| Series::of(family, metric)).collect();
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (label, value) in series.iter().flat_map(|series| &series.labels) {
        labels.entry(label).or_default().insert(value);
    }
    let kind = format!("{:?}", family.get_field_type()).to_lowercase();
    let body = json!({
        "name": family.name(), "description": family.help(), "type": kind, "labels": labels, "series": series,
    });
    Ok(fresh(true, body))
}

#[derive(Serialize)]
struct Series<'a> {
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// How many were observed, and their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<f64>,
}

impl<'a> Series<'a> {
    fn of(family: &MetricFamily, metric: &'a Metric) -> Self {
        let labels = metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
        let (value, count, sum) = match family.get_field_type() {
            MetricType::COUNTER => (Some(metric.get_counter().get_value()), None, None),
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                (None, Some(histogram.get_sample_count()), Some(histogram.get_sample_sum()))
            }
            _ => (Some(metric.get_gauge().get_value()), None, None),
        };
        Self { labels, value, count, sum }
    }
}
