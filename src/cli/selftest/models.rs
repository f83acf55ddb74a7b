//! The list of models.

use serde_json::json;

use super::case::{Case, case};
use super::fault::demand;
use super::probe::CHAT;

pub(super) const CASES: [Case; 3] = [
    case!("the list is of objects with ids", |probe| {
        let answer = probe.get("/v1/models").await?;
        let list = answer.json();
        demand!(answer.status == 200 && list["object"] == "list", "{}", answer.shown());
        let data = list["data"].as_array().filter(|data| !data.is_empty());
        let good = data.is_some_and(|data| {
            data.iter().all(|one| one["id"].is_string() && one["object"] == "model")
        });
        demand!(good, "{}", answer.shown());
    }),
    case!("a model is found by its id", |probe| {
        let answer = probe.get(&format!("/v1/models/{}", probe.model)).await?;
        demand!(answer.status == 200, "{}", answer.shown());
        demand!(answer.json()["id"] == probe.model, "{}", answer.shown());
    }),
    case!("a model that isn't there is a 404 with an error object", |probe| {
        let body =
            json!({"model": "no-such-model", "messages": [{"role": "user", "content": "a"}]});
        let answer = probe.post(CHAT, &body).await?;
        demand!(answer.status == 404, "{}", answer.shown());
        demand!(answer.json()["error"]["message"].is_string(), "{}", answer.shown());
    }),
];
