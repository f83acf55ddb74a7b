//! Where the values of flags come from, told by the real program.

use std::process::{Command, Output};

/// Runs a subcommand in a folder, with variables.
fn run(folder: &std::path::Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("SCONCE_API_KEY")
        .env_remove("SCONCE_MODEL")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn what_is_in_force_is_printed_with_its_origin_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# Ours.\nmax-num-seqs = 8\nport = 1\nhost = '0.0.0.0'\nstrict = true\n\
                lora-modules = [{ name = 'a', path = './a' }]\n";
    std::fs::write(folder.path().join("sconce.toml"), text).unwrap();
    let variables =
        [("SCONCE_PORT", "2"), ("SCONCE_API_KEY", "sk-one,sk-two"), ("SCONCE_STRICT", "false")];
    let output = run(folder.path(), &["config", "--port", "3"], &variables);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "# Read: sconce.toml",
        "port = 3  # flag",
        "max-num-seqs = 8  # sconce.toml, line 2",
        "host = \"0.0.0.0\"  # sconce.toml, line 4",
        "strict = false  # environment SCONCE_STRICT",
        "# drain-timeout = 30  # default",
        "# api-key is set, but not shown  # environment SCONCE_API_KEY",
        "# model is not set",
    ] {
        assert!(printed.lines().any(|own| own == line), "{line} is not in:\n{printed}");
    }
    assert!(!printed.contains("sk-one"), "{printed}");
    // What was printed says the same where it is read.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("sconce.toml"), &printed).unwrap();
    let again = run(other.path(), &["config"], &[]);
    let again = String::from_utf8(again.stdout).unwrap();
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(|line| line.rsplit_once("  # ").unwrap().0.to_owned()).collect()
    };
    assert_eq!(values(&again), values(&printed));
}

#[test]
fn a_wrong_file_or_variable_ends_the_start_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.toml"), "\nmax-num-seq = 8\n").unwrap();
    for (arguments, variables, expected) in [
        (
            &["serve", "--config", "own.toml"][..],
            &[][..],
            "error: own.toml, line 2: `max-num-seq`: `sconce serve` has no such flag",
        ),
        (&["serve"], &[("SCONCE_MAX_NUM_SEQS", "many")], "error: environment variable SCONCE_MAX_"),
        (&["serve", "--config", "none.toml"], &[], "error: --config none.toml: it can't be read"),
    ] {
        let output = run(folder.path(), arguments, variables);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.starts_with(expected), "{message}");
    }
}
