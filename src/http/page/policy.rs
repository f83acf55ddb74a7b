//! Content-Security-Policy: what a browser may do with the pages.
//!
//! Everything a page shows, runs or asks comes from the server that it came from; text of a model can't
//! become markup (trusted types), and no picture that it names is fetched. Tool servers, whose
//! addresses only the user knows, are reached by a worker, which has a policy of its own: that
//! one origin and nothing else.

use axum::http::{HeaderValue, Uri};

const PAGE: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; \
                    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                    frame-ancestors 'none'; require-trusted-types-for 'script'; \
                    trusted-types sconce-worker";

/// The policy of the pages and of their files.
pub(super) fn page() -> HeaderValue {
    HeaderValue::from_static(PAGE)
}

/// The policy of the worker that talks to the tool server at `origin`; none if that is no origin.
pub(super) fn worker(origin: &str) -> Option<HeaderValue> {
    let uri: Uri = origin.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?.as_str());
    // A host, with a port or without. Anything else could end the directive and begin another, and
    // policies have no form for addresses of IPv6.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let is_origin = matches!(scheme, "http" | "https")
        && authority.chars().all(is_plain)
        && origin == format!("{scheme}://{authority}");
    let policy = format!("default-src 'none'; connect-src {origin}");
    is_origin.then(|| HeaderValue::try_from(policy).expect("a scheme and a host are ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_reaches_the_one_origin() {
        for origin in ["http://127.0.0.1:3001", "https://tools.example"] {
            let policy = worker(origin).unwrap();
            assert_eq!(policy, format!("default-src 'none'; connect-src {origin}"));
        }
    }

    #[test]
    fn what_is_no_origin_gets_no_policy() {
        for origin in [
            "",
            "*",
            "https:",
            "tools.example",
            "data:text/plain,x",
            "ftp://tools.example",
            "https://tools.example/path",
            "https://tools.example;script-src *",
            "https://tools.example, *",
            "https://user@tools.example",
            "https://*",
            "http://[::1]:8080",
            "https://tools.example?x",
        ] {
            assert_eq!(worker(origin), None, "{origin}");
        }
    }
}
