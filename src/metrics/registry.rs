//! Where metrics are registered: the recorder of one server, and the labels that its metrics have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use super::exemplars::Buckets;
use super::metric::{Metric, MetricKind};

/// A local recorder plus the labels that every `vllm:` and `sconce:` metric has.
pub(super) struct Registry {
    pub(super) recorder: PrometheusRecorder,
    pub(super) model_name: String,
    /// Of histograms whose samples may be traced.
    exemplars: Mutex<BTreeMap<&'static str, Arc<Buckets>>>,
}

/// A label's name and value.
pub(super) type LabelPair = (&'static str, Cow<'static, str>);

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

impl Registry {
    /// A recorder that knows the buckets and the help texts of all metrics of `table`.
    pub(super) fn new(model_name: &str, table: &[Metric]) -> Self {
        let mut builder = PrometheusBuilder::new();
        for metric in table {
            if let MetricKind::Histogram(buckets) = metric.kind {
                builder = builder
                    .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                    .expect("every histogram of the table has buckets");
            }
        }
        let recorder = builder.build_recorder();
        for metric in table {
            let (name, help) = (KeyName::from(metric.name), metric.help.into());
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, None, help),
                MetricKind::Gauge => recorder.describe_gauge(name, None, help),
                MetricKind::Histogram(_) => recorder.describe_histogram(name, None, help),
            }
        }
        Self { recorder, model_name: model_name.to_owned(), exemplars: Mutex::default() }
    }

    /// Has the exemplars of a histogram's buckets told with it.
    pub(super) fn remember(&self, name: &'static str, buckets: Arc<Buckets>) {
        self.exemplars.lock().unwrap_or_else(PoisonError::into_inner).insert(name, buckets);
    }

    /// The exemplar of a histogram's bucket, as OpenMetrics has it.
    pub(super) fn exemplar(&self, name: &str, bucket: usize) -> Option<String> {
        let all = self.exemplars.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name)?.text(bucket)
    }

    fn key(&self, name: &'static str, labels: &[LabelPair]) -> Key {
        let mut all: Vec<Label> = labels
            .iter()
            .map(|(name, value)| Label::new(*name, value.clone().into_owned()))
            .collect();
        if name.contains(':') {
            all.push(Label::new("model_name", self.model_name.clone()));
            all.push(Label::from_static_parts("engine", "0"));
        }
        Key::from_parts(name, all)
    }
}

/// What fills a metric.
pub(super) trait Instrument: Sized {
    /// The instrument of a row of the table, with labels beside those that all have.
    fn register(registry: &Arc<Registry>, metric: Metric, labels: &[LabelPair]) -> Self;
}

impl Instrument for Counter {
    fn register(registry: &Arc<Registry>, metric: Metric, labels: &[LabelPair]) -> Self {
        registry.recorder.register_counter(&registry.key(metric.name, labels), &METADATA)
    }
}

impl Instrument for Gauge {
    fn register(registry: &Arc<Registry>, metric: Metric, labels: &[LabelPair]) -> Self {
        registry.recorder.register_gauge(&registry.key(metric.name, labels), &METADATA)
    }
}

impl Instrument for Histogram {
    fn register(registry: &Arc<Registry>, metric: Metric, labels: &[LabelPair]) -> Self {
        registry.recorder.register_histogram(&registry.key(metric.name, labels), &METADATA)
    }
}

/// A metric whose labels are known only when it is filled.
pub(super) struct Labelled<T> {
    registry: Arc<Registry>,
    metric: Metric,
    instrument: PhantomData<fn() -> T>,
}

impl<T: Instrument> Labelled<T> {
    /// The instrument for one set of labels.
    pub(super) fn with(&self, labels: &[LabelPair]) -> T {
        T::register(&self.registry, self.metric, labels)
    }
}

impl<T: Instrument> Instrument for Labelled<T> {
    fn register(registry: &Arc<Registry>, metric: Metric, _: &[LabelPair]) -> Self {
        Self { registry: Arc::clone(registry), metric, instrument: PhantomData }
    }
}
