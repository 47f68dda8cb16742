//! The routes of the server: those of the API from its table, the others read from the source, so that no new route is
//! forgotten here.

use std::collections::BTreeSet;

use zticket::web::api::table;

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
    let mut routes = Vec::new();
    for row in table::all() {
        let pattern = row.path();
        let allowed: Vec<&'static str> = row.endpoint.allows().split(", ").collect();
        match routes.iter_mut().find(|route: &&mut Route| route.pattern == pattern) {
            Some(route) => route.allowed.extend(allowed),
            None => routes.push(Route { pattern, allowed, page: false }),
        }
    }
    let other = paths(SERVE, "pub fn serve(");
    routes.extend(other.iter().map(|call| route("", &call[1..], false)));
    let pages = function(PAGES, "fn routes(");
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
    let api = table::all().map(|row| row.path()).collect::<BTreeSet<_>>().len();
    let expected = api + services(SERVE, "pub fn serve(") + services(PAGES, "pub fn routes(");
    assert_eq!(found.len(), expected, "{found:#?}");
    assert!(found.iter().all(|route| route.pattern.starts_with('/')));
    for source in [PAGES, SERVE] {
        let here = source.matches(".service(").count();
        let known = ["pub fn routes(", "pub fn serve(", "pub fn serve_management("];
        let known = known.iter().filter(|start| source.contains(**start)).map(|start| services(source, start));
        assert_eq!(known.sum::<usize>(), here, "routes are set up in a function that is not read here");
    }
}
