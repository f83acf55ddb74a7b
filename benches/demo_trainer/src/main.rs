//! `train-demo`: trains the demo model that is embedded in sconce, or examines one. Refuses to know how
//! either is done.

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "all numbers are small"
)]
mod corpus;
mod gate;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts of tokens and columns stay far below what the narrower types hold"
)]
mod trainer;

use anyhow::{Context, Result, bail};
use clap::Parser;
use gate::{Gate, Scores};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trainer::decode::Decoder;
use trainer::{Plan, SHAPE, Step, Training};

/// Trains the demo model that is embedded in sconce, or examines one
#[derive(Clone, Debug, Parser)]
#[command(name = "train-demo", max_term_width = 100)]
struct Args {
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

/// The folder whose files sconce embeds.
const EMBEDDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/demo/model");
/// Steps between two looks at held-out copying.
const LOOK_EVERY: i32 = 150;
const SUBJECTS_LOOKED_AT: usize = 20;
const SAVE_EVERY: Duration = Duration::from_mins(2);

fn main() -> Result<()> {
    let args = Args::parse();
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
    let decoder = load(folder)?;
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
        rate: args.rate,
        threads: args.threads.unwrap_or(cores).max(1),
    };
    let mut training =
        if args.resume { Training::resume(plan, &args.out)? } else { Training::new(plan, SHAPE)? };
    let mut watch = Watch::new(args, training.tokens)?;
    training.run(|training, step| watch.after(training, &step))?;
    training.save(&args.out)?;
    watch.bar.finish();
    if !examine(&args.out, false)?.passed() {
        bail!("the model does not pass the gate: train it further with --resume and more --tokens");
    }
    Ok(())
}

/// What is shown, saved and examined between the steps of a training.
struct Watch<'a> {
    out: &'a Path,
    bar: ProgressBar,
    began: Instant,
    limit: Option<Duration>,
    first_tokens: u64,
    saved: Instant,
    steps: i32,
    /// Moving average of the steps' losses.
    loss: f64,
}

impl<'a> Watch<'a> {
    fn new(args: &'a Args, first_tokens: u64) -> Result<Self> {
        let bar = ProgressBar::new(args.tokens);
        bar.set_style(
            ProgressStyle::with_template(
                "{elapsed} [{wide_bar}] {human_pos}/{human_len} tokens, {per_sec}, {msg}",
            )
            .context("the progress line's template is wrong")?,
        );
        bar.set_position(first_tokens);
        bar.reset_eta();
        Ok(Self {
            out: &args.out,
            bar,
            began: Instant::now(),
            limit: args.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
            first_tokens,
            saved: Instant::now(),
            steps: 0,
            loss: f64::NAN,
        })
    }

    /// Called after every step; says whether to go on.
    fn after(&mut self, training: &Training, step: &Step) -> Result<bool> {
        self.steps += 1;
        self.loss =
            if self.loss.is_nan() { step.loss } else { self.loss * 0.98 + step.loss * 0.02 };
        self.bar.set_position(training.tokens);
        self.bar.set_message(format!("loss {:.4}", self.loss));
        if self.steps % LOOK_EVERY == 0 && self.look_at(training, step)? {
            return Ok(false);
        }
        if self.saved.elapsed() > SAVE_EVERY {
            training.save(self.out)?;
            self.saved = Instant::now();
        }
        Ok(self.limit.is_none_or(|limit| self.began.elapsed() < limit))
    }

    /// Shows how far the training is; whether the model passes the gate already.
    fn look_at(&self, training: &Training, step: &Step) -> Result<bool> {
        let speed = (training.tokens - self.first_tokens) / self.began.elapsed().as_secs().max(1);
        training.export(self.out)?;
        let (right, sample) = look(self.out)?;
        let line = format!(
            "{} tokens, {speed}/s, loss {:.4}, gradient {:.2}, rate {:.5}, unseen subjects {right} of {SUBJECTS_LOOKED_AT}: {sample}",
            training.tokens, self.loss, step.gradient_norm, step.rate
        );
        if self.bar.is_hidden() {
            show(&line);
        } else {
            self.bar.println(line);
        }
        // The whole examination takes a while: only where it may be passed.
        Ok(right == SUBJECTS_LOOKED_AT && examine(self.out, false)?.passed())
    }
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

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn show(text: &str) {
    println!("{text}");
}
