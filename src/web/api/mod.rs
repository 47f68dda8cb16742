//! The JSON API.

pub mod admin;
pub mod concerts;
pub mod endpoint;
pub mod openapi;
pub mod orders;
pub mod queue;
pub mod seats;
pub mod table;
pub mod tickets;
pub mod users;

use std::sync::{Arc, LazyLock};

use actix_web::web::{self, Data, JsonConfig, ServiceConfig};

use crate::base::metrics::Metrics;
use crate::web::api::endpoint::Endpoint;
use crate::web::api::openapi::Description;
use crate::web::extract;
use crate::web::origin;
use crate::web::route::{not_found, path};

/// A purchase is some twenty bytes; nothing needs more than this.
const BODY_LIMIT: usize = 16 * 1024;

/// A concert has a text of 5,000 letters and the lengths of its rows.
pub const PLAN_LIMIT: usize = 128 * 1024;

fn bodies(limit: usize) -> JsonConfig {
    JsonConfig::default().limit(limit).error_handler(|error, _| extract::bad_body(&error).into())
}

/// What programs read about all this.
pub fn description() -> Description {
    Description::of(table::all())
}

/// Made once, for all web workers.
static DESCRIPTION: LazyLock<Data<Description>> = LazyLock::new(|| Data::new(description()));

pub fn routes(config: &mut ServiceConfig, metrics: &Arc<Metrics>, allowed_origins: &[String]) {
    let add = |config: &mut ServiceConfig, prefix: &str, endpoints: Vec<Endpoint>| {
        for (pattern, endpoints) in by_path(endpoints) {
            let allowed: Vec<&str> = endpoints.iter().map(Endpoint::allows).collect();
            let mut resource = path(metrics, prefix, pattern, &allowed.join(", "));
            if endpoints.iter().any(|endpoint| endpoint.large_body) {
                resource = resource.app_data(bodies(PLAN_LIMIT));
            }
            config.service(endpoints.iter().fold(resource, |resource, endpoint| resource.route(endpoint.route())));
        }
    };
    // Plain paths first: matching a pattern costs, and most requests name no event.
    let api = web::scope(table::API)
        .configure(|config| add(config, table::API, table::sale()))
        .configure(|config| add(config, table::API, table::house()))
        .configure(|config| add(config, table::API, table::operators()))
        .service(
            web::scope("/events/{event}")
                .configure(|config| add(config, table::OF_EVENT, table::sale()))
                .default_service(web::to(not_found)),
        )
        .default_service(web::to(not_found));
    config.app_data(bodies(BODY_LIMIT)).app_data(DESCRIPTION.clone());
    if allowed_origins.is_empty() {
        config.service(api);
    } else {
        config.service(api.wrap(origin::cors(allowed_origins)));
    }
}

/// The endpoints of each path, in the order of the table.
fn by_path(endpoints: Vec<Endpoint>) -> Vec<(&'static str, Vec<Endpoint>)> {
    let mut paths: Vec<(&'static str, Vec<Endpoint>)> = Vec::new();
    for endpoint in endpoints {
        match paths.iter_mut().find(|(path, _)| *path == endpoint.path) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => paths.push((endpoint.path, vec![endpoint])),
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use serde_json::Value;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let mut found = BTreeSet::new();
        let document = description().document;
        references(&document, &mut found);
        let missing: Vec<&String> =
            found.iter().filter(|path| document.pointer(path.trim_start_matches('#')).is_none()).collect();
        assert!(missing.is_empty() && found.len() > 20, "{missing:?}");
    }

    #[test]
    fn every_operation_has_a_name_of_its_own_a_summary_and_an_answer() {
        let mut names = BTreeSet::new();
        let document = description().document;
        let paths = document["paths"].as_object().unwrap();
        for (path, method, operation) in paths
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |(method, it)| (path, method, it)))
        {
            assert!(names.insert(operation["operationId"].to_string()), "{method} {path}");
            assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{method} {path}");
            assert!(operation["responses"].as_object().unwrap().keys().any(|status| status.starts_with('2')), "{path}");
        }
    }
}
