//! Every metric: its name, type and help in one table, and the typed functions that fill them.
//!
//! Names, labels and buckets are those of vLLM, so that its dashboards and the endpoint pickers of
//! the Kubernetes inference gateway read this server without configuration; our own start with
//! `sconce:`. There is no global recorder: every [`MetricsHandle`] made by [`install`] counts for
//! itself, so several servers can live in one process. Knows nothing of requests or the engine.
//!
//! Who fills what: the engine thread the load gauges, blocks, preemptions, prefix cache and step
//! sizes; `http` everything about single requests.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

mod lora;

use lora::LoraRequests;

/// What Prometheus takes a metric for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts per bucket; the upper bounds.
    Histogram(&'static [f64]),
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The name on `/metrics`.
    pub name: &'static str,
    /// What Prometheus takes it for.
    pub kind: MetricKind,
    /// One sentence.
    pub help: &'static str,
}

const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_GAP_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const REQUEST_TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5,
    5e5, 1e6,
];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const HTTP_SECONDS: &[f64] = &[0.1, 0.5, 1.0];

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, help }
}

const fn histogram(name: &'static str, buckets: &'static [f64], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram(buckets), help }
}

/// All metrics, in the order of the documentation.
pub const TABLE: &[Metric] = &[
    gauge("vllm:num_requests_running", "Sequences in the running batch."),
    gauge("vllm:num_requests_waiting", "Sequences waiting to run."),
    gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1."),
    counter("vllm:num_preemptions_total", "Sequences put back into the queue for lack of blocks."),
    counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
    counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
    counter("vllm:prompt_tokens_total", "Prompt tokens of requests whose first token came."),
    counter("vllm:generation_tokens_total", "Tokens sampled."),
    histogram("vllm:iteration_tokens_total", STEP_TOKENS, "Tokens computed in one step."),
    counter("vllm:request_success_total", "Sequences that ended, by finished_reason."),
    histogram("vllm:request_prompt_tokens", REQUEST_TOKENS, "Prompt tokens of a request."),
    histogram("vllm:request_generation_tokens", REQUEST_TOKENS, "Tokens sampled for a sequence."),
    histogram("vllm:request_params_n", CHOICES, "The n of a request."),
    histogram("vllm:request_params_max_tokens", REQUEST_TOKENS, "The max_tokens of a request."),
    histogram(
        "vllm:time_to_first_token_seconds",
        FIRST_TOKEN_SECONDS,
        "From a request's arrival to its first token.",
    ),
    histogram(
        "vllm:inter_token_latency_seconds",
        TOKEN_GAP_SECONDS,
        "Between two tokens of a sequence.",
    ),
    histogram(
        "vllm:request_time_per_output_token_seconds",
        TOKEN_GAP_SECONDS,
        "Mean time between the tokens of a sequence.",
    ),
    histogram(
        "vllm:e2e_request_latency_seconds",
        REQUEST_SECONDS,
        "From a request's arrival to a sequence's end.",
    ),
    histogram("vllm:request_queue_time_seconds", REQUEST_SECONDS, "Waiting to be scheduled."),
    histogram(
        "vllm:request_inference_time_seconds",
        REQUEST_SECONDS,
        "From the first scheduled step to the last token.",
    ),
    histogram(
        "vllm:request_prefill_time_seconds",
        REQUEST_SECONDS,
        "From the first scheduled step to the first token.",
    ),
    histogram(
        "vllm:request_decode_time_seconds",
        REQUEST_SECONDS,
        "From the first token to the last.",
    ),
    gauge("vllm:cache_config_info", "Always 1; the labels hold block_size and num_gpu_blocks."),
    gauge(lora::NAME, lora::HELP),
    counter("http_requests_total", "HTTP responses by handler, method and class of status."),
    histogram("http_request_duration_seconds", HTTP_SECONDS, "Until the response's headers."),
    counter("sconce:admission_rejections_total", "Requests answered 429."),
    counter("sconce:aborted_requests_total", "Sequences whose client went away before the end."),
    gauge("sconce:kv_blocks_in_use", "KV blocks that sequences hold."),
    gauge("sconce:lora_bytes", "Bytes of the LoRA adapters that requests can name."),
    gauge("sconce:build_info", "Always 1; the labels hold the version."),
];

/// Why a sequence ended, as the `finished_reason` label says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// End-of-sequence, a stop token or a stop string.
    Stop,
    /// `max_tokens`, the context's length or a deadline.
    Length,
    /// The client went away, or the server cut it at shutdown.
    Abort,
    /// The engine gave up.
    Error,
}

const FINISHED: [(Finished, &str); 4] = [
    (Finished::Stop, "stop"),
    (Finished::Length, "length"),
    (Finished::Abort, "abort"),
    (Finished::Error, "error"),
];

/// One ended sequence, for [`MetricsHandle::sequence_ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceTimes {
    /// From the request's arrival to the end.
    pub total: Duration,
    /// Waiting to be scheduled.
    pub queue: Duration,
    /// From the first scheduled step to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
    /// Tokens sampled.
    pub output_tokens: usize,
}

/// A cloneable way to one server's metrics; every call is a few atomic operations.
#[derive(Clone)]
pub struct MetricsHandle {
    metrics: Arc<Metrics>,
}

struct Metrics {
    registry: Registry,
    exporter: PrometheusHandle,
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    blocks_in_use: Gauge,
    lora_requests: LoraRequests,
    lora_bytes: Gauge,
    preemptions: Counter,
    prefix_queries: Counter,
    prefix_hits: Counter,
    prompt_tokens: Counter,
    generation_tokens: Counter,
    step_tokens: Histogram,
    finished: [Counter; 4],
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_n: Histogram,
    request_max_tokens: Histogram,
    first_token: Histogram,
    token_gap: Histogram,
    mean_token_gap: Histogram,
    total_time: Histogram,
    queue_time: Histogram,
    inference_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    admission_rejections: Counter,
    aborted: Counter,
}

/// New metrics, all zero, labelled with the model's name and `engine="0"`.
pub fn install(model_name: &str) -> MetricsHandle {
    let registry = Registry::new(model_name);
    registry.gauge("sconce:build_info", &[("version", env!("CARGO_PKG_VERSION").into())]).set(1.0);
    let metrics = Metrics {
        exporter: registry.recorder.handle(),
        running: registry.gauge("vllm:num_requests_running", &[]),
        waiting: registry.gauge("vllm:num_requests_waiting", &[]),
        kv_usage: registry.gauge("vllm:kv_cache_usage_perc", &[]),
        blocks_in_use: registry.gauge("sconce:kv_blocks_in_use", &[]),
        lora_requests: LoraRequests::default(),
        lora_bytes: registry.gauge("sconce:lora_bytes", &[]),
        preemptions: registry.counter("vllm:num_preemptions_total", &[]),
        prefix_queries: registry.counter("vllm:prefix_cache_queries_total", &[]),
        prefix_hits: registry.counter("vllm:prefix_cache_hits_total", &[]),
        prompt_tokens: registry.counter("vllm:prompt_tokens_total", &[]),
        generation_tokens: registry.counter("vllm:generation_tokens_total", &[]),
        step_tokens: registry.histogram("vllm:iteration_tokens_total", &[]),
        finished: FINISHED.map(|(_, reason)| {
            registry.counter("vllm:request_success_total", &[("finished_reason", reason.into())])
        }),
        request_prompt_tokens: registry.histogram("vllm:request_prompt_tokens", &[]),
        request_generation_tokens: registry.histogram("vllm:request_generation_tokens", &[]),
        request_n: registry.histogram("vllm:request_params_n", &[]),
        request_max_tokens: registry.histogram("vllm:request_params_max_tokens", &[]),
        first_token: registry.histogram("vllm:time_to_first_token_seconds", &[]),
        token_gap: registry.histogram("vllm:inter_token_latency_seconds", &[]),
        mean_token_gap: registry.histogram("vllm:request_time_per_output_token_seconds", &[]),
        total_time: registry.histogram("vllm:e2e_request_latency_seconds", &[]),
        queue_time: registry.histogram("vllm:request_queue_time_seconds", &[]),
        inference_time: registry.histogram("vllm:request_inference_time_seconds", &[]),
        prefill_time: registry.histogram("vllm:request_prefill_time_seconds", &[]),
        decode_time: registry.histogram("vllm:request_decode_time_seconds", &[]),
        admission_rejections: registry.counter("sconce:admission_rejections_total", &[]),
        aborted: registry.counter("sconce:aborted_requests_total", &[]),
        registry,
    };
    MetricsHandle { metrics: Arc::new(metrics) }
}

/// For the engine thread.
impl MetricsHandle {
    /// Sequences in the running batch and waiting for it.
    pub fn set_load(&self, running: usize, waiting: usize) {
        self.metrics.running.set(as_value(running));
        self.metrics.waiting.set(as_value(waiting));
    }

    /// KV blocks that sequences hold, of how many.
    pub fn set_kv_blocks(&self, in_use: usize, total: usize) {
        self.metrics.blocks_in_use.set(as_value(in_use));
        self.metrics.kv_usage.set(as_value(in_use) / as_value(total.max(1)));
    }

    /// The shape of the KV cache, once at startup.
    pub fn set_cache_config(&self, block_size: usize, num_blocks: usize) {
        let labels =
            [("block_size", block_size.to_string()), ("num_gpu_blocks", num_blocks.to_string())];
        let labels = labels.map(|(name, value)| (name, Cow::Owned(value)));
        self.metrics.registry.gauge("vllm:cache_config_info", &labels).set(1.0);
    }

    /// The adapters of running and of waiting sequences, names with commas between them.
    pub fn set_lora_requests(&self, running: String, waiting: String) {
        self.metrics.lora_requests.set(running, waiting);
    }

    /// Sequences preempted in one step.
    pub fn add_preemptions(&self, count: usize) {
        self.metrics.preemptions.increment(count as u64);
    }

    /// Prompt tokens looked up in the prefix cache, and how many of them were there.
    pub fn add_prefix_lookup(&self, queried: usize, hit: usize) {
        self.metrics.prefix_queries.increment(queried as u64);
        self.metrics.prefix_hits.increment(hit as u64);
    }

    /// Tokens computed in one step, prefill and decode together.
    pub fn observe_step(&self, num_tokens: usize) {
        self.metrics.step_tokens.record(as_value(num_tokens));
    }
}

/// For `http`.
impl MetricsHandle {
    /// A request was queued.
    pub fn request_submitted(&self, n: usize, max_tokens: usize) {
        self.metrics.request_n.record(as_value(n));
        self.metrics.request_max_tokens.record(as_value(max_tokens));
    }

    /// A sequence's first token came; `prompt_tokens` is 0 for the further choices of one prompt.
    pub fn first_token(&self, since_arrival: Duration, prompt_tokens: usize) {
        self.metrics.first_token.record(since_arrival);
        self.metrics.generation_tokens.increment(1);
        if prompt_tokens > 0 {
            self.metrics.prompt_tokens.increment(prompt_tokens as u64);
            self.metrics.request_prompt_tokens.record(as_value(prompt_tokens));
        }
    }

    /// A sequence's next token came.
    pub fn next_token(&self, since_last: Duration) {
        self.metrics.token_gap.record(since_last);
        self.metrics.generation_tokens.increment(1);
    }

    /// A sequence ended with an answer.
    pub fn sequence_ended(&self, reason: Finished, times: SequenceTimes) {
        let SequenceTimes { total, queue, prefill, decode, output_tokens } = times;
        self.count_end(reason);
        self.metrics.request_generation_tokens.record(as_value(output_tokens));
        self.metrics.total_time.record(total);
        self.metrics.queue_time.record(queue);
        self.metrics.prefill_time.record(prefill);
        self.metrics.decode_time.record(decode);
        self.metrics.inference_time.record(prefill + decode);
        if output_tokens > 1 {
            let gaps = as_value(output_tokens - 1);
            self.metrics.mean_token_gap.record(decode.as_secs_f64() / gaps);
        }
    }

    /// A text has its embedding, which took no sampled token.
    pub fn text_embedded(&self, tokens: usize, times: SequenceTimes) {
        self.count_end(Finished::Stop);
        self.metrics.prompt_tokens.increment(tokens as u64);
        self.metrics.request_prompt_tokens.record(as_value(tokens));
        self.metrics.total_time.record(times.total);
        self.metrics.queue_time.record(times.queue);
        self.metrics.prefill_time.record(times.prefill);
        self.metrics.inference_time.record(times.prefill);
    }

    /// A sequence ended without an answer: its client went away or it was cut.
    pub fn sequence_aborted(&self) {
        self.count_end(Finished::Abort);
        self.metrics.aborted.increment(1);
    }

    /// A sequence failed.
    pub fn sequence_failed(&self) {
        self.count_end(Finished::Error);
    }

    /// A request was answered 429.
    pub fn admission_rejected(&self) {
        self.metrics.admission_rejections.increment(1);
    }

    /// A response's headers were sent. `handler` is the route's pattern, not the path.
    pub fn http_response(&self, handler: &str, method: &str, status: u16, duration: Duration) {
        let handler = ("handler", Cow::Owned(handler.to_owned()));
        let method = ("method", Cow::Owned(method.to_owned()));
        let status = ("status", Cow::Owned(format!("{}xx", status / 100)));
        let registry = &self.metrics.registry;
        let seconds = [handler.clone(), method.clone()];
        registry.histogram("http_request_duration_seconds", &seconds).record(duration);
        registry.counter("http_requests_total", &[handler, method, status]).increment(1);
    }

    /// The server takes adapters, so many at once.
    pub fn start_lora(&self, max_loras: usize) {
        self.metrics.lora_requests.start(max_loras);
    }

    /// Bytes of the adapters that requests can name.
    pub fn set_lora_bytes(&self, bytes: usize) {
        self.metrics.lora_bytes.set(as_value(bytes));
    }

    /// The text that `/metrics` answers.
    pub fn render(&self) -> String {
        let Metrics { exporter, registry, lora_requests, .. } = &*self.metrics;
        let mut text = exporter.render();
        let model = lora::escaped(&registry.model_name);
        lora_requests.render(&format!("model_name=\"{model}\",engine=\"0\""), &mut text);
        text
    }

    /// Folds recorded samples into buckets. Rendering does it too; without scrapes, call this
    /// every few seconds, since samples take memory until then.
    pub fn run_upkeep(&self) {
        self.metrics.exporter.run_upkeep();
    }

    fn count_end(&self, reason: Finished) {
        let position = FINISHED.iter().position(|(known, _)| *known == reason);
        let position = position.expect("the array lists every reason");
        self.metrics.finished[position].increment(1);
    }
}

impl std::fmt::Debug for MetricsHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MetricsHandle").finish_non_exhaustive()
    }
}

/// A local recorder plus the labels that every `vllm:` and `sconce:` metric has.
struct Registry {
    recorder: PrometheusRecorder,
    model_name: String,
}

type LabelPair = (&'static str, Cow<'static, str>);

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

impl Registry {
    fn new(model_name: &str) -> Self {
        let mut builder = PrometheusBuilder::new();
        for metric in TABLE {
            if let MetricKind::Histogram(buckets) = metric.kind {
                builder = builder
                    .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                    .expect("every histogram of the table has buckets");
            }
        }
        let registry =
            Self { recorder: builder.build_recorder(), model_name: model_name.to_owned() };
        registry.describe();
        registry
    }

    fn describe(&self) {
        for metric in TABLE {
            let (name, help) = (KeyName::from(metric.name), metric.help.into());
            match metric.kind {
                MetricKind::Counter => self.recorder.describe_counter(name, None, help),
                MetricKind::Gauge => self.recorder.describe_gauge(name, None, help),
                MetricKind::Histogram(_) => self.recorder.describe_histogram(name, None, help),
            }
        }
    }

    fn counter(&self, name: &'static str, labels: &[LabelPair]) -> Counter {
        self.recorder.register_counter(&self.key(name, labels), &METADATA)
    }

    fn gauge(&self, name: &'static str, labels: &[LabelPair]) -> Gauge {
        self.recorder.register_gauge(&self.key(name, labels), &METADATA)
    }

    fn histogram(&self, name: &'static str, labels: &[LabelPair]) -> Histogram {
        self.recorder.register_histogram(&self.key(name, labels), &METADATA)
    }

    fn key(&self, name: &'static str, labels: &[LabelPair]) -> Key {
        let mut all: Vec<Label> = labels
            .iter()
            .map(|(name, value)| Label::new(*name, value.clone().into_owned()))
            .collect();
        if name.contains(':') {
            all.push(Label::new("model_name", self.model_name.clone()));
            all.push(Label::from_static_parts("engine", "0"));
        }
        Key::from_parts(name, all)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn as_value(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(metrics: &MetricsHandle) -> Vec<String> {
        metrics.render().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_rendered_name_is_described_in_the_table() {
        let metrics = install("m");
        metrics.set_cache_config(32, 100);
        metrics.http_response("/health", "GET", 200, Duration::from_millis(1));
        let text = metrics.render();
        for metric in TABLE {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram(_) => "histogram",
            };
            assert!(text.contains(&format!("# HELP {} {}\n", metric.name, metric.help)), "{text}");
            assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{text}");
        }
        assert_eq!(text.matches("# TYPE ").count(), TABLE.len());
    }

    #[test]
    fn labels_name_model_and_engine() {
        let metrics = install("my/model");
        metrics.set_load(3, 2);
        metrics.set_kv_blocks(25, 100);
        let lines = lines(&metrics);
        let labels = "model_name=\"my/model\",engine=\"0\"";
        for expected in [
            format!("vllm:num_requests_running{{{labels}}} 3"),
            format!("vllm:num_requests_waiting{{{labels}}} 2"),
            format!("vllm:kv_cache_usage_perc{{{labels}}} 0.25"),
            format!("vllm:request_success_total{{finished_reason=\"stop\",{labels}}} 0"),
        ] {
            assert!(lines.contains(&expected), "{expected} missing in {lines:#?}");
        }
    }

    #[test]
    fn two_installs_count_for_themselves() {
        let (first, second) = (install("a"), install("b"));
        first.add_preemptions(2);
        assert!(
            first.render().contains("vllm:num_preemptions_total{model_name=\"a\",engine=\"0\"} 2")
        );
        assert!(
            second.render().contains("vllm:num_preemptions_total{model_name=\"b\",engine=\"0\"} 0")
        );
    }

    #[test]
    fn an_ended_sequence_fills_its_histograms() {
        let metrics = install("m");
        let times = SequenceTimes {
            total: Duration::from_secs(3),
            queue: Duration::from_secs(1),
            prefill: Duration::from_secs(1),
            decode: Duration::from_secs(1),
            output_tokens: 11,
        };
        metrics.sequence_ended(Finished::Length, times);
        let text = metrics.render();
        let label = "{model_name=\"m\",engine=\"0\"}";
        assert!(text.contains(&format!("vllm:e2e_request_latency_seconds_sum{label} 3\n")));
        assert!(text.contains(&format!("vllm:request_inference_time_seconds_sum{label} 2\n")));
        assert!(
            text.contains(&format!("vllm:request_time_per_output_token_seconds_sum{label} 0.1\n"))
        );
        assert!(text.contains("finished_reason=\"length\",model_name=\"m\",engine=\"0\"} 1"));
    }
}
