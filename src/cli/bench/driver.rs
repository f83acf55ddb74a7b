//! Sends the requests, in a closed loop (a fixed number at once) or an open one (arrivals by
//! schedule), and records what happened to each. Refuses to know what the figures mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::bench::arrivals::PoissonArrivals;
use crate::cli::bench::progress::Progress;
use crate::cli::bench::prompts::{Phase, Prompts};
use crate::cli::client::{ApiClient, ClientError, Usage};

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The whole answer came.
    Completed,
    /// The run's time was over first; what came until then counts.
    CutByTime,
    /// The kind under which the error is counted, and its message.
    Failed { kind: String, message: String },
}

/// One request as the client saw it.
#[derive(Clone, Debug)]
pub(crate) struct RequestRecord {
    /// When it was due: in an open loop the scheduled arrival, else when it was sent.
    pub(crate) due: Instant,
    /// When each chunk with text came, ascending.
    pub(crate) chunk_times: Vec<Instant>,
    pub(crate) end: Instant,
    pub(crate) usage: Option<Usage>,
    pub(crate) outcome: Outcome,
}

/// When to send and when to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadPlan {
    /// Most requests; `None` goes on until `duration` is over.
    pub(crate) num_requests: Option<usize>,
    /// After this the run ends and running requests are cut.
    pub(crate) duration: Option<Duration>,
    /// Most requests at once; `None` only with a rate.
    pub(crate) concurrency: Option<usize>,
    /// Arrivals per second.
    pub(crate) request_rate: Option<f64>,
    pub(crate) request_timeout: Duration,
    pub(crate) seed: u64,
}

/// All records of a run and how long it took.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) records: Vec<RequestRecord>,
    pub(crate) wall: Duration,
}

/// What every request task needs; clones share.
#[derive(Clone)]
struct Sender {
    client: ApiClient,
    path: &'static str,
    prompts: Arc<Prompts>,
    phase: Phase,
    request_timeout: Duration,
    deadline: Option<Instant>,
    progress: Progress,
}

/// Runs a plan to its end.
pub(crate) async fn run_load(
    client: &ApiClient,
    path: &'static str,
    prompts: &Arc<Prompts>,
    phase: Phase,
    plan: LoadPlan,
    progress: Progress,
) -> LoadResult {
    let start = Instant::now();
    let sender = Sender {
        client: client.clone(),
        path,
        prompts: Arc::clone(prompts),
        phase,
        request_timeout: plan.request_timeout,
        deadline: plan.duration.and_then(|duration| start.checked_add(duration)),
        progress,
    };
    let records = match plan.request_rate {
        Some(rate) => open_loop(&sender, plan, rate, start).await,
        None => closed_loop(&sender, plan).await,
    };
    LoadResult { records, wall: start.elapsed() }
}

/// `concurrency` workers, each of which sends its next request when the last one has ended.
async fn closed_loop(sender: &Sender, plan: LoadPlan) -> Vec<RequestRecord> {
    let next = Arc::new(AtomicUsize::new(0));
    let limit = plan.num_requests.unwrap_or(usize::MAX);
    let mut workers = JoinSet::new();
    for _ in 0..plan.concurrency.unwrap_or(1).min(limit) {
        let (sender, next) = (sender.clone(), Arc::clone(&next));
        workers.spawn(async move {
            let mut records = Vec::new();
            while !sender.is_over() {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= limit {
                    break;
                }
                records.push(sender.send(index, Instant::now()).await);
            }
            records
        });
    }
    join(workers).await.into_iter().flatten().collect()
}

/// One task for each arrival; waiting for one of the `concurrency` permits counts as latency.
async fn open_loop(
    sender: &Sender,
    plan: LoadPlan,
    rate: f64,
    start: Instant,
) -> Vec<RequestRecord> {
    let permits = plan.concurrency.map(|count| Arc::new(Semaphore::new(count)));
    let limit = plan.num_requests.unwrap_or(usize::MAX);
    let mut requests = JoinSet::new();
    for (index, offset) in PoissonArrivals::new(rate, plan.seed).take(limit).enumerate() {
        let Some(due) = start.checked_add(offset) else { break };
        if sender.deadline.is_some_and(|deadline| due >= deadline) {
            break;
        }
        tokio::time::sleep_until(due).await;
        let (sender, permits) = (sender.clone(), permits.clone());
        requests.spawn(async move {
            let _permit = match &permits {
                Some(permits) => permits.acquire().await.ok(),
                None => None,
            };
            sender.send(index, due).await
        });
    }
    join(requests).await
}

async fn join<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        // A task is never aborted, so the only error is a panic, which belongs to the caller.
        results.push(result.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    results
}

impl Sender {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    async fn send(&self, index: usize, due: Instant) -> RequestRecord {
        let mut record = RequestRecord {
            due,
            chunk_times: Vec::new(),
            end: due,
            usage: None,
            outcome: Outcome::CutByTime,
        };
        let body = self.prompts.body(self.phase, index);
        let timeout_at = Instant::now() + self.request_timeout;
        let cut_at = self.deadline.filter(|&deadline| deadline < timeout_at);
        self.progress.sent();
        let answer = self.receive(&body, &mut record);
        let answer = tokio::time::timeout_at(cut_at.unwrap_or(timeout_at), answer).await;
        record.end = Instant::now();
        record.outcome = match answer {
            Ok(Ok(())) => Outcome::Completed,
            Ok(Err(error)) => failed(&error),
            Err(_) if cut_at.is_some() => Outcome::CutByTime,
            Err(_) => failed(&ClientError::Timeout(self.request_timeout.as_secs_f64())),
        };
        self.progress.ended();
        record
    }

    async fn receive(&self, body: &Value, record: &mut RequestRecord) -> Result<(), ClientError> {
        let mut stream = self.client.stream(self.path, body).await?;
        while let Some(chunk) = stream.next().await? {
            if chunk.has_text() {
                record.chunk_times.push(Instant::now());
                self.progress.received();
            }
            record.usage = chunk.usage.or(record.usage);
        }
        Ok(())
    }
}

fn failed(error: &ClientError) -> Outcome {
    Outcome::Failed { kind: error.kind(), message: error.to_string() }
}
