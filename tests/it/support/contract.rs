//! What the server answers against what its own description says. The answers that tests read with `answer()` go through
//! here, and those of the fuzz tests.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use jsonschema::{Draft, Validator};
use serde_json::{Value, json};
use zticket::web::api;

pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| api::description().document);

/// Validators of bodies, by path, method and status.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Validator>>> = LazyLock::new(Mutex::default);

/// An answer, as far as the description speaks of it.
pub struct Seen<'a> {
    pub method: &'a str,
    /// Without its query.
    pub path: &'a str,
    pub status: u16,
    /// Without its parameters; empty: none.
    pub content_type: &'a str,
    /// `None`: not looked at, because it is compressed or none.
    pub body: Option<&'a Value>,
    /// Whether the answer has this header.
    pub has_header: &'a dyn Fn(&str) -> bool,
}

/// Fails if the description does not allow this answer.
pub fn check(seen: &Seen) {
    if let Err(problem) = judge(seen) {
        let Seen { method, path, status, body, .. } = seen;
        let body = body.map_or(String::new(), Value::to_string);
        panic!(
            "{method} {path} was answered {status} {body}\nwhich the description of the API does not allow: {problem}"
        );
    }
}

pub fn judge(seen: &Seen) -> Result<(), String> {
    let method = match seen.method {
        // It has no row of its own, and its answer no body.
        "HEAD" => "get",
        "GET" => "get",
        "POST" => "post",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "no such method",
    };
    let Some(template) = template(seen.path) else { return Ok(()) };
    let Some(operation) = DOCUMENT["paths"][template].get(method) else {
        return if seen.status == 405 { Ok(()) } else { Err(format!("{template} has no {method}")) };
    };
    let status = seen.status.to_string();
    let response = operation["responses"].get(&status).ok_or_else(|| format!("{template} never answers {status}"))?;
    for name in response["headers"].as_object().into_iter().flat_map(|headers| headers.keys()) {
        if !(seen.has_header)(name) {
            return Err(format!("the header {name} is missing"));
        }
    }
    let contents = response["content"].as_object();
    if seen.content_type.is_empty() {
        return if contents.is_none() || seen.method == "HEAD" {
            Ok(())
        } else {
            Err("the body is missing".to_owned())
        };
    }
    let content = contents.and_then(|contents| contents.get(seen.content_type));
    let content = content.ok_or_else(|| format!("{} is not among {contents:?}", seen.content_type))?;
    match seen.body {
        Some(body) if seen.content_type == "application/json" => {
            conforms(&format!("{method} {template} {status}"), &content["schema"], body)
        }
        _ => Ok(()),
    }
}

/// The path of the description that this one is an instance of. Plain words before names in braces.
fn template(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').collect();
    let matches = |template: &&String| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len()
            && wanted
                .iter()
                .zip(&parts)
                .all(|(wanted, part)| wanted == part || wanted.starts_with('{') && !part.is_empty())
    };
    let names = |template: &&String| template.matches('{').count();
    DOCUMENT["paths"].as_object().unwrap().keys().filter(matches).min_by_key(names).map(String::as_str)
}

fn conforms(key: &str, schema: &Value, body: &Value) -> Result<(), String> {
    let mut validators = VALIDATORS.lock().unwrap();
    let validator = validators.entry(key.to_owned()).or_insert_with(|| {
        // A field that the description does not know is a mistake too.
        let whole = json!({ "components": DOCUMENT["components"], "allOf": [schema], "unevaluatedProperties": false });
        jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true).build(&whole).unwrap()
    });
    let problems: Vec<String> =
        validator.iter_errors(body).map(|error| format!("{} at {}", error, error.instance_path())).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
