//! What comes from strangers - GGUF files, safetensors headers, tokenizers - damaged in every way a
//! small program can think of: readers refuse it or read it, but never panic, and never take more
//! memory than the file's size accounts for.
//!
//! Inputs are real fixtures with mutations, the same for the same number. `SCONCE_FUZZ_SECONDS` runs
//! each target for so long instead of a few hundred cases, `SCONCE_FUZZ_FIRST` begins with another
//! case.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

mod memory;
mod mutation;
mod targets;

use memory::Used;
use mutation::Mutator;

/// Cases of a target when nothing else is said.
const CASES: u64 = 300;

/// What is tried on damaged inputs.
struct Target {
    name: &'static str,
    /// Undamaged inputs.
    inputs: Vec<Vec<u8>>,
    /// Reads an input as far as it can be read.
    read: fn(&[u8]),
    /// Bytes that it may hold at a time: so many for each of the file, and so many besides.
    held: (usize, usize),
    /// The same of a single allocation.
    single: (usize, usize),
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn run(target: &Target) {
    for input in &target.inputs {
        // What is made once is not a file's fault.
        (target.read)(input);
        check(target, 0, input);
    }
    let first = number("SCONCE_FUZZ_FIRST").unwrap_or(0);
    let until = number("SCONCE_FUZZ_SECONDS").map(Duration::from_secs);
    let started = Instant::now();
    let mut case = first;
    while until.map_or(case < first + CASES, |until| started.elapsed() < until) {
        let mut mutator = Mutator::new(case);
        let input = mutator.input(&target.inputs);
        check(target, case, &input);
        case += 1;
    }
    println!("{}: {} cases", target.name, case - first);
}

fn check(target: &Target, case: u64, input: &[u8]) {
    let (outcome, used) =
        memory::of(|| catch_unwind(AssertUnwindSafe(|| (target.read)(input))).is_ok());
    let Used { held, single } = used;
    let bound = |(each, besides): (usize, usize)| each * input.len() + besides;
    let fits = held <= bound(target.held) && single <= bound(target.single);
    if outcome && fits {
        return;
    }
    let path = std::env::temp_dir().join(format!("sconce-fuzz-{}-{case}", target.name));
    std::fs::write(&path, input).unwrap();
    panic!(
        "{} case {case} of {} bytes (kept as {}): no panic is {outcome}, {held} bytes held, {single} \
         in one piece",
        target.name,
        input.len(),
        path.display()
    );
}

#[test]
fn damaged_gguf_files_are_read_within_their_size() {
    run(&targets::gguf());
}

#[test]
fn damaged_safetensors_are_read_within_their_size() {
    run(&targets::safetensors());
}

#[test]
fn damaged_tokenizers_are_read_within_their_size() {
    run(&targets::tokenizers());
}
