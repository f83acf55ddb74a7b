//! Real coding agents against a server whose model is scripted: `.ci/run agents` installs them and
//! runs these. Every request of a whole conversation must be answered.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use sconce::engine::request::EngineRequest;
use sconce::text::special_tokens::SpecialTokens;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::models::{MODELS, Model};
use super::fake_engine::Script;
use super::fixture::{Server, Setup, bytes, tokenizer};

mod models;

/// Where the agents are installed, if they are.
fn program(name: &str) -> PathBuf {
    let folder = std::env::var("SCONCE_AGENTS").expect("SCONCE_AGENTS names a folder of npm's");
    Path::new(&folder).join("node_modules/.bin").join(name)
}

/// What a model says in a turn.
enum Says {
    Call(&'static str, Value),
    /// The same behind thoughts, where the model has those.
    ThinksAndCalls(&'static str, Value),
    Text(&'static str),
}

/// A server whose model says one text after the other, and the last one again and again.
async fn scripted(model: &'static Model, says: Vec<Says>) -> Server {
    scripted_within(1 << 20, model, says).await
}

/// The same with a context of `max_model_len` tokens; here a byte is one.
async fn scripted_within(max_model_len: usize, model: &'static Model, says: Vec<Says>) -> Server {
    let special = json!({"bos_token": "<s>", "eos_token": "</s>"});
    let mut setup = Setup {
        template: Some(model.template),
        special_tokens: SpecialTokens::from_json(&special),
        ..Setup::default()
    };
    setup.limits.max_model_len = max_model_len;
    setup.limits.max_text_len = max_model_len;
    setup.config.max_body_bytes = Some(16 << 20);
    let thinks = model.template.contains("<think>");
    let texts: Vec<String> = says
        .into_iter()
        .map(|says| match says {
            Says::ThinksAndCalls(name, arguments) if thinks => {
                format!("a plan</think>\n\n{}", (model.call)(name, &arguments))
            }
            Says::Call(name, arguments) | Says::ThinksAndCalls(name, arguments) if !thinks => {
                (model.call)(name, &arguments)
            }
            Says::Call(name, arguments) | Says::ThinksAndCalls(name, arguments) => {
                format!("</think>\n\n{}", (model.call)(name, &arguments))
            }
            Says::Text(text) if thinks => format!("</think>\n\n{text}"),
            Says::Text(text) => (model.says)(text),
        })
        .collect();
    let turn = AtomicUsize::new(0);
    Server::start(setup, move |request: &EngineRequest| {
        let is_turn = is_turn(model, &request.prompt_token_ids);
        let turn = if is_turn { turn.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
        let text = texts.get(turn).unwrap_or_else(|| texts.last().unwrap());
        Script { tokens: bytes(text), ..Script::default() }
    })
    .await
}

/// Runs an agent to its end, for two minutes at most.
async fn run(agent: &str, arguments: &[&str], env: &[(&str, &str)], home: &TempDir) -> Output {
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(program(agent))
        .args(arguments)
        .envs(env.iter().copied())
        .env("HOME", home.path())
        .env("PWD", home.path())
        .env("NO_COLOR", "1")
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .current_dir(home.path())
        .stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Checks that an agent came to its end: what it said last, the file that it wrote, at least five
/// turns of which the second begins as the first did, and no request that was refused.
async fn check(server: &Server, output: &Output, home: &TempDir, model: &Model) {
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    let told = format!("{}: {said}\n{log}", model.name);
    assert!(output.status.success() && said.contains("All done."), "{told}");
    let written = std::fs::read_to_string(home.path().join("seen.txt"));
    assert_eq!(written.ok().as_deref(), Some("first\n"), "{told}");
    let requests = server.engine.requests();
    let prompts = requests.iter().map(|request| &request.prompt_token_ids);
    let turns: Vec<&Vec<u32>> = prompts.filter(|ids| is_turn(model, ids)).collect();
    assert!(turns.len() >= 5, "{} turns of {told}", turns.len());
    let common = turns[0].iter().zip(turns[1]).take_while(|(a, b)| a == b).count();
    let share = common as f64 / turns[1].len() as f64;
    let differ = turns[1].iter().skip(common.saturating_sub(200)).take(400);
    let differ = tokenizer().decode(&differ.copied().collect::<Vec<_>>(), false);
    assert!(share >= 0.95, "{share} of the second prompt is in the cache, up to {differ}: {told}");
    let counts = counts(server).await;
    assert!(counts.iter().any(|line| line.contains("2xx")), "{counts:?}");
    let refused = |line: &String| line.contains("4xx") || line.contains("5xx");
    assert!(!counts.iter().any(refused), "{counts:?}");
}

/// How often each kind of answer was given.
async fn counts(server: &Server) -> Vec<String> {
    let metrics = server.client.get("/metrics").await.text;
    let counts = metrics.lines().filter(|line| line.starts_with("http_requests_total{"));
    counts.map(str::to_owned).collect()
}

/// Whether a prompt is a turn of a conversation: titles have no tools, and summaries are asked for.
fn is_turn(model: &Model, ids: &[u32]) -> bool {
    let prompt = tokenizer().decode(ids, false);
    prompt.contains(model.with_tools) && !prompt.contains("create a detailed summary")
}

/// Whether a prompt was followed by a shorter one, as after a summary.
fn was_shortened(server: &Server) -> bool {
    let requests = server.engine.requests();
    let sizes: Vec<usize> = requests.iter().map(|one| one.prompt_token_ids.len()).collect();
    sizes.windows(2).any(|pair| pair[1] < pair[0])
}

/// Where Codex finds the server; `more` are further settings.
fn configure_codex(home: &TempDir, server: &Server, more: &str) {
    let config = format!(
        "model = \"tiny\"\nmodel_provider = \"sconce\"\n{more}\n[model_providers.sconce]\n\
         name = \"sconce\"\nbase_url = \"{}\"\nwire_api = \"responses\"\n",
        server.client.url("/v1")
    );
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    std::fs::write(home.path().join(".codex/config.toml"), config).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn codex_compacts_a_conversation_that_grows_too_long() {
    let home = TempDir::with_prefix("agent-").unwrap();
    let print = |number: usize| {
        let cmd = format!("seq {number}0000 {number}2000");
        Says::Call("exec_command", json!({ "cmd": cmd }))
    };
    let begins = Says::Call("exec_command", json!({"cmd": "echo first > seen.txt"}));
    let says = vec![begins, print(1), print(2), print(3), Says::Text("All done.")];
    let model = &MODELS[0];
    let server = scripted(model, says).await;
    configure_codex(&home, &server, "model_auto_compact_token_limit = 60000");
    let output = run_codex(&home).await;
    check(&server, &output, &home, model).await;
    assert!(was_shortened(&server));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn codex_runs_commands_to_the_end() {
    for model in &MODELS {
        let home = TempDir::with_prefix("agent-").unwrap();
        let says = vec![
            Says::Call("exec_command", json!({"cmd": "echo first > seen.txt"})),
            Says::Call("exec_command", json!({"cmd": "cat seen.txt"})),
            Says::Call("update_plan", json!({"plan": [{"step": "look", "status": "completed"}]})),
            Says::Call("view_image", json!({"path": picture(&home)})),
            Says::Text("All done."),
        ];
        let server = scripted(model, says).await;
        configure_codex(&home, &server, "");
        let output = run_codex(&home).await;
        check(&server, &output, &home, model).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn claude_code_runs_tools_to_the_end() {
    for model in &MODELS {
        let home = TempDir::with_prefix("agent-").unwrap();
        let says = vec![
            Says::ThinksAndCalls("Bash", json!({"command": "echo first > seen.txt"})),
            Says::Call("Read", json!({"file_path": home.path().join("seen.txt")})),
            Says::Call("Read", json!({"file_path": picture(&home)})),
            Says::Call("Bash", json!({"command": "ls"})),
            Says::Text("All done."),
        ];
        let server = scripted(model, says).await;
        let output = run_claude(&server, &[], &[], &home).await;
        check(&server, &output, &home, model).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn claude_code_searches_for_a_tool_and_calls_it() {
    for model in &MODELS {
        let home = TempDir::with_prefix("agent-").unwrap();
        let says = vec![
            Says::Call("Bash", json!({"command": "echo first > seen.txt"})),
            Says::Call("ToolSearch", json!({"query": "select:mcp__everything__echo"})),
            Says::Call("mcp__everything__echo", json!({"message": "a far call"})),
            Says::Call("Read", json!({"file_path": home.path().join("seen.txt")})),
            Says::Text("All done."),
        ];
        let server = scripted(model, says).await;
        let servers =
            json!({"mcpServers": {"everything": {"command": program("mcp-server-everything")}}});
        let arguments = ["--mcp-config", &servers.to_string()];
        let output = run_claude(&server, &arguments, &[], &home).await;
        check(&server, &output, &home, model).await;
        let requests = server.engine.requests();
        let last = tokenizer().decode(&requests.last().unwrap().prompt_token_ids, false);
        assert!(last.contains("Echo: a far call"), "{}: {last}", model.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn claude_code_compacts_a_prompt_that_the_server_finds_too_long() {
    let home = TempDir::with_prefix("agent-").unwrap();
    let print = |number: usize| {
        let command = format!("seq {number}00000 {number}04000");
        Says::Call("Bash", json!({ "command": command }))
    };
    let begins = Says::Call("Bash", json!({"command": "echo first > seen.txt"}));
    let says = vec![begins, print(1), print(2), print(3), print(4), Says::Text("All done.")];
    let model = &MODELS[0];
    let server = scripted_within(150_000, model, says).await;
    let output = run_claude(&server, &[], &[], &home).await;
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("All done."), "{told} {:?}", counts(&server).await);
    assert!(was_shortened(&server));
    let failed = |line: &String| line.contains("5xx");
    assert!(!counts(&server).await.iter().any(failed));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn opencode_runs_tools_to_the_end() {
    for model in &MODELS {
        let home = TempDir::with_prefix("agent-").unwrap();
        let says = vec![
            Says::Call("bash", json!({"command": "echo first > seen.txt", "description": "write"})),
            Says::Call("read", json!({"filePath": home.path().join("seen.txt")})),
            Says::Call("bash", json!({"command": "ls", "description": "list"})),
            Says::Call("bash", json!({"command": "pwd", "description": "where"})),
            Says::Text("All done."),
        ];
        let server = scripted(model, says).await;
        let config = json!({
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": false,
            "permission": {"bash": "allow", "external_directory": "allow"},
            "provider": {"sconce": {
                "npm": "@ai-sdk/openai-compatible", "name": "sconce",
                "options": {"baseURL": server.client.url("/v1"), "apiKey": "none"},
                "models": {"tiny": {"name": "tiny", "limit": {"context": 1 << 20, "output": 32000}}},
            }},
        });
        let path = home.path().join("config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        let arguments = ["run", "--model", "sconce/tiny", "Write a file and read it."];
        let output =
            run("opencode", &arguments, &[("OPENCODE_CONFIG", path.to_str().unwrap())], &home)
                .await;
        check(&server, &output, &home, model).await;
    }
}

/// Runs Codex, where [`configure_codex`] has told it of the server.
async fn run_codex(home: &TempDir) -> Output {
    let free = "--dangerously-bypass-approvals-and-sandbox";
    let arguments = ["exec", "--skip-git-repo-check", free, "Write a file and read it."];
    run("codex", &arguments, &[], home).await
}

/// Runs Claude Code with more `arguments` and variables than it always has.
async fn run_claude(
    server: &Server,
    arguments: &[&str],
    env: &[(&str, &str)],
    home: &TempDir,
) -> Output {
    let url = server.client.url("");
    let always = [
        ("ANTHROPIC_BASE_URL", url.as_str()),
        ("ANTHROPIC_API_KEY", "none"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ];
    let asks = ["-p", "Write a file and read it.", "--model", "tiny"];
    let may = ["--permission-mode", "acceptEdits", "--allowedTools"];
    let tools = ["Bash,Read,ToolSearch,mcp__everything__echo"];
    let arguments = [&asks[..], &may, &tools, arguments].concat();
    run("claude", &arguments, &[&always[..], env].concat(), home).await
}

/// A picture of one dot in a folder.
fn picture(home: &TempDir) -> PathBuf {
    let picture = home.path().join("dot.png");
    std::fs::write(&picture, PNG).unwrap();
    picture
}

const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0,
    1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54,
    0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0xf0, 0x1f, 0, 5, 0, 1, 0xff, 0x89, 0x99, 0x3d, 0x1d, 0, 0,
    0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];
