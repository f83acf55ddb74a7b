//! # Sconce: the map
//!
//! One binary that serves large language models over the OpenAI API. Data falls downward through
//! the floors and never climbs; a room imports only from the floors below it, and
//! `tests/layering.rs` keeps the table of who may know whom.
//!
//! ```text
//! 9 main        parse arguments, call cli                | allocator: where memory comes from
//!                                                        | candle_threads: where candle computes
//! 8 cli         one file per subcommand
//! 7 app         from the model that a user chose to what http serves
//!   fleet       several models, each in a process of its own, behind one address
//! 6 http        all that knows JSON, OpenAI and SSE
//! 5 engine      one OS thread that owns everything mutable
//! 4 runner      plan -> tensors -> logits
//! 3 models      one decoder, one small spec file per architecture; one encoder
//! 2 layers      attention, linear, rope, mlp, norm   | scheduler: who runs | sampling: which token
//!   speculation which tokens may follow
//! 1 weights     files -> tensors | kernels: the hot operations | kv_cache: which blocks
//!   kv_disk     blocks that outlive the pool        | kv_events what is cached, told to routers
//!   store       objects and lines of work that outlive the process, in SQLite or PostgreSQL
//!   text        strings, templates, tokenizers       | config | metrics | pooling | demo
//!   pictures    files to pixels                      | speech: sound to text, beside the engine
//!   sounds      files to what encoders hear, by `speech`
//!   telemetry   spans of requests, to the log and to collectors
//! 0 blocks      what the bytes of quantized weights stand for
//! ```
//!
//! ## One request
//!
//! 1. `http::request` reads the body into the structs of `http::wire` and judges the fields that no
//!    struct has; the protocol's `input` makes a `http::generate::chat_request::ChatRequest` of
//!    them, in which all protocols are alike, and [`SamplingParams`](sampling::params::SamplingParams)
//!    in range. It gets a permit, or 429.
//! 2. [`text::chat_template`] renders the prompt, [`text::tokenizer`] encodes it.
//! 3. A schema or grammar becomes a [`Grammar`](structured::grammar::Grammar) in the request's own
//!    task; `http::generate::plan` has everything the engine is told, with
//!    [`StopConditions`](scheduler::stop::StopConditions) once the prompt's length is known.
//! 4. [`EngineHandle::submit`](engine::EngineHandle::submit) gives an
//!    [`OutputStream`](engine::output::OutputStream); dropping it aborts the request.
//!    If its model is an adapter's name, the adapter goes with it (`engine::adapter`), down to the
//!    layers (`layers::adapter`), and stays until it ends.
//! 5. The engine thread steps: drain commands, schedule, run, sample, update, emit.
//!    What the cache lost and a folder still has is read while the request waits, by threads of
//!    `kv_disk`; between steps `engine::core::tiers` exchanges blocks with them.
//!    After each step routers that want to know are told what the cache gained and lost (`kv_events`).
//!    A request to embed a text runs the same way, but samples nothing: the engine pools its hidden
//!    states and sends one vector. A model that only embeds has no KV cache and a loop of its own.
//!    A model that several processes compute has one such engine: its runner tells the other ranks
//!    what to compute (`runner::ranks`), and the layers add up what all of them have; or each rank is a
//!    stage with some of the layers, and hidden states go from one to the next in microbatches.
//!    On an NVIDIA GPU operations are launches by `kernels::cuda`, decode steps are captured as a CUDA
//!    graph for each size at startup (`runner::decode_graphs`), and tokens are drawn where the logits are
//!    (`sampling::on_device`); the host sees token ids.
//! 6. The request's own task turns token ids into text, text into deltas (`http::answer`), and the
//!    protocol's `writer` makes chunks of those.
//!
//! What a request asks to keep goes to the [`store`] before its client hears of the end. A stored
//! request, of a batch or in the background, takes the same way: `http::worker` claims it and sends it
//! through the same handlers, in this process.
//!
//! ## Invariants
//!
//! 1. Three owners, one thread: the scheduler owns sequences, the runner tensors, the engine
//!    senders and sampler state. There is no lock on the hot path.
//! 2. Scheduler and block pool are deterministic functions of their inputs.
//! 3. There is no prefill phase and no decode phase: `num_computed_tokens` catches up with the
//!    tokens of a sequence, which samples exactly when they become equal.
//! 4. Block tables only grow while a sequence runs; only full blocks are shared, parts of blocks are
//!    copied; a shared block is never written; the last prompt token is always recomputed.
//! 5. Preemption loses no emitted token and changes no sampled one.
//! 6. Text lives in `http` and `text`, JSON in `http`, device handles from `layers` down, in the
//!    runner and at startup.
//! 7. Batch invariance: the logits of a request don't depend on what else is in the batch, on
//!    chunk boundaries, on prefix-cache hits or on preemption.
//! 8. After startup no request can panic the engine thread; a failed step ends its sequences with
//!    an error and the loop goes on.
//!
//! ## How to add
//!
//! an architecture (`src/models/mod.rs`), a sampling parameter (`src/sampling/params.rs`), a request
//! field (`src/http/mod.rs`), a form of an operation (`src/kernels/mod.rs`), a metric
//! (`src/metrics.rs`), a flag (`src/cli/mod.rs`), a tool call format (`src/text/tool_calls.rs`), a
//! reasoning format (`src/text/reasoning.rs`): each file begins with the steps.
//!
//! Words are those of the [`glossary`]. What users of the server read is the [`guide`].
//!
//! ## What is absent on purpose
//!
//! No trait for schedulers or block managers (there is one of each), no lock around a sequence, no
//! quantized twin of a model, no HTTP type below `http`, no text in the engine.

pub mod app;
pub use sconce_blocks as blocks;
pub mod cli;
pub mod config;
pub mod demo;
pub mod engine;
pub mod fleet;
pub mod glossary;
pub mod guide;
pub mod http;
pub use sconce_kernels as kernels;
pub mod kv_cache;
pub mod kv_disk;
pub mod kv_events;
pub mod layers;
pub mod metrics;
pub mod models;
pub mod pictures;
pub mod pooling;
pub mod runner;
pub mod sampling;
pub mod scheduler;
pub mod sounds;
pub mod speculation;
pub mod speech;
pub mod store;
pub mod telemetry;
pub use sconce_structured as structured;
pub use sconce_text as text;
pub use sconce_weights as weights;
