//! Whose request a task works for. It goes with the task instead of through every signature, so that no
//! route can forget whom to ask and whom to charge.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Span;

use super::keys::account::{Level, Place};
use super::keys::{Key, Keys};
use crate::http::error::{ApiError, KeyLimit};
use crate::metrics::MetricsHandle;
use crate::store::{Store, UsageCounts};

/// Longest time that a request waits for the limits that servers share; those of this one hold then.
const PATIENCE: Duration = Duration::from_millis(500);

tokio::task_local! {
    static CALLER: Caller;
}

/// A number by which the engine tells the keys apart for which it works; 0 where there are none.
pub(crate) fn share() -> u64 {
    Caller::current().map_or(0, |caller| caller.0.key.account.share)
}

/// What a caller needs of the server that is called.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    pub(crate) keys: &'a Arc<Keys>,
    pub(crate) metrics: &'a MetricsHandle,
    /// What usage calls the model, where a request names none.
    pub(crate) model: &'a str,
    /// What takes longer is told in the log.
    pub(crate) slower_than: Option<Duration>,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<Asking>);

#[derive(Debug)]
struct Asking {
    key: Key,
    /// Whether the key's limits bind the request; stored ones were counted when they came.
    limited: bool,
    keys: Arc<Keys>,
    metrics: MetricsHandle,
    /// What usage calls the model.
    model: Mutex<Arc<str>>,
    /// Until the request is admitted, and has it.
    place: Mutex<Option<Place>>,
    began: Instant,
    /// What takes longer than this is told in the log.
    slow: Option<Duration>,
    spent: Mutex<Spent>,
    span: Span,
}

/// What a request has cost so far; of times, those of its slowest sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) output_tokens: usize,
    pub(crate) queue: Duration,
    pub(crate) prefill: Duration,
    pub(crate) decode: Duration,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        self.queue = self.queue.max(other.queue);
        self.prefill = self.prefill.max(other.prefill);
        self.decode = self.decode.max(other.decode);
    }
}

impl Drop for Asking {
    /// The last of a request: its answer has gone to its client, or nobody waits for it any more.
    fn drop(&mut self) {
        let total = self.began.elapsed();
        if self.slow.is_none_or(|slow| total < slow) {
            return;
        }
        let spent = *self.spent.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Spent { prompt_tokens, cached_tokens, output_tokens, queue, prefill, decode } = spent;
        let key = &*self.key.account.name;
        let model = self.model();
        let _inside = self.span.enter();
        tracing::warn!(
            key, %model, ?total, ?queue, ?prefill, ?decode, prompt_tokens, cached_tokens,
            output_tokens, "a slow request"
        );
    }
}

impl Asking {
    fn model(&self) -> Arc<str> {
        Arc::clone(&self.model.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whoever pays for what a sequence costs.
#[derive(Clone, Debug)]
pub(crate) struct Payer {
    caller: Caller,
    model: Arc<str>,
}

impl Caller {
    /// The bearer of a key; its limits bind the request unless that was stored, and counted, before.
    pub(crate) fn new(key: Key, limited: bool, server: &Server<'_>) -> Self {
        Self(Arc::new(Asking {
            key,
            limited,
            keys: Arc::clone(server.keys),
            metrics: server.metrics.clone(),
            model: Mutex::new(server.model.into()),
            place: Mutex::new(None),
            began: Instant::now(),
            slow: server.slower_than,
            spent: Mutex::default(),
            span: Span::current(),
        }))
    }

    /// Who asks in this task, if anybody does.
    pub(crate) fn current() -> Option<Self> {
        CALLER.try_with(Self::clone).ok()
    }

    /// Works for this caller.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        CALLER.scope(self, work).await
    }

    /// Takes a request out of the key's limits, and a place among its requests.
    pub(crate) async fn enter(&self, store: &Store) -> Result<(), ApiError> {
        let Asking { key, keys, place, .. } = &*self.0;
        let (account, limits) = (&key.account, &key.facts.limits);
        let entered = account.enter(limits, Instant::now()).map_err(|limit| self.refuse(limit))?;
        if store.is_shared() && *limits != super::keys::file::KeyLimits::default() {
            let claim = account.claim(limits, keys.holder());
            match tokio::time::timeout(PATIENCE, store.claim(&claim)).await {
                Ok(Ok(claimed)) => account
                    .settle(limits, claimed, Instant::now())
                    .map_err(|limit| self.refuse(limit))?,
                Ok(Err(error)) => {
                    account.keep(claim.spent);
                    tracing::warn!(%error, "limits are this server's alone for now");
                }
                Err(_elapsed) => {
                    // Whether it was made is not known; what was spent is not told twice.
                    tracing::warn!("the store is slow: limits are this server's alone for now");
                }
            }
        }
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(entered);
        Ok(())
    }

    /// Counts a request that is admitted; its place among the key's, which it has until it ends.
    pub(crate) fn admitted(&self) -> Option<Place> {
        let counts = UsageCounts { requests: 1, ..UsageCounts::default() };
        self.count(&self.0.model(), counts);
        self.0.metrics.key_request(&self.0.key.account.label);
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the tokens of a prompt out of the key's limits.
    pub(crate) fn take_prompt(&self, tokens: usize) -> Result<(), ApiError> {
        let Asking { key, limited, .. } = &*self.0;
        if !limited {
            return Ok(());
        }
        let taken = key.account.take_prompt(&key.facts.limits, tokens as u64, Instant::now());
        taken.map_err(|limit| self.refuse(limit))
    }

    fn refuse(&self, limit: KeyLimit) -> ApiError {
        self.0.metrics.key_refused(&self.0.key.account.label, limit.kind.name());
        ApiError::KeyLimit(limit)
    }

    /// Counts a request that the key does not open.
    pub(crate) fn count_forbidden(&self) {
        self.0.metrics.key_refused(&self.0.key.account.label, "forbidden");
    }

    /// The limits of requests and of tokens, as far as the key has any.
    pub(crate) fn levels(&self) -> [Option<Level>; 2] {
        let key = &self.0.key;
        key.account.levels(&key.facts.limits, Instant::now())
    }

    /// The key.
    pub(crate) fn key(&self) -> &Key {
        &self.0.key
    }

    /// What usage calls the key.
    pub(crate) fn name(&self) -> &str {
        &self.0.key.account.name
    }

    /// Whether the key's bearers may name a model or an adapter.
    pub(crate) fn may_name(&self, model: &str) -> bool {
        let models = self.0.key.facts.models.as_ref();
        models.is_none_or(|models| models.iter().any(|allowed| allowed == model))
    }

    /// Sets what usage calls the model.
    pub(crate) fn set_model(&self, model: &str) {
        *self.0.model.lock().unwrap_or_else(PoisonError::into_inner) = model.into();
    }

    /// Whoever pays for a sequence that begins now.
    pub(crate) fn payer(&self) -> Payer {
        Payer { caller: self.clone(), model: self.0.model() }
    }

    fn count(&self, model: &Arc<str>, counts: UsageCounts) {
        self.0.keys.book.add(&self.0.key.account.name, model, counts);
    }
}

impl Payer {
    /// A token of an answer came.
    pub(crate) fn take_token(&self) {
        if self.caller.0.limited {
            self.caller.0.key.account.take_token();
        }
    }

    /// The sequence has ended, and cost this.
    pub(crate) fn pay(&self, cost: Spent) {
        let Spent { prompt_tokens, cached_tokens, output_tokens, .. } = cost;
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = UsageCounts {
            requests: 0,
            input: whole(prompt_tokens),
            cached: whole(cached_tokens),
            output: whole(output_tokens),
        };
        self.caller.count(&self.model, counts);
        let Asking { key, metrics, spent, .. } = &*self.caller.0;
        metrics.key_tokens(&key.account.label, prompt_tokens, cached_tokens, output_tokens);
        spent.lock().unwrap_or_else(PoisonError::into_inner).add(cost);
    }
}
