//! What is known of a metric before it is filled.

/// What Prometheus takes a metric for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of samples per bucket; these are the buckets' upper bounds.
    Histogram(&'static [f64]),
}

/// A metric: one row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The name on `/metrics`.
    pub name: &'static str,
    /// What Prometheus takes the metric for.
    pub kind: MetricKind,
    /// What the metric means, in one sentence.
    pub help: &'static str,
}

/// A row for a [`MetricKind::Counter`].
pub(super) const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, help }
}

/// A row for a [`MetricKind::Gauge`].
pub(super) const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, help }
}

/// A row for a [`MetricKind::Histogram`] with these buckets.
pub(super) const fn histogram(
    name: &'static str,
    buckets: &'static [f64],
    help: &'static str,
) -> Metric {
    Metric { name, kind: MetricKind::Histogram(buckets), help }
}
