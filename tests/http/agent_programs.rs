//! Real coding agents against a server whose model is scripted: `.ci/run agents` installs them and
//! runs these. Every request of a whole conversation must be answered.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use sconce::engine::request::EngineRequest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fake_engine::Script;
use super::fixture::{Server, Setup, bytes, tokenizer};

/// Templates as people's models have them, by what they do with messages of the system and with
/// tools.
const TEMPLATES: [(&str, &str); 3] = [
    // Qwen3.5's: a message of the system comes first or not at all.
    (
        "qwen",
        "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}\
      {% endfor %}</tools> <tool_call>{\"name\": ...}</tool_call><|im_end|>\n{% endif %}\
      {% for m in messages %}{% if m.role == 'system' and not loop.first %}\
      {{ raise_exception('System message must be at the beginning.') }}{% endif %}\
      <|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}\
      </think>{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>\n\
      {\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n\
      </tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}\
      <|im_start|>assistant\n{% endif %}",
    ),
    // Mistral's and Gemma's: the roles of user and assistant alternate, tools are unknown.
    (
        "alternating",
        "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}\
      {{ raise_exception('unknown role') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}\
      <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    // Plain ChatML.
    (
        "chatml",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
];

/// Where the agents are installed, if they are.
fn program(name: &str) -> PathBuf {
    let folder = std::env::var("SCONCE_AGENTS").expect("SCONCE_AGENTS names a folder of npm's");
    Path::new(&folder).join("node_modules/.bin").join(name)
}

fn call(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
}

/// A server whose model says one text after the other, and the last one again and again.
async fn scripted(template: &'static str, says: Vec<String>) -> Server {
    let mut setup = Setup { template: Some(template), ..Setup::default() };
    setup.limits.max_model_len = 1 << 20;
    setup.limits.max_text_len = 1 << 20;
    setup.config.max_body_bytes = 16 << 20;
    let turn = AtomicUsize::new(0);
    Server::start(setup, move |request: &EngineRequest| {
        let is_turn = is_turn(&request.prompt_token_ids);
        let turn = if is_turn { turn.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
        let text = says.get(turn).unwrap_or_else(|| says.last().unwrap());
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
async fn check(server: &Server, output: &Output, home: &TempDir, template: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    let told = format!("{template}: {said}\n{log}");
    assert!(output.status.success() && said.contains("All done."), "{told}");
    let written = std::fs::read_to_string(home.path().join("seen.txt"));
    assert_eq!(written.ok().as_deref(), Some("first\n"), "{told}");
    let requests = server.engine.requests();
    let prompts = requests.iter().map(|request| &request.prompt_token_ids);
    let turns: Vec<&Vec<u32>> = prompts.filter(|ids| is_turn(ids)).collect();
    assert!(turns.len() >= 5, "{} turns of {told}", turns.len());
    let common = turns[0].iter().zip(turns[1]).take_while(|(a, b)| a == b).count();
    let share = common as f64 / turns[1].len() as f64;
    assert!(share >= 0.95, "{share} of the second prompt is in the cache: {told}");
    let metrics = server.client.get("/metrics").await.text;
    let counts: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("http_requests_total{")).collect();
    assert!(counts.iter().any(|line| line.contains("2xx")), "{counts:?}");
    assert!(!counts.iter().any(|line| line.contains("4xx") || line.contains("5xx")), "{counts:?}");
}

/// Whether a prompt is a turn of a conversation: titles and summaries have no tools.
fn is_turn(ids: &[u32]) -> bool {
    tokenizer().decode(ids, false).contains("<tools>")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn codex_runs_commands_to_the_end() {
    for (name, template) in TEMPLATES {
        let home = TempDir::with_prefix("agent-").unwrap();
        let says = vec![
            call("exec_command", &json!({"cmd": "echo first > seen.txt"})),
            call("exec_command", &json!({"cmd": "cat seen.txt"})),
            call("update_plan", &json!({"plan": [{"step": "look", "status": "completed"}]})),
            call("exec_command", &json!({"cmd": "ls"})),
            "All done.".to_owned(),
        ];
        let server = scripted(template, says).await;
        let config = format!(
            "model = \"tiny\"\nmodel_provider = \"sconce\"\n[model_providers.sconce]\n\
             name = \"sconce\"\nbase_url = \"{}\"\nwire_api = \"responses\"\n",
            server.client.url("/v1")
        );
        std::fs::create_dir(home.path().join(".codex")).unwrap();
        std::fs::write(home.path().join(".codex/config.toml"), config).unwrap();
        let free = "--dangerously-bypass-approvals-and-sandbox";
        let arguments = ["exec", "--skip-git-repo-check", free, "Write a file and read it."];
        let output = run("codex", &arguments, &[], &home).await;
        check(&server, &output, &home, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn claude_code_runs_tools_to_the_end() {
    for (name, template) in TEMPLATES {
        let home = TempDir::with_prefix("agent-").unwrap();
        let picture = home.path().join("dot.png");
        std::fs::write(&picture, PNG).unwrap();
        let says = vec![
            format!(
                "<think>a plan</think>{}",
                call("Bash", &json!({"command": "echo first > seen.txt"}))
            ),
            call("Read", &json!({"file_path": home.path().join("seen.txt")})),
            call("Read", &json!({"file_path": picture})),
            call("Bash", &json!({"command": "ls"})),
            "All done.".to_owned(),
        ];
        let server = scripted(template, says).await;
        let url = server.client.url("");
        let env = [
            ("ANTHROPIC_BASE_URL", url.as_str()),
            ("ANTHROPIC_API_KEY", "none"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ];
        let arguments = [
            "-p",
            "Write a file and read it.",
            "--model",
            "tiny",
            "--permission-mode",
            "acceptEdits",
            "--allowedTools",
            "Bash,Read",
        ];
        let output = run("claude", &arguments, &env, &home).await;
        check(&server, &output, &home, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the agents: .ci/run agents"]
async fn opencode_runs_tools_to_the_end() {
    for (name, template) in TEMPLATES {
        let home = TempDir::with_prefix("agent-").unwrap();
        let says = vec![
            call("bash", &json!({"command": "echo first > seen.txt", "description": "write"})),
            call("read", &json!({"filePath": home.path().join("seen.txt")})),
            call("bash", &json!({"command": "ls", "description": "list"})),
            call("bash", &json!({"command": "pwd", "description": "where"})),
            "All done.".to_owned(),
        ];
        let server = scripted(template, says).await;
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
        check(&server, &output, &home, name).await;
    }
}

/// A picture of one dot.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0,
    1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54,
    0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0xf0, 0x1f, 0, 5, 0, 1, 0xff, 0x89, 0x99, 0x3d, 0x1d, 0, 0,
    0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];
