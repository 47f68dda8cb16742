//! All metrics, in one struct. The doc line of each field is the help text of its metric.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// Seconds, from a tenth of a millisecond to ten seconds, in steps that tell even the slowest of a thousand apart.
const SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25,
    0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Seconds that an order waits, up to the ten minutes after which it fails.
const ORDER_SECONDS: &[f64] = &[
    0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0, 600.0,
];

/// Time of each query to the database, by name. It belongs to the process: queries are timed by what listens to its log.
static QUERY_SECONDS: LazyLock<Option<HistogramVec>> = LazyLock::new(|| {
    let opts = Opts::new("zticket_query_duration_seconds", "Time of a query to the database, by name.");
    HistogramVec::build(opts, &["query"]).ok()
});

pub fn observe_query(query: &str, time: Duration) {
    if let Some(seconds) = &*QUERY_SECONDS {
        seconds.with_label_values(&[query]).observe(time.as_secs_f64());
    }
}

macro_rules! metrics {
    ($( #[doc = $help:literal] $field:ident: $kind:ident($name:literal $(, $label:literal)*), )*) => {
        pub struct Metrics {
            registry: Registry,
            $( #[doc = $help] pub $field: $kind, )*
        }

        impl Metrics {
            pub fn new() -> Result<Self, prometheus::Error> {
                let registry = Registry::new();
                $(
                    let opts = Opts::new(concat!("zticket_", $name), $help.trim());
                    let $field = $kind::build(opts, &[$($label),*])?;
                    registry.register(Box::new($field.clone()))?;
                )*
                #[cfg(target_os = "linux")]
                registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
                if let Some(seconds) = &*QUERY_SECONDS {
                    registry.register(Box::new(seconds.clone()))?;
                }
                Ok(Self { registry, $( $field, )* })
            }
        }
    };
}

metrics! {
    /// Requests answered, by route pattern.
    requests: IntCounterVec("http_requests_total", "method", "route", "status"),
    /// Time to answer a request, by route pattern.
    request_seconds: HistogramVec("http_request_duration_seconds", "method", "route"),
    /// Script calls, by the first word of the reply. Refused: Redis takes no writes. Error: any other failure.
    scripts: IntCounterVec("script_calls_total", "script", "reply"),
    /// Time to the reply of a script call.
    script_seconds: HistogramVec("script_duration_seconds", "script"),
    /// Time from accepting an order that is written later to its decision, by outcome.
    order_seconds: HistogramVec("order_decided_seconds", "outcome"),
    /// Messages of the outbox that wait, by where they go.
    outbox_waiting: GaugeVec("outbox_waiting", "channel"),
    /// How long the oldest of them has waited, in seconds.
    outbox_oldest: GaugeVec("outbox_oldest_seconds", "channel"),
    /// Visitors gathered into one script call or statement.
    gathered: HistogramVec("gathered", "call"),
    /// Requests refused because their address exceeded a limit, by limit.
    limited: IntCounterVec("limited_total", "limit"),
    /// Time to get a connection from a pool.
    pool_wait_seconds: HistogramVec("pool_wait_seconds", "pool"),
    /// How late a timer of a web worker rings: how long its requests wait for each other.
    worker_lag_seconds: HistogramVec("web_worker_lag_seconds", "worker"),
    /// Rounds of a background loop that failed.
    worker_errors: CounterVec("worker_errors_total", "worker"),
}

impl Metrics {
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

/// Makes each kind of metric the same way, so that the list above stays a list.
trait Build: Sized {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error>;
}

impl Build for IntCounterVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(opts, labels)
    }
}

impl Build for GaugeVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(opts, labels)
    }
}

impl Build for CounterVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(opts, labels)
    }
}

impl Build for HistogramVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        let buckets = match opts.name.as_str() {
            "zticket_order_decided_seconds" => ORDER_SECONDS.to_vec(),
            name if name.ends_with("_seconds") => SECONDS.to_vec(),
            _ => prometheus::exponential_buckets(1.0, 2.0, 10)?,
        };
        Self::new(HistogramOpts { common_opts: opts, buckets }, labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    #[test]
    fn every_metric_has_a_help_text() {
        let metrics = Metrics::new().unwrap();
        metrics.limited.with_label_values(&["enter"]).inc();
        let text = TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
        assert!(text.contains("# HELP zticket_limited_total Requests refused because"));
        assert!(text.contains("process_cpu_seconds_total"));
    }
}
