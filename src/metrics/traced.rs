//! Histograms of times of requests, some of which are traced.

use std::sync::Arc;
use std::time::Duration;

use metrics::Histogram;

use super::exemplars::Buckets;
use super::metric::{Metric, MetricKind};
use super::registry::{Instrument, LabelPair, Registry};

/// A histogram of seconds whose buckets remember the last sample that was traced.
pub(super) struct TracedHistogram {
    histogram: Histogram,
    bounds: &'static [f64],
    buckets: Arc<Buckets>,
}

impl TracedHistogram {
    /// Records a sample, of the request of a trace if it has one.
    pub(super) fn record(&self, sample: Duration, trace: Option<&str>) {
        self.histogram.record(sample);
        let Some(trace) = trace else { return };
        let value = sample.as_secs_f64();
        self.buckets.set(self.bounds.partition_point(|bound| *bound < value), trace, value);
    }
}

impl Instrument for TracedHistogram {
    fn register(registry: &Arc<Registry>, metric: Metric, labels: &[LabelPair]) -> Self {
        let bounds = match metric.kind {
            MetricKind::Histogram(bounds) => bounds,
            MetricKind::Counter | MetricKind::Gauge => &[],
        };
        let buckets = Arc::new(Buckets::new(bounds.len() + 1));
        registry.remember(metric.name, Arc::clone(&buckets));
        let histogram = Histogram::register(registry, metric, labels);
        Self { histogram, bounds, buckets }
    }
}
