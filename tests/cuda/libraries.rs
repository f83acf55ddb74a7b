//! Libraries for the host of the CUDA kernels, made once in a process, from objects that are older than
//! no source.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;

/// How a library is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// For speed.
    Plain,
    /// Accesses to memory are reported to `on_host/accesses.cpp`.
    Races,
    /// With the compiler's own checks of addresses, alignment and whatever else C++ leaves undefined.
    Sanitized,
}

impl Build {
    fn folder(self) -> &'static str {
        match self {
            Self::Plain => "cuda_on_host",
            Self::Races => "cuda_on_host_races",
            Self::Sanitized => "cuda_on_host_sanitized",
        }
    }

    fn flags_of_kernels(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["-O2"],
            Self::Races => &["-O1", "-g1", "-fsanitize=thread"],
            Self::Sanitized => &[
                "-O1",
                "-g1",
                "-fsanitize=address,undefined",
                "-fno-sanitize=vptr",
                "-fno-sanitize-recover=all",
            ],
        }
    }

    /// What runs the threads of a block, which is never instrumented itself.
    fn parts_of_threads(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Sanitized => &["block.cpp"],
            Self::Races => &["block.cpp", "accesses.cpp"],
        }
    }

    fn flags_of_threads(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Sanitized => &["-O2"],
            Self::Races => &["-O2", "-DON_HOST_CHECKED"],
        }
    }

    fn flags_of_linking(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Races => &[],
            Self::Sanitized => &["-fsanitize=address,undefined"],
        }
    }
}

/// Compiles the kernels, once; `None` without a compiler that can.
pub(super) fn library(build: Build) -> Option<&'static Path> {
    static LIBRARIES: [OnceLock<Option<PathBuf>>; 3] = [const { OnceLock::new() }; 3];
    let make = || {
        let mut sources = Vec::new();
        find_sources(&root(), &mut sources);
        let sources: Vec<_> = sources.into_iter().map(|path| (path, Vec::new())).collect();
        Some(compile(&compiler(build)?, build, &sources, &target(build.folder())))
    };
    LIBRARIES[build as usize].get_or_init(make).as_deref()
}

/// A library of one kernel's source with one part replaced by another.
pub(super) fn changed_library(
    build: Build,
    source: &str,
    (from, to): (&str, &str),
    folder: &str,
) -> Option<PathBuf> {
    let compiler = compiler(build)?;
    let target = target(folder);
    let text = std::fs::read_to_string(root().join(source)).unwrap();
    assert!(text.contains(from), "{source} has no {from}");
    let changed = target.join("kernel.cu");
    std::fs::write(&changed, text.replacen(from, to, 1)).unwrap();
    // Where a copy of a source finds what it includes by paths from its own folder.
    let folder = root().join(source).parent().unwrap().to_owned();
    Some(compile(&compiler, build, &[(changed, vec![folder])], &target))
}

/// What a process must load before everything else to use a library.
pub(super) fn preloaded(build: Build) -> Option<PathBuf> {
    (build == Build::Sanitized).then(|| sanitizer(&cxx()).expect("a library was linked with it"))
}

fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

#[expect(clippy::print_stderr, reason = "nobody should take this for a test that passed")]
fn compiler(build: Build) -> Option<String> {
    let compiler = cxx();
    if Command::new(&compiler).arg("--version").output().is_err() {
        eprintln!("skipped: {compiler} is not installed; CXX may name another compiler");
        return None;
    }
    if build == Build::Sanitized && sanitizer(&compiler).is_none() {
        eprintln!("skipped: {compiler} comes without the library of its address sanitizer");
        return None;
    }
    Some(compiler)
}

/// The library of a compiler's address sanitizer.
fn sanitizer(compiler: &str) -> Option<PathBuf> {
    let clang = format!("libclang_rt.asan-{}.so", std::env::consts::ARCH);
    ["libasan.so".to_owned(), clang].iter().find_map(|name| {
        let found = Command::new(compiler).arg(format!("-print-file-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
        (path.is_absolute() && path.exists()).then_some(path)
    })
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

/// A source that becomes an object.
struct Job {
    source: PathBuf,
    object: PathBuf,
    command: Command,
}

/// Compiles kernels, each with folders of its own to find headers in, and what runs their threads.
fn compile(
    compiler: &str,
    build: Build,
    kernels: &[(PathBuf, Vec<PathBuf>)],
    target: &Path,
) -> PathBuf {
    let job = |source: PathBuf, flags: &[&str], folders: &[PathBuf]| {
        let inside = source.strip_prefix(root()).unwrap_or(Path::new(source.file_name().unwrap()));
        let object = target.join(inside).with_extension("o");
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-fPIC", "-ffp-contract=off", "-Wno-unknown-pragmas"]);
        command.args(flags);
        for folder in folders {
            command.arg("-I").arg(folder);
        }
        command.args(["-x", "c++", "-c"]).arg(&source).arg("-o").arg(&object);
        Job { source, object, command }
    };
    let threads = build
        .parts_of_threads()
        .iter()
        .map(|part| job(root().join("cuda/on_host").join(part), build.flags_of_threads(), &[]));
    let kernels = kernels
        .iter()
        .map(|(source, folders)| job(source.clone(), build.flags_of_kernels(), folders));
    let jobs: Vec<_> = kernels.chain(threads).collect();
    let library = target.join("libkernels.so");
    let mut link = Command::new(compiler);
    link.arg("-shared").args(build.flags_of_linking()).args(jobs.iter().map(|job| &job.object));
    link.arg("-o").arg(&library).arg("-ldl");
    run_those_needed(jobs);
    run(&mut link);
    library
}

/// Compiles what is older than its source or a header, or was made by another command, as many at a time
/// as there are cores.
fn run_those_needed(jobs: Vec<Job>) {
    let headers = newest_header(&root());
    let is_needed = |job: &Job| {
        let same = std::fs::read_to_string(job.object.with_extension("command"))
            .is_ok_and(|before| before == format!("{:?}", job.command));
        let sources = headers.max(modified(&job.source).unwrap());
        !same || modified(&job.object).is_none_or(|made| made <= sources)
    };
    let mut jobs: Vec<_> = jobs.into_iter().filter(is_needed).collect();
    // What takes longest comes last, which is where jobs are taken from.
    jobs.sort_by_key(|job| job.source.to_string_lossy().contains("paged_attention"));
    let jobs = Mutex::new(jobs);
    let next = || jobs.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(mut job) = next() {
                    std::fs::create_dir_all(job.object.parent().unwrap()).unwrap();
                    run(&mut job.command);
                    let made_by = format!("{:?}", job.command);
                    std::fs::write(job.object.with_extension("command"), made_by).unwrap();
                }
            });
        }
    });
}

fn newest_header(folder: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            newest = newest.max(newest_header(&path));
        } else if path.extension().is_some_and(|name| name == "h" || name == "cuh") {
            newest = newest.max(modified(&path).unwrap());
        }
    }
    newest
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}
