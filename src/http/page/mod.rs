//! The pages for people: the chat at `/`, the live status at `/status` and the guide at `/docs`, which programs
//! get as Markdown. Their files are part of the binary, are served as they lie in `web`, and need no build: plain
//! modules that a browser reads. Knows nothing of the rest of the server; what the pages do, they do by its routes.
//!
//! ```text
//! policy       which content a browser may load, run and reach
//! web          chat.js, status.js and docs.js begin the pages; every file says at its head what it is for
//! ```

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::guide;

mod policy;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const MARKDOWN: &str = "text/markdown; charset=utf-8";

/// Rows of [`FILES`]: a file's name, its media type, its bytes.
macro_rules! files {
    ($($name:literal: $media_type:expr,)*) => {
        &[$(($name, $media_type, include_bytes!(concat!("web/", $name)))),*]
    };
}

/// What browsers may ask for.
const FILES: &[(&str, &str, &[u8])] = files! {
    "answer.css": CSS,
    "answer_view.js": SCRIPT,
    "answering.js": SCRIPT,
    "api.js": SCRIPT,
    "base.css": CSS,
    "charts.js": SCRIPT,
    "chat.css": CSS,
    "chat.js": SCRIPT,
    "code_view.js": SCRIPT,
    "composer.js": SCRIPT,
    "connection.js": SCRIPT,
    "conversation.js": SCRIPT,
    "docs.css": CSS,
    "docs.html": HTML,
    "docs.js": SCRIPT,
    "dom.js": SCRIPT,
    "heat.js": SCRIPT,
    "highlight.js": SCRIPT,
    "icon.svg": SVG,
    "index.html": HTML,
    "inline.js": SCRIPT,
    "markdown.js": SCRIPT,
    "math.js": SCRIPT,
    "math_symbols.js": SCRIPT,
    "mcp.js": SCRIPT,
    "mcp_worker.js": SCRIPT,
    "message_view.js": SCRIPT,
    "metrics.js": SCRIPT,
    "prefs.js": SCRIPT,
    "schema_editor.js": SCRIPT,
    "settings.js": SCRIPT,
    "sidebar.js": SCRIPT,
    "status.css": CSS,
    "status.html": HTML,
    "status.js": SCRIPT,
    "store.js": SCRIPT,
    "thread.js": SCRIPT,
    "tool_panel.js": SCRIPT,
    "tools.js": SCRIPT,
};

/// The worker that talks to a tool server, the one file with a policy of its own.
const WORKER: &str = "mcp_worker.js";

/// A file and the name of its content.
struct File {
    media_type: &'static str,
    bytes: &'static [u8],
    etag: HeaderValue,
}

impl File {
    fn new(media_type: &'static str, bytes: &'static [u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let name_of_content = u128::from_be_bytes(*digest.first_chunk().expect("32 bytes"));
        let etag = format!("\"{name_of_content:032x}\"");
        let etag = HeaderValue::try_from(etag).expect("hexadecimal digits");
        Self { media_type, bytes, etag }
    }
}

static BY_NAME: LazyLock<HashMap<&str, File>> = LazyLock::new(|| {
    FILES.iter().map(|&(name, media_type, bytes)| (name, File::new(media_type, bytes))).collect()
});

/// Pages of the guide; the index has no name.
static GUIDE: LazyLock<HashMap<&str, File>> = LazyLock::new(|| {
    let pages = std::iter::once(&("", guide::INDEX)).chain(guide::PAGES);
    pages.map(|&(name, text)| (name, File::new(MARKDOWN, text.as_bytes()))).collect()
});

/// What is behind the question mark of a file's address.
#[derive(Debug, Deserialize)]
struct FileQuery {
    /// The origin that the worker may reach.
    origin: Option<String>,
}

/// Whether `GET /` asks for a page: browsers say that they take HTML, programs don't.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Whether a request is for a part of the pages, which hold nothing secret: they ask for a key
/// themselves, and send it with what they ask of the server.
pub(crate) fn is_public(path: &str, headers: &HeaderMap) -> bool {
    let below = ["/page/", "/docs/"].iter().any(|begin| path.starts_with(begin));
    matches!(path, "/status" | "/docs") || below || (path == "/" && wants_page(headers))
}

/// Where the pages and their files are, but for the chat at `/`, which other clients ask for too.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/page/{name}", get(file))
        .route("/status", get(status))
        .route("/docs", get(guide_index))
        .route("/docs/", get(without_slash))
        .route("/docs/{name}", get(guide_page))
}

/// `GET /` for browsers: the chat.
pub(crate) fn chat(headers: &HeaderMap) -> Response {
    respond("index.html", headers, policy::page())
}

/// `GET /status`: what the server is doing, live.
async fn status(headers: HeaderMap) -> Response {
    respond("status.html", &headers, policy::page())
}

/// `GET /docs`: the first page of the guide.
async fn guide_index(headers: HeaderMap) -> Response {
    guide_page(Path(String::new()), headers).await
}

/// `GET /docs/`: the same page, whose links begin at its folder; relative, for a proxy may have put all of it
/// below a path.
async fn without_slash() -> Redirect {
    Redirect::permanent("../docs")
}

/// `GET /docs/{name}`: a page of the guide, with the ending of its file or without.
async fn guide_page(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match GUIDE.get(name.strip_suffix(".md").unwrap_or(&name)) {
        Some(_) if wants_page(&headers) => respond("docs.html", &headers, policy::page()),
        Some(page) => respond_with(page, &headers, policy::page()),
        None => {
            (StatusCode::NOT_FOUND, format!("the guide has no page {name:?}; /docs lists them\n"))
                .into_response()
        }
    }
}

/// `GET /page/{name}`: a file of the pages.
async fn file(
    Path(name): Path<String>,
    Query(query): Query<FileQuery>,
    headers: HeaderMap,
) -> Response {
    let policy = match (name.as_str(), query.origin.as_deref()) {
        (WORKER, Some(origin)) => policy::worker(origin),
        _ => Some(policy::page()),
    };
    match policy {
        Some(policy) => respond(&name, &headers, policy),
        None => (StatusCode::BAD_REQUEST, "origin: must be http:// or https:// and a host\n")
            .into_response(),
    }
}

/// A file of the pages.
fn respond(name: &str, headers: &HeaderMap, policy: HeaderValue) -> Response {
    match BY_NAME.get(name) {
        Some(file) => respond_with(file, headers, policy),
        None => {
            (StatusCode::NOT_FOUND, format!("the pages have no file {name:?}\n")).into_response()
        }
    }
}

/// A file, or only that it is still the one that the browser has.
fn respond_with(file: &File, headers: &HeaderMap, policy: HeaderValue) -> Response {
    let about = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::ETAG, file.etag.clone()),
        // A server that was updated serves other files under the same names.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    if is_known(headers, &file.etag) {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    (about, [(header::CONTENT_TYPE, file.media_type)], file.bytes).into_response()
}

/// Whether `If-None-Match` names this content; a proxy may have made the tag a weak one.
fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let etag = etag.to_str().unwrap_or_default();
    known.is_some_and(|known| {
        known
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    fn text(name: &str) -> &'static str {
        std::str::from_utf8(BY_NAME[name].bytes).unwrap()
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/http/page/web");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let served = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(there, served);
        let bytes: usize = FILES.iter().map(|(.., bytes)| bytes.len()).sum();
        assert!(bytes < 300_000, "{bytes} bytes");
    }

    #[test]
    fn scripts_are_short_and_import_what_is_served() {
        for (name, media_type, _) in FILES {
            if *media_type != SCRIPT {
                continue;
            }
            let script = text(name);
            assert!(script.starts_with("//"), "{name} does not say what it is for");
            assert!(script.lines().count() <= 400, "{name} is too long");
            for line in script.lines().filter(|line| line.starts_with("import ")) {
                let path = line.split('"').nth(1).unwrap();
                let imported = path.strip_prefix("./").unwrap_or_else(|| panic!("{name}: {line}"));
                assert!(BY_NAME.contains_key(imported), "{name} imports {imported}");
            }
        }
    }

    #[test]
    fn pages_name_files_that_are_served_and_no_other_host() {
        for page in ["docs.html", "index.html", "status.html"] {
            let html = text(page);
            for marker in ["src=\"", "rel=\"stylesheet\" href=\"", "rel=\"icon\" href=\""] {
                for rest in html.split(marker).skip(1) {
                    let path = rest.split('"').next().unwrap();
                    let name = path.strip_prefix("/page/").unwrap_or_else(|| panic!("{path}"));
                    assert!(BY_NAME.contains_key(name), "{page} names {path}");
                }
            }
            assert!(!html.contains("<style") && !html.contains("style=\""), "{page}");
            assert!(!html.contains("://"), "{page} names an address");
        }
    }
}
