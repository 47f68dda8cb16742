//! The description of the API for programs, in the form of OpenAPI 3.1. It is made from the route table and from the types
//! that handlers take and give.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, EntityTag, VARY};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use serde_json::{Value, json};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    AdditionalProperties, AllOfBuilder, ArrayBuilder, Object, ObjectBuilder, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, HttpMethod, InfoBuilder, KnownFormat, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, RefOr,
    Required, Response, ResponseBuilder, Schema, SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};

use crate::base::error::Error;
use crate::web::answer::knows;
use crate::web::api::endpoint::{Caller, Content, Endpoint, Group, RequestShape, Row, Shape};
use crate::web::error::Body;
use crate::web::gzip;

const ABOUT: &str = "ZTicket sells seats first come, first served. A visitor joins the line of an event, polls until it is \
    their turn, holds seats and buys them.\n\nThe routes of the line, of seats and of tickets exist under `/api` and under \
    `/api/events/{event}`. Under `/api` the queue token says which event is meant; without a token it is the default event. \
    HEAD is answered wherever GET is.\n\nRequests that are limited say how much is left: `RateLimit-Policy: \"buy\";q=1000;w=10` and \
    `RateLimit: \"buy\";r=997;t=1`. Beyond it they get 429 with `Retry-After`.";

type Schemas = Vec<(String, RefOr<Schema>)>;

/// The document, made once.
pub struct Description {
    /// As the page for people takes it apart.
    pub document: Value,
    /// As programs get it.
    json: Bytes,
    /// `None` where it could not be compressed.
    gzip: Option<Bytes>,
    tag: EntityTag,
}

/// What the description says about itself: an object of a well-known form.
pub struct Document;

impl ToSchema for Document {}

impl PartialSchema for Document {
    fn schema() -> RefOr<Schema> {
        let about = "A document in the form of OpenAPI 3.1.";
        let anything = Some(AdditionalProperties::FreeForm(true));
        ObjectBuilder::new().description(Some(about)).additional_properties(anything).into()
    }
}

impl Description {
    pub fn of(rows: impl Iterator<Item = Row>) -> Self {
        let document = serde_json::to_value(document(rows)).unwrap_or_default();
        let json = Bytes::from(document.to_string());
        let tag = EntityTag::new_weak(blake3::hash(&json).to_hex().as_str().split_at(24).0.to_owned());
        Self { document, gzip: gzip::compress(&json).ok(), json, tag }
    }
}

pub async fn serve(description: Data<Description>, request: HttpRequest) -> HttpResponse {
    let known = knows(&request, &description.tag);
    let mut response = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response.insert_header((CACHE_CONTROL, "no-cache")).insert_header((VARY, "Accept-Encoding"));
    response.insert_header((ETAG, description.tag.to_string()));
    if known {
        return response.finish();
    }
    response.content_type("application/json");
    match &description.gzip {
        Some(small) if gzip::accepted(&request) => {
            response.insert_header((CONTENT_ENCODING, "gzip")).body(small.clone())
        }
        _ => response.body(description.json.clone()),
    }
}

fn document(rows: impl Iterator<Item = Row>) -> OpenApi {
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    let mut items: BTreeMap<String, PathItem> = BTreeMap::new();
    for row in rows {
        let path = row.path();
        let operation = operation(&path, row.group, &row.endpoint, &mut schemas);
        let item = PathItem::new(http_method(&row.endpoint.method), operation);
        match items.get_mut(&path) {
            Some(known) => known.merge_operations(item),
            None => drop(items.insert(path, item)),
        }
    }
    for (path, item) in items {
        paths = paths.path(path, item);
    }
    let tags = Group::ALL.map(|group| TagBuilder::new().name(group.name()).description(Some(group.about())).build());
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas.into_iter().collect::<BTreeMap<_, _>>())
        .security_scheme("queueToken", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-Queue-Token"))))
        .security_scheme(
            "apiKey",
            bearer("An API key of a person, from `POST /api/users` or `POST /api/users/me/keys`."),
        )
        .security_scheme("operatorKey", bearer("The key of an operator, from `zticket operator add`."));
    OpenApiBuilder::new()
        .info(InfoBuilder::new().title("ZTicket").version(env!("CARGO_PKG_VERSION")).description(Some(ABOUT)).build())
        .paths(paths)
        .components(Some(components.build()))
        .tags(Some(tags))
        .build()
}

fn bearer(text: &str) -> SecurityScheme {
    SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(text)).build())
}

fn http_method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn operation(path: &str, group: Group, endpoint: &Endpoint, schemas: &mut Schemas) -> Operation {
    let mut operation = OperationBuilder::new()
        .tag(group.name())
        .operation_id(Some(operation_id(path, &endpoint.method)))
        .summary(Some(endpoint.summary))
        .description(details(endpoint))
        .securities(Some(securities(endpoint.caller)))
        .parameters(Some(names(path).into_iter().map(path_parameter).chain(endpoint.parameters.iter().cloned())));
    if let Some(RequestShape { required, shape }) = &endpoint.body {
        let body = RequestBodyBuilder::new()
            .required(Some(if *required { Required::True } else { Required::False }))
            .content("application/json", ContentBuilder::new().schema(Some(shape.refer(schemas))).build());
        operation = operation.request_body(Some(body.build()));
    }
    for answer in &endpoint.answers {
        let mut response = ResponseBuilder::new().description(answer.text);
        let content = |schema: RefOr<Schema>| ContentBuilder::new().schema(Some(schema)).build();
        response = match &answer.content {
            Content::Nothing => response,
            Content::Stream => response.content("text/event-stream", content(text(None).into())),
            body => response.content("application/json", content(json_schema(body, schemas))),
        };
        response = response.header("Cache-Control", header("Who may keep the answer."));
        for (name, about) in &answer.headers {
            response = response.header(*name, header(about));
        }
        operation = operation.response(answer.status.to_string(), response.build());
    }
    let error = Shape::of::<Body>().refer(schemas);
    for (status, errors) in refusals(path, endpoint) {
        operation = operation.response(status.to_string(), refusal(status, &errors, &error));
    }
    operation.build()
}

fn json_schema(content: &Content, schemas: &mut Schemas) -> RefOr<Schema> {
    let mut list = |shape: &Shape| ArrayBuilder::new().items(shape.refer(schemas));
    match content {
        Content::Json(shape) => shape.refer(schemas),
        Content::List(shape) => list(shape).into(),
        Content::Items(shape) => ObjectBuilder::new().property("items", list(shape)).required("items").into(),
        Content::Page(shape) => ObjectBuilder::new()
            .property("items", list(shape))
            .property("nextCursor", ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null])))
            .required("items")
            .required("nextCursor")
            .into(),
        Content::Nothing | Content::Stream => Schema::default().into(),
    }
}

/// What the endpoint says, and whose key it takes.
fn details(endpoint: &Endpoint) -> Option<String> {
    let role = match endpoint.caller {
        Caller::Operator(role) => role.needed(),
        _ => "",
    };
    let words: Vec<&str> = [endpoint.details, role].into_iter().filter(|text| !text.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Such as `post_events_queues_tokens`: a name for each method of each path.
fn operation_id(path: &str, method: &Method) -> String {
    let words = path.trim_start_matches("/api").split('/').map(|part| part.trim_matches(['{', '}']));
    let words: Vec<&str> = std::iter::once(method.as_str()).chain(words.filter(|word| !word.is_empty())).collect();
    words.join("_").replace(['-', '.'], "_").to_lowercase()
}

/// The names in braces.
fn names(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

fn path_parameter(name: &str) -> Parameter {
    let number = |highest: i64| number().minimum(Some(1)).maximum(Some(highest)).build();
    let (about, schema, example): (&str, Object, Value) = match name {
        "event" => ("The number of an event.", number(0xff_ffff), json!(2)),
        "concert" => ("The number of a concert.", number(i64::from(i32::MAX)), json!(1)),
        "seat" => ("The number of a seat, from 1.", number(i64::from(u32::MAX)), json!(51)),
        "key" => ("What `GET /users/me/keys` calls it.", uuid(), json!("01a1e3a3-57d6-7230-8ac5-7a0c11d7e2b4")),
        "session" => ("What `GET /users/me/sessions` calls it.", uuid(), json!("6f1f0c1e-6a53-4c0a-9a2b-0f4c7b8a9d21")),
        "ticket" => ("The number of a ticket.", uuid(), json!("01a1e3a3-5fef-7387-8226-d32073a54ece")),
        _ => ("Your queue token.", uuid(), json!("00000200-0000-800b-bf4f-4e79db2f800d")),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(about))
        .schema(Some(schema))
        .example(Some(example))
        .build()
}

fn number() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
}

fn uuid() -> Object {
    text(Some(KnownFormat::Uuid))
}

fn text(format: Option<KnownFormat>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).format(format.map(SchemaFormat::KnownFormat)).build()
}

fn header(about: &str) -> utoipa::openapi::Header {
    HeaderBuilder::new().schema(Some(text(None))).description(Some(about)).build()
}

/// Each is enough. An empty one: nothing is needed.
fn securities(caller: Caller) -> Vec<SecurityRequirement> {
    let none = SecurityRequirement::default;
    let one = |name: &str| SecurityRequirement::new(name, Vec::<String>::new());
    match caller {
        Caller::Anyone => vec![none()],
        Caller::Visitor => vec![one("queueToken")],
        Caller::MaybeVisitor => vec![none(), one("queueToken")],
        Caller::Buyer => vec![one("queueToken"), one("queueToken").add("apiKey", Vec::<String>::new())],
        Caller::TicketOwner => vec![one("queueToken"), one("apiKey")],
        Caller::MaybeOwner => vec![none(), one("queueToken"), one("apiKey")],
        Caller::Person => vec![one("apiKey")],
        Caller::MaybePerson => vec![none(), one("apiKey")],
        Caller::Operator(_) => vec![one("operatorKey")],
    }
}

/// One of each refusal, by status and code: those of the endpoint, and those that its caller, path and body bring along.
fn refusals(path: &str, endpoint: &Endpoint) -> BTreeMap<u16, BTreeMap<&'static str, Error>> {
    let mut errors = Vec::new();
    let wrong = |text: &str| Error::InvalidRequest(text.to_owned());
    errors.extend([Error::UriTooLong, Error::internal(""), Error::Stale]);
    errors.extend(names(path).into_iter().map(|name| match name {
        "event" => Error::EventNotFound,
        "concert" => Error::ConcertNotFound,
        "key" | "session" => Error::NotFound,
        "seat" => Error::InvalidSeat,
        "ticket" => Error::TicketNotFound,
        _ => Error::TokenNotFound,
    }));
    if endpoint.of_an_event && !names(path).contains(&"event") {
        errors.extend([Error::EventNotFound, Error::EventClosed]);
    }
    if endpoint.body.is_some() {
        errors.extend([
            wrong("The JSON lacks a field or has one of the wrong kind."),
            Error::PayloadTooLarge,
            Error::UnsupportedMediaType,
            Error::RequestTimeout,
        ]);
    }
    if endpoint.parameters.iter().any(|parameter| matches!(parameter.parameter_in, ParameterIn::Query)) {
        errors.push(wrong("The query has a field that is unknown or of the wrong kind."));
    }
    let no_token = Error::Unauthorized("Send your queue token in the X-Queue-Token header.");
    let no_key = Error::Unauthorized("Send your API key as Authorization: Bearer.");
    match endpoint.caller {
        Caller::Anyone => {}
        Caller::Visitor => errors.extend([no_token, Error::TokenNotFound]),
        Caller::Buyer => errors.extend([no_token, Error::TokenNotFound, Error::RateLimited { seconds: 1 }]),
        Caller::MaybeVisitor => errors.push(Error::TokenNotFound),
        Caller::TicketOwner => errors.extend([
            Error::Unauthorized("Send the queue token you bought with, or your API key."),
            Error::TokenNotFound,
            Error::RateLimited { seconds: 1 },
        ]),
        Caller::MaybeOwner => errors.extend([no_key, Error::TokenNotFound, Error::RateLimited { seconds: 1 }]),
        Caller::Person | Caller::MaybePerson => errors.extend([no_key, Error::RateLimited { seconds: 1 }]),
        Caller::Operator(role) => errors.extend([
            Error::Unauthorized("Send the key of an operator as Authorization: Bearer."),
            Error::Forbidden(role.needed()),
            Error::RateLimited { seconds: 1 },
        ]),
    }
    // Last, so that of two texts for one code its own is shown.
    errors.extend(endpoint.errors.iter().cloned());
    let mut refusals: BTreeMap<u16, BTreeMap<&'static str, Error>> = BTreeMap::new();
    for error in errors {
        refusals.entry(error.status()).or_default().insert(error.code(), error);
    }
    refusals
}

fn refusal(status: u16, errors: &BTreeMap<&'static str, Error>, shape: &RefOr<Schema>) -> Response {
    let codes: BTreeSet<&str> = errors.keys().copied().collect();
    let about: Vec<&str> = errors.values().map(|error| error.public().2).collect();
    let of_these = ObjectBuilder::new()
        .property("code", ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes)))
        .property("status", ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([status])));
    let schema: Schema = AllOfBuilder::new().item(shape.clone()).item(of_these).build().into();
    let example = |(code, error): (&&'static str, &Error)| {
        let body = serde_json::to_value(Body::of(error)).unwrap_or_default();
        ((*code).to_owned(), utoipa::openapi::example::ExampleBuilder::new().value(Some(body)).build())
    };
    let content = ContentBuilder::new().schema(Some(schema)).examples_from_iter(errors.iter().map(example));
    let mut response = ResponseBuilder::new()
        .description(about.join(" "))
        .content("application/json", content.build())
        .header("Cache-Control", header("Always no-store."));
    if errors.values().any(|error| error.retry_after().is_some()) {
        response = response.header("Retry-After", header("Seconds to wait before trying again."));
    }
    if status == 401 {
        response = response.header("WWW-Authenticate", header("Always Bearer."));
    }
    response.build()
}
