//! Logs: readable in a terminal, JSON on request. Tokens and secrets never reach them in full.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::server::config::LogFormat;

/// Added to every filter: at debug level the database driver writes the values of its statements, tokens among them, and
/// the web server logs an error for each request that is not HTTP, of which a stranger could send any number.
const ALWAYS: &str = "tokio_postgres=info,actix_server=warn,actix_http::h1::dispatcher=off";

pub fn start(filter: &str, format: LogFormat) -> Result<(), ParseError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(format!("{filter},{ALWAYS}"))?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process, as in tests, keeps the first logger.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// One or more addresses without their passwords, for log lines.
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

    #[test]
    fn a_password_is_left_out_of_log_lines() {
        assert_eq!(without_password("postgres://me:p@ss@host:5432/db"), "postgres://host:5432/db");
        assert_eq!(without_password("redis://host:6379/"), "redis://host:6379/");
        assert_eq!(without_password("redis://u:p@a:1,redis://u:p@b:2"), "redis://a:1,redis://b:2");
    }
}
