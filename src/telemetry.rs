//! Spans of requests: their ids stand in log lines, and where a collector is named (`--otlp-endpoint`) they are
//! told to it over OTLP, with what W3C's `traceparent` says of whoever asked. Knows nothing of requests but
//! what it is told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span as _, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Span;
use tracing::subscriber::Subscriber;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// What spans are told as coming from.
const SCOPE: &str = "sconce";
/// Where OTLP over HTTP is taken, below an address without a path.
const TRACES: &str = "v1/traces";
/// Longest time for the last spans at the end.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// Whether anybody is told of spans. There is one collector in a process, as there is one log.
static EXPORTING: AtomicBool = AtomicBool::new(false);

/// The way to a collector.
#[derive(Clone, Debug)]
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Tells spans to a collector; they are sent by a thread of their own. `OTEL_EXPORTER_OTLP_HEADERS`,
    /// `OTEL_SERVICE_NAME` and `OTEL_TRACES_SAMPLER` are read as every program does that speaks OTLP.
    ///
    /// # Errors
    /// When the address is none.
    pub fn start(endpoint: &str) -> Result<Self, String> {
        let url = reqwest::Url::parse(endpoint).map_err(|error| error.to_string())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("it must begin with http:// or https://, got {endpoint:?}"));
        }
        let endpoint = match url.path() {
            "" | "/" => url.join(TRACES).map_err(|error| error.to_string())?,
            _ => url,
        };
        // Its HTTP client blocks, and may not be made where tasks run.
        let made = std::thread::spawn(move || {
            SpanExporter::builder().with_http().with_endpoint(endpoint.as_str()).build()
        });
        let exporter = made.join().map_err(|_| "no client could be made".to_owned())?;
        let exporter = exporter.map_err(|error| error.to_string())?;
        let resource = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => resource,
            None => resource.with_service_name(SCOPE),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        global::set_tracer_provider(provider.clone());
        EXPORTING.store(true, Ordering::Relaxed);
        Ok(Self(provider))
    }

    /// What spans of this program go through.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let layer = tracing_opentelemetry::layer().with_tracer(self.0.tracer(SCOPE));
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
        layer.with_filter(filter_fn(|data| data.is_span() && data.target().starts_with(SCOPE)))
    }

    /// Sends what is left. Blocks for a while at most.
    pub fn stop(&self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_SPANS) {
            tracing::warn!(%error, "the last spans could not be sent");
        }
    }
}

fn is_exporting() -> bool {
    EXPORTING.load(Ordering::Relaxed)
}

/// Headers as the propagator reads them.
struct Headers<'f, 'a>(&'f dyn Fn(&str) -> Option<&'a str>);

impl Extractor for Headers<'_, '_> {
    fn get(&self, key: &str) -> Option<&str> {
        (self.0)(key)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// The span of a request to a route; what its headers say of whoever asked is found by `header`.
pub fn request<'a>(
    method: &str,
    route: &str,
    id: &str,
    header: impl Fn(&str) -> Option<&'a str>,
) -> Span {
    if !is_exporting() {
        return tracing::info_span!("request", request_id = id);
    }
    let name = format!("{method} {route}");
    let span = tracing::info_span!(
        "request",
        request_id = id,
        otel.name = name,
        otel.kind = "server",
        http.request.method = method,
        http.route = route
    );
    let parent = TraceContextPropagator::new().extract(&Headers(&header));
    if parent.span().span_context().is_valid() {
        // It fails where the span is nobody's, as when everything is filtered.
        let _ = span.set_parent(parent);
    }
    span
}

/// Tells how a request was answered; its span ends when the answer has.
pub fn answered(span: &Span, status: u16) {
    if !is_exporting() {
        return;
    }
    span.set_attribute("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.set_status(Status::error(""));
    }
}

/// The span's place in its trace, in the form of W3C's `traceparent`.
pub fn traceparent(span: &Span) -> Option<String> {
    if !is_exporting() {
        return None;
    }
    let context = span.context();
    let context = context.span().span_context().clone();
    context.is_valid().then(|| {
        format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags())
    })
}

/// The id of the span's trace, if that is told to a collector.
pub fn sampled_trace(span: &Span) -> Option<String> {
    if !is_exporting() {
        return None;
    }
    let context = span.context();
    let context = context.span().span_context().clone();
    (context.is_valid() && context.is_sampled()).then(|| context.trace_id().to_string())
}

/// A part of a request that begins now, of which the log says nothing.
pub fn stage(name: &'static str) -> Span {
    if !is_exporting() {
        return Span::none();
    }
    tracing::info_span!("stage", otel.name = name)
}

/// Tells a part of a request that is over.
pub fn phase(
    span: &Span,
    name: &'static str,
    begin: Instant,
    length: Duration,
    attributes: &[(&'static str, i64)],
) {
    if !is_exporting() {
        return;
    }
    let begin = SystemTime::now() - begin.elapsed();
    let attributes = attributes.iter().map(|(name, value)| KeyValue::new(*name, *value));
    let tracer = global::tracer(SCOPE);
    let builder = tracer.span_builder(name).with_start_time(begin);
    let builder = builder.with_attributes(attributes);
    let mut phase = builder.start_with_context(&tracer, &span.context());
    phase.end_with_timestamp(begin + length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_of_spans_unless_asked() {
        let span = request("POST", "/v1/completions", "1", |_| None);
        assert_eq!(traceparent(&span), None);
        assert!(stage("render").is_disabled());
        for wrong in ["", "localhost:4318", "grpc://localhost", "file:///tmp"] {
            assert!(Exporter::start(wrong).is_err(), "{wrong}");
        }
    }
}
