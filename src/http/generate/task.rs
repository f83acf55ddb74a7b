//! What texts are embedded for: a task, as Jina's API names it, chooses an adapter of the model's own and
//! a prompt.
//!
//! `retrieval.query` and `retrieval.passage` are the two sides of one task, and have prompts of their
//! own. A model without adapters for tasks has its prompts alone.

use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::state::AppState;

/// Tasks whose queries are told from what they look for.
const ASYMMETRIC: [&str; 2] = ["retrieval", "code"];
/// Names of a side, and of the prompts that it has.
const SIDES: [(&str, &[&str]); 2] = [("query", &["query"]), ("passage", &["passage", "document"])];

/// A task that the model has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Task {
    /// The model's adapter for it.
    pub(crate) adapter: Option<Adapter>,
    /// The name of its prompt, where it is not the one of texts that ask for none.
    pub(crate) prompt_name: Option<String>,
}

impl Task {
    /// The task of this name. `named` is the adapter that the request named as its model.
    pub(crate) fn find(
        name: Option<&str>,
        named: Option<&Adapter>,
        state: &AppState,
    ) -> Result<Self, ApiError> {
        let Some(name) = name else {
            return Ok(Self { adapter: named.cloned(), prompt_name: None });
        };
        if let Some(adapter) = named {
            let other = adapter.name();
            let message =
                format!("task goes with the model itself, not with the adapter {other:?}");
            return Err(ApiError::field("task", message));
        }
        let own = state.adapters.of_tasks();
        let (base, side) = split(name);
        // Some models have an adapter for each side.
        let own_name = state.adapters.of_task(name);
        let adapter = own_name.or_else(|| state.adapters.of_task(base)).cloned();
        // Some models have prompts under the names of tasks.
        let mut candidates = [name].into_iter().chain(side.unwrap_or_default().iter().copied());
        let has = |name: &&str| state.embedding_prompts.get(Some(name)).is_ok();
        let prompt_name = candidates.find(has).map(str::to_owned);
        if adapter.is_none() && (prompt_name.is_none() || !own.is_empty()) {
            return Err(unknown(name, own));
        }
        Ok(Self { adapter, prompt_name })
    }
}

/// The name of a task without its side, and the prompts of the side.
fn split(name: &str) -> (&str, Option<&'static [&'static str]>) {
    let side = |(base, side): (&'_ str, &str)| {
        let (_, prompts) = SIDES.iter().find(|(known, _)| *known == side)?;
        ASYMMETRIC.contains(&base).then_some(*prompts)
    };
    match name.split_once('.').and_then(|parts| Some((parts.0, side(parts)?))) {
        Some((base, prompts)) => (base, Some(prompts)),
        None => (name, None),
    }
}

/// The refusal of a task that the model doesn't have, with those that it has.
fn unknown(name: &str, own: &[Adapter]) -> ApiError {
    let sides = |base: &str| SIDES.map(|(side, _)| format!("{base}.{side}"));
    let of = |adapter: &Adapter| {
        let base = adapter.name();
        let sides = if ASYMMETRIC.contains(&base) { sides(base).to_vec() } else { Vec::new() };
        [vec![base.to_owned()], sides].concat()
    };
    let (whose, names) = if own.is_empty() {
        let names = ASYMMETRIC.iter().flat_map(|base| sides(base)).collect();
        ("a model without adapters for tasks has its prompts alone: prompt_name, or", names)
    } else {
        ("there are", own.iter().flat_map(of).collect::<Vec<_>>())
    };
    let message = format!("no task is named {name:?}; {whose} {}", names.join(", "));
    ApiError::field("task", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_those_of_tasks_that_have_them() {
        assert_eq!(split("retrieval.query"), ("retrieval", Some(&["query"][..])));
        assert_eq!(split("code.passage"), ("code", Some(&["passage", "document"][..])));
        for whole in ["retrieval", "text-matching", "clustering.query", "retrieval.other"] {
            assert_eq!(split(whole), (whole, None));
        }
    }
}
