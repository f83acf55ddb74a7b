//! The engine over a model whose logits are a hash of every token it reads back from the KV cache
//! through the block table, or of its state: one wrong slot, block or position changes all that
//! follows.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small test values"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use candle_core::{DType, Device, Result, Tensor};

use super::output::{EngineError, EngineOutput, OutputStream};
use super::request::{EngineRequest, RequestId};
use super::startup::LoadedModel;
use super::startup::device::OpenDevice;
use super::startup::draft::LoadedDraft;
use super::startup::tiers::ModelIdentity;
use super::{EngineHandle, EngineHealth};
use crate::config::{DeviceChoice, EngineConfig, Pooling};
use crate::kv_disk::files::{Disk, Files};
use crate::layers::forward::{BLOCK_SIZE, ForwardBatch, ForwardContext, KvHeads, KvShape};
use crate::metrics::{self, MetricsHandle};
use crate::models::{CausalLm, ForwardOutput};
use crate::pooling::PoolingHead;
use crate::sampling::params::SamplingParams;
use crate::scheduler::stop::{FinishReason, StopConditions};

/// A time that no step of these tests takes.
const BOUND: Duration = Duration::from_mins(1);
const VOCAB: usize = 98;
/// A prompt with this token makes the step fail, the next one makes it panic.
const FAILS: u32 = 95;
const PANICS: u32 = 96;
/// A prompt with this token makes the model answer too few rows, over which the engine panics.
const MISCOUNTS: u32 = 97;

/// What tells the model of earlier tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Blocks,
    State,
    /// Without any blocks beside it.
    StateAlone,
}

struct HashModel {
    tokens_run: Arc<AtomicUsize>,
    step_time: Duration,
    memory: Memory,
    /// Whether each token has one that mostly follows it, so that texts repeat themselves.
    repeats: bool,
    /// Whether hidden states are the hash, which a head that drafts goes on from.
    tells: bool,
}

/// A hash as numbers of sixteen bits.
fn parts(hash: u64) -> [f32; 4] {
    [48, 32, 16, 0].map(|shift| (hash >> shift & 0xffff) as f32)
}

/// The hash of such numbers.
fn hash_of(parts: &[f32]) -> u64 {
    parts.iter().fold(0, |hash, part| hash << 16 | *part as u64)
}

/// The logits behind a text with this hash and last token.
fn logits_behind(hash: u64, token: u32, repeats: bool) -> impl Iterator<Item = f32> {
    let follows = mix(u64::from(token), 5) % u64::from(FAILS);
    let more = move |id| if repeats && id == follows { 7.0 } else { 0.0 };
    // The last ids are for prompts only.
    let drawable =
        (0..u64::from(FAILS)).map(move |id| (mix(hash, id) % 1000) as f32 / 250.0 + more(id));
    drawable.chain([f32::NEG_INFINITY; 3])
}

/// The hash of nothing.
const START: u64 = 17;

impl HashModel {
    /// The hash at each row, from the states of the sequences, which are moved on.
    fn hashes_from_states(context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<Vec<u64>> {
        let mut hashes = Vec::new();
        for (bounds, slot) in batch.step.cu_seqlens_q.windows(2).zip(&batch.step.state_slots) {
            let rows = bounds[0] as usize..bounds[1] as usize;
            let state = context.states[0].narrow(0, *slot as usize, 1)?;
            let mut hash = hash_of(&state.flatten_all()?.to_vec1::<f32>()?);
            if batch.step.positions[rows.start] == 0 {
                hash = START;
            }
            for row in rows {
                hash = mix(hash, u64::from(batch.step.input_ids[row]));
                hashes.push(hash);
            }
            state.slice_set(&Tensor::new(&[parts(hash)], &Device::Cpu)?, 0, 0)?;
        }
        Ok(hashes)
    }
}

impl CausalLm for HashModel {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        std::thread::sleep(self.step_time);
        assert!(!batch.step.input_ids.contains(&PANICS), "asked to panic");
        if batch.step.input_ids.contains(&FAILS) {
            candle_core::bail!("asked to fail");
        }
        self.tokens_run.fetch_add(batch.step.input_ids.len(), Ordering::Relaxed);
        let cache = context.kv.first().map(|layer| layer.k.flatten_all()).transpose()?;
        for (row, (token, slot)) in batch.step.input_ids.iter().zip(&batch.step.slots).enumerate() {
            let mut own = batch.adapters.iter().filter(|own| own.rows.contains(&(row as u32)));
            // Adapters show in what is kept, as they do in keys and values.
            let adapter = own.next().map_or(0, |own| own.adapter.size_in_bytes());
            assert!(own.next().is_none(), "a row has one adapter");
            let value = Tensor::new(&[(*token as usize + 100 * adapter) as f32], &Device::Cpu)?;
            if let Some(cache) = &cache {
                cache.slice_set(&value, 0, *slot as usize)?;
            }
        }
        let cache = cache.map_or_else(|| Ok(Vec::new()), |cache| cache.to_vec1::<f32>())?;
        let hashes = match self.memory {
            Memory::Blocks => Vec::new(),
            Memory::State | Memory::StateAlone => Self::hashes_from_states(context, batch)?,
        };
        let hash_at = |row: &u32| {
            if self.memory != Memory::Blocks {
                return hashes[*row as usize];
            }
            let sequence = batch.step.cu_seqlens_q.partition_point(|start| start <= row) - 1;
            let position = batch.step.positions[*row as usize] as usize;
            assert!(position < batch.step.context_lens[sequence] as usize);
            let table = &batch.step.block_tables[sequence];
            (0..=position).fold(START, |hash, position| {
                let slot = table[position / BLOCK_SIZE] as usize * BLOCK_SIZE;
                mix(hash, cache[slot + position % BLOCK_SIZE] as u64)
            })
        };
        let mut logits = Vec::new();
        for row in &batch.logits_rows {
            let token = batch.step.input_ids[*row as usize];
            logits.extend(logits_behind(hash_at(row), token, self.repeats));
        }
        let logits = Tensor::from_vec(logits, (batch.logits_rows.len(), VOCAB), &Device::Cpu)?;
        let miscounts = batch.step.input_ids.contains(&MISCOUNTS);
        let logits = if miscounts { logits.narrow(0, 0, logits.dim(0)? - 1)? } else { logits };
        let rows = batch.hidden_rows.len();
        let states = batch.hidden_rows.iter().map(&hash_at);
        let of_hash = |hash| -> Vec<f32> {
            let number = |i| (mix(hash, i) % 1000) as f32;
            if self.tells { parts(hash).to_vec() } else { (0..3).map(number).collect() }
        };
        let states: Vec<f32> = states.flat_map(of_hash).collect();
        let hidden = Tensor::from_vec(states, (rows, self.hidden_size()), &Device::Cpu)?;
        // The last of the tapped layers has the hash.
        let width = 4 * batch.taps.layers.len();
        let tapped = batch.taps.rows.iter().flat_map(|row| {
            let others = vec![-1.0; width.saturating_sub(4)];
            others.into_iter().chain(parts(hash_at(row)).into_iter().take(width))
        });
        let tapped: Vec<f32> = tapped.collect();
        let any = !tapped.is_empty();
        let tapped = Tensor::from_vec(tapped, (batch.taps.rows.len(), width), &Device::Cpu)?;
        let (hidden, tapped) = ((rows > 0).then_some(hidden), any.then_some(tapped));
        Ok(ForwardOutput { logits, hidden, tapped })
    }

    fn hidden_size(&self) -> usize {
        if self.tells { 4 } else { 3 }
    }

    fn kv_shape(&self) -> KvShape {
        let states = if self.memory == Memory::Blocks { Vec::new() } else { vec![4] };
        let blocks = self.memory != Memory::StateAlone;
        KvShape { layers: vec![KvHeads::new(1, 1); usize::from(blocks)], states }
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn max_position_embeddings(&self) -> usize {
        512
    }
}

fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

struct Running {
    handle: EngineHandle,
    tokens_run: Arc<AtomicUsize>,
    metrics: MetricsHandle,
}

fn start(config: &EngineConfig, step_time: Duration) -> Running {
    start_with(Memory::Blocks, config, step_time)
}

fn start_with(memory: Memory, config: &EngineConfig, step_time: Duration) -> Running {
    start_on(memory, config, step_time, Arc::new(Disk)).0
}

/// As [`start`], with files that are read and written so, and with the engine's thread.
fn start_on(
    memory: Memory,
    config: &EngineConfig,
    step_time: Duration,
    files: Arc<dyn Files>,
) -> (Running, JoinHandle<()>) {
    let tokens_run = Arc::new(AtomicUsize::new(0));
    let model = HashModel {
        tokens_run: tokens_run.clone(),
        step_time,
        memory,
        repeats: false,
        tells: false,
    };
    start_model(model, config, files)
}

fn start_model(
    model: HashModel,
    config: &EngineConfig,
    files: Arc<dyn Files>,
) -> (Running, JoinHandle<()>) {
    start_drafted(model, None, config, files)
}

/// The same, with a draft model.
fn start_drafted(
    model: HashModel,
    draft: Option<Box<dyn CausalLm>>,
    config: &EngineConfig,
    files: Arc<dyn Files>,
) -> (Running, JoinHandle<()>) {
    let facts = (model.tokens_run.clone(), model.memory);
    start_any(Box::new(model), facts, draft, config, files)
}

/// The same, with any model that computes as a [`HashModel`] does which counts so.
fn start_any(
    model: Box<dyn CausalLm>,
    (tokens_run, memory): (Arc<AtomicUsize>, Memory),
    draft: Option<Box<dyn CausalLm>>,
    config: &EngineConfig,
    files: Arc<dyn Files>,
) -> (Running, JoinHandle<()>) {
    let draft = draft.map(|model| LoadedDraft { model, weight_bytes: 0, kv_dtype: DType::F32 });
    let loaded = LoadedModel {
        max_text_len: None,
        leader: None,
        model,
        device: OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap(),
        weight_bytes: 0,
        kv_dtype: DType::F32,
        head: PoolingHead::new(config.pooling.unwrap_or(Pooling::Last), false),
        tower: None,
        audio_encoder: None,
        draft,
        identity: Some(ModelIdentity { name: "hash".to_owned(), digest: [memory as u8; 32] }),
        files,
    };
    let metrics = metrics::install("test");
    let engine = loaded.start(config, metrics.clone()).unwrap();
    (Running { handle: engine.handle, tokens_run, metrics }, engine.thread)
}

fn config(num_blocks: usize) -> EngineConfig {
    EngineConfig {
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        target_step_time: None,
        kv_cache_bytes: Some(num_blocks * BLOCK_SIZE * 8),
        ..EngineConfig::default()
    }
}

fn request(prompt: Vec<u32>, max_tokens: usize, seed: u64) -> EngineRequest {
    EngineRequest {
        id: RequestId::next(),
        prompt_token_ids: prompt,
        sampling: SamplingParams { seed, logprobs: Some(2), ..SamplingParams::default() },
        stop: StopConditions {
            max_tokens,
            min_tokens: 0,
            eos_token_ids: Arc::from([]),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
        },
        prediction: None,
        max_drafts: None,
        prompt_logprobs: None,
        priority: 0,
        share: 0,
        cache_salt: None,
        adapter: None,
        pictures: Vec::new(),
        sounds: Vec::new(),
    }
}

fn prompt(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u64).map(|i| (mix(u64::from(seed), i) % u64::from(FAILS)) as u32).collect()
}

/// Tokens, and logprobs of the prompt and of the tokens.
type Answer = (Vec<u32>, Vec<f32>);

async fn collect(mut stream: OutputStream) -> (Answer, Option<EngineOutput>) {
    let mut answer = (Vec::new(), Vec::new());
    while let Some(output) = stream.next().await {
        match output {
            EngineOutput::Started { .. } => assert!(answer.0.is_empty()),
            EngineOutput::PromptLogprobs(scores) => {
                assert!(answer.0.is_empty());
                answer.1.extend(scores.iter().map(|score| score.logprob));
            }
            EngineOutput::Token { token_id, logprobs, .. } => {
                answer.0.push(token_id);
                answer.1.push(logprobs.unwrap().logprob);
            }
            end => return (answer, Some(end)),
        }
    }
    (answer, None)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn answers(running: &Running, requests: Vec<EngineRequest>) -> Vec<Answer> {
    let streams: Vec<_> = requests.into_iter().map(|r| running.handle.submit(r)).collect();
    block_on(async {
        let mut answers = Vec::new();
        for stream in streams {
            let (answer, end) = collect(stream).await;
            assert!(matches!(end, Some(EngineOutput::Finished { .. })), "{end:?}");
            answers.push(answer);
        }
        answers
    })
}

fn requests() -> Vec<EngineRequest> {
    let shared = prompt(99, 70);
    let lengths = [1, 7, 33, 130, 64, 31, 100, 2, 90, 65];
    (0..)
        .zip(lengths)
        .map(|(seed, length)| {
            let mut tokens = if seed % 3 == 0 { shared.clone() } else { Vec::new() };
            tokens.extend(prompt(seed, length));
            let scored = (seed % 2 == 0).then_some(1);
            EngineRequest { prompt_logprobs: scored, ..request(tokens, 40, u64::from(seed)) }
        })
        .collect()
}

fn alone() -> Vec<Answer> {
    let lone = EngineConfig { prefix_cache: false, ..config(64) };
    requests()
        .into_iter()
        .map(|request| answers(&start(&lone, Duration::ZERO), vec![request]).remove(0))
        .collect()
}

#[test]
fn scores_of_a_prompt_are_what_its_beginnings_expect() {
    let running = start(&config(64), Duration::ZERO);
    let tokens = prompt(5, 150);
    let scored = EngineRequest { prompt_logprobs: Some(0), ..request(tokens.clone(), 1, 0) };
    let told = answers(&running, vec![scored]).remove(0).1;
    assert_eq!(told.len(), 149 + 1);
    for end in [1, 2, 31, 63, 64, 65, 128, 149] {
        let mut request = request(tokens[..end].to_vec(), 1, 0);
        request.sampling.logprobs = Some(VOCAB as u32);
        let mut stream = running.handle.submit(request);
        let expected = block_on(async {
            loop {
                if let Some(EngineOutput::Token { logprobs, .. }) = stream.next().await {
                    break logprobs.unwrap();
                }
            }
        });
        let top = expected.top.iter().find(|(token, _)| *token == tokens[end]).unwrap();
        assert_eq!(top.1.to_bits(), told[end - 1].to_bits(), "token {end}");
    }
}

#[test]
fn answers_do_not_depend_on_batch_chunks_cache_or_preemption() {
    let expected = alone();
    let cases = [
        ("in one batch", config(64)),
        ("in small chunks", EngineConfig { max_num_batched_tokens: 9, ..config(64) }),
        ("with preemption", config(12)),
        ("without cache", EngineConfig { prefix_cache: false, ..config(20) }),
        ("two at a time", EngineConfig { max_num_seqs: 2, ..config(32) }),
    ];
    for (case, config) in cases {
        for memory in [Memory::Blocks, Memory::State, Memory::StateAlone] {
            let running = start_with(memory, &config, Duration::ZERO);
            for round in ["cold", "warm"] {
                assert_eq!(answers(&running, requests()), expected, "{case}, {round}, {memory:?}");
            }
            let hits = running.metrics.render();
            let hits = hits.lines().find(|line| line.starts_with("vllm:prefix_cache_hits_total"));
            let none = hits.is_none_or(|line| line.ends_with(" 0"));
            assert_eq!(none, !config.prefix_cache, "{case}, {memory:?}: {hits:?}");
            running.assert_idle();
        }
    }
}

impl Running {
    /// Waits until the engine has obeyed what was sent, then checks that it holds nothing.
    fn assert_idle(&self) {
        let idle = |text: &str| {
            let zero = |name: &str| {
                text.lines().any(|line| line.starts_with(name) && line.ends_with(" 0"))
            };
            zero("vllm:num_requests_running")
                && zero("vllm:num_requests_waiting")
                && zero("vllm:kv_cache_usage_perc")
        };
        for _ in 0..500 {
            if idle(&self.metrics.render()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("still busy:\n{}", self.metrics.render());
    }
}

#[test]
fn computes_a_shared_prompt_once() {
    let running = start(&config(64), Duration::ZERO);
    let many: Vec<_> = (0..6).map(|seed| request(prompt(1, 100), 1, seed)).collect();
    answers(&running, many);
    assert_eq!(running.tokens_run.load(Ordering::Relaxed), 100 + 5 * 4);
}

#[test]
fn a_dropped_stream_frees_its_blocks_wherever_it_stands() {
    let running = start(&EngineConfig { max_num_seqs: 2, ..config(16) }, Duration::from_millis(2));
    let mut streams: Vec<_> = (0..6)
        .map(|seed| running.handle.submit(request(prompt(seed, 60), 200, u64::from(seed))))
        .collect();
    block_on(async {
        assert!(matches!(streams[0].next().await, Some(EngineOutput::Started { .. })));
        assert!(matches!(streams[0].next().await, Some(EngineOutput::Token { .. })));
    });
    // Running, prefilling and waiting ones alike.
    streams.clear();
    running.assert_idle();
    assert_eq!(running.handle.health(BOUND), EngineHealth::Healthy);
}

#[test]
fn a_failed_step_ends_its_sequences_and_nothing_else() {
    let running = start(&config(64), Duration::ZERO);
    for bad in [FAILS, PANICS] {
        let stream = running.handle.submit(request(vec![1, bad], 4, 0));
        let (_, end) = block_on(collect(stream));
        let Some(EngineOutput::Failed(EngineError::StepFailed(message))) = end else {
            panic!("expected a failure, got {end:?}");
        };
        assert!(message.contains("asked to"), "{message}");
        answers(&running, vec![request(prompt(3, 20), 4, 0)]);
    }
    running.assert_idle();
}

#[test]
fn refuses_what_can_never_run() {
    let running = start(&config(4), Duration::ZERO);
    let cases = [
        (request(Vec::new(), 1, 0), "no tokens"),
        (request(vec![1; 128], 1, 0), "128 tokens, the context length is 128"),
        (request(vec![98], 1, 0), "token id 98 is outside the vocabulary of 98"),
        (request(vec![1], 0, 0), "max_tokens is 0"),
    ];
    for (request, expected) in cases {
        let (_, end) = block_on(collect(running.handle.submit(request)));
        let Some(EngineOutput::Failed(EngineError::Rejected(message))) = end else {
            panic!("expected a refusal, got {end:?}");
        };
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn ends_for_the_reason_that_came_first() {
    let running = start(&config(4), Duration::ZERO);
    let (all, _) = alone_with(&running, request(prompt(5, 10), 20, 1));
    let mut stopped = request(prompt(5, 10), 20, 1);
    stopped.stop.stop_token_ids = vec![all[6]];
    let first = all.iter().position(|token| *token == all[6]).unwrap();
    let (tokens, end) = alone_with(&running, stopped);
    assert_eq!(tokens, all[..=first]);
    assert_eq!(end, FinishReason::StopToken(all[6]));
    let mut eos = request(prompt(5, 10), 20, 1);
    eos.stop.eos_token_ids = Arc::from([all[3]]);
    assert_eq!(alone_with(&running, eos.clone()).1, FinishReason::Eos);
    eos.stop.ignore_eos = true;
    let (tokens, end) = alone_with(&running, eos);
    assert_eq!((tokens.len(), end), (20, FinishReason::Length));
    let (tokens, end) = alone_with(&running, request(prompt(5, 100), 500, 1));
    assert_eq!((tokens.len(), end), (28, FinishReason::Length));
}

fn alone_with(running: &Running, request: EngineRequest) -> (Vec<u32>, FinishReason) {
    let ((tokens, _), end) = block_on(collect(running.handle.submit(request)));
    let Some(EngineOutput::Finished { reason, .. }) = end else { panic!("{end:?}") };
    (tokens, reason)
}

mod adapters;
mod beams;
mod disk;
mod draft_head;
mod draft_model;
mod embedding;
mod giving_way;
mod restart;
mod speculation;
mod states;
mod tiers;

#[test]
fn a_dead_engine_answers_with_an_error() {
    let limits = start(&config(4), Duration::ZERO).handle.limits().clone();
    let (handle, commands) = EngineHandle::channel(limits);
    drop(commands);
    assert_eq!(handle.health(BOUND), EngineHealth::Dead);
    let (_, end) = block_on(collect(handle.submit(request(vec![1], 1, 0))));
    assert_eq!(end, Some(EngineOutput::Failed(EngineError::NotRunning)));
}
