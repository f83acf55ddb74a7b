//! Every metric: its name, type and help in one table, and the typed functions that fill them.
//!
//! Names, labels and buckets are those of vLLM, so that its dashboards and the endpoint pickers of
//! the Kubernetes inference gateway read this server without configuration; our own start with
//! `sconce:`. There is no global recorder: every [`MetricsHandle`] made by [`install`] counts for
//! itself, so several servers can live in one process. Knows nothing of requests or the engine.
//!
//! Who fills what: the engine thread the load gauges, blocks, preemptions, prefix cache and step
//! sizes; `http` everything about single requests.
//!
//! # How to add a metric
//!
//! 1. `src/metrics/table.rs`: a row with the field, its type (`Labelled<_>` where labels are known only
//!    when it is filled), the name and the help text.
//! 2. `src/metrics.rs`: a function of [`MetricsHandle`] that fills the field; call it where the thing
//!    happens, in `src/engine/core/mod.rs` or in `src/http`.
//! 3. `SCONCE_UPDATE_README=1 cargo test --test main readme` writes the table of `src/guide/metrics.md`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

mod exemplars;
mod finished;
pub mod kv_tiers;
mod lora;
mod metric;
pub mod open_metrics;
mod registry;
mod speech;
mod table;
mod traced;

pub use finished::Finished;
pub use metric::{Metric, MetricKind};
use registry::Registry;
use table::Metrics;
pub use table::TABLE;

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
    registry: Arc<Registry>,
}

/// New metrics, all zero, labelled with the model's name and `engine="0"`.
pub fn install(model_name: &str) -> MetricsHandle {
    let registry = Arc::new(Registry::new(model_name, TABLE));
    let metrics = Metrics::register(&registry);
    metrics.build_info.with(&[("version", env!("CARGO_PKG_VERSION").into())]).set(1.0);
    MetricsHandle { metrics: Arc::new(metrics), registry }
}

/// For the engine thread.
impl MetricsHandle {
    /// Sequences in the running batch and waiting for it.
    pub fn set_load(&self, running: usize, waiting: usize) {
        self.metrics.running.set(as_value(running));
        self.metrics.waiting.set(as_value(waiting));
    }

    /// A draft of `drafted` tokens from a source, the first `accepted` of which were sampled.
    pub fn add_drafts(&self, source: &'static str, drafted: usize, accepted: usize) {
        let label = [("source", source.into())];
        self.metrics.drafts_by_source.with(&label).increment(1);
        self.metrics.drafted_by_source.with(&label).increment(drafted as u64);
        self.metrics.accepted_by_source.with(&label).increment(accepted as u64);
        self.metrics.drafts.increment(1);
        self.metrics.drafted_tokens.increment(drafted as u64);
        self.metrics.accepted_tokens.increment(accepted as u64);
        for position in 0..accepted {
            let label = [("position", position.to_string().into())];
            self.metrics.accepted_by_position.with(&label).increment(1);
        }
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
        self.metrics.cache_config.with(&labels).set(1.0);
    }

    /// The adapters of running and of waiting sequences, names with commas between them.
    pub fn set_lora_requests(&self, running: String, waiting: String) {
        self.metrics.lora_requests.set(running, waiting);
    }

    /// Sequences preempted in one step.
    pub fn add_preemptions(&self, count: usize) {
        self.metrics.preemptions.increment(count as u64);
    }

    /// The engine panicked and began anew.
    pub fn engine_restarted(&self) {
        self.metrics.engine_restarts.increment(1);
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

    /// A sequence's first token came; `prompt_tokens` is 0 for the further choices of one prompt. `trace`
    /// is the id of the request's trace, if it is told to a collector.
    pub fn first_token(&self, since_arrival: Duration, prompt_tokens: usize, trace: Option<&str>) {
        self.metrics.first_token.record(since_arrival, trace);
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

    /// A sequence ended with an answer; `trace` as for [`Self::first_token`].
    pub fn sequence_ended(&self, reason: Finished, times: SequenceTimes, trace: Option<&str>) {
        let SequenceTimes { total, queue, prefill, decode, output_tokens } = times;
        self.metrics.finished.count(reason);
        self.metrics.request_generation_tokens.record(as_value(output_tokens));
        self.metrics.total_time.record(total, trace);
        self.metrics.queue_time.record(queue, trace);
        self.metrics.prefill_time.record(prefill, trace);
        self.metrics.decode_time.record(decode, trace);
        self.metrics.inference_time.record(prefill + decode, trace);
        if output_tokens > 1 {
            let gaps = as_value(output_tokens - 1);
            self.metrics.mean_token_gap.record(decode.as_secs_f64() / gaps);
        }
    }

    /// A text has its embedding, which took no sampled token; `trace` as for [`Self::first_token`].
    pub fn text_embedded(&self, tokens: usize, times: SequenceTimes, trace: Option<&str>) {
        self.metrics.finished.count(Finished::Stop);
        self.metrics.prompt_tokens.increment(tokens as u64);
        self.metrics.request_prompt_tokens.record(as_value(tokens));
        self.metrics.total_time.record(times.total, trace);
        self.metrics.queue_time.record(times.queue, trace);
        self.metrics.prefill_time.record(times.prefill, trace);
        self.metrics.inference_time.record(times.prefill, trace);
    }

    /// A sequence ended without an answer: its client went away or it was cut.
    pub fn sequence_aborted(&self) {
        self.metrics.finished.count(Finished::Abort);
        self.metrics.aborted.increment(1);
    }

    /// Sequences that the end of the drain cut.
    pub fn add_cut(&self, count: usize) {
        self.metrics.cut.increment(count as u64);
    }

    /// A sequence failed.
    pub fn sequence_failed(&self) {
        self.metrics.finished.count(Finished::Error);
    }

    /// Batches in the store that have not ended.
    pub fn set_open_batches(&self, count: usize) {
        self.metrics.open_batches.set(as_value(count));
    }

    /// Lines of batches in the store that are not answered.
    pub fn set_waiting_batch_lines(&self, count: usize) {
        self.metrics.waiting_batch_lines.set(as_value(count));
    }

    /// This server answered a line of a batch, with an error or without.
    pub fn batch_line_ended(&self, succeeded: bool) {
        let counters = [&self.metrics.batch_lines_failed, &self.metrics.batch_lines_answered];
        counters[usize::from(succeeded)].increment(1);
    }

    /// A client connected.
    pub fn connection_opened(&self) {
        self.metrics.connections.increment(1.0);
    }

    /// A client's connection ended.
    pub fn connection_closed(&self) {
        self.metrics.connections.decrement(1.0);
    }

    /// A client was refused, for there are too many connections.
    pub fn connection_refused(&self) {
        self.metrics.connections_refused.increment(1);
    }

    /// A request of a key was taken.
    pub fn key_request(&self, key: &str) {
        self.metrics.key_requests.with(&[key_label(key)]).increment(1);
    }

    /// A request was refused for what its key may do.
    pub fn key_refused(&self, key: &str, reason: &'static str) {
        let labels = [key_label(key), ("reason", reason.into())];
        self.metrics.key_refusals.with(&labels).increment(1);
    }

    /// A sequence of a key has ended.
    pub fn key_tokens(&self, key: &str, prompt: usize, cached: usize, output: usize) {
        let labels = [key_label(key)];
        let Metrics { key_prompt_tokens, key_cached_tokens, key_generation_tokens, .. } =
            &*self.metrics;
        key_prompt_tokens.with(&labels).increment(prompt as u64);
        key_cached_tokens.with(&labels).increment(cached as u64);
        key_generation_tokens.with(&labels).increment(output as u64);
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
        self.metrics.http_time.with(&[handler.clone(), method.clone()]).record(duration);
        self.metrics.http_responses.with(&[handler, method, status]).increment(1);
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
        let mut text = self.registry.recorder.handle().render();
        let model = lora::escaped(&self.registry.model_name);
        let labels = format!("model_name=\"{model}\",engine=\"0\"");
        self.metrics.lora_requests.render(&labels, &mut text);
        text
    }

    /// As [`Self::render`], in OpenMetrics, with exemplars.
    pub fn render_open_metrics(&self) -> String {
        open_metrics::rewritten(&self.render(), TABLE, &self.registry)
    }

    /// Folds recorded samples into buckets. Rendering does it too; without scrapes, call this
    /// every few seconds, since samples take memory until then.
    pub fn run_upkeep(&self) {
        self.registry.recorder.handle().run_upkeep();
    }
}

impl std::fmt::Debug for MetricsHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("MetricsHandle").finish_non_exhaustive()
    }
}

fn key_label(key: &str) -> registry::LabelPair {
    ("key", Cow::Owned(key.to_owned()))
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
        metrics.add_drafts("ngram", 2, 1);
        metrics.key_request("k");
        metrics.key_refused("k", "tokens");
        metrics.key_tokens("k", 3, 2, 1);
        metrics.speech_answered("transcribe", "ok");
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
        metrics.sequence_ended(Finished::Length, times, None);
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
