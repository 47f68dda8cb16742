//! Which site's page a request comes from. Browsers say it; programs say nothing, and nobody can make a program of theirs
//! pass for a visitor's browser.

use actix_cors::Cors;
use actix_web::HttpRequest;
use actix_web::http::header::{HOST, ORIGIN};

/// How long a browser may remember what pages of other sites may send.
const REMEMBERED_SECONDS: usize = 600;

/// Whether a request comes from one of our own pages, or from a program. Browsers that do not say so also send no SameSite
/// cookies with it.
pub fn is_ours(request: &HttpRequest) -> bool {
    if let Some(site) = header(request, "sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    match (header(request, ORIGIN.as_str()), header(request, HOST.as_str())) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        (Some(_), None) => false,
    }
}

/// Whether the browser says that a request comes from one of our own pages.
pub fn is_from_our_page(request: &HttpRequest) -> bool {
    let said = header(request, "sec-fetch-site").or_else(|| header(request, ORIGIN.as_str()));
    said.is_some_and(|said| said != "none") && is_ours(request)
}

/// The same, or from a page of a site that the operator named.
pub fn is_allowed(request: &HttpRequest, allowed: &[String]) -> bool {
    is_ours(request) || header(request, ORIGIN.as_str()).is_some_and(|origin| allowed.iter().any(|one| one == origin))
}

/// Lets pages of these sites use the API and read its answers. They send tokens and keys in headers; cookies are not for
/// them.
pub fn cors(allowed: &[String]) -> Cors {
    let cors = Cors::default().allow_any_method().allow_any_header().expose_any_header().max_age(REMEMBERED_SECONDS);
    allowed.iter().fold(cors, |cors, origin| cors.allowed_origin(origin))
}

/// An origin as browsers write it: `https://shop.example`, with a port if it is not the usual one.
pub fn parse(text: &str) -> Option<String> {
    let (scheme, host) = text.split_once("://")?;
    let (name, port) = host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).unwrap_or((host, "443"));
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b".-[]:".contains(&letter);
    let is_name = !name.is_empty() && name.bytes().all(plain);
    let is_port = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok();
    // Browsers leave out the usual port.
    let usual = host.ends_with(if scheme == "https" { ":443" } else { ":80" });
    (matches!(scheme, "https" | "http") && is_name && is_port && !usual).then(|| text.to_owned())
}

fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn request(headers: &[(&'static str, &'static str)]) -> HttpRequest {
        let request = headers.iter().fold(TestRequest::post(), |request, header| request.insert_header(*header));
        request.to_http_request()
    }

    #[test]
    fn a_request_from_another_site_is_not_ours() {
        let ours = |headers| is_ours(&request(headers));
        assert!(ours(&[("sec-fetch-site", "same-origin"), ("origin", "http://a.example"), ("host", "b.example")]));
        assert!(ours(&[("sec-fetch-site", "none")]));
        assert!(!ours(&[("sec-fetch-site", "cross-site")]));
        assert!(!ours(&[("sec-fetch-site", "same-site")]));
        assert!(ours(&[("origin", "http://a.example:8080"), ("host", "a.example:8080")]));
        assert!(!ours(&[("origin", "http://evil.example"), ("host", "a.example")]));
        assert!(!ours(&[("origin", "null"), ("host", "a.example")]));
        assert!(ours(&[("host", "a.example")]));
    }

    #[test]
    fn a_request_without_a_word_about_its_page_is_from_none_of_ours() {
        let from_ours = |headers| is_from_our_page(&request(headers));
        assert!(from_ours(&[("sec-fetch-site", "same-origin")]));
        assert!(from_ours(&[("origin", "http://a.example"), ("host", "a.example")]));
        assert!(!from_ours(&[("host", "a.example")]) && !from_ours(&[("sec-fetch-site", "none")]));
        assert!(!from_ours(&[("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn a_site_that_the_operator_named_is_allowed() {
        let allowed = ["https://shop.example".to_owned()];
        let from = |origin| request(&[("sec-fetch-site", "cross-site"), ("origin", origin), ("host", "a.example")]);
        assert!(is_allowed(&from("https://shop.example"), &allowed));
        assert!(!is_allowed(&from("https://shop.example.evil.example"), &allowed));
        assert!(!is_allowed(&from("http://shop.example"), &allowed));
        assert!(
            !is_allowed(&request(&[("sec-fetch-site", "cross-site")]), &allowed),
            "fetch with no-cors names nobody"
        );
    }

    #[test]
    fn an_origin_has_a_scheme_a_host_and_nothing_behind_them() {
        for good in ["https://shop.example", "http://localhost:3000", "https://[::1]:8443", "http://[::1]"] {
            assert_eq!(parse(good).as_deref(), Some(good));
        }
        for wrong in [
            "shop.example",
            "https://",
            "https://shop.example/",
            "https://a:b",
            "ftp://a",
            "https://A.example",
            "https://a:443",
            "http://a:80",
            "*",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
