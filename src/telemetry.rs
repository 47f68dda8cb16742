//! Logs: readable in a terminal, JSON on request. Tokens and secrets never reach them in full.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::config::LogFormat;

/// Whatever is asked for: the database driver writes the values of its statements, tokens among them, at debug level, and
/// the web server calls each request that is no HTTP an error, of which a stranger could send any number.
const ALWAYS: &str = "tokio_postgres=info,actix_server=warn,actix_http::h1::dispatcher=off";

pub fn start(filter: &str, format: LogFormat) -> Result<(), ParseError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(format!("{filter},{ALWAYS}"))?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process (tests) keeps the first logger.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// An address without its password, or several with commas between, for log lines.
pub fn without_password(url: &str) -> String {
    let one = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    };
    url.split(',').map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use actix_web::ResponseError;
    use std::sync::{Arc, Mutex};

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
    fn what_a_stranger_typed_begins_no_line_of_its_own() {
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

    #[test]
    fn a_password_is_left_out_of_log_lines() {
        assert_eq!(without_password("postgres://me:p@ss@host:5432/db"), "postgres://host:5432/db");
        assert_eq!(without_password("redis://host:6379/"), "redis://host:6379/");
        assert_eq!(without_password("redis://u:p@a:1,redis://u:p@b:2"), "redis://a:1,redis://b:2");
    }
}
