//! The same suite on every kernel level of this machine: a level is chosen once per process, so
//! each one gets a process of its own.

use std::process::Command;

use sconce::kernels::backend::cpu_level;
use sconce::kernels::cpu::Level;

#[test]
fn all_levels_pass_the_parity_and_invariance_tests() {
    let current = cpu_level().name();
    for level in Level::available() {
        let name = level.name();
        if name == current {
            continue; // this very run
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["parity::reference", "parity::invariance", "parity::gguf"])
            .env("SCONCE_KERNELS", name)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}:\n{printed}");
        assert!(!printed.contains("running 0 tests"), "{name}: no test ran");
    }
}

/// What runs on devices that have no kernels of ours is as near to transformers as those are.
#[test]
fn plain_operations_pass_the_parity_tests() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["parity::reference::f32_logprobs_and_greedy_tokens_equal_the_reference"])
        .env("SCONCE_KERNELS", "portable")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(!printed.contains("running 0 tests"), "no test ran");
}
