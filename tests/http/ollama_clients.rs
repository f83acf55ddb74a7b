//! Ollama's official client and LangChain's against a server whose model is scripted: `.ci/run
//! ollama` installs them and runs this.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fixture::{Server, Setup, say};
use super::messages::roomy;

/// Knows tools, and reasoning before an answer.
const TEMPLATE: &str = "{% if tools %}<tools>{{ tools | tojson }}</tools><tool_call></tool_call>\
{% endif %}{% if false %}<think></think>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}\
</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n\
{% endif %}";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Ollama's clients; `.ci/run ollama` installs them"]
async fn clients_of_ollama_read_reasoning_and_calls() {
    let python = std::env::var("SCONCE_PYTHON").expect("SCONCE_PYTHON names a Python");
    let turn = AtomicUsize::new(0);
    let setup = Setup { template: Some(TEMPLATE), ..roomy() };
    let server = Server::start(setup, move |_| {
        let calls = turn.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        let call =
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 4}}\n</tool_call>";
        say(&format!("<think>a plan</think>\n\n{}", if calls { call } else { "Five." }))
    })
    .await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/ollama_clients.py");
    let mut command = Command::new(python);
    command.args([script, "--scripted", &server.client.url("")]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    println!("{told}");
}
