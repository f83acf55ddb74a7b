//! The logprobs of labels to what answers tell of them.

/// What was read of the labels of one question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabelProbabilities {
    /// Of each label among the labels; their sum is 1.
    pub(crate) probabilities: Vec<f64>,
    /// Of all labels together, among all tokens.
    pub(crate) label_mass: f64,
    /// Whether the most likely token of all is a label.
    pub(crate) argmax_is_label: bool,
}

impl LabelProbabilities {
    /// From the logprobs of the labels among all tokens.
    pub(crate) fn new(logprobs: &[f64], argmax_is_label: bool) -> Self {
        let most = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logprobs.iter().map(|logprob| (logprob - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        Self {
            probabilities: weights.iter().map(|weight| weight / sum).collect(),
            label_mass: logprobs.iter().map(|logprob| logprob.exp()).sum(),
            argmax_is_label,
        }
    }

    /// The most likely label; of equally likely ones the first.
    pub(crate) fn best(&self) -> (usize, f64) {
        let mut best = (0, f64::NEG_INFINITY);
        for (at, probability) in self.probabilities.iter().copied().enumerate() {
            if probability > best.1 {
                best = (at, probability);
            }
        }
        best
    }

    /// How far the most likely label is from chance, which is 0; 1 is certain.
    pub(crate) fn confidence(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are few labels")]
        let count = self.probabilities.len() as f64;
        ((count * self.best().1 - 1.0) / (count - 1.0)).clamp(0.0, 1.0)
    }

    /// The mean of the labels' places, from 0.
    pub(crate) fn mean(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are few labels")]
        let weighted = |(at, probability): (usize, &f64)| at as f64 * probability;
        self.probabilities.iter().enumerate().map(weighted).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_labels_among_themselves() {
        let reading = LabelProbabilities::new(&[0.6_f64.ln(), 0.2_f64.ln()], true);
        assert!((reading.probabilities[0] - 0.75).abs() < 1e-12);
        assert!((reading.label_mass - 0.8).abs() < 1e-12);
        assert!((reading.confidence() - 0.5).abs() < 1e-12);
        assert!((reading.mean() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn labels_far_below_all_other_tokens_still_differ() {
        let reading = LabelProbabilities::new(&[-900.0, -901.0, -2000.0], false);
        assert!((reading.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((reading.probabilities[0] / reading.probabilities[1] - 1_f64.exp()).abs() < 1e-9);
        assert_eq!((reading.best().0, reading.label_mass), (0, 0.0));
    }

    #[test]
    fn chance_has_no_confidence() {
        let reading = LabelProbabilities::new(&[-3.0; 4], false);
        assert_eq!(reading.best().0, 0);
        assert!(reading.confidence().abs() < 1e-12);
    }
}
