//! Blocks that outlive the program: restarts, a process that is killed while it writes, servers that
//! share a folder, and `sconce cache`.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::hybrids::with_tokenizer;
use super::server::{Server, program};
use crate::parity::prompt;

fn start(folder: &Path, arguments: &[&str]) -> Server {
    Server::start(&[&["--kv-disk", folder.to_str().unwrap()], arguments].concat())
}

/// What an answer says: its tokens and their logprobs; and the tokens that were cached.
async fn ask(server: &Server, prompt: &Value) -> (Value, u64) {
    let body = json!({
        "model": "model", "prompt": prompt, "max_tokens": 40, "temperature": 1.0, "seed": 7,
        "ignore_eos": true, "return_token_ids": true, "logprobs": 5,
    });
    let answer = server.post("/v1/completions", &body).await;
    let choice = &answer["choices"][0];
    assert!(choice["token_ids"].is_array(), "{answer}");
    let said = json!([choice["token_ids"], choice["logprobs"], choice["text"]]);
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (said, cached.as_u64().unwrap_or(0))
}

/// The `i`-th of some prompts of several hundred tokens, no two of which begin alike.
fn story(i: usize) -> Value {
    json!(format!(
        "Story {i}. {}",
        "Once upon a time there lived a fox in a quiet village. ".repeat(24)
    ))
}

fn cache(arguments: &[&str]) -> Output {
    program().arg("cache").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_has_all_full_blocks_and_says_the_same() {
    let hybrid = with_tokenizer();
    let hybrid = ["--model", hybrid.path().to_str().unwrap(), "--max-num-seqs", "4"];
    for (case, arguments, prompt) in [
        ("demo", &[][..], story(1)),
        ("demo in eight bits", &["--kv-cache-dtype", "q8_0"], story(1)),
        ("hybrid", &hybrid, json!(prompt(300, 160))),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = [&["--served-model-name", "model"], arguments].concat();
        let first = start(folder.path(), &arguments);
        let (expected, cached) = ask(&first, &prompt).await;
        assert_eq!(cached, 0, "{case}");
        let (again, in_memory) = ask(&first, &prompt).await;
        assert_eq!(again, expected, "{case}");
        assert!(in_memory >= 256, "{case}: {in_memory}");
        let log = first.log();
        first.terminate();
        assert!(first.wait().success());
        // It ends once the blocks are there, and doesn't wait for anything else.
        assert!(log.text().contains("drained"), "{case}: {}", log.text());
        assert!(!log.text().contains("could not be stored"), "{case}: {}", log.text());
        let second = start(folder.path(), &arguments);
        let (answer, on_disk) = ask(&second, &prompt).await;
        assert_eq!(answer, expected, "{case}");
        // In memory parts of blocks are found too; on disk are whole ones.
        assert_eq!(on_disk, in_memory / 32 * 32, "{case}");
        second.assert_idle().await;
        assert!(second.metric("sconce:kv_disk_loaded_blocks_total").await >= 8.0, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_while_it_writes_leaves_nothing_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let name = ["--served-model-name", "model"];
    let cold = Server::start(&[&name[..], &["--no-prefix-cache"]].concat());
    let mut expected = Vec::new();
    for i in 0..4 {
        expected.push(ask(&cold, &story(i)).await.0);
    }
    for round in 0..3 {
        let server = start(folder.path(), &name);
        let all = (0..4).map(|i| {
            let server = &server;
            async move { ask(server, &story(i)).await.0 }
        });
        if round < 2 {
            // Dropped, it is killed: while some answers run, and while blocks are written.
            let _ = tokio::time::timeout(Duration::from_millis(300), join_all(all)).await;
            drop(server);
        } else {
            assert_eq!(join_all(all).await, expected);
        }
        let verified = cache(&["verify", folder.path().to_str().unwrap()]);
        assert!(verified.status.success(), "{}", text(&verified));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_share_a_folder_find_what_the_other_computed() {
    let folder = tempfile::tempdir().unwrap();
    let name = ["--served-model-name", "model"];
    let (one, other) = (start(folder.path(), &name), start(folder.path(), &name));
    let (expected, _) = ask(&one, &story(1)).await;
    let (_, in_memory) = ask(&one, &story(1)).await;
    let full_blocks = (in_memory / 32) as f64;
    for _ in 0..600 {
        if other.metric("sconce:kv_disk_blocks").await >= full_blocks {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(ask(&other, &story(1)).await, (expected, in_memory / 32 * 32));
    // Of another type of cache nothing is known.
    let third = start(folder.path(), &[&name[..], &["--kv-cache-dtype", "f32"]].concat());
    assert_eq!(ask(&third, &story(1)).await.1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_checks_and_removes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let server = start(folder.path(), &["--served-model-name", "model"]);
    ask(&server, &story(1)).await;
    server.terminate();
    assert!(server.wait().success());
    let listed = cache(&["ls", path]);
    assert!(text(&listed).contains("sconce-demo"), "{}", text(&listed));
    let json: Value = serde_json::from_slice(&cache(&["ls", "--json", path]).stdout).unwrap();
    let name = json[0]["name"].as_str().unwrap();
    assert!(json[0]["blocks"].as_u64().unwrap() >= 8 && json[0]["states"] == 0, "{json}");
    assert_eq!(json[0]["about"]["model"], "sconce-demo");
    let verified = cache(&["verify", path]);
    assert!(verified.status.success() && text(&verified).contains(", 0 are not"));
    let block = std::fs::read_dir(folder.path().join(name)).unwrap();
    let block = block.map(|entry| entry.unwrap().path());
    let block = block.filter(|path| path.extension().unwrap() == "block").min().unwrap();
    let mut bytes = std::fs::read(&block).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&block, bytes).unwrap();
    let verified = cache(&["verify", path]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified).contains("its checksum is wrong"), "{}", text(&verified));
    assert!(!cache(&["rm", path]).status.success(), "it does not guess");
    assert!(text(&cache(&["rm", path, "zzz"])).contains("nothing stored is named \"zzz\""));
    assert!(cache(&["rm", path, &name[..8]]).status.success());
    assert_eq!(text(&cache(&["ls", path])), format!("nothing is stored in {path}\n"));
    assert!(text(&cache(&["ls", "./no-such-folder"])).contains("can't list ./no-such-folder"));
}

#[test]
fn folders_that_can_not_be_used_are_told_at_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    for (arguments, expected) in [
        (&["--kv-disk", file][..], "can't be used"),
        (&["--kv-disk", "x", "--no-prefix-cache"], "cannot be used with"),
        (&["--kv-disk-wait", "5"], "--kv-disk <FOLDER>"),
        (&["--kv-disk", "x", "--kv-disk-size", "0"], "must be from 1 byte"),
    ] {
        let mut command = program();
        let output = command.args(["serve", "--port", "0"]).args(arguments).output().unwrap();
        assert!(!output.status.success() && text(&output).contains(expected), "{}", text(&output));
    }
}
