//! What answers are asked with: the fields of requests that flags or `/set` have set. Others are not sent, so
//! that the server's defaults rule.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// How a value is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Integer,
    Text,
}

/// What can be set: names of requests' fields, and the names that Ollama has for them.
const FIELDS: &[(&str, Option<&str>, Kind)] = &[
    ("temperature", None, Kind::Number),
    ("top_p", None, Kind::Number),
    ("top_k", None, Kind::Integer),
    ("min_p", None, Kind::Number),
    ("max_tokens", Some("num_predict"), Kind::Integer),
    ("seed", None, Kind::Integer),
    ("frequency_penalty", None, Kind::Number),
    ("presence_penalty", None, Kind::Number),
    ("repetition_penalty", Some("repeat_penalty"), Kind::Number),
    ("stop", None, Kind::Text),
];

/// Sampling flags; those that were not given are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub struct SamplingFlags {
    /// How freely the model chooses; 0 always takes the likeliest token.
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,

    /// Choose only among the likeliest tokens that together have this probability.
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,

    /// Choose only among this many of the likeliest tokens.
    #[arg(long, value_name = "K")]
    pub top_k: Option<i64>,

    /// Choose only among tokens at least this likely, relative to the likeliest one.
    #[arg(long, value_name = "P")]
    pub min_p: Option<f64>,

    /// Longest answer, in tokens.
    #[arg(long, value_name = "TOKENS")]
    pub max_tokens: Option<u32>,

    /// The same seed and the same conversation give the same answer.
    #[arg(long, value_name = "SEED")]
    pub seed: Option<i64>,
}

/// The fields that are set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settings(Map<String, Value>);

impl Settings {
    /// Those of the flags that were given.
    pub(super) fn of(flags: SamplingFlags) -> Self {
        let SamplingFlags { temperature, top_p, top_k, min_p, max_tokens, seed } = flags;
        let flags = [
            ("temperature", json!(temperature)),
            ("top_p", json!(top_p)),
            ("top_k", json!(top_k)),
            ("min_p", json!(min_p)),
            ("max_tokens", json!(max_tokens)),
            ("seed", json!(seed)),
        ];
        let given = flags.into_iter().filter(|(_, value)| !value.is_null());
        Self(given.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Sets a field to what was typed; `-` unsets it. Returns what to tell, or what is wrong.
    pub(super) fn set(&mut self, name: &str, typed: &str) -> Result<String, String> {
        let is_named = |(field, alias, _): &&(&str, Option<&str>, Kind)| {
            *field == name || *alias == Some(name)
        };
        let Some((field, _, kind)) = FIELDS.iter().find(is_named) else {
            return Err(format!(
                "can't set {name}, only {}",
                names().collect::<Vec<_>>().join(", ")
            ));
        };
        if typed == "-" {
            self.0.remove(*field);
            return Ok(format!("{field} is the server's default again"));
        }
        let value = match kind {
            Kind::Number => {
                typed.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from)
            }
            Kind::Integer => typed.parse::<i64>().ok().map(Value::from),
            Kind::Text => (!typed.is_empty()).then(|| Value::from(typed)),
        };
        let Some(value) = value else {
            let what = match kind {
                Kind::Number => "a number",
                Kind::Integer => "a whole number",
                Kind::Text => "a text",
            };
            return Err(format!("{field} must be {what}, got {typed:?}"));
        };
        let told = format!("{field} is {value} from the next answer on");
        self.0.insert((*field).to_owned(), value);
        Ok(told)
    }

    /// Whether the model is to think; `None` leaves it to the server.
    pub(super) fn set_thinking(&mut self, thinks: Option<bool>) {
        const FIELD: &str = "chat_template_kwargs";
        match thinks {
            Some(thinks) => self.0.insert(FIELD.to_owned(), json!({"enable_thinking": thinks})),
            None => self.0.remove(FIELD),
        };
    }

    /// A line for each field.
    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            let _ = writeln!(text, "{name} {value}");
        }
        if text.is_empty() {
            text.push_str("nothing is set; ");
        }
        let _ = write!(text, "can be set: {}", names().collect::<Vec<_>>().join(", "));
        text
    }

    /// Adds the fields to the body of a request.
    pub(super) fn add_to(&self, body: &mut Value) {
        for (name, value) in &self.0 {
            body[name] = value.clone();
        }
    }
}

/// Names of all fields that can be set.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, ..)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(settings: &Settings) -> Value {
        let mut body = json!({});
        settings.add_to(&mut body);
        body
    }

    #[test]
    fn flags_that_were_given_are_set_and_no_others() {
        let flags = SamplingFlags { temperature: Some(0.0), seed: Some(-3), ..Default::default() };
        assert_eq!(body(&Settings::of(flags)), json!({"temperature": 0.0, "seed": -3}));
    }

    #[test]
    fn fields_are_set_shown_and_unset_again() {
        let mut settings = Settings::default();
        settings.set("temperature", "0.5").unwrap();
        settings.set("num_predict", "20").unwrap();
        settings.set("stop", "the end").unwrap();
        settings.set_thinking(Some(false));
        let all = json!({"temperature": 0.5, "max_tokens": 20, "stop": "the end",
            "chat_template_kwargs": {"enable_thinking": false}});
        assert_eq!(body(&settings), all);
        assert!(settings.shown().contains("max_tokens 20\n"), "{}", settings.shown());
        settings.set("temperature", "-").unwrap();
        settings.set_thinking(None);
        assert_eq!(body(&settings), json!({"max_tokens": 20, "stop": "the end"}));
    }

    #[test]
    fn what_is_wrong_is_named_and_changes_nothing() {
        let mut settings = Settings::default();
        for (name, typed, told) in [
            ("temperatur", "1", "can't set temperatur, only temperature, "),
            ("temperature", "warm", "temperature must be a number, got \"warm\""),
            ("temperature", "nan", "must be a number"),
            ("top_k", "1.5", "top_k must be a whole number"),
            ("stop", "", "stop must be a text"),
        ] {
            let mistake = settings.set(name, typed).unwrap_err();
            assert!(mistake.contains(told), "{mistake}");
        }
        assert_eq!(settings, Settings::default());
    }
}
