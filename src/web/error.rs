//! Errors as HTTP responses.

use std::mem::Discriminant;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::error::{Details, Error};
use crate::base::quiet::Quiet;

/// In an outage every request fails in the same way.
static FAULTS: Quiet<Discriminant<Error>> = Quiet::new();

/// Every error looks like this.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub struct Body<'a> {
    /// The status of the response.
    status: u16,
    /// What programs tell errors apart by.
    code: &'a str,
    /// What people read about it.
    message: &'a str,
    #[serde(flatten)]
    details: Details,
}

impl<'a> Body<'a> {
    pub fn of(error: &'a Error) -> Self {
        let (status, code, message) = error.public();
        Self { status, code, message, details: error.details() }
    }
}

impl ResponseError for Error {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        if self.is_fault()
            && let Some(left_out) = FAULTS.may_write(std::mem::discriminant(self))
        {
            // Logged as quoted text: what a stranger typed must not begin a line of its own.
            tracing::warn!(code = self.code(), error = self.to_string(), left_out, "a request failed");
        }
        let mut response = HttpResponse::build(self.status_code()).json(Body::of(self));
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self {
            Self::MethodNotAllowed(allowed) => {
                if let Ok(allowed) = HeaderValue::from_str(allowed) {
                    headers.insert(ALLOW, allowed);
                }
            }
            Self::Unauthorized(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::tests::every_error;
    use std::sync::{Arc, Mutex};

    #[test]
    fn every_error_is_a_response_with_its_status() {
        for error in every_error() {
            let response = error.error_response();
            assert_eq!(response.status().as_u16(), error.status(), "{error}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), error.retry_after().is_some(), "{error}");
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_stranger_typed_begins_no_log_line_of_its_own() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            Error::Internal("x\n2026 ERROR all is lost\x1b[0m".to_owned()).error_response();
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("\\n2026") && !text.contains('\x1b'), "{text}");
    }
}
