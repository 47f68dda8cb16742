//! Traces of some requests, for a collector that speaks OTLP over HTTP: which scripts and queries a request waited for, and
//! how long. Work that is gathered from many requests (joins, purchases, charges) belongs to none of them and is not in
//! their traces.

use std::time::Duration;

use opentelemetry::trace::{Link, SpanKind, TraceId, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// How long the collector gets to take a bundle of traces, and a stopping server to send its last one.
const LONGEST_SEND: Duration = Duration::from_secs(3);

pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends this share of all requests to the collector at this address.
    pub fn to(url: &str, share: f64) -> Result<Self, ExporterBuildError> {
        let address = format!("{}/v1/traces", url.trim_end_matches('/'));
        let exporter = SpanExporter::builder().with_http().with_endpoint(address).with_timeout(LONGEST_SEND).build()?;
        let resource = Resource::builder()
            .with_service_name(env!("CARGO_PKG_NAME"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        // Not by the wish of the caller: a stranger could have everything traced.
        let sampler = OfRequests(Sampler::TraceIdRatioBased(share));
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        Ok(Self(provider))
    }

    /// Listens to the spans of requests, scripts and queries.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let spans = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("zticket"));
        let tracer = self.0.tracer(env!("CARGO_PKG_NAME"));
        let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        layer.with_filter(spans.with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends what is left.
    pub fn finish(&self) {
        if let Err(error) = self.0.shutdown_with_timeout(LONGEST_SEND) {
            tracing::warn!(%error, "the last traces are lost");
        }
    }
}

/// Begins traces with requests only: the loops of a server call scripts and queries all the time.
#[derive(Debug, Clone)]
struct OfRequests(Sampler);

impl ShouldSample for OfRequests {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.0.should_sample(parent, trace, name, kind, attributes, links);
        if *kind != SpanKind::Server {
            result.decision = SamplingDecision::Drop;
        }
        result
    }
}
