//! Lists of what is stored: which page of one a request asks for, and how it is told.

use axum::extract::Query;
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::request::fields::{FieldReader, Ignored};
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_PAGE_ITEMS;
use crate::store::PageRequest;

/// Items in a list that doesn't say how many.
const DEFAULT_LIMIT: usize = 20;

/// Names and values behind the question mark.
pub(crate) type Parameters = Query<Vec<(String, String)>>;

/// Which lists there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListKind {
    /// Most items on a page.
    pub(crate) most: usize,
    /// Items where the request doesn't say how many.
    pub(crate) usual: usize,
    /// Whether the oldest comes first unless the request says otherwise.
    pub(crate) ascending: bool,
    /// Parameters of its own.
    pub(crate) own: &'static [&'static str],
}

impl ListKind {
    /// At most 100, the newest first.
    pub(crate) const NEWEST_FIRST: Self =
        Self { most: MAX_PAGE_ITEMS, usual: DEFAULT_LIMIT, ascending: false, own: &[] };
}

/// What a request asks of a list.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) page: PageRequest,
    /// The list's own parameters.
    pub(crate) own: Vec<(String, String)>,
    pub(crate) ignored: Ignored,
}

impl Asked {
    pub(crate) fn new(
        Query(parameters): Parameters,
        kind: ListKind,
        state: &AppState,
    ) -> Result<Self, ApiError> {
        let mut fields = FieldReader::new(&[]);
        let mut page =
            PageRequest { limit: kind.usual, ascending: kind.ascending, ..PageRequest::default() };
        let mut own = Vec::new();
        for (name, value) in parameters {
            match name.as_str() {
                "after" => page.after = Some(value),
                "before" => page.before = Some(value),
                "limit" => page.limit = limit(&value, kind.most)?,
                "order" if value == "asc" || value == "desc" => page.ascending = value == "asc",
                "order" => {
                    let message = format!("order must be \"asc\" or \"desc\", got {value:?}");
                    return Err(ApiError::field("order", message));
                }
                "include" | "include[]" => fields.ignore(name),
                known if kind.own.iter().any(|own| known.starts_with(own)) => {
                    own.push((name, value));
                }
                _ => fields.unknown(name),
            }
        }
        Ok(Self { page, own, ignored: fields.finish(state.config.strict)? })
    }
}

fn limit(value: &str, most: usize) -> Result<usize, ApiError> {
    let limit = value.parse().ok().filter(|limit| (1..=most).contains(limit));
    limit.ok_or_else(|| {
        ApiError::field("limit", format!("limit must be in 1..={most}, got {value:?}"))
    })
}

/// A page as JSON.
pub(crate) fn list(data: &[Value], has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    json!({"object": "list", "data": data, "first_id": first_id, "last_id": last_id,
        "has_more": has_more})
}
