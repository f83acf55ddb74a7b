//! `GET /v1/usage`: what each key has used of each model, by day or hour, in the words of OpenAI's usage API.
//! A key sees its own; one with the scope `metrics` or `admin` sees all.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::openai::lists::Parameters;
use crate::http::request::fields::FieldReader;
use crate::http::state::AppState;
use crate::http::state::caller::Caller;
use crate::http::state::clock::unix_seconds;
use crate::http::state::keys::scope::Scope;
use crate::store::UsageRow;

/// Seconds of an hour, the narrowest bucket.
const HOUR: i64 = 3600;
/// Hours back from now, unless the request says otherwise.
const USUAL: i64 = 7 * 24;
/// Most rows of an answer.
const MOST_ROWS: usize = 50_000;

/// What a request asks for; times are hours since 1970.
struct Asked {
    from: i64,
    to: i64,
    width: i64,
    key: Option<String>,
}

/// `GET /v1/usage`.
pub(crate) async fn usage(
    State(state): State<AppState>,
    Query(parameters): Parameters,
) -> Result<Response, ApiError> {
    let mut fields = FieldReader::new(&[]);
    let asked = read(parameters, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let Asked { from, to, width, key } = permitted(asked)?;
    state.keys.book.write(&state.store).await?;
    let most = i64::try_from(MOST_ROWS + 1).unwrap_or(i64::MAX);
    let rows = state.store.usage(from, to, key.as_deref(), width, most).await?;
    if rows.len() > MOST_ROWS {
        let message = format!("start_time: there are more than {MOST_ROWS} rows from then on");
        return Err(ApiError::field("start_time", message));
    }
    Ok(ignored.tell(axum::Json(page(&rows, width)).into_response()))
}

fn read(parameters: Vec<(String, String)>, fields: &mut FieldReader) -> Result<Asked, ApiError> {
    let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX) / HOUR;
    let mut asked = Asked { from: now - USUAL, to: now + 1, width: 24, key: None };
    for (name, value) in parameters {
        match name.as_str() {
            "start_time" => asked.from = seconds("start_time", &value)?.div_euclid(HOUR),
            "end_time" => asked.to = (seconds("end_time", &value)? + HOUR - 1).div_euclid(HOUR),
            "bucket_width" => {
                asked.width = match value.as_str() {
                    "1h" => 1,
                    "1d" => 24,
                    other => {
                        let message = format!("bucket_width must be 1h or 1d, got {other:?}");
                        return Err(ApiError::field("bucket_width", message));
                    }
                }
            }
            "key" => asked.key = Some(value),
            _ => fields.unknown(name),
        }
    }
    // Whole buckets.
    asked.from = asked.from.div_euclid(asked.width) * asked.width;
    Ok(asked)
}

fn seconds(name: &str, value: &str) -> Result<i64, ApiError> {
    let parsed = value.parse().ok().filter(|seconds| (0..=i64::from(u32::MAX)).contains(seconds));
    parsed.ok_or_else(|| {
        let most = u32::MAX;
        let message = format!("{name} must be seconds since 1970, in 0..={most}, got {value:?}");
        ApiError::field(name, message)
    })
}

/// What whoever asks may see of it.
fn permitted(asked: Asked) -> Result<Asked, ApiError> {
    let Some(caller) = Caller::current() else { return Ok(asked) };
    if caller.key().opens(&[Scope::Metrics, Scope::Admin]) {
        return Ok(asked);
    }
    if asked.key.as_ref().is_some_and(|key| key != caller.name()) {
        let message = "the usage of other keys needs a key with the scope metrics or admin";
        return Err(ApiError::Permission(message));
    }
    Ok(Asked { key: Some(caller.name().to_owned()), ..asked })
}

fn page(rows: &[UsageRow], width: i64) -> Value {
    let buckets = rows.chunk_by(|one, next| one.hour == next.hour).map(|rows| {
        let start = rows[0].hour * HOUR;
        let results: Vec<Value> = rows.iter().map(result).collect();
        json!({
            "object": "bucket",
            "start_time": start,
            "end_time": start + width * HOUR,
            "results": results,
        })
    });
    let data: Vec<Value> = buckets.collect();
    json!({"object": "page", "data": data, "has_more": false, "next_page": null})
}

fn result(row: &UsageRow) -> Value {
    let counts = row.counts;
    json!({
        "object": "usage",
        "key": row.key,
        "model": row.model,
        "num_model_requests": counts.requests,
        "input_tokens": counts.input,
        "input_cached_tokens": counts.cached,
        "output_tokens": counts.output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::UsageCounts;

    #[test]
    fn rows_of_one_time_are_one_bucket() {
        let row = |hour, key: &str| UsageRow {
            hour,
            key: key.to_owned(),
            model: "m".to_owned(),
            counts: UsageCounts { requests: 1, input: 2, cached: 1, output: 3 },
        };
        let page = page(&[row(24, "a"), row(24, "b"), row(48, "a")], 24);
        let data = page["data"].as_array().unwrap();
        assert_eq!((data.len(), data[0]["results"].as_array().unwrap().len()), (2, 2));
        assert_eq!(
            (&data[1]["start_time"], &data[1]["end_time"]),
            (&json!(172_800), &json!(259_200))
        );
    }

    #[test]
    fn times_are_widened_to_whole_buckets() {
        let ask = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            read(pairs.collect(), &mut FieldReader::new(&[]))
        };
        let asked = ask(&[("start_time", "90000"), ("end_time", "90001")]).unwrap();
        assert_eq!((asked.from, asked.to, asked.width), (24, 26, 24));
        let asked = ask(&[("start_time", "90000"), ("bucket_width", "1h")]).unwrap();
        assert_eq!((asked.from, asked.width), (25, 1));
        for wrong in [("start_time", "-1"), ("end_time", "soon"), ("bucket_width", "1m")] {
            assert!(ask(&[wrong]).is_err());
        }
    }
}
