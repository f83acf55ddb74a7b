//! `sconce bench`: how fast does a server answer under load?
//!
//! Works against any server that speaks the OpenAI API; it knows nothing of ours. The same seed
//! sends the same prompts at the same times, so two servers can be compared.

mod args;
mod arrivals;
mod comparison;
mod driver;
mod histogram;
mod progress;
mod prompts;
mod report;
mod stats;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};

pub use crate::cli::bench::args::{BenchArgs, Endpoint};
use crate::cli::bench::driver::{LoadPlan, Outcome, run_load};
use crate::cli::bench::progress::Progress;
use crate::cli::bench::prompts::{Phase, PromptShape, Prompts, check_fits};
pub use crate::cli::bench::report::BenchReport;
use crate::cli::client::ApiClient;

/// Requests that are sent when neither a number nor a duration is given.
const DEFAULT_NUM_REQUESTS: u32 = 32;

/// Measures and prints.
///
/// # Errors
/// The server can't be reached, the lengths don't fit its model, no request got its answer, or the
/// JSON file can't be written.
pub async fn run(args: BenchArgs) -> anyhow::Result<()> {
    // Known before anything is measured.
    let before = args.compare.as_deref().map(comparison::read).transpose()?;
    let report = measure(&args).await?;
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => {
            serde_json::to_writer_pretty(std::io::stdout().lock(), &report)?;
            writeln!(std::io::stdout())?;
        }
        Some(path) => {
            write!(std::io::stdout(), "{}", report.table())?;
            let json = serde_json::to_vec_pretty(&report)?;
            std::fs::write(path, json)
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        None => write!(std::io::stdout(), "{}", report.table())?,
    }
    if let Some(before) = before {
        let table = comparison::table(&before, &serde_json::to_value(&report)?);
        // Standard output may be JSON.
        write!(std::io::stderr(), "{table}")?;
    }
    if report.completed() == 0 {
        bail!("no request got a complete answer");
    }
    Ok(())
}

/// Measures without printing anything but a progress bar on standard error.
///
/// # Errors
/// The server can't be reached, the lengths don't fit its model, or a warm-up request failed.
pub async fn measure(args: &BenchArgs) -> anyhow::Result<BenchReport> {
    let client = ApiClient::new(&args.url, args.api_key.as_deref())?;
    let mut models = Vec::with_capacity(args.model.len().max(1));
    for name in &args.model {
        models.push(client.pick_model(Some(name)).await?);
    }
    if models.is_empty() {
        models.push(client.pick_model(None).await?);
    }
    let shape = PromptShape {
        endpoint: args.endpoint,
        models: models.iter().map(|model| model.id.clone()).collect(),
        input_len: args.input_len as usize,
        shared_prefix_len: args.shared_prefix_len as usize,
        output_len: args.output_len as usize,
        temperature: args.temperature,
        ignore_eos: !args.allow_eos,
        seed: args.seed,
        extra: args.extra_body.clone().unwrap_or_default(),
    };
    models.iter().try_for_each(|model| check_fits(&shape, model))?;
    let prompts = Arc::new(Prompts::prepare(&client, shape.clone()).await);
    warm_up(&client, &prompts, args).await?;
    let plan = plan_of(args);
    let progress = Progress::new(plan.num_requests);
    let path = args.endpoint.path();
    let result = run_load(&client, path, &prompts, Phase::Measured, plan, progress.clone()).await;
    progress.finish();
    Ok(BenchReport::new(client.base(), &shape, prompts.kind(), plan, &result))
}

/// One failed warm-up request ends the run: what follows would only fail more often.
async fn warm_up(
    client: &ApiClient,
    prompts: &Arc<Prompts>,
    args: &BenchArgs,
) -> anyhow::Result<()> {
    if args.warmup == 0 {
        return Ok(());
    }
    let plan = LoadPlan {
        num_requests: Some(args.warmup as usize),
        duration: None,
        concurrency: Some(args.concurrency.unwrap_or(1) as usize),
        request_rate: None,
        request_timeout: seconds(args.timeout),
        seed: args.seed,
    };
    let path = args.endpoint.path();
    let result = run_load(client, path, prompts, Phase::Warmup, plan, Progress::hidden()).await;
    for record in result.records {
        if let Outcome::Failed { message, .. } = record.outcome {
            bail!("a warm-up request failed: {message}");
        }
    }
    Ok(())
}

fn plan_of(args: &BenchArgs) -> LoadPlan {
    let unlimited = args.num_requests.is_none() && args.duration.is_some();
    let closed = args.request_rate.is_none();
    let concurrency = args.concurrency.or(closed.then_some(1));
    LoadPlan {
        num_requests: (!unlimited)
            .then(|| args.num_requests.unwrap_or(DEFAULT_NUM_REQUESTS) as usize),
        duration: args.duration.map(seconds),
        concurrency: concurrency.map(|count| count as usize),
        request_rate: args.request_rate,
        request_timeout: seconds(args.timeout),
        seed: args.seed,
    }
}

/// The parser has checked that the number is positive; one too large means "never".
fn seconds(seconds: f64) -> Duration {
    // 30 years, which an Instant can still be moved by.
    const LONGEST: Duration = Duration::from_hours(30 * 365 * 24);
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::fake_server::{eventually, start};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(flags: &[&str]) -> Result<BenchArgs, clap::Error> {
        let all = std::iter::once("bench").chain(flags.iter().copied());
        Command::try_parse_from(all).map(|command| command.bench)
    }

    #[test]
    fn without_flags_32_requests_one_after_the_other() {
        let plan = plan_of(&parse(&[]).unwrap());
        assert_eq!(plan.num_requests, Some(32));
        assert_eq!(plan.concurrency, Some(1));
        assert_eq!(plan.duration, None);
    }

    #[test]
    fn a_duration_lifts_the_number_and_a_rate_the_concurrency() {
        let plan = plan_of(&parse(&["--duration", "1.5", "--request-rate", "2"]).unwrap());
        assert_eq!(plan.num_requests, None);
        assert_eq!(plan.concurrency, None);
        assert_eq!(plan.duration, Some(Duration::from_millis(1500)));
        let both = parse(&["--duration", "1", "--num-requests", "3", "--concurrency", "2"]);
        let plan = plan_of(&both.unwrap());
        assert_eq!((plan.num_requests, plan.concurrency), (Some(3), Some(2)));
    }

    #[test]
    fn refuses_numbers_out_of_range() {
        let bad = [
            ["--request-rate", "0"],
            ["--request-rate", "nan"],
            ["--request-rate", "-1"],
            ["--duration", "inf"],
            ["--concurrency", "0"],
            ["--output-len", "0"],
            ["--num-requests", "0"],
            ["--endpoint", "responses"],
        ];
        for flags in bad {
            assert!(parse(&flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn the_longest_times_do_not_overflow() {
        let now = tokio::time::Instant::now();
        assert!(now.checked_add(seconds(f64::MAX)).is_some());
        assert!(now.checked_add(seconds(1e9)).is_some());
    }

    async fn measured(url: &str, flags: &str) -> BenchReport {
        let mut all = vec!["--url", url, "--input-len", "20", "--output-len", "5"];
        all.extend(flags.split_whitespace());
        measure(&parse(&all).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_closed_loop_keeps_its_number_of_requests_running() {
        let (url, seen) = start().await;
        let report = measured(&url, "--concurrency 3 --num-requests 12 --warmup 2").await;
        assert_eq!(report.completed(), 12);
        assert_eq!(report.errors().count(), 0);
        assert_eq!(seen.most_running(), 3);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["output_tokens"], 60);
        assert_eq!(json["prompt_tokens"], 84);
        assert_eq!(json["cached_prompt_tokens"], 36);
        assert_eq!(json["ttft_ms"]["count"], 12);
        assert_eq!(json["itl_ms"]["count"], 48);
        // The server waits 2 ms before each of its nine frames.
        assert!(json["e2e_ms"]["p50"].as_f64().unwrap() >= 18.0);
        assert_eq!(json["workload"]["model"], "steady");
        let bodies = seen.bodies.lock().unwrap();
        assert_eq!(bodies.len(), 14);
        assert_eq!(bodies[0]["prompt"].as_array().unwrap().len(), 20);
        assert_eq!(bodies[0]["ignore_eos"], true);
    }

    #[tokio::test]
    async fn the_same_seed_sends_the_same_prompts() {
        let (url, seen) = start().await;
        for flags in ["--seed 5", "--seed 5", "--seed 6"] {
            measured(&url, &format!("{flags} --num-requests 3 --endpoint chat --warmup 0")).await;
        }
        let bodies = seen.bodies.lock().unwrap();
        assert_eq!(bodies[..3], bodies[3..6]);
        assert_ne!(bodies[..3], bodies[6..]);
    }

    #[tokio::test]
    async fn requests_take_models_in_turn_and_have_more_fields() {
        let (url, seen) = start().await;
        let flags = "--model a --model b --num-requests 4 --warmup 0 --temperature 0.5";
        let extra = r#"--extra-body {"top_p":0.9,"temperature":1}"#;
        measured(&url, &format!("{flags} {extra}")).await;
        let bodies = seen.bodies.lock().unwrap();
        let models: Vec<_> = bodies.iter().map(|body| body["model"].as_str().unwrap()).collect();
        assert_eq!(models, ["a", "b", "a", "b"]);
        assert!(bodies.iter().all(|body| body["top_p"] == 0.9 && body["temperature"] == 1));
        assert!(parse(&["--extra-body", "[1]"]).is_err());
    }

    #[tokio::test]
    async fn arrivals_do_not_wait_for_answers() {
        let (url, seen) = start().await;
        let report = measured(&url, "--request-rate 500 --num-requests 20").await;
        assert_eq!(report.completed(), 20);
        assert!(seen.most_running() > 1);
        let bounded = measured(&url, "--request-rate 500 --num-requests 20 --concurrency 1").await;
        assert_eq!(bounded.completed(), 20);
    }

    #[tokio::test]
    async fn a_duration_cuts_running_answers_and_counts_their_tokens() {
        let (url, seen) = start().await;
        let flags = "--model endless --duration 0.2 --concurrency 2 --warmup 0";
        let report = measured(&url, flags).await;
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["requests"]["cut_by_time"], 2);
        assert_eq!(json["requests"]["completed"], 0);
        assert!(json["output_tokens"].as_u64().unwrap() > 10);
        eventually("the server saw the end", || seen.running() == 0).await;
    }

    #[tokio::test]
    async fn errors_are_counted_by_kind() {
        let (url, _) = start().await;
        for (model, kind) in [
            ("full", "http 429"),
            ("breaks", "error frame: boom"),
            ("cut", "broken connection"),
            ("not-a-stream", "unexpected answer"),
            ("endless", "timeout"),
        ] {
            let flags = format!("--model {model} --num-requests 2 --warmup 0 --timeout 0.1");
            let report = measured(&url, &flags).await;
            assert_eq!(report.errors().collect::<Vec<_>>(), [(kind, 2)], "{model}");
        }
    }

    #[tokio::test]
    async fn fails_early_when_nothing_can_come_of_it() {
        let (url, seen) = start().await;
        let fails =
            async |flags: &[&str]| measure(&parse(flags).unwrap()).await.unwrap_err().to_string();
        let refused = fails(&["--url", "http://127.0.0.1:1"]).await;
        assert!(refused.contains("can't connect to http://127.0.0.1:1"), "{refused}");
        let long = fails(&["--url", &url, "--input-len", "2000"]).await;
        assert!(long.contains("2064") && long.contains("2048"), "{long}");
        assert!(seen.bodies.lock().unwrap().is_empty());
        let full = fails(&["--url", &url, "--model", "full"]).await;
        assert!(full.contains("warm-up") && full.contains("queue is full"), "{full}");
    }
}
