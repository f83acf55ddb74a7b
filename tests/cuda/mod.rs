//! The CUDA kernels without a GPU: a C++ compiler makes a library for the host of them, and a
//! process that is told to use it runs the tests of operations and of whole models. Two more libraries
//! look for what values don't show: races and the like, and what C++ leaves undefined.
//!
//! Where there is no C++ compiler there is nothing to run, and the tests say so.

use std::path::Path;
use std::process::Command;

use libraries::Build;

mod counts;
mod experts;
mod libraries;
mod on_device;
mod operations;
mod packed;
mod planted;
mod real_sizes;

/// Compiles the kernels, once; `None` without a compiler.
pub(crate) fn library() -> Option<&'static Path> {
    libraries::library(Build::Plain)
}

/// Runs tests of this binary in a process whose operations are the kernels of a library, on some of
/// the models: whether they pass, and what they print.
fn run_tests(build: Build, library: &Path, tests: &[&str], models: &str) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(tests)
        .env("SCONCE_TEST_MODELS", models)
        .env("SCONCE_KERNELS", format!("cuda-on-host:{}", library.display()));
    if let Some(preloaded) = libraries::preloaded(build) {
        // Nothing else here was built for the sanitizer, which would find that this frees nothing at its end.
        command.env("LD_PRELOAD", preloaded).env("ASAN_OPTIONS", "detect_leaks=0");
        command.env("UBSAN_OPTIONS", "print_stacktrace=1");
    }
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(!printed.contains("running 0 tests"), "no test ran");
    (output.status.success(), printed)
}

/// Runs tests with the kernels, which must pass.
fn passes(build: Build, tests: &[&str], models: &str) {
    let Some(library) = libraries::library(build) else { return };
    let (passed, printed) = run_tests(build, library, tests, models);
    assert!(passed, "{printed}");
}

/// The caller still has the fields in their old order; the kernel would take one for the other.
#[test]
fn a_kernel_whose_struct_was_changed_alone_is_not_launched() {
    let (width, eps) = ("    uint32_t width;\n", "    float eps;\n");
    let comment = "    // Added to the mean square or the variance.\n";
    let (before, after) = (format!("{width}{comment}{eps}"), format!("{eps}{width}"));
    let change = (before.as_str(), after.as_str());
    let folder = "cuda_on_host_changed";
    let Some(library) = libraries::changed_library(Build::Plain, "norm/kernel.cu", change, folder)
    else {
        return;
    };
    let test = ["norms_equal_the_plain_ones"];
    let (passed, printed) = run_tests(Build::Plain, &library, &test, "");
    assert!(!passed && printed.contains("Norm has other fields"), "{printed}");
}

const OPERATIONS: [&str; 5] =
    ["cuda::operations", "cuda::on_device", "cuda::counts", "cuda::packed", "cuda::experts"];

/// Norms of heads, windows and soft-caps, sinks, experts of two kinds, latent attention, slopes,
/// growing queries, layer norms.
const MODELS: &str = "llama3,qwen3,gemma2,gpt_oss,mixtral,deepseek_v3,mpt,gpt2";
const RECURRENT: &str = "lfm2,qwen3_next,mamba2,mamba,kimi_linear,recurrent_gemma";
const REFERENCE: &str = "parity::reference::f32_logprobs_and_greedy_tokens_equal_the_reference";

#[test]
fn kernels_pass_the_tests_of_operations() {
    passes(Build::Plain, &OPERATIONS, "");
}

#[test]
fn kernels_pass_at_the_sizes_of_real_models() {
    passes(Build::Plain, &["cuda::real_sizes"], "");
}

#[test]
fn threads_of_kernels_do_not_race() {
    passes(Build::Races, &OPERATIONS, "");
}

#[test]
fn kernels_pass_the_parity_tests() {
    passes(Build::Plain, &[REFERENCE], MODELS);
    passes(
        Build::Plain,
        &["parity::reference::a_cache_of_8_bit_floats_stays_near_the_reference"],
        "",
    );
}

/// Checkpoints that other software has quantized, experts among them.
#[test]
fn kernels_of_quantized_weights_pass_the_parity_tests() {
    let tests = [
        "parity::gguf::files_of_codes_give_the_logits_of_their_numbers",
        "parity::compressed::quantized_products_come_near",
        "parity::compressed::experts_of_four_bits_are_those_of_the_reference",
    ];
    passes(Build::Plain, &tests, "");
}

#[test]
fn kernels_of_recurrent_layers_pass_the_parity_tests() {
    passes(Build::Plain, &[REFERENCE], RECURRENT);
}

#[test]
fn kernels_compute_a_sequence_in_company_as_alone() {
    passes(
        Build::Plain,
        &["parity::invariance::eight_prompts_at_once_equal_each_alone"],
        "llama3,mixtral,lfm2",
    );
    passes(Build::Plain, &["parity::decode_graphs", "parity::drafts"], "");
}

/// `.ci/run cuda_sanitizers`: minutes, most of them to compile.
#[test]
#[ignore = "takes minutes"]
fn operations_stay_within_their_memory_and_the_language() {
    passes(Build::Sanitized, &OPERATIONS, "");
}

/// `.ci/run cuda_races`: minutes.
#[test]
#[ignore = "takes minutes"]
fn whole_models_neither_race_nor_leave_their_memory() {
    for build in [Build::Races, Build::Sanitized] {
        for models in [MODELS, RECURRENT] {
            passes(build, &[REFERENCE], models);
        }
        passes(
            build,
            &["parity::invariance::eight_prompts_at_once_equal_each_alone"],
            "llama3,mixtral,lfm2",
        );
    }
    passes(Build::Races, &["cuda::real_sizes"], "");
}
