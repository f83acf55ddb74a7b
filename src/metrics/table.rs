//! The table of all metrics: a row is a metric's name, type and help, and the field that fills it.
//!
//! The documentation, what `/metrics` says of a metric, and its registration are made of the rows.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};

use super::finished::FinishedCounters;
use super::lora::LoraRequests;
use super::metric::{Metric, counter, gauge, histogram};
use super::registry::{Instrument, Labelled, Registry};
use super::traced::TracedHistogram;

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

/// Makes the table, and the struct that has a field for each row.
macro_rules! table {
    ($($field:ident: $type:ty = $metric:expr;)*) => {
        /// All metrics, in the order of the documentation.
        pub const TABLE: &[Metric] = &[$($metric),*];

        /// What fills one server's metrics.
        pub(super) struct Metrics {
            $(pub(super) $field: $type,)*
        }

        impl Metrics {
            /// All metrics, at zero.
            pub(super) fn register(registry: &Arc<Registry>) -> Self {
                Self { $($field: Instrument::register(registry, $metric, &[]),)* }
            }
        }
    };
}

table! {
    running: Gauge = gauge("vllm:num_requests_running",
        "Sequences in the running batch.");
    waiting: Gauge = gauge("vllm:num_requests_waiting",
        "Sequences waiting to run.");
    kv_usage: Gauge = gauge("vllm:kv_cache_usage_perc",
        "Share of KV blocks in use, 0 to 1.");
    preemptions: Counter = counter("vllm:num_preemptions_total",
        "Sequences put back into the queue for lack of blocks.");
    prefix_queries: Counter = counter("vllm:prefix_cache_queries_total",
        "Prompt tokens looked up in the prefix cache.");
    prefix_hits: Counter = counter("vllm:prefix_cache_hits_total",
        "Prompt tokens found in the prefix cache.");
    external_queries: Counter = counter("vllm:external_prefix_cache_queries_total",
        "Prompt tokens looked up in the folder of --kv-disk, which were not in memory.");
    external_hits: Counter = counter("vllm:external_prefix_cache_hits_total",
        "Prompt tokens loaded from there.");
    prompt_tokens: Counter = counter("vllm:prompt_tokens_total",
        "Prompt tokens of requests whose first token came.");
    generation_tokens: Counter = counter("vllm:generation_tokens_total",
        "Tokens sampled.");
    step_tokens: Histogram = histogram("vllm:iteration_tokens_total", STEP_TOKENS,
        "Tokens computed in one step.");
    drafts: Counter = counter("vllm:spec_decode_num_drafts_total",
        "Drafts of a sequence in a step.");
    drafted_tokens: Counter = counter("vllm:spec_decode_num_draft_tokens_total",
        "Tokens that were drafted.");
    accepted_tokens: Counter = counter("vllm:spec_decode_num_accepted_tokens_total",
        "Drafted tokens that were sampled.");
    accepted_by_position: Labelled<Counter> =
        counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "Drafted tokens that were sampled, by position in their draft.");
    drafts_by_source: Labelled<Counter> = counter("sconce:spec_decode_drafts_total",
        "Drafts of a sequence in a step, by source: ngram, suffix, prediction, grammar, draft_model, mtp, eagle3, dflash, dspark.");
    drafted_by_source: Labelled<Counter> = counter("sconce:spec_decode_draft_tokens_total",
        "Tokens that were drafted, by source.");
    accepted_by_source: Labelled<Counter> = counter("sconce:spec_decode_accepted_tokens_total",
        "Drafted tokens that were sampled, by source.");
    finished: FinishedCounters = counter("vllm:request_success_total",
        "Sequences that ended, by finished_reason.");
    request_prompt_tokens: Histogram = histogram("vllm:request_prompt_tokens", REQUEST_TOKENS,
        "Prompt tokens of a request.");
    request_generation_tokens: Histogram = histogram("vllm:request_generation_tokens", REQUEST_TOKENS,
        "Tokens sampled for a sequence.");
    request_n: Histogram = histogram("vllm:request_params_n", CHOICES,
        "The n of a request.");
    request_max_tokens: Histogram = histogram("vllm:request_params_max_tokens", REQUEST_TOKENS,
        "The max_tokens of a request.");
    first_token: TracedHistogram = histogram("vllm:time_to_first_token_seconds", FIRST_TOKEN_SECONDS,
        "From a request's arrival to its first token.");
    token_gap: Histogram = histogram("vllm:inter_token_latency_seconds", TOKEN_GAP_SECONDS,
        "Between two tokens of a sequence.");
    mean_token_gap: Histogram = histogram("vllm:request_time_per_output_token_seconds", TOKEN_GAP_SECONDS,
        "Mean time between the tokens of a sequence.");
    total_time: TracedHistogram = histogram("vllm:e2e_request_latency_seconds", REQUEST_SECONDS,
        "From a request's arrival to a sequence's end.");
    queue_time: TracedHistogram = histogram("vllm:request_queue_time_seconds", REQUEST_SECONDS,
        "Waiting to be scheduled.");
    inference_time: TracedHistogram = histogram("vllm:request_inference_time_seconds", REQUEST_SECONDS,
        "From the first scheduled step to the last token.");
    prefill_time: TracedHistogram = histogram("vllm:request_prefill_time_seconds", REQUEST_SECONDS,
        "From the first scheduled step to the first token.");
    decode_time: TracedHistogram = histogram("vllm:request_decode_time_seconds", REQUEST_SECONDS,
        "From the first token to the last.");
    cache_config: Labelled<Gauge> = gauge("vllm:cache_config_info",
        "Always 1; the labels hold block_size and num_gpu_blocks.");
    lora_requests: LoraRequests = gauge("vllm:lora_requests_info",
        "Unix time of the last change; the labels hold max_lora and the \
         names in running_lora_adapters and waiting_lora_adapters.");
    http_responses: Labelled<Counter> = counter("http_requests_total",
        "HTTP responses by handler, method and class of status.");
    http_time: Labelled<Histogram> = histogram("http_request_duration_seconds", HTTP_SECONDS,
        "Until the response's headers.");
    key_requests: Labelled<Counter> = counter("sconce:key_requests_total",
        "Requests that were taken, by the name of their key.");
    key_refusals: Labelled<Counter> = counter("sconce:key_refusals_total",
        "Requests that a key may not make, or not now, by the name of their key and the reason.");
    key_prompt_tokens: Labelled<Counter> = counter("sconce:key_prompt_tokens_total",
        "Prompt tokens as usage tells them, by the name of their key.");
    key_cached_tokens: Labelled<Counter> = counter("sconce:key_cached_prompt_tokens_total",
        "Those of them that did not have to be computed, by the name of their key.");
    key_generation_tokens: Labelled<Counter> = counter("sconce:key_generation_tokens_total",
        "Tokens sampled, as usage tells them, by the name of their key.");
    admission_rejections: Counter = counter("sconce:admission_rejections_total",
        "Requests answered 429.");
    open_batches: Gauge = gauge("sconce:open_batches", "Batches in the store that have not ended.");
    waiting_batch_lines: Gauge = gauge("sconce:waiting_batch_lines",
        "Lines of batches in the store that are not answered.");
    batch_lines_answered: Counter = counter("sconce:batch_lines_answered_total",
        "Lines of batches that this server answered.");
    batch_lines_failed: Counter = counter("sconce:batch_lines_failed_total",
        "Lines of batches that this server answered with an error.");
    aborted: Counter = counter("sconce:aborted_requests_total",
        "Sequences whose client went away before the end.");
    connections: Gauge = gauge("sconce:open_connections",
        "Connections of clients.");
    connections_refused: Counter = counter("sconce:refused_connections_total",
        "Connections that were ended at once, for there were --max-connections.");
    cut: Counter = counter("sconce:cut_requests_total",
        "Sequences that were cut at the end of a drain.");
    engine_restarts: Counter = counter("sconce:engine_restarts_total",
        "Times that the engine began anew after a panic.");
    blocks_in_use: Gauge = gauge("sconce:kv_blocks_in_use",
        "KV blocks that sequences hold.");
    kv_host_blocks: Gauge = gauge("sconce:kv_host_blocks",
        "Blocks and snapshots in the host memory of --kv-host-memory.");
    kv_host_bytes: Gauge = gauge("sconce:kv_host_bytes",
        "Bytes in the host memory of --kv-host-memory.");
    kv_host_stored: Counter = counter("sconce:kv_host_stored_blocks_total",
        "Blocks and snapshots copied to host memory.");
    kv_host_stored_bytes: Counter = counter("sconce:kv_host_stored_bytes_total",
        "Bytes of these.");
    kv_host_loaded: Counter = counter("sconce:kv_host_loaded_blocks_total",
        "Blocks and snapshots copied back.");
    kv_host_loaded_bytes: Counter = counter("sconce:kv_host_loaded_bytes_total",
        "Bytes of these.");
    kv_host_evicted: Counter = counter("sconce:kv_host_evicted_blocks_total",
        "Blocks and snapshots removed to make room.");
    kv_host_evicted_bytes: Counter = counter("sconce:kv_host_evicted_bytes_total",
        "Bytes of these.");
    kv_host_dropped: Counter = counter("sconce:kv_host_dropped_blocks_total",
        "Blocks and snapshots that left the pool before they could be copied.");
    kv_host_corrupt: Counter = counter("sconce:kv_host_corrupt_blocks_total",
        "Those whose checksum was wrong, and were removed.");
    kv_host_errors: Counter = counter("sconce:kv_host_errors_total",
        "Those for which the system gave no memory.");
    kv_disk_blocks: Gauge = gauge("sconce:kv_disk_blocks",
        "Blocks and snapshots in the folder of --kv-disk.");
    kv_disk_bytes: Gauge = gauge("sconce:kv_disk_bytes",
        "Bytes in the folder of --kv-disk.");
    kv_disk_stored: Counter = counter("sconce:kv_disk_stored_blocks_total",
        "Blocks and snapshots written to disk.");
    kv_disk_stored_bytes: Counter = counter("sconce:kv_disk_stored_bytes_total",
        "Bytes of these.");
    kv_disk_loaded: Counter = counter("sconce:kv_disk_loaded_blocks_total",
        "Blocks and snapshots read from disk.");
    kv_disk_loaded_bytes: Counter = counter("sconce:kv_disk_loaded_bytes_total",
        "Bytes of these.");
    kv_disk_evicted: Counter = counter("sconce:kv_disk_evicted_blocks_total",
        "Blocks and snapshots removed from disk to make room.");
    kv_disk_evicted_bytes: Counter = counter("sconce:kv_disk_evicted_bytes_total",
        "Bytes of these.");
    kv_disk_dropped: Counter = counter("sconce:kv_disk_dropped_blocks_total",
        "Blocks and snapshots that left memory before they could be written.");
    kv_disk_corrupt: Counter = counter("sconce:kv_disk_corrupt_blocks_total",
        "Files that were not what their names said, and were removed.");
    kv_disk_errors: Counter = counter("sconce:kv_disk_errors_total",
        "Files that could not be written, read or removed.");
    kv_events_sent: Counter = counter("sconce:kv_event_batches_total",
        "Batches of KV events that were published.");
    kv_events_dropped: Counter = counter("sconce:kv_event_batches_dropped_total",
        "Batches of KV events that found the publisher's queue full; each leaves a gap in the \
         sequence numbers.");
    lora_bytes: Gauge = gauge("sconce:lora_bytes",
        "Bytes of the LoRA adapters that requests can name.");
    speech_requests: Labelled<Counter> = counter("sconce:speech_requests_total",
        "Requests for a transcript, by task and outcome.");
    speech_audio_milliseconds: Counter = counter("sconce:speech_audio_milliseconds_total",
        "Milliseconds of sound that were transcribed.");
    speech_time: Histogram = histogram("sconce:speech_seconds", REQUEST_SECONDS,
        "From when a file's turn came to the end of its transcript.");
    speech_files: Gauge = gauge("sconce:speech_files",
        "Files that wait to be transcribed or are.");
    build_info: Labelled<Gauge> = gauge("sconce:build_info",
        "Always 1; the labels hold the version.");
}
