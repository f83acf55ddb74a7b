//! `sconce train-demo`: trains the demo model, or examines one. Refuses to know how either is done.

use crate::demo;
use crate::demo::gate::{Gate, Scores};
use crate::demo::trainer::decode::Decoder;
use crate::demo::trainer::{Plan, SHAPE, Step, Training};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Train the demo model, or examine one
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Folder for the model and the checkpoint
    #[arg(long, default_value = "demo-model")]
    out: PathBuf,
    /// Tokens to train on
    #[arg(long, default_value_t = 12_000_000)]
    tokens: u64,
    /// Stop after so many minutes, with what there is
    #[arg(long)]
    minutes: Option<f64>,
    /// Names the corpus and the first weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Take up the training that --out holds
    #[arg(long)]
    resume: bool,
    /// Highest learning rate
    #[arg(long, default_value_t = 3e-3)]
    rate: f64,
    /// Tokens of a batch
    #[arg(long, default_value_t = 2048)]
    batch: usize,
    /// Threads [default: one per core]
    #[arg(long)]
    threads: Option<usize>,
    /// Only examine the model in FOLDER, or the embedded one; fails if it doesn't pass
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = EMBEDDED)]
    gate: Option<PathBuf>,
    /// With --gate: show the wrong answers
    #[arg(long)]
    wrong: bool,
}

/// Stands for the embedded model where --gate has no folder.
const EMBEDDED: &str = "embedded";
/// Steps between two looks at held-out copying.
const LOOK_EVERY: i32 = 150;
const SUBJECTS_LOOKED_AT: usize = 20;
const SAVE_EVERY: Duration = Duration::from_mins(2);

/// Trains, or only examines.
#[expect(clippy::needless_pass_by_value, reason = "every subcommand takes its arguments over")]
pub fn run(args: Args) -> Result<()> {
    match &args.gate {
        Some(folder) => {
            let scores = examine(folder, args.wrong)?;
            if !scores.passed() {
                bail!("the model does not pass the gate");
            }
            Ok(())
        }
        None => train(&args),
    }
}

fn examine(folder: &Path, wrong: bool) -> Result<Scores> {
    let decoder =
        if folder.as_os_str() == EMBEDDED { Decoder::load(embedded)? } else { load(folder)? };
    let mut generate = |prompt: &[u32], limit: usize| decoder.greedy(prompt, limit);
    let scores = Gate::new(&decoder.tokenizer, &mut generate).run()?;
    show(&scores.to_string());
    if wrong {
        for score in &scores.0 {
            for (prompt, answer) in &score.wrong {
                show(&format!("--- {}\n{prompt}>>> {answer}\n", score.name));
            }
        }
    }
    Ok(scores)
}

fn train(args: &Args) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan {
        seed: args.seed,
        tokens: args.tokens,
        batch_tokens: args.batch,
        longest: 512,
        rate: args.rate,
        threads: args.threads.unwrap_or(cores).max(1),
    };
    let mut training =
        if args.resume { Training::resume(plan, &args.out)? } else { Training::new(plan, SHAPE)? };
    let bar = ProgressBar::new(args.tokens);
    bar.set_style(
        ProgressStyle::with_template(
            "{elapsed} [{wide_bar}] {human_pos}/{human_len} tokens, {per_sec}, {msg}",
        )
        .context("the progress line's template is wrong")?,
    );
    bar.set_position(training.tokens);
    bar.reset_eta();
    let began = Instant::now();
    let limit = args.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (mut saved, mut steps, mut loss) = (Instant::now(), 0, f64::NAN);
    let first_tokens = training.tokens;
    training.run(|training, step: Step| {
        steps += 1;
        loss = if loss.is_nan() { step.loss } else { loss * 0.98 + step.loss * 0.02 };
        bar.set_position(training.tokens);
        bar.set_message(format!("loss {loss:.4}"));
        if steps % LOOK_EVERY == 0 {
            let speed = (training.tokens - first_tokens) / began.elapsed().as_secs().max(1);
            training.export(&args.out)?;
            let (right, sample) = look(&args.out)?;
            let line = format!(
                "{} tokens, {speed}/s, loss {loss:.4}, gradient {:.2}, rate {:.5}, unseen subjects {right} of {SUBJECTS_LOOKED_AT}: {sample}",
                training.tokens, step.gradient_norm, step.rate
            );
            if bar.is_hidden() {
                show(&line);
            } else {
                bar.println(line);
            }
            // The whole examination takes a while: only where it may be passed.
            if right == SUBJECTS_LOOKED_AT && examine(&args.out, false)?.passed() {
                return Ok(false);
            }
        }
        if saved.elapsed() > SAVE_EVERY {
            training.save(&args.out)?;
            saved = Instant::now();
        }
        Ok(limit.is_none_or(|limit| began.elapsed() < limit))
    })?;
    training.save(&args.out)?;
    bar.finish();
    if !examine(&args.out, false)?.passed() {
        bail!("the model does not pass the gate: train it further with --resume and more --tokens");
    }
    Ok(())
}

/// How many of a few unseen subjects are copied, and one story.
fn look(folder: &Path) -> Result<(usize, String)> {
    let decoder = load(folder)?;
    let mut sample = String::new();
    let mut generate = |prompt: &[u32], limit: usize| {
        let answer = decoder.greedy(prompt, limit.min(200))?;
        if sample.is_empty() {
            sample = decoder.tokenizer.decode(&answer, false).unwrap_or_default();
        }
        Ok(answer)
    };
    let score = Gate::new(&decoder.tokenizer, &mut generate).subjects(SUBJECTS_LOOKED_AT)?;
    Ok((score.right, sample))
}

fn load(folder: &Path) -> Result<Decoder> {
    Decoder::load(|name| {
        let path = folder.join(name);
        std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))
    })
}

fn embedded(name: &str) -> Result<Vec<u8>> {
    let file = demo::files().iter().find(|(file, _)| *file == name);
    Ok(file.with_context(|| format!("the embedded model has no {name}"))?.1.to_vec())
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn show(text: &str) {
    println!("{text}");
}
