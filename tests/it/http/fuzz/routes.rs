//! The routes of the server, read from its source, so that no new route is forgotten here.

const API: &str = include_str!("../../../../src/web/api/mod.rs");
const PAGES: &str = include_str!("../../../../src/web/pages/mod.rs");
const SERVE: &str = include_str!("../../../../src/web/serve.rs");

#[derive(Debug, Clone)]
pub struct Route {
    pub pattern: String,
    /// The methods it takes.
    pub allowed: Vec<&'static str>,
    /// Answers people, in HTML.
    pub page: bool,
}

pub fn all() -> Vec<Route> {
    let sale = paths(API, "fn sale(");
    let house = [paths(API, "fn house("), paths(API, "fn operators(")].concat();
    let other = paths(SERVE, "pub fn serve(");
    let pages = function(PAGES, "fn routes(");
    let mut routes = Vec::new();
    for prefix in ["/api", "/api/events/{event}"] {
        routes.extend(sale.iter().map(|call| route(prefix, call, false)));
    }
    routes.extend(house.iter().map(|call| route("/api", call, false)));
    routes.extend(other.iter().map(|call| route("", &call[1..], false)));
    for (kind, allowed) in [("page(", "GET, HEAD"), ("form(", "GET, HEAD, POST")] {
        routes.extend(calls(pages, kind).iter().map(|call| route("", &[call[0], allowed], true)));
    }
    routes
}

/// What `path` is called with: a pattern and its methods, after a prefix if there is one.
fn paths(source: &'static str, start: &str) -> Vec<Vec<&'static str>> {
    calls(function(source, start), "path(").into_iter().filter(|call| call.len() > 1).collect()
}

fn route(prefix: &str, call: &[&'static str], page: bool) -> Route {
    Route { pattern: format!("{prefix}{}", call[0]), allowed: call[1].split(", ").collect(), page }
}

/// The text of a function, up to the brace that ends it.
fn function(source: &'static str, start: &str) -> &'static str {
    let (_, rest) = source.split_once(start).unwrap_or_else(|| panic!("{start} is not where it was"));
    rest.split_once("\n}\n").unwrap().0
}

/// The string arguments of each call of this name.
fn calls(source: &'static str, name: &str) -> Vec<Vec<&'static str>> {
    let inside = source.split(name).skip(1).map(|rest| rest.split(')').next().unwrap());
    inside
        .map(|inside| inside.split('"').skip(1).step_by(2).collect::<Vec<_>>())
        .filter(|call| !call.is_empty())
        .collect()
}

#[test]
fn every_route_is_found() {
    let found = all();
    let services = |source, start| function(source, start).matches(".service(").count();
    let sale = services(API, "fn sale(");
    // Two of the services are scopes, which hold the others.
    let scopes = services(API, "pub fn routes(");
    assert_eq!(scopes, 2);
    let other = services(SERVE, "pub fn serve(");
    let expected = 2 * sale
        + services(API, "fn house(")
        + services(API, "fn operators(")
        + other
        + services(PAGES, "pub fn routes(");
    assert_eq!(found.len(), expected, "{found:#?}");
    assert!(sale > 5 && found.iter().all(|route| route.pattern.starts_with('/')));
    for source in [API, PAGES, SERVE] {
        let here = source.matches(".service(").count();
        let known =
            ["fn sale(", "fn house(", "fn operators(", "pub fn routes(", "pub fn serve(", "pub fn serve_management("];
        let known = known.iter().filter(|start| source.contains(**start)).map(|start| services(source, start));
        assert_eq!(known.sum::<usize>(), here, "routes are set up in a function that is not read here");
    }
}
