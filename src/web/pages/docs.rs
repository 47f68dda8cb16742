//! The description of the API for people who program against it: the same document that programs read, as a page.

use std::sync::OnceLock;

use actix_web::HttpResponse;
use actix_web::web::Data;
use maud::{Markup, html};
use serde_json::Value;

use crate::web::api::openapi::Description;
use crate::web::pages::reply::Reply;
use crate::web::pages::visit::Visit;

const METHODS: [&str; 4] = ["get", "post", "patch", "delete"];
/// Answers that every route can give. They are told once.
const COMMON: [&str; 3] = ["414", "500", "503"];

pub async fn page(visit: Visit, description: Data<Description>) -> HttpResponse {
    /// The same for everyone.
    static BODY: OnceLock<Markup> = OnceLock::new();
    visit.answer(Ok(Reply::page("API", BODY.get_or_init(|| body(&description.document)).clone())))
}

fn body(document: &Value) -> Markup {
    let paragraphs = text(at(document, &["info", "description"])).split("\n\n");
    html! {
        // The description itself speaks English in every language of the pages.
        div.docs lang="en" {
            h1 { "API" }
            @for paragraph in paragraphs { p { (code(paragraph)) } }
            p {
                "Every route can also answer 414 " span.code { "URI_TOO_LONG" } ", 500 " span.code { "INTERNAL_ERROR" }
                " and 503 " span.code { "SERVICE_UNAVAILABLE" } ", which is worth another try after the seconds in "
                span.code { "Retry-After" } "."
            }
            p { "For programs: " a href="/api/openapi.json" { "openapi.json" } " (OpenAPI 3.1)." }
            nav aria-label="Parts of the API" {
                ul {
                    @for tag in list(at(document, &["tags"])) {
                        li { a href={ "#" (anchor(text(at(tag, &["name"])))) } { (text(at(tag, &["name"]))) } ": " (text(at(tag, &["description"]))) }
                    }
                    li { a href="#types" { "Types" } ": what bodies look like." }
                }
            }
            @for tag in list(at(document, &["tags"])) {
                h2 id=(anchor(text(at(tag, &["name"])))) { (text(at(tag, &["name"]))) }
                @for (path, method, operation) in operations(document, text(at(tag, &["name"]))) {
                    (self::operation(path, method, operation))
                }
            }
            h2 #types { "Types" }
            @for (name, schema) in entries(at(document, &["components", "schemas"])) {
                details.panel {
                    summary { h3 { (name) } }
                    div id=(type_anchor(name)) { (shape(schema)) }
                }
            }
        }
    }
}

/// The operations of a part. Those under an event are the same as those beside it.
fn operations<'a>(document: &'a Value, tag: &str) -> Vec<(&'a str, &'static str, &'a Value)> {
    let of_path = |(path, item): (&'a str, &'a Value)| {
        METHODS.into_iter().filter_map(move |method| Some((path, method, item.get(method)?)))
    };
    let again = |path: &str| path.strip_prefix("/api/events/{event}/").is_some();
    let of_tag = |(path, _, operation): &(&str, &str, &Value)| {
        list(at(operation, &["tags"])).iter().any(|known| text(known) == tag) && !again(path)
    };
    entries(at(document, &["paths"])).flat_map(of_path).filter(of_tag).collect()
}

fn operation(path: &str, method: &str, operation: &Value) -> Markup {
    let parameters = list(at(operation, &["parameters"]));
    let body = at(operation, &["requestBody", "content", "application/json", "schema"]);
    let name = format!("{} {path}", method.to_uppercase());
    html! {
        details.panel {
            summary {
                h3 { span.method { (method.to_uppercase()) } " " span.code { (path) } }
                span { (text(at(operation, &["summary"]))) }
            }
            div id=(text(at(operation, &["operationId"]))) {
                @if !text(at(operation, &["description"])).is_empty() { p { (code(text(at(operation, &["description"])))) } }
                p { "Send: " (keys(at(operation, &["security"]))) }
                @if !parameters.is_empty() { (self::parameters(&name, parameters)) }
                @if !body.is_null() { p { "Body: " (kind(body)) @if at(operation, &["requestBody", "required"]) == false { ", or none" } } }
                dl.answers {
                    @for (status, response) in entries(at(operation, &["responses"])).filter(|(status, _)| !COMMON.contains(status)) {
                        dt { (status) }
                        dd { (answer(response)) }
                    }
                }
            }
        }
    }
}

fn parameters(operation: &str, parameters: &[Value]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Parameters of " (operation) } {
            table {
                thead { tr { th scope="col" { "Parameter" } th scope="col" { "In" } th scope="col" { "Meaning" } } }
                tbody {
                    @for parameter in parameters {
                        tr {
                            th.code scope="row" { (text(at(parameter, &["name"]))) }
                            td { (text(at(parameter, &["in"]))) @if at(parameter, &["required"]) == true { ", required" } }
                            td { (code(text(at(parameter, &["description"])))) }
                        }
                    }
                }
            }
        }
    }
}

fn answer(response: &Value) -> Markup {
    let content = entries(at(response, &["content"])).next();
    let codes = content.map_or(Vec::new(), |(_, content)| entries(at(content, &["examples"])).collect());
    html! {
        @if codes.is_empty() {
            @if let Some((kind_of, content)) = content {
                @if kind_of == "application/json" { (kind(at(content, &["schema"]))) } @else { (kind_of) }
                ": "
            }
            (text(at(response, &["description"])))
        } @else {
            @for (number, (code, example)) in codes.into_iter().enumerate() {
                @if number > 0 { br; }
                span.code { (code) } ": " (text(at(example, &["value", "message"])))
            }
        }
    }
}

/// What a caller sends to say who they are.
fn keys(security: &Value) -> Markup {
    let name = |scheme: &str| match scheme {
        "queueToken" => "your queue token in X-Queue-Token",
        "operatorKey" => "the key of an operator as Authorization: Bearer",
        _ => "your API key as Authorization: Bearer",
    };
    let ways: Vec<String> = list(security)
        .iter()
        .map(|way| {
            let names: Vec<&str> = entries(way).map(|(scheme, _)| name(scheme)).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(" and ") }
        })
        .collect();
    html! { (ways.join(", or ")) }
}

/// A type in a few words, with a link to where it is explained.
fn kind(schema: &Value) -> Markup {
    if let Some(name) = at(schema, &["$ref"]).as_str().and_then(|path| path.rsplit('/').next()) {
        return html! { a href={ "#" (type_anchor(name)) } { (name) } };
    }
    let some = ["oneOf", "allOf"].into_iter().find_map(|word| at(schema, &[word]).as_array());
    if let Some(some) = some {
        return html! { @for (number, one) in some.iter().enumerate() { @if number > 0 { " or " } (kind(one)) } };
    }
    if let Some(words) = at(schema, &["enum"]).as_array() {
        let words: Vec<String> =
            words.iter().map(|word| word.as_str().map_or(word.to_string(), str::to_owned)).collect();
        return html! { span.code { (words.join(", ")) } };
    }
    if let Some(fields) = at(schema, &["properties"]).as_object() {
        return html! {
            "{ " @for (number, (name, field)) in fields.iter().enumerate() {
                @if number > 0 { ", " }
                span.code { (name) } ": " (kind(field))
            } " }"
        };
    }
    let names: Vec<&str> = match at(schema, &["type"]) {
        Value::Array(names) => names.iter().map(text).collect(),
        name => vec![text(name)],
    };
    html! {
        @for (number, name) in names.iter().enumerate() {
            @if number > 0 { " or " }
            @if *name == "array" { "list of " (kind(at(schema, &["items"]))) } @else if name.is_empty() { "any JSON" } @else { (name) }
        }
        @if let Some(format) = at(schema, &["format"]).as_str().filter(|format| !format.starts_with("int")) { " (" (format) ")" }
        @if let (Some(least), Some(most)) = (at(schema, &["minimum"]).as_i64(), at(schema, &["maximum"]).as_i64()) {
            " from " (least) " to " (most)
        }
    }
}

/// A type in full.
fn shape(schema: &Value) -> Markup {
    let some = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|word| at(schema, &[word]).as_array());
    let required = list(at(schema, &["required"]));
    html! {
        @if let Some(about) = at(schema, &["description"]).as_str() { p { (code(about)) } }
        @if let Some(properties) = at(schema, &["properties"]).as_object() {
            dl.fields {
                @for (name, property) in properties {
                    dt {
                        span.code { (name) }
                        @if !required.iter().any(|required| required == name) { " " span.muted { "(optional)" } }
                    }
                    dd { (kind(property)) @if let Some(about) = at(property, &["description"]).as_str() { ". " (code(about)) } }
                }
            }
        } @else if let Some(some) = some {
            @for one in some { (shape(one)) }
        } @else {
            p { (kind(schema)) }
        }
    }
}

/// Text with `code` in it.
fn code(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { span.code { (part) } } @else { (part) }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn anchor(name: &str) -> String {
    name.to_lowercase().replace(' ', "-")
}

fn type_anchor(name: &str) -> String {
    format!("type-{name}")
}

/// What stands at this path; null if there is nothing.
fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, name| value.get(name).unwrap_or(&Value::Null))
}
