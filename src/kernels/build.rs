//! Compiles the CUDA kernels, if they are asked for, with the toolkit's `nvcc`.
//!
//! `CUDA_COMPUTE_CAP` is the capability that they are compiled for (default 80); a driver compiles
//! them for newer ones as it loads them.

use std::env;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/kernels/build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let folder = Path::new("src/kernels/cuda");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-env-changed=CUDA_COMPUTE_CAP");
    println!("cargo::rerun-if-env-changed=NVCC");
    let nvcc = env::var("NVCC").unwrap_or_else(|_| "nvcc".to_owned());
    let capability = env::var("CUDA_COMPUTE_CAP").unwrap_or_else(|_| "80".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let mut list = String::from("&[\n");
    let mut sources: Vec<_> = folder
        .read_dir()
        .expect("the kernels are in the package")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .collect();
    sources.sort();
    for source in sources {
        let name = source.file_stem().and_then(|name| name.to_str()).expect("plain names");
        let code = Path::new(&out).join(format!("{name}.fatbin"));
        let target =
            format!("arch=compute_{capability},code=[sm_{capability},compute_{capability}]");
        let status = Command::new(&nvcc)
            .args(["-fatbin", "--compress-mode=size", "-std=c++17", "-O3"])
            .args(["-gencode", &target, "-o"])
            .args([&code, &source])
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{nvcc} {}: {status}", source.display()),
            Err(error) => panic!("{nvcc}: {error}; the CUDA toolkit must be installed"),
        }
        writeln!(list, "({name:?}, include_bytes!({:?})),", code.display().to_string())
            .expect("a string takes all");
    }
    list.push(']');
    std::fs::write(Path::new(&out).join("cuda_sources.rs"), list).expect("cargo's own folder");
}
