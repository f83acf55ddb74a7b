//! `vllm:lora_requests_info`: which adapters requests use now, as labels.
//!
//! Every change is another set of labels, which a registry would keep for ever; so the one line
//! that is true is written here.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::metric::Metric;
use super::registry::{Instrument, LabelPair, Registry};

/// The adapters in use, where the server takes any.
pub(super) struct LoraRequests {
    metric: Metric,
    adapters: Mutex<Option<Use>>,
}

struct Use {
    most: usize,
    /// Names of the adapters of running sequences, with commas between them.
    running: String,
    waiting: String,
    since: f64,
}

impl LoraRequests {
    /// Tells that the server takes adapters, so many at once.
    pub(super) fn start(&self, most: usize) {
        let none = Use { most, running: String::new(), waiting: String::new(), since: now() };
        *self.adapters.lock().unwrap_or_else(PoisonError::into_inner) = Some(none);
    }

    pub(super) fn set(&self, running: String, waiting: String) {
        let mut state = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = state.as_mut() else { return };
        if (&state.running, &state.waiting) != (&running, &waiting) {
            *state = Use { most: state.most, running, waiting, since: now() };
        }
    }

    /// Appends the metric to what Prometheus reads.
    pub(super) fn render(&self, labels: &str, text: &mut String) {
        let state = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
        let Metric { name, help, .. } = self.metric;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        if let Some(Use { most, running, waiting, since }) = state.as_ref() {
            let (running, waiting) = (escaped(running), escaped(waiting));
            let _ = writeln!(
                text,
                "{name}{{max_lora=\"{most}\",running_lora_adapters=\"{running}\",\
                 waiting_lora_adapters=\"{waiting}\",{labels}}} {since}"
            );
        }
        text.push('\n');
    }
}

impl Instrument for LoraRequests {
    fn register(_: &Arc<Registry>, metric: Metric, _: &[LabelPair]) -> Self {
        Self { metric, adapters: Mutex::default() }
    }
}

/// A label's value as the text format has it.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::metric::gauge;
    use super::*;

    #[test]
    fn only_the_last_set_of_labels_is_told() {
        let registry = Arc::new(Registry::new("m", &[]));
        let requests = LoraRequests::register(&registry, gauge("lora", "Adapters."), &[]);
        let render = || {
            let mut text = String::new();
            requests.render("engine=\"0\"", &mut text);
            text
        };
        requests.set("early".to_owned(), String::new());
        assert!(!render().contains("max_lora="));
        requests.start(4);
        requests.set("a,b\"c".to_owned(), "d".to_owned());
        requests.set("e".to_owned(), String::new());
        requests.set("a,b\"c".to_owned(), "d".to_owned());
        let text = render();
        let labels = "{max_lora=\"4\",running_lora_adapters=\"a,b\\\"c\",\
                      waiting_lora_adapters=\"d\",engine=\"0\"} 1";
        assert!(text.contains(&format!("\nlora{labels}")), "{text}");
        assert_eq!(text.matches("max_lora=").count(), 1);
    }
}
