//! The cookies of visitors. Where they come by https, the names of ours begin with `__Host-`: browsers take such a cookie
//! from nobody else, neither from a neighbouring site nor from somebody on the way. Then only those count. The console has
//! a cookie of its own.

use actix_web::HttpRequest;
use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::http::header::COOKIE;

use crate::house::credentials::SESSION as SESSION_LASTS;

/// Of the language.
pub const LANG: &str = "zt_lang";
/// Of a signed-in person.
pub const SESSION: &str = "zt_session";
/// Of a person who signed in before there were sessions: the API key.
pub const KEY: &str = "zt_key";
/// Of the places whose tickets were bought without signing in, before the visitor joined the line again.
pub const KEPT: &str = "zt_kept";
/// Of a place in line; the event follows.
pub const PLACE: &str = "zt_place_";
const OURS_ALONE: &str = "__Host-";

/// How cookies are named and kept where visitors come by https, or where they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookies {
    pub https: bool,
}

impl Cookies {
    fn prefix(self) -> &'static str {
        if self.https { OURS_ALONE } else { "" }
    }

    pub fn get(self, request: &HttpRequest, name: &str) -> Option<String> {
        let ours = |known: &str| known.strip_prefix(self.prefix()) == Some(name);
        all(request).into_iter().find(|(known, _)| ours(known)).map(|(_, value)| value)
    }

    /// The values of those whose name begins like this.
    pub fn beginning_with(self, request: &HttpRequest, name: &str) -> impl Iterator<Item = String> {
        let prefix = format!("{}{name}", self.prefix());
        all(request).into_iter().filter(move |(known, _)| known.starts_with(&prefix)).map(|(_, value)| value)
    }

    /// Hidden from scripts, not sent along from other sites, and kept to https if the page came by it.
    pub fn make(self, request: &HttpRequest, name: &str, value: impl Into<String>, lasts: Duration) -> Cookie<'static> {
        let secure = self.https || request.connection_info().scheme() == "https";
        Cookie::build(format!("{}{name}", self.prefix()), value.into())
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(secure)
            .max_age(lasts)
            .finish()
    }

    /// Of a session, as long as the session lasts.
    pub fn session(self, request: &HttpRequest, session: String) -> Cookie<'static> {
        self.make(request, SESSION, session, Duration::days(SESSION_LASTS.num_days()))
    }

    pub fn forget(self, request: &HttpRequest, name: &str) -> Cookie<'static> {
        let mut cookie = self.make(request, name, "", Duration::ZERO);
        cookie.make_removal();
        cookie.set_path("/");
        cookie
    }
}

/// The cookies that can be read. A foreign cookie that is not text does not hide the others.
fn all(request: &HttpRequest) -> Vec<(String, String)> {
    let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let texts = request.headers().get_all(COOKIE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    texts.flat_map(|text| text.split(';').filter_map(pair).collect::<Vec<_>>()).collect()
}

/// A cookie by its whole name.
pub fn plain(request: &HttpRequest, name: &str) -> Option<String> {
    Cookies { https: false }.get(request, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn by_https_only_cookies_count_that_nobody_else_can_set() {
        let request = TestRequest::default().insert_header((COOKIE, "zt_lang=ko; __Host-zt_lang=en")).to_http_request();
        assert_eq!(Cookies { https: true }.get(&request, LANG).as_deref(), Some("en"));
        assert_eq!(Cookies { https: false }.get(&request, LANG).as_deref(), Some("ko"));
        let neighbour = TestRequest::default().insert_header((COOKIE, "zt_session=theirs")).to_http_request();
        assert_eq!(Cookies { https: true }.get(&neighbour, SESSION), None);
        let made = Cookies { https: true }.make(&request, SESSION, "x", Duration::days(30)).to_string();
        for part in ["__Host-zt_session=x", "Secure", "HttpOnly", "SameSite=Lax", "Path=/"] {
            assert!(made.contains(part), "{made}");
        }
        assert!(!made.contains("Domain"), "{made}");
    }

    proptest! {
        #[test]
        fn cookies_of_others_do_not_hide_ours(before in vec(b' '..=0xff, 0..20), after in vec(b' '..=0xff, 0..20)) {
            let header = [&before, &b"; zt_lang=en; "[..], &after].concat();
            let Ok(header) = HeaderValue::from_bytes(&header) else { return Ok(()) };
            let request = TestRequest::default().insert_header((COOKIE, header)).to_http_request();
            prop_assert_eq!(plain(&request, LANG), Some("en".to_owned()));
        }
    }
}
