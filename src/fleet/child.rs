//! The process of one model: started, watched, told to end.
//!
//! A process ends when its standard input does: it drains then as at a signal, also when this process is
//! gone without a word. Its log lines go on to this process's standard error, with the model's name.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;

use super::model::ModelSpec;

/// Name of the variable that has a process end with its standard input.
pub const ENDS_WITH_STDIN: &str = "SCONCE_ENDS_WITH_STDIN";

/// Between two looks at a process that is about to end.
const PAUSE: Duration = Duration::from_millis(5);
/// Lines of the log that are kept to tell why a process has ended.
const TAIL: usize = 20;
/// Longest reason that is told, in characters.
const REASON: usize = 600;

/// How processes of models are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program; it is called with `serve`.
    pub program: PathBuf,
    /// Flags for all models.
    pub arguments: Vec<OsString>,
    /// Variables that would be flags, which the arguments have already.
    pub without_variables: Vec<String>,
    /// Variables that are set.
    pub variables: Vec<(String, String)>,
    /// A key that processes take, if they need one.
    pub key: Option<String>,
    /// Whether log lines are JSON objects.
    pub json_log: bool,
}

/// Where a process listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Address {
    /// Reads the line in which a server says that it is ready.
    fn of_announcement(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip_while(|word| *word != "on").skip(1);
        let word = words.next()?.trim_end_matches(',');
        if word.starts_with("http://") {
            return word.strip_prefix("http://")?.parse().ok().map(Self::Tcp);
        }
        // A path may have spaces in it.
        let path = line.split_once(" on unix:")?.1.rsplit_once(" after ")?.0;
        Some(Self::Unix(path.into()))
    }
}

/// How a process ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// `None` if the system doesn't know.
    pub(super) status: Option<ExitStatus>,
    /// Its last words.
    pub(super) said: Option<String>,
}

impl End {
    /// Why it ended, in a line.
    pub(super) fn reason(&self) -> String {
        let status =
            self.status.map_or("it can't be waited for".to_owned(), |status| status.to_string());
        match &self.said {
            Some(said) => format!("{said} ({status})"),
            None => format!("its process ended: {status}"),
        }
    }
}

/// A process that runs until it is told to end, or dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: u32,
    child: Arc<Mutex<Child>>,
    input: Option<ChildStdin>,
    /// Resolves once it listens.
    pub(super) ready: oneshot::Receiver<Address>,
    /// Resolves once it has ended.
    pub(super) ended: oneshot::Receiver<End>,
}

impl Process {
    /// Starts a process for a model called `name`, with these arguments behind those of all.
    pub(super) fn start(
        launch: &Launch,
        name: &str,
        arguments: &[OsString],
    ) -> std::io::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.arg("serve").args(&launch.arguments).args(arguments);
        for variable in &launch.without_variables {
            command.env_remove(variable);
        }
        command.envs(launch.variables.iter().cloned()).env(ENDS_WITH_STDIN, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A Ctrl-C is for this process, which lets all end in good order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let (id, input) = (child.id(), child.stdin.take());
        let (output, log) = (child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        let ((announce, ready), (tell, ended)) = (oneshot::channel(), oneshot::channel());
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let relay = {
            let (tail, name, json) = (tail.clone(), name.to_owned(), launch.json_log);
            move || log.into_iter().for_each(|log| pass_on(BufReader::new(log), &name, json, &tail))
        };
        let relay = std::thread::Builder::new().name(format!("log {id}")).spawn(relay)?;
        let watched = child.clone();
        let watch = move || {
            let mut lines = output.map(BufReader::new).into_iter().flat_map(BufRead::lines);
            let first = lines.find_map(|line| Address::of_announcement(&line.ok()?));
            if let Some(address) = first {
                // Nobody waits any more for one that was told to end meanwhile.
                let _ = announce.send(address);
            }
            lines.for_each(drop);
            // Its standard output is closed: it has ended, or is about to.
            let status = wait(&watched);
            let _ = relay.join();
            let said = last_words(&lock(&tail));
            let _ = tell.send(End { status, said });
        };
        std::thread::Builder::new().name(format!("model {id}")).spawn(watch)?;
        Ok(Self { id, child, input, ready, ended })
    }

    /// Tells it to let its requests end and to end then.
    pub(super) fn tell_to_end(&mut self) {
        self.input = None;
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        // It may have ended by itself.
        let _ = lock(&self.child).kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for the end of a process without keeping others from ending it.
fn wait(child: &Mutex<Child>) -> Option<ExitStatus> {
    loop {
        match lock(child).try_wait() {
            Ok(None) => {}
            Ok(status) => return status,
            Err(_) => return None,
        }
        std::thread::sleep(PAUSE);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes log lines of a model to this process's own log, and keeps the last ones.
fn pass_on(log: impl BufRead, name: &str, json: bool, tail: &Mutex<VecDeque<String>>) {
    for line in log.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        // Nothing is left to tell when standard error is closed.
        let _ = writeln!(std::io::stderr(), "{}", named(&line, name, json));
        let mut tail = lock(tail);
        tail.push_back(line);
        if tail.len() > TAIL {
            tail.pop_front();
        }
    }
}

/// A log line with the model's name.
fn named(line: &str, name: &str, json: bool) -> String {
    if json && let Ok(Value::Object(mut object)) = serde_json::from_str(line) {
        object.insert("model".to_owned(), Value::from(name));
        return Value::Object(object).to_string();
    }
    format!("[{name}] {line}")
}

/// The error that a process ended with, if it said one.
fn last_words(tail: &VecDeque<String>) -> Option<String> {
    let at = tail
        .iter()
        .rposition(|line| line.starts_with("error: ") || line.contains("panicked at"))?;
    let words: Vec<&str> = tail.iter().skip(at).map(|line| line.trim()).collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    Some(words.chars().take(REASON).collect())
}

/// The arguments of one model's process.
pub(super) fn arguments(spec: &ModelSpec, socket: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = spec.arguments.iter().map(OsString::from).collect();
    if !spec.model.is_empty() {
        arguments.push(format!("--model={}", spec.model).into());
    }
    let names = std::iter::once(&spec.name).chain(&spec.aliases);
    arguments.extend(names.map(|name| format!("--served-model-name={name}").into()));
    if cfg!(unix) {
        arguments.push("--uds".into());
        arguments.push(socket.into());
    } else {
        arguments.push("--port=0".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_says_where_a_process_listens() {
        let address = Address::of_announcement;
        let unix = address("sconce 0.1.0 is ready on unix:/tmp/a b/1.sock after 0.42 s");
        assert_eq!(unix, Some(Address::Unix("/tmp/a b/1.sock".into())));
        let tcp = address("sconce 0.1.0 is ready on http://127.0.0.1:801 after 0.42 s");
        assert_eq!(tcp, Some(Address::Tcp(([127, 0, 0, 1], 801).into())));
        assert_eq!(address("hello"), None);
    }

    #[test]
    fn the_last_error_is_the_reason() {
        let tail = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(
            last_words(&tail(&["error: a", "x", "error: no file", "  at b"])).unwrap(),
            "no file at b"
        );
        assert_eq!(last_words(&tail(&["INFO all is well"])), None);
    }

    #[test]
    fn log_lines_have_the_name_of_their_model() {
        assert_eq!(named("WARN a", "m", false), "[m] WARN a");
        assert_eq!(
            named("{\"level\":\"WARN\"}", "m", true),
            "{\"level\":\"WARN\",\"model\":\"m\"}"
        );
        assert_eq!(named("no object", "m", true), "[m] no object");
    }
}
