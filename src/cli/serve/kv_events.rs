//! `--kv-events-config`: vLLM's JSON object.

use std::str::FromStr;

use serde::Deserialize;

use crate::config::KvEvents;

/// The queue of each subscriber has this length, and no other.
const HIGH_WATER_MARK: usize = 100_000;

/// The object as it is written, with vLLM's fields and defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KvEventsConfig {
    enable_kv_cache_events: bool,
    publisher: Option<Publisher>,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    topic: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Publisher {
    Null,
    Zmq,
}

impl Default for KvEventsConfig {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: "tcp://*:5557".to_owned(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: HIGH_WATER_MARK,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

impl KvEventsConfig {
    /// What is published where, if anything is.
    pub(super) fn resolve(self) -> Option<KvEvents> {
        if !self.enable_kv_cache_events || self.publisher == Some(Publisher::Null) {
            return None;
        }
        let Self { endpoint, replay_endpoint, buffer_steps, max_queue_size, topic, .. } = self;
        Some(KvEvents { endpoint, replay_endpoint, buffer_steps, max_queue_size, topic })
    }
}

impl FromStr for KvEventsConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let config: Self = serde_json::from_str(text)
            .map_err(|error| format!("it must be a JSON object as vLLM's: {error}"))?;
        if config.hwm != HIGH_WATER_MARK {
            return Err(format!("hwm is {}, it can only be {HIGH_WATER_MARK}", config.hwm));
        }
        if config.max_queue_size == 0 {
            return Err("max_queue_size is 0, the least is 1".to_owned());
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vllms_object_is_read_and_anything_else_is_refused() {
        let read = |text: &str| text.parse::<KvEventsConfig>().map(KvEventsConfig::resolve);
        let events = KvEvents {
            endpoint: "tcp://router:5557".to_owned(),
            replay_endpoint: Some("tcp://*:5558".to_owned()),
            buffer_steps: 7,
            max_queue_size: 9,
            topic: "kv@pod".to_owned(),
        };
        let all = r#"{"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@pod",
            "endpoint": "tcp://router:5557", "replay_endpoint": "tcp://*:5558",
            "buffer_steps": 7, "max_queue_size": 9, "hwm": 100000}"#;
        assert_eq!(read(all), Ok(Some(events)));
        let on = read(r#"{"enable_kv_cache_events": true}"#).unwrap().unwrap();
        assert_eq!((on.endpoint.as_str(), on.buffer_steps), ("tcp://*:5557", 10_000));
        for off in ["{}", r#"{"enable_kv_cache_events": true, "publisher": "null"}"#] {
            assert_eq!(read(off), Ok(None));
        }
        for (wrong, named) in [
            ("[", "JSON"),
            (r#"{"hwm": 5}"#, "hwm is 5"),
            (r#"{"max_queue_size": 0}"#, "max_queue_size is 0"),
            (r#"{"endpoints": ""}"#, "endpoints"),
            (r#"{"publisher": "kafka"}"#, "kafka"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
