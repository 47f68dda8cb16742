//! All metrics, in one struct. The doc line of each field is the help text of its metric.

use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// Seconds, from a tenth of a millisecond to ten seconds.
const SECONDS: &[f64] = &[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

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
    /// Script calls, by the first word of the reply.
    scripts: IntCounterVec("script_calls_total", "script", "reply"),
    /// Time to the reply of a script call.
    script_seconds: HistogramVec("script_duration_seconds", "script"),
    /// Visitors gathered into one script call or statement.
    gathered: HistogramVec("gathered", "call"),
    /// People waiting.
    waiting: IntGaugeVec("waiting", "event"),
    /// People inside.
    inside: IntGaugeVec("inside", "event"),
    /// Seats held.
    held: IntGaugeVec("seats_held", "event"),
    /// Seats sold.
    sold: IntGaugeVec("seats_sold", "event"),
    /// Seats available.
    available: IntGaugeVec("seats_available", "event"),
    /// Age of the latest snapshot, at the time of the scrape.
    snapshot_age: GaugeVec("snapshot_age_seconds", "event"),
    /// Sweeps skipped because they would have dropped more than half of a line.
    sweeps_skipped: IntGaugeVec("sweeps_skipped", "event"),
    /// People let in, by how that compares with the wait they were first told.
    estimates: IntCounterVec("estimates_total", "event", "outcome"),
    /// Push streams open on this server.
    streams: IntGaugeVec("push_streams", "event"),
    /// Requests refused because their address exceeded a limit, by limit.
    limited: IntCounterVec("limited_total", "limit"),
    /// Tickets sold by this server.
    tickets_sold: IntCounterVec("tickets_sold_total", "event"),
    /// Tickets cancelled by this server.
    tickets_cancelled: IntCounterVec("tickets_cancelled_total", "event"),
    /// Sales and cancels that this server settled in Redis.
    settled: IntCounterVec("settled_total", "event"),
    /// Seats whose sale or cancel Redis had forgotten, corrected from the database.
    repaired: IntCounterVec("audit_repaired_total", "event"),
    /// Seats that Redis calls sold and the database does not. Anything but 0 needs a person to look.
    unexplained: IntGaugeVec("audit_unexplained", "event"),
    /// Events rebuilt in Redis by this server, by source.
    restores: IntCounterVec("restores_total", "event", "from"),
    /// Rounds of a background loop that failed.
    worker_errors: CounterVec("worker_errors_total", "worker"),
}

impl Metrics {
    /// The text format Prometheus scrapes.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
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

impl Build for CounterVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(opts, labels)
    }
}

impl Build for IntGaugeVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(opts, labels)
    }
}

impl Build for GaugeVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        Self::new(opts, labels)
    }
}

impl Build for HistogramVec {
    fn build(opts: Opts, labels: &[&str]) -> Result<Self, prometheus::Error> {
        let seconds = opts.name.ends_with("_seconds");
        let buckets = if seconds { SECONDS.to_vec() } else { prometheus::exponential_buckets(1.0, 2.0, 10)? };
        Self::new(HistogramOpts { common_opts: opts, buckets }, labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_help_text() {
        let metrics = Metrics::new().unwrap();
        metrics.tickets_sold.with_label_values(&["1"]).inc();
        let text = metrics.render().unwrap();
        assert!(text.contains("# HELP zticket_tickets_sold_total Tickets sold by this server."));
        assert!(text.contains("process_cpu_seconds_total"));
    }
}
