//! An engine that plays scripts: one thread, one token per sequence and step.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sconce::config::Pooling;
use sconce::engine::output::{EngineError, EngineOutput, Foreseen, OutputSender, SequenceStats};
use sconce::engine::request::{BeamRequest, EmbeddingRequest, EngineRequest, RequestId};
use sconce::engine::{Command, EngineHandle, EngineLimits, Outputs};
use sconce::pooling::PoolingHead;
use sconce::sampling::logprobs::TokenLogprobs;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

/// What a sequence says.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The tokens, in order; repeated from the start if `endless`.
    pub tokens: Vec<u32>,
    /// Go on until a stop condition or an abort.
    pub endless: bool,
    /// Before every token.
    pub delay: Duration,
    /// Never schedule it.
    pub stuck: bool,
    /// Fail instead of the token with this number.
    pub fail: Option<(usize, EngineError)>,
    /// Logprob of every token, in place of the usual one.
    pub logprob: Option<f32>,
    /// What is reported as found in the prefix cache.
    pub cached_tokens: usize,
}

/// What the engine was asked.
#[derive(Debug, Default)]
pub struct Seen {
    pub requests: Vec<EngineRequest>,
    pub aborts: Vec<RequestId>,
    pub embeddings: Vec<EmbeddingRequest>,
    pub searches: Vec<BeamRequest>,
}

/// The test's side of the engine.
#[derive(Clone, Debug)]
pub struct FakeEngine {
    pub handle: EngineHandle,
    seen: Arc<Mutex<Seen>>,
}

impl FakeEngine {
    /// An engine that answers every request with the script chosen for it.
    pub fn start(
        limits: EngineLimits,
        choose: impl Fn(&EngineRequest) -> Script + Send + 'static,
    ) -> Self {
        let (handle, commands) = EngineHandle::channel(limits);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let for_thread = Arc::clone(&seen);
        std::thread::spawn(move || {
            Player { commands, seen: for_thread, playing: vec![] }.run(&choose);
        });
        Self { handle, seen }
    }

    pub fn requests(&self) -> Vec<EngineRequest> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub fn embeddings(&self) -> Vec<EmbeddingRequest> {
        self.seen.lock().unwrap().embeddings.clone()
    }

    pub fn searches(&self) -> Vec<BeamRequest> {
        self.seen.lock().unwrap().searches.clone()
    }

    pub fn aborts(&self) -> Vec<RequestId> {
        self.seen.lock().unwrap().aborts.clone()
    }

    /// Waits until as many sequences were aborted.
    pub async fn wait_for_aborts(&self, count: usize) {
        for _ in 0..500 {
            if self.aborts().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} of {count} aborts came", self.aborts().len());
    }

    /// Waits until as many sequences were submitted.
    pub async fn wait_for_requests(&self, count: usize) {
        for _ in 0..500 {
            if self.requests().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} of {count} requests came", self.requests().len());
    }
}

/// Deterministic logprobs: the token, then its neighbours.
pub fn logprobs_of(token_id: u32, count: u32) -> TokenLogprobs {
    let top = (0..count).map(|rank| ((token_id + rank) % 256, -0.5 - rank as f32));
    TokenLogprobs { token_id, logprob: -0.5, rank: 1, top: top.collect() }
}

/// The logprob of a token that a request lists.
pub fn listed_logprob(token_id: u32) -> f32 {
    -1.0 - (token_id % 7) as f32 * 0.5
}

struct Playing {
    request: EngineRequest,
    sender: OutputSender,
    script: Script,
    sent: usize,
}

struct Player {
    commands: UnboundedReceiver<Command>,
    seen: Arc<Mutex<Seen>>,
    playing: Vec<Playing>,
}

impl Player {
    fn run(mut self, choose: &dyn Fn(&EngineRequest) -> Script) {
        loop {
            let command = if self.playing.iter().all(|playing| playing.script.stuck) {
                self.commands.blocking_recv().ok_or(TryRecvError::Disconnected)
            } else {
                self.commands.try_recv()
            };
            match command {
                Ok(Command::Submit(request, sender)) => self.begin(*request, sender, choose),
                Ok(Command::Search(search, answers)) => {
                    // As if every answer were a sequence of its own.
                    for (id, sender) in answers {
                        let request = EngineRequest { id, ..search.request.clone() };
                        self.begin(request, sender, choose);
                    }
                    self.seen.lock().unwrap().searches.push(*search);
                }
                Ok(Command::Embed(request, sender)) => self.embed(*request, &sender),
                Ok(Command::Abort(id)) => {
                    self.playing.retain(|playing| playing.request.id != id);
                    self.seen.lock().unwrap().aborts.push(id);
                }
                Ok(Command::Wake) => {}
                Err(TryRecvError::Empty) => self.playing.retain_mut(Playing::step),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    /// An embedding that tells how many tokens there were, and which were first and last; of every
    /// token its place, or its letter and its place.
    fn embed(&self, request: EmbeddingRequest, sender: &OutputSender) {
        let ids = &request.token_ids;
        let ends = [ids.first(), ids.last()].map(|id| *id.unwrap() as f32);
        let head = PoolingHead::new(Pooling::Last, true);
        let mut pooler = head.pooler(None);
        pooler.add(&[ids.len() as f32, ends[0], ends[1], -1.0]);
        let place = |(at, _): (usize, &u32)| at as f32;
        let letter = |(at, id): (usize, &u32)| [*id as f32 - 97.0, at as f32];
        let embedding = match request.wanted.outputs {
            Some(Outputs::TokenWeights) => ids.iter().enumerate().map(place).collect(),
            Some(Outputs::TokenEmbeddings) => ids.iter().enumerate().flat_map(letter).collect(),
            _ => head.finish(pooler, request.wanted),
        };
        self.seen.lock().unwrap().embeddings.push(request);
        let queue = Duration::from_millis(1);
        let _ = sender.send(EngineOutput::Started { cached_tokens: 0, queue });
        let stats = SequenceStats::default();
        let _ = sender.send(EngineOutput::Embedded { embedding, stats });
    }

    fn begin(
        &mut self,
        request: EngineRequest,
        sender: OutputSender,
        choose: &dyn Fn(&EngineRequest) -> Script,
    ) {
        let script = choose(&request);
        self.seen.lock().unwrap().requests.push(request.clone());
        if !script.stuck {
            let cached_tokens = script.cached_tokens;
            let queue = Duration::from_millis(1);
            let _ = sender.send(EngineOutput::Started { cached_tokens, queue });
            if let Some(top) = request.prompt_logprobs {
                let behind = request.prompt_token_ids.iter().skip(1);
                let scores = behind.map(|token_id| logprobs_of(*token_id, top)).collect();
                let _ = sender.send(EngineOutput::PromptLogprobs(scores));
            }
        }
        self.playing.push(Playing { request, sender, script, sent: 0 });
    }
}

impl Playing {
    /// Plays one token; false at the end.
    fn step(&mut self) -> bool {
        if self.script.stuck {
            return true;
        }
        std::thread::sleep(self.script.delay);
        if let Some((at, error)) = &self.script.fail
            && *at == self.sent
        {
            let _ = self.sender.send(EngineOutput::Failed(error.clone()));
            return false;
        }
        let tokens = &self.script.tokens;
        let scripted = if self.script.endless { self.sent % tokens.len() } else { self.sent };
        let eos = self.request.stop.eos_token_ids[0];
        let token_id = tokens.get(scripted).copied().unwrap_or(eos);
        self.sent += 1;
        let logprobs = self.request.sampling.logprobs.map(|count| {
            let usual = logprobs_of(token_id, count);
            let listed = self.request.sampling.logprob_token_ids.as_deref();
            let listed =
                listed.map(|ids| ids.iter().map(|id| (*id, listed_logprob(*id))).collect());
            let top = listed.unwrap_or(usual.top);
            TokenLogprobs { logprob: self.script.logprob.unwrap_or(usual.logprob), top, ..usual }
        });
        let predicted = self.request.prediction.as_ref();
        let predicted = predicted.and_then(|tokens| tokens.get(self.sent - 1));
        let foreseen = Foreseen {
            predicted: predicted.map(|predicted| *predicted == token_id),
            ..Foreseen::default()
        };
        let _ = self.sender.send(EngineOutput::Token { token_id, logprobs, foreseen });
        let Some(reason) = self.request.stop.check(token_id, self.sent) else { return true };
        let stats = SequenceStats {
            cached_tokens: self.script.cached_tokens,
            queue: Duration::from_millis(1),
            prefill: Duration::from_millis(2),
            decode: Duration::from_millis(4),
            ..SequenceStats::default()
        };
        let _ = self.sender.send(EngineOutput::Finished { reason, stats });
        false
    }
}
