//! Embeddings, where the server has any.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::{Fault, demand};
use super::probe::Probe;

const PATH: &str = "/v1/embeddings";

/// The answer; a model that doesn't embed is no fault.
async fn embed(probe: &Probe, fields: Value) -> Result<Value, Fault> {
    let mut body = json!({"model": probe.model, "input": "a lamp"});
    super::probe::merge(&mut body, fields);
    let answer = probe.post(PATH, &body).await?;
    if matches!(answer.status, 400 | 404 | 405 | 500 | 501) {
        return Err(Fault::Absent(format!("the model gives none: {}", answer.shown())));
    }
    demand!(answer.status == 200, "{}", answer.shown());
    Ok(answer.json())
}

fn floats(value: &Value) -> Vec<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "what was f32 before")]
    let float = |value: &Value| value.as_f64().map(|value| value as f32);
    value.as_array().into_iter().flatten().filter_map(float).collect()
}

pub(super) const CASES: [Case; 2] = [
    case!("each input has a vector with its index", |probe| {
        let answer = embed(probe, json!({"input": ["a lamp", "a fox"]})).await?;
        demand!(answer["object"] == "list" && answer["usage"]["prompt_tokens"].is_u64(), "no list");
        let data = answer["data"].as_array().cloned().unwrap_or_default();
        demand!(data.len() == 2, "{} vectors", data.len());
        for (index, one) in data.iter().enumerate() {
            demand!(one["index"] == index && one["object"] == "embedding", "{}", one["index"]);
            demand!(floats(&one["embedding"]).len() > 1, "no numbers");
        }
    }),
    case!("base64 has the same numbers", |probe| {
        let plain = embed(probe, json!({"encoding_format": "float"})).await?;
        let encoded = embed(probe, json!({"encoding_format": "base64"})).await?;
        let text = encoded["data"][0]["embedding"].as_str();
        let text = text.ok_or_else(|| Fault::wrong("the vector is no text"))?;
        let bytes = STANDARD.decode(text).map_err(|error| Fault::wrong(error.to_string()))?;
        let numbers: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let expected = floats(&plain["data"][0]["embedding"]);
        let near = |(one, two): (&f32, &f32)| (one - two).abs() < 1e-5;
        let same = numbers.len() == expected.len() && numbers.iter().zip(&expected).all(near);
        demand!(same, "{} numbers and {}", numbers.len(), expected.len());
    }),
];
