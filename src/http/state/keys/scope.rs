//! What a key opens, and what each route needs.

use serde::Deserialize;

/// A kind of things to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Text from a model.
    Infer,
    /// Vectors, scores and classes of texts.
    Embeddings,
    /// Files and batches.
    Batches,
    /// What the server tells of itself, and everybody's usage.
    Metrics,
    /// What is served: adapters.
    Admin,
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scopes {
    /// Whatever only reads or computes what the bearer asks for.
    pub(crate) const USE: Self =
        Self(1 << Scope::Infer as u8 | 1 << Scope::Embeddings as u8 | 1 << Scope::Batches as u8);
    /// The same, and what the server tells of itself.
    pub(crate) const WATCH: Self = Self(Self::USE.0 | 1 << Scope::Metrics as u8);
    /// Everything.
    pub(crate) const ALL: Self = Self(Self::WATCH.0 | 1 << Scope::Admin as u8);

    /// Whether a scope is among them.
    pub(crate) fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().fold(0, |all, scope| all | 1 << scope as u8))
    }
}

const VECTORS: [&str; 12] = [
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/classify",
    "/v1/pooling",
    "/api/embed",
    "/api/embeddings",
    "/score",
    "/classify",
    "/pooling",
    "/predict",
    "/similarity",
];
/// The same, for what begins so.
const VECTORS_BELOW: [&str; 3] = ["/embed", "/rerank", "/v2/"];
/// What tells of the server and its models; any key opens it.
const ANYBODY: [&str; 13] = [
    "/",
    "/info",
    "/status",
    "/version",
    "/openapi.json",
    "/props",
    "/tokenizer_info",
    "/v1/models",
    "/v1/usage",
    "/api/tags",
    "/api/ps",
    "/api/show",
    "/api/version",
];

/// The scopes that open a path, one of which is enough; none where any key does. A route that nobody
/// thought of here is one for text.
pub(crate) fn of_path(path: &str) -> &'static [Scope] {
    let below = |begin: &str| {
        path.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let tells = ANYBODY.contains(&path) || below("/docs") || below("/v1/models");
    if tells || path.starts_with("/health") {
        &[]
    } else if matches!(path, "/v1/load_lora_adapter" | "/v1/unload_lora_adapter") {
        &[Scope::Admin]
    } else if matches!(path, "/metrics" | "/load" | "/slots") {
        &[Scope::Metrics]
    } else if below("/v1/batches") || below("/v1/messages/batches") {
        &[Scope::Batches]
    } else if below("/v1/files") {
        // Pictures and documents of conversations are files, too.
        &[Scope::Batches, Scope::Infer]
    } else if VECTORS.contains(&path) || VECTORS_BELOW.iter().any(|begin| path.starts_with(begin)) {
        &[Scope::Embeddings]
    } else if matches!(path, "/tokenize" | "/detokenize" | "/invocations") {
        &[Scope::Infer, Scope::Embeddings]
    } else {
        &[Scope::Infer]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_route_has_its_scope() {
        for (path, scopes) in [
            ("/v1/models", &[][..]),
            ("/v1/models/org/name", &[]),
            ("/v1/usage", &[]),
            ("/docs", &[]),
            ("/docs/flags", &[]),
            ("/metrics", &[Scope::Metrics]),
            ("/v1/load_lora_adapter", &[Scope::Admin]),
            ("/v1/batches/b/cancel", &[Scope::Batches]),
            ("/v1/messages/batches", &[Scope::Batches]),
            ("/v1/messages", &[Scope::Infer]),
            ("/v1/embeddings", &[Scope::Embeddings]),
            ("/embed_all", &[Scope::Embeddings]),
            ("/v1/chat/completions", &[Scope::Infer]),
            ("/v1/batchesque", &[Scope::Infer]),
            ("/v1/audio/speech", &[Scope::Infer]),
        ] {
            assert_eq!(of_path(path), scopes, "{path}");
        }
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let some: Scopes = [Scope::Admin, Scope::Infer].into_iter().collect();
        assert!(some.has(Scope::Admin) && some.has(Scope::Infer) && !some.has(Scope::Metrics));
        assert!(!Scopes::WATCH.has(Scope::Admin) && Scopes::ALL.has(Scope::Admin));
    }
}
