//! Logs: readable in a terminal, JSON on request. Tokens and secrets never reach them in full. And what else listens to the
//! same spans and events: metrics of queries, the console, traces.

use std::io::IsTerminal;
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{ParseError, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::base::metrics::observe_query;
use crate::base::recent::RECENT;
use crate::server::config::{Config, LogFormat};
use crate::server::traces::Traces;

/// Added to every filter: at debug level the database driver writes the values of its statements, tokens among them, and
/// the web server logs an error for each request that is not HTTP, of which a stranger could send any number.
const ALWAYS: &str = "tokio_postgres=info,actix_server=warn,actix_http::h1::dispatcher=off";

/// Where the functions are that query the database: each has a span of its own.
const QUERIES: &str = "zticket::store::db";

/// Starts to log, and to trace if that is configured.
pub fn start(config: &Config) -> Result<Option<Traces>, String> {
    let lines = lines(&config.log, config.log_format).map_err(|error| format!("ZTICKET_LOG: {error}"))?;
    let to = |url: &String| Traces::to(url, config.trace_share).map_err(|error| format!("ZTICKET_OTLP_URL: {error}"));
    let traces = config.otlp_url.as_ref().map(to).transpose()?;
    let troubles = KeepTroubles.with_filter(EnvFilter::new(format!("warn,{ALWAYS}")));
    // A second start in one process, as in tests, keeps the first logger.
    let _ = tracing_subscriber::registry()
        .with(lines)
        .with(troubles)
        .with(timed())
        .with(traces.as_ref().map(Traces::layer))
        .try_init();
    Ok(traces)
}

fn lines<S: Subscriber + for<'a> LookupSpan<'a>>(
    filter: &str,
    format: LogFormat,
) -> Result<impl Layer<S> + use<S>, ParseError> {
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    Ok(lines.with_filter(EnvFilter::try_new(format!("{filter},{ALWAYS}"))?))
}

/// Times the spans of queries.
fn timed<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let queries = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with(QUERIES));
    TimeQueries.with_filter(queries.with_max_level_hint(LevelFilter::DEBUG))
}

struct TimeQueries;

/// When a span began.
struct Began(Instant);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TimeQueries {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Began(Instant::now()));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(Began(began)) = span.extensions().get() {
            let metadata = span.metadata();
            let file = metadata.target().rsplit("::").next().unwrap_or_default();
            observe_query(&format!("{file}.{}", metadata.name()), began.elapsed());
        }
    }
}

/// Keeps warnings and errors for the console.
struct KeepTroubles;

impl<S: Subscriber> Layer<S> for KeepTroubles {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level <= Level::WARN {
            let mut text = Text::default();
            event.record(&mut text);
            RECENT.note(level == Level::ERROR, text.message + &text.fields);
        }
    }
}

/// An event as one line: the message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(" {}={value:?}", field.name()));
        }
    }
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
    fn warnings_are_kept_for_the_console_and_other_lines_are_not() {
        let subscriber = tracing_subscriber::registry().with(KeepTroubles);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("all is well at the mill");
            tracing::warn!(event = 7, "the mill stands still");
        });
        let kept: Vec<String> = RECENT.list().into_iter().map(|trouble| trouble.text).collect();
        assert!(kept.contains(&"the mill stands still event=7".to_owned()), "{kept:?}");
        assert!(kept.iter().all(|text| !text.contains("all is well")));
    }

    #[test]
    fn a_password_is_left_out_of_log_lines() {
        assert_eq!(without_password("postgres://me:p@ss@host:5432/db"), "postgres://host:5432/db");
        assert_eq!(without_password("redis://host:6379/"), "redis://host:6379/");
        assert_eq!(without_password("redis://u:p@a:1,redis://u:p@b:2"), "redis://a:1,redis://b:2");
    }
}
