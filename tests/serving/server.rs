//! The real program as a child process, serving the embedded demo model on a free port.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tempfile::NamedTempFile;

/// The program with nothing of the user's own: no variables, and a store that ends with it.
pub(super) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sconce"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SCONCE_") {
            command.env_remove(name);
        }
    }
    command.env("SCONCE_STORE", "memory");
    command
}

/// Stopped when dropped.
pub(super) struct Server {
    child: Child,
    log: Log,
    pub(super) url: String,
}

/// What a server has logged, readable after its end, too.
#[derive(Clone)]
pub(super) struct Log(Arc<NamedTempFile>);

impl Log {
    pub(super) fn text(&self) -> String {
        std::fs::read_to_string(self.0.path()).unwrap()
    }
}

impl Server {
    /// Starts `sconce serve` with further arguments and waits until it says that it is ready.
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::start_with(&mut program(), arguments)
    }

    /// The same on another kernel level than the machine's best.
    pub(super) fn start_on(level: &str) -> Self {
        Self::start_with(program().env("SCONCE_KERNELS", level), &[])
    }

    fn start_with(command: &mut Command, arguments: &[&str]) -> Self {
        let log = NamedTempFile::new().unwrap();
        let mut child = command
            .args(["serve", "--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .unwrap_or_else(|| panic!("not ready: {line:?}"));
        Self { url: address.to_owned(), log: Log(Arc::new(log)), child }
    }

    /// What it logs.
    pub(super) fn log(&self) -> Log {
        self.log.clone()
    }

    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The names of its threads, where the system tells.
    pub(super) fn threads(&self) -> Option<Vec<String>> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        // A thread may end meanwhile.
        Some(names.flatten().map(|name| name.trim_end().to_owned()).collect())
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        let status = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// The most memory it had so far, in bytes, where the system tells.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes << 10)
    }

    /// Waits for the end of the process.
    pub(super) fn wait(mut self) -> ExitStatus {
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("still running");
    }

    /// A gauge or counter of `/metrics`.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let text =
            reqwest::get(format!("{}/metrics", self.url)).await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("no {name} in:\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// The lines of a metric, one for each set of labels.
    pub(super) async fn counted(&self, name: &str) -> Vec<String> {
        let text =
            reqwest::get(format!("{}/metrics", self.url)).await.unwrap().text().await.unwrap();
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(str::to_owned).collect()
    }

    /// Waits until no sequence runs or waits and no KV block is held.
    pub(super) async fn assert_idle(&self) {
        let names =
            ["vllm:num_requests_running", "vllm:num_requests_waiting", "sconce:kv_blocks_in_use"];
        for _ in 0..200 {
            let mut busy = 0.0;
            for name in names {
                busy += self.metric(name).await;
            }
            if busy == 0.0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the server is still busy");
    }

    /// The JSON that a route answers, whatever the status.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.url);
        let response = reqwest::Client::new().post(url).json(body).send().await.unwrap();
        response.json().await.unwrap()
    }

    /// The text that a route answers, whatever the status.
    pub(super) async fn text(&self, path: &str, body: &Value) -> String {
        let url = format!("{}{path}", self.url);
        let response = reqwest::Client::new().post(url).json(body).send().await.unwrap();
        response.text().await.unwrap()
    }

    /// Starts a streaming completion.
    pub(super) async fn stream(&self, body: &Value) -> Frames {
        let response = reqwest::Client::new()
            .post(format!("{}/v1/completions", self.url))
            .json(body)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let bytes = response.bytes_stream().map(|part| part.unwrap().to_vec()).boxed();
        Frames { bytes, buffer: Vec::new() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The data frames of one stream.
pub(super) struct Frames {
    bytes: futures::stream::BoxStream<'static, Vec<u8>>,
    buffer: Vec<u8>,
}

impl Frames {
    /// The next frame's JSON; `None` at `[DONE]`.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let frame = String::from_utf8(frame).unwrap();
                match frame.trim_end().strip_prefix("data: ") {
                    Some("[DONE]") => return None,
                    Some(json) => return Some(serde_json::from_str(json).unwrap()),
                    None => continue,
                }
            }
            self.buffer.extend(self.bytes.next().await.expect("ends with [DONE]"));
        }
    }

    /// All token ids up to the end.
    pub(super) async fn token_ids(mut self) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some(chunk) = self.next().await {
            assert!(chunk.get("error").is_none(), "{chunk}");
            let Some(choice) = chunk["choices"].get(0) else { continue };
            let tokens = choice["token_ids"].as_array().into_iter().flatten();
            ids.extend(tokens.map(|id| id.as_u64().unwrap()));
        }
        ids
    }
}
