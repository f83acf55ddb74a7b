//! Compiles the CUDA kernels, if they are asked for, with the toolkit's `nvcc`: every `.cu` file
//! below this folder, to a file of the same path in cargo's folder for outputs.
//!
//! `CUDA_COMPUTE_CAP` is the capability that they are compiled for (default 80); a driver compiles
//! them for newer ones as it loads them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

const ROOT: &str = ".";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    // A new folder may hold a new kernel; those that are up to date are not compiled again.
    println!("cargo::rerun-if-changed={ROOT}");
    println!("cargo::rerun-if-env-changed=CUDA_COMPUTE_CAP");
    println!("cargo::rerun-if-env-changed=NVCC");
    let nvcc = env::var("NVCC").unwrap_or_else(|_| "nvcc".to_owned());
    let capability = env::var("CUDA_COMPUTE_CAP").unwrap_or_else(|_| "80".to_owned());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (compiler, compiled_by) = (format!("{nvcc} for {capability}"), out.join("compiled_by"));
    let same = fs::read_to_string(&compiled_by).is_ok_and(|before| before == compiler);
    let mut files = Vec::new();
    find(Path::new(ROOT), &mut files);
    let is = |path: &Path, wanted: &str| path.extension() == Some(OsStr::new(wanted));
    let headers = files.iter().filter(|path| is(path, "cuh"));
    let headers = headers.map(|path| modified(path)).max();
    for source in files.iter().filter(|path| is(path, "cu")) {
        let own = source.strip_prefix(ROOT).expect("found below the root");
        let code = out.join(own).with_extension("fatbin");
        if same && code.exists() && Some(modified(&code)) > headers.max(Some(modified(source))) {
            continue;
        }
        fs::create_dir_all(code.parent().expect("a file in a folder")).expect("cargo's own folder");
        compile(&nvcc, &capability, source, &code);
    }
    fs::write(compiled_by, compiler).expect("cargo's own folder");
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().expect("the kernels are in the package") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            find(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|about| about.modified()).expect("files have times")
}

fn compile(nvcc: &str, capability: &str, source: &Path, code: &Path) {
    let target = format!("arch=compute_{capability},code=[sm_{capability},compute_{capability}]");
    let status = Command::new(nvcc)
        .args(["-fatbin", "--compress-mode=size", "-std=c++17", "-O3"])
        .args(["-gencode", &target, "-o"])
        .args([code, source])
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{nvcc} {}: {status}", source.display()),
        Err(error) => panic!("{nvcc}: {error}; the CUDA toolkit must be installed"),
    }
}
