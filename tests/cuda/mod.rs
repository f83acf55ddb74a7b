//! The CUDA kernels without a GPU: a C++ compiler makes a library for the host of them, and a
//! process that is told to use it runs the tests of operations and of whole models.
//!
//! Where there is no C++ compiler there is nothing to run, and the tests say so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

mod on_device;
mod operations;

/// Compiles the kernels, once; `None` without a compiler.
pub(crate) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(|| Some(compile(&compiler()?))).as_deref()
}

fn compiler() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if Command::new(&compiler).arg("--version").output().is_ok() {
        return Some(compiler);
    }
    #[expect(clippy::print_stderr, reason = "nobody should take this for a test that passed")]
    {
        eprintln!("skipped: {compiler} is not installed; CXX may name another compiler");
    }
    None
}

/// The folder of all kernels.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels")
}

fn target(folder: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&target).unwrap();
    target
}

fn compile(compiler: &str) -> PathBuf {
    let (root, target) = (root(), target("cuda_on_host"));
    let mut sources = Vec::new();
    find_sources(&root, &mut sources);
    let objects: Vec<_> = sources
        .iter()
        .map(|source| {
            let object = target.join(source.strip_prefix(&root).unwrap()).with_extension("o");
            std::fs::create_dir_all(object.parent().unwrap()).unwrap();
            compile_one(compiler, source, &object);
            object
        })
        .collect();
    link(compiler, &objects, target.join("libkernels.so"))
}

fn find_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_sources(&path, sources);
        } else if path.extension().is_some_and(|name| name == "cu") {
            sources.push(path);
        }
    }
}

fn compile_one(compiler: &str, source: &Path, object: &Path) {
    let flags = "-std=c++17 -O2 -fPIC -ffp-contract=off -Wno-unknown-pragmas -x c++ -c";
    // Where a copy of a source finds what it includes by paths from its own folder.
    let includes = root().join("norm");
    let mut command = Command::new(compiler);
    command.args(flags.split(' ')).arg("-I").arg(includes).arg(source).arg("-o").arg(object);
    run(&mut command);
}

fn link(compiler: &str, objects: &[PathBuf], library: PathBuf) -> PathBuf {
    run(Command::new(compiler).arg("-shared").args(objects).arg("-o").arg(&library));
    library
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs tests of this binary in a process whose operations are the kernels of a library, on some of
/// the models: whether they pass, and what they print.
fn run_tests(library: &Path, tests: &[&str], models: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(tests)
        .env("SCONCE_TEST_MODELS", models)
        .env("SCONCE_KERNELS", format!("cuda-on-host:{}", library.display()))
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(!printed.contains("running 0 tests"), "no test ran");
    (output.status.success(), printed)
}

/// Runs tests with the kernels, which must pass.
fn passes(tests: &[&str], models: &str) {
    let Some(library) = library() else { return };
    let (passed, printed) = run_tests(library, tests, models);
    assert!(passed, "{printed}");
}

/// The caller still has the fields in their old order; the kernel would take one for the other.
#[test]
fn a_kernel_whose_struct_was_changed_alone_is_not_launched() {
    let Some(compiler) = compiler() else { return };
    let target = target("cuda_on_host_changed");
    let source = std::fs::read_to_string(root().join("norm/kernel.cu")).unwrap();
    let (width, eps) = ("    uint32_t width;\n", "    float eps;\n");
    assert!(source.contains(width) && source.contains(eps));
    let changed = source.replace(width, "").replace(eps, &format!("{eps}{width}"));
    let (source, object) = (target.join("kernel.cu"), target.join("kernel.o"));
    std::fs::write(&source, changed).unwrap();
    compile_one(&compiler, &source, &object);
    let library = link(&compiler, &[object], target.join("libkernels.so"));
    let (passed, printed) = run_tests(&library, &["norms_equal_the_plain_ones"], "");
    assert!(!passed && printed.contains("Norm has other fields"), "{printed}");
}

#[test]
fn kernels_pass_the_tests_of_operations() {
    passes(&["cuda::operations", "cuda::on_device"], "");
}

#[test]
fn kernels_pass_the_parity_tests() {
    // Norms of heads, windows and soft-caps, sinks, experts of two kinds, latent attention, slopes,
    // growing queries, layer norms.
    let models = "llama3,qwen3,gemma2,gpt_oss,mixtral,deepseek_v3,mpt,gpt2";
    passes(&["parity::reference::f32_logprobs_and_greedy_tokens_equal_the_reference"], models);
    passes(&["parity::reference::a_cache_of_8_bit_floats_stays_near_the_reference"], "");
}

#[test]
fn kernels_of_recurrent_layers_pass_the_parity_tests() {
    let models = "lfm2,qwen3_next,mamba2";
    passes(&["parity::reference::f32_logprobs_and_greedy_tokens_equal_the_reference"], models);
}

#[test]
fn kernels_compute_a_sequence_in_company_as_alone() {
    passes(&["parity::invariance::eight_prompts_at_once_equal_each_alone"], "llama3,mixtral,lfm2");
    passes(&["parity::decode_graphs"], "");
}
