//! What comes from strangers - bodies, files of models, adapters and pictures, grammars and templates - and
//! what lies on disks - stores, blocks, settings, keys - damaged in every way a small program can think of:
//! readers refuse it or read it, but never panic, and never take more memory than the file's size accounts
//! for.
//!
//! Inputs are real fixtures with mutations, the same for the same number. `SCONCE_FUZZ_SECONDS` runs
//! each target for so long instead of a few hundred cases, `SCONCE_FUZZ_FIRST` begins with another
//! case.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

mod memory;
mod mutation;
mod strangers;
mod targets;

use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;

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

#[expect(clippy::print_stdout, reason = "a long run says how far it came")]
fn run(target: &Target) {
    let first = number("SCONCE_FUZZ_FIRST").unwrap_or(0);
    let until = number("SCONCE_FUZZ_SECONDS").map(Duration::from_secs);
    let started = Instant::now();
    let mut case = first;
    while until.map_or(case < first + CASES, |until| started.elapsed() < until) {
        let end = case + CASES;
        // What libraries keep for a thread grows with every case, and goes with the thread.
        let cases = std::thread::scope(|scope| scope.spawn(|| run_cases(target, case..end)).join());
        cases.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        case = end;
    }
    println!("{}: {} cases", target.name, case - first);
}

fn run_cases(target: &Target, cases: Range<u64>) {
    for input in &target.inputs {
        // What is made once is not a file's fault.
        (target.read)(input);
        check(target, cases.start, input);
    }
    for case in cases {
        let input = Mutator::new(case).input(&target.inputs);
        check(target, case, &input);
    }
}

/// Panics in what is tried are looked at here; to print them takes time and memory.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !memory::is_counting() {
                others(panic);
            }
        }));
    });
}

fn check(target: &Target, case: u64, input: &[u8]) {
    keep_panics_quiet();
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

#[test]
fn damaged_bodies_are_answered() {
    run(&strangers::bodies());
}

#[test]
fn damaged_forms_are_answered() {
    run(&strangers::multipart());
}

#[test]
fn damaged_templates_are_rendered_or_refused() {
    run(&strangers::templates());
}

#[test]
fn damaged_schemas_and_grammars_are_compiled_or_refused() {
    run(&strangers::schemas());
}

#[test]
fn damaged_pictures_are_decoded_or_refused() {
    run(&strangers::pictures());
}

#[test]
fn damaged_adapters_are_loaded_or_refused() {
    run(&strangers::adapters());
}

#[test]
fn damaged_stores_are_read_or_refused() {
    run(&strangers::stores());
}

#[test]
fn damaged_blocks_are_told_from_good_ones() {
    run(&strangers::blocks());
}

#[test]
fn damaged_settings_are_read_or_refused() {
    run(&strangers::settings());
}

#[test]
fn damaged_key_files_are_read_or_refused() {
    run(&strangers::key_files());
}

/// Found by such inputs: the library's reader of decoders panics.
#[test]
fn a_decoder_of_no_kind_is_refused() {
    let config = TokenizerConfig::default();
    for decoder in ["7", "{", "[", "{\"type\": 3}", "\"ByteLevel\""] {
        let json = format!(
            "{{\"version\": \"1.0\", \"decoder\": {decoder}, \"model\": {{\"type\": \"BPE\", \
             \"vocab\": {{}}, \"merges\": []}}}}"
        );
        assert!(Tokenizer::from_json(json.as_bytes(), &config).is_err(), "{decoder}");
    }
}

#[test]
fn panics_and_too_much_memory_are_found() {
    let target =
        |read| Target { name: "found", inputs: Vec::new(), read, held: (2, 64), single: (1, 64) };
    let complaint = |read| {
        let found = catch_unwind(AssertUnwindSafe(|| check(&target(read), 7, &[0; 1000])));
        found.err().map(|panic| panic.downcast_ref::<String>().unwrap().clone())
    };
    assert_eq!(complaint(|bytes| drop(bytes.to_vec())), None);
    let found = complaint(|bytes| drop(bytes.repeat(2))).unwrap();
    assert!(found.contains("case 7 of 1000 bytes") && found.contains("2000 in one"), "{found}");
    let found = complaint(|bytes| drop([bytes.to_vec(), bytes.to_vec(), bytes.to_vec()])).unwrap();
    assert!(found.contains("no panic is true, 3000 bytes held, 1000 in one"), "{found}");
    assert!(complaint(|bytes| assert!(bytes.is_empty())).unwrap().contains("no panic is false"));
}
