//! A client that sees what an SDK sees, and below it the raw socket.

use std::net::SocketAddr;

use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Client {
    pub address: SocketAddr,
    http: reqwest::Client,
}

/// A response, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    async fn read(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The error object's message, after a check of its shape.
    pub fn error(&self, status: u16, kind: &str, param: Option<&str>) -> String {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("{body}"));
        let keys: Vec<&String> = error.keys().collect();
        assert_eq!(keys, ["message", "type", "param", "code"], "{body}");
        assert_eq!((self.status, &body["error"]["type"]), (status, &kind.into()), "{body}");
        assert_eq!(body["error"]["param"], param.map_or(Value::Null, Value::from), "{body}");
        assert!(error["code"].is_null() || error["code"].is_string(), "{body}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// The frames of a stream: JSON, and `[DONE]` as a string. Comments are dropped.
    pub fn frames(&self) -> Vec<Value> {
        frames(&self.text)
    }

    /// The chunks of a stream that ends with `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let mut frames = self.frames();
        assert_eq!(frames.pop(), Some(Value::from("[DONE]")));
        frames
    }
}

pub fn frames(text: &str) -> Vec<Value> {
    let data = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| Value::from(data))).collect()
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, http: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[]).await
    }

    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.http.get(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::read(request.send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body, &[]).await
    }

    pub async fn post_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.http.post(self.url(path)).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::read(request.send().await.unwrap()).await
    }

    pub async fn post_bytes(&self, path: &str, content_type: &str, body: Vec<u8>) -> Answer {
        let request = self.http.post(self.url(path)).header("content-type", content_type);
        Answer::read(request.body(body).send().await.unwrap()).await
    }

    pub async fn request(&self, method: &str, path: &str) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        Answer::read(self.http.request(method, self.url(path)).send().await.unwrap()).await
    }

    pub async fn chat(&self, body: &Value) -> Answer {
        self.post("/v1/chat/completions", body).await
    }

    pub async fn complete(&self, body: &Value) -> Answer {
        self.post("/v1/completions", body).await
    }

    /// Sends a POST over a socket of its own, and reads nothing.
    pub async fn open(&self, path: &str, body: &Value) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        socket
    }
}

/// Reads from a socket until `text` has come.
pub async fn read_until(socket: &mut TcpStream, text: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let mut buffer = [0; 1024];
        let count = socket.read(&mut buffer).await.unwrap();
        assert!(count > 0, "{text:?} never came: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}
