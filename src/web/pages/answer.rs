//! How pages are answered: headers, cookies, and a page for every error.

use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, RETRY_AFTER, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::{HttpResponse, ResponseError};

use crate::base::error::Error;
use crate::web::gzip;
use crate::web::pages::layout;
use crate::web::pages::reply::{Reply, What};
use crate::web::pages::visit::Visit;

/// Pages from this many bytes on, such as seat maps, are compressed. A smaller page may show a secret beside something from
/// its address, and its compressed length would leak it.
const LARGE: usize = 32 * 1024;

/// Scripts and styles come only from this server, and pages contain none inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

impl Visit {
    pub fn answer(&self, reply: Result<Reply, Error>) -> HttpResponse {
        let reply = reply.unwrap_or_else(|error| self.error(&error));
        let mut response = HttpResponse::build(reply.status);
        response
            .insert_header((CACHE_CONTROL, "no-store"))
            .insert_header((VARY, "Cookie, Accept-Language, Accept-Encoding"))
            .insert_header((CONTENT_SECURITY_POLICY, POLICY))
            .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .insert_header((X_FRAME_OPTIONS, "DENY"))
            .insert_header((REFERRER_POLICY, "same-origin"));
        if let Some(seconds) = reply.retry_after {
            response.insert_header((RETRY_AFTER, seconds));
        }
        for cookie in reply.cookies {
            response.cookie(cookie);
        }
        match reply.what {
            What::See(to) => response.insert_header((LOCATION, to)).finish(),
            page => {
                response.content_type("text/html; charset=utf-8");
                let html = match page {
                    What::Page(page) => layout::shell(self, &page).into_string(),
                    What::Part(part) => part.into_string(),
                    What::See(_) => String::new(),
                };
                match (html.len() > LARGE && gzip::accepted(&self.request)).then(|| gzip::compress(html.as_bytes())) {
                    Some(Ok(small)) => response.insert_header((CONTENT_ENCODING, "gzip")).body(small),
                    _ => response.body(html),
                }
            }
        }
    }

    fn error(&self, error: &Error) -> Reply {
        let (t, status) = (self.texts(), error.status_code());
        if status.is_server_error() {
            tracing::warn!(code = error.code(), error = error.to_string(), "a page failed");
        }
        let (title, hint) = match status {
            StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED => (t.error_404, t.error_404_hint),
            StatusCode::SERVICE_UNAVAILABLE => (t.error_503, t.error_503_hint),
            StatusCode::FORBIDDEN => (t.error_403, t.error_403_hint),
            StatusCode::TOO_MANY_REQUESTS => (t.error_429, t.error_429_hint),
            StatusCode::PAYLOAD_TOO_LARGE => (t.error_400, t.error_413_hint),
            StatusCode::REQUEST_TIMEOUT => (t.error_400, t.error_408_hint),
            status if status.is_server_error() => (t.error_500, t.error_500_hint),
            _ => (t.error_400, t.error_400_hint),
        };
        let away = status == StatusCode::SERVICE_UNAVAILABLE;
        let again = away || status == StatusCode::TOO_MANY_REQUESTS;
        let reply = Reply::page(title, layout::notice(self, title, hint, again)).with_status(status);
        let reply = reply.retry_after(error.retry_after());
        // Idle visitors reload automatically; a form is not sent again.
        if away && self.request.method().is_safe() { reply.again_after(5) } else { reply }
    }
}
