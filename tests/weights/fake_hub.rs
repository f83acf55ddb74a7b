//! A hub on this machine: the few answers of the protocol that a download needs, and their faults.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use sha2::{Digest, Sha256};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub(crate) const TOKEN: &str = "hf_right";

/// What the hub has and how it misbehaves.
#[derive(Default)]
pub(crate) struct State {
    /// Files of `org/name` at `main`.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Every request: method, path, `Range`.
    pub(crate) requests: Vec<String>,
    /// Close the connection after so many bytes of a large file.
    pub(crate) cut_after: Option<usize>,
    /// Answer 200 with everything to a request for a range.
    pub(crate) ignore_ranges: bool,
    /// Announce another SHA-256 than the bytes have.
    pub(crate) wrong_hash: bool,
    /// Give nothing without the right token, and call it so.
    pub(crate) locked: Option<&'static str>,
    /// So many requests of large files are answered 500 with an error page.
    pub(crate) failures: usize,
    /// So many questions are answered 503.
    pub(crate) busy: usize,
    /// So many questions are answered 429.
    pub(crate) rate_limited: usize,
    /// What is answered about a revision instead of the truth.
    pub(crate) strange_info: Option<&'static str>,
}

/// The running hub; it ends with the process.
pub(crate) struct FakeHub {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

impl FakeHub {
    pub(crate) fn start(files: &[(&str, Vec<u8>)]) -> Self {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone()));
        let state = State { files: files.collect(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || answer(&stream.unwrap(), &shared, port));
            }
        });
        Self { endpoint: format!("http://127.0.0.1:{port}"), state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }
}

struct Request {
    method: String,
    path: String,
    /// The first byte, and the last where the client names one.
    range: Option<(usize, Option<usize>)>,
    token: Option<String>,
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut request = Request { method, path, range: None, token: None };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (start, end) = value.trim_start_matches("bytes=").split_once('-').unwrap();
                request.range = Some((start.parse().unwrap(), end.parse().ok()));
            }
            "authorization" => request.token = Some(value.trim_start_matches("Bearer ").to_owned()),
            _ => {}
        }
    }
    Some(request)
}

fn answer(stream: &TcpStream, state: &Mutex<State>, port: u16) {
    let Some(request) = read_request(stream) else { return };
    let mut state = state.lock().unwrap();
    let range = match request.range {
        None => String::new(),
        Some((start, None)) => format!(" from {start}"),
        Some((start, Some(end))) => format!(" from {start} to {end}"),
    };
    state.requests.push(format!("{} {}{range}", request.method, request.path));
    let path = request.path.trim_start_matches('/').to_owned();
    if let Some(file) = path.strip_prefix("cdn/") {
        return send_large(stream, &mut state, &request, file);
    }
    if state.busy > 0 {
        state.busy -= 1;
        return send(stream, "503 Service Unavailable", &[("Retry-After", "0".into())], b"busy");
    }
    if state.rate_limited > 0 {
        state.rate_limited -= 1;
        return send(stream, "429 Too Many Requests", &[("Retry-After", "0".into())], b"slowly");
    }
    if let Some(code) = state.locked.filter(|_| request.token.as_deref() != Some(TOKEN)) {
        let status = if request.token.is_some() { "403 Forbidden" } else { "401 Unauthorized" };
        return send(stream, status, &[("X-Error-Code", code.into())], b"{}");
    }
    if let Some(revision) = path.strip_prefix("api/models/org/name/revision/") {
        return send_info(stream, &state, revision);
    }
    match path.strip_prefix(&format!("org/name/resolve/{COMMIT}/")) {
        Some(file) => send_file(stream, &state, file, port),
        None => not_found(stream, "RepoNotFound"),
    }
}

fn send_info(stream: &TcpStream, state: &State, revision: &str) {
    if !["main", "refs%2Fpr%2F1", COMMIT].contains(&revision) {
        return not_found(stream, "RevisionNotFound");
    }
    let files: Vec<_> =
        state.files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
    let info = serde_json::json!({
        "_id": "6", "id": "org/name", "modelId": "org/name", "author": "org", "sha": COMMIT,
        "private": false, "gated": "auto", "disabled": false, "downloads": 1, "likes": 0,
        "tags": ["safetensors"], "library_name": "transformers", "pipeline_tag": "text-generation",
        "config": {"model_type": "llama"}, "cardData": {"license": "mit"}, "spaces": [],
        "safetensors": {"parameters": {"F32": 22}, "total": 22}, "siblings": files,
    });
    let info = state.strange_info.map_or_else(|| info.to_string(), str::to_owned);
    send(stream, "200 OK", &[], info.as_bytes());
}

fn is_large(file: &str) -> bool {
    [".safetensors", ".gguf"].iter().any(|ending| file.ends_with(ending))
}

/// What the hub itself says about a file: small ones are here, large ones elsewhere.
fn send_file(stream: &TcpStream, state: &State, file: &str, port: u16) {
    let Some(bytes) = state.files.get(file) else {
        return not_found(stream, "EntryNotFound");
    };
    let commit = ("X-Repo-Commit", COMMIT.to_owned());
    let mut hash = sha256(bytes);
    if !is_large(file) {
        hash.truncate(40);
        return send(stream, "200 OK", &[commit, ("ETag", format!("\"{hash}\""))], bytes);
    }
    if state.wrong_hash {
        hash = sha256(b"something else");
    }
    let headers = [
        commit,
        ("ETag", "\"of-the-redirect\"".to_owned()),
        ("X-Linked-ETag", format!("\"{hash}\"")),
        ("X-Linked-Size", bytes.len().to_string()),
        // Another host, as the client sees it.
        ("Location", format!("http://localhost:{port}/cdn/{file}")),
    ];
    send(stream, "302 Found", &headers, b"");
}

fn send_large(stream: &TcpStream, state: &mut State, request: &Request, file: &str) {
    if request.token.is_some() {
        return send(stream, "400 Bad Request", &[], b"the token must not come here");
    }
    if state.failures > 0 {
        state.failures -= 1;
        return send(stream, "500 Internal Server Error", &[], b"<html>an error page</html>");
    }
    let bytes = &state.files[file];
    let asked = request.range.filter(|_| !state.ignore_ranges).unwrap_or((0, None));
    let last = asked.1.unwrap_or(usize::MAX).min(bytes.len() - 1);
    let range = format!("bytes {}-{last}/{}", asked.0, bytes.len());
    let rest = &bytes[asked.0..=last];
    let (status, headers) = match asked {
        (0, None) => ("200 OK", vec![]),
        _ => ("206 Partial Content", vec![("Content-Range", range)]),
    };
    let sent = state.cut_after.unwrap_or(rest.len()).min(rest.len());
    send_part(stream, status, &headers, &rest[..sent], rest.len());
}

fn not_found(stream: &TcpStream, code: &str) {
    send(stream, "404 Not Found", &[("X-Error-Code", code.to_owned())], b"{}");
}

fn send(stream: &TcpStream, status: &str, headers: &[(&str, String)], body: &[u8]) {
    send_part(stream, status, headers, body, body.len());
}

/// An answer that announces `length` bytes and brings `body`.
fn send_part(
    mut stream: &TcpStream,
    status: &str,
    headers: &[(&str, String)],
    body: &[u8],
    length: usize,
) {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("Connection: close\r\n\r\n");
    // A client that hung up is no fault of the hub.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
