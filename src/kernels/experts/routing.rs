//! The choice of experts for a token, and their weights.
//!
//! Group-limited routing: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024. Sparse mixer: Liu et al.,
//! "GRIN: GRadient-INformed MoE", 2024.

/// How the router's logits become scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
    /// The sigmoid of each logit; experts are chosen by the logits themselves, of which more differ.
    SigmoidOfChosen,
    /// Experts are chosen one after the other by the logits. Each has its share in a softmax over the
    /// experts that are left and not much worse: whose distance to the best is at most twice the jitter
    /// of the larger of the best logit and their own magnitude.
    SparseMixer {
        /// The jitter that the router was trained with.
        jitter: f32,
    },
}

/// Group-limited routing: experts are in groups of equal size, and chosen from the best groups
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Number of groups; it divides the number of experts.
    pub count: usize,
    /// Number of groups that are chosen, by the sum of their best scores.
    pub chosen: usize,
    /// Number of scores in that sum: one or two.
    pub best: usize,
}

/// How experts are chosen and weighted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// The score function.
    pub score: Score,
    /// Number of experts that a token is routed to.
    pub experts_per_token: usize,
    /// Group-limited routing.
    pub groups: Option<Groups>,
    /// Whether the chosen experts' scores are divided by their sum.
    pub renormalize: bool,
    /// Factor of the weights.
    pub scale: f32,
}

impl Routing {
    /// The chosen experts and their weights, the best first. `bias` changes the choice only.
    pub fn choose(&self, logits: Vec<f32>, bias: Option<&[f32]>) -> Vec<(usize, f32)> {
        if let Score::SparseMixer { jitter } = self.score {
            return self.mix(logits, jitter);
        }
        let before = (self.score == Score::SigmoidOfChosen).then(|| logits.clone());
        let scores = self.scores(logits);
        let mut rank = before.unwrap_or_else(|| scores.clone());
        for (rank, bias) in rank.iter_mut().zip(bias.unwrap_or_default()) {
            *rank += bias;
        }
        if let Some(groups) = self.groups {
            groups.drop_others(&mut rank);
        }
        let mut order: Vec<usize> = (0..rank.len()).collect();
        // Of equal experts the first wins.
        let by_rank = |a: &usize, b: &usize| rank[*b].total_cmp(&rank[*a]).then(a.cmp(b));
        let count = self.experts_per_token.min(order.len());
        if count < order.len() {
            order.select_nth_unstable_by(count, by_rank);
            order.truncate(count);
        }
        order.sort_unstable_by(by_rank);
        let sum: f32 = order.iter().map(|expert| scores[*expert]).sum();
        let divisor = match (self.renormalize, self.score) {
            (false, _) => 1.0,
            (true, Score::Softmax | Score::SparseMixer { .. }) => sum,
            (true, Score::Sigmoid | Score::SigmoidOfChosen) => sum + 1e-20,
        };
        order.into_iter().map(|expert| (expert, scores[expert] / divisor * self.scale)).collect()
    }

    /// As [`choose`](Self::choose), in ascending order of the experts.
    pub fn choose_ascending(&self, logits: Vec<f32>, bias: Option<&[f32]>) -> Vec<(usize, f32)> {
        let mut experts = self.choose(logits, bias);
        experts.sort_unstable_by_key(|(expert, _)| *expert);
        experts
    }

    /// The sparse mixer's experts and weights. An expert that was chosen is out of the next softmax, but
    /// the magnitudes that decide what is not much worse are those of all logits.
    fn mix(&self, mut logits: Vec<f32>, jitter: f32) -> Vec<(usize, f32)> {
        let magnitudes: Vec<f32> = logits.iter().map(|logit| logit.abs()).collect();
        let mut chosen = Vec::with_capacity(self.experts_per_token);
        for _ in 0..self.experts_per_token.min(logits.len()) {
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // Of equal experts the first wins.
            let best = logits.iter().position(|logit| *logit >= largest).unwrap_or_default();
            let near = |(logit, magnitude): (&f32, &f32)| {
                (largest - logit) / magnitude.max(largest) <= 2.0 * jitter
            };
            let near = logits.iter().zip(&magnitudes).filter(|pair| near(*pair));
            let sum: f32 = near.map(|(logit, _)| (logit - largest).exp()).sum();
            chosen.push((best, self.scale / sum));
            logits[best] = f32::NEG_INFINITY;
        }
        chosen
    }

    fn scores(&self, mut logits: Vec<f32>) -> Vec<f32> {
        match self.score {
            Score::Sigmoid | Score::SigmoidOfChosen => {
                for x in &mut logits {
                    *x = 1.0 / (1.0 + (-*x).exp());
                }
            }
            Score::Softmax | Score::SparseMixer { .. } => {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                for x in &mut logits {
                    *x = (*x - largest).exp();
                }
                let sum: f32 = logits.iter().sum();
                for x in &mut logits {
                    *x /= sum;
                }
            }
        }
        logits
    }
}

impl Groups {
    /// Ranks experts outside of the chosen groups last.
    fn drop_others(self, rank: &mut [f32]) {
        let size = rank.len() / self.count;
        let best = |group: &[f32]| {
            let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
            for score in group {
                if *score > first {
                    (first, second) = (*score, first);
                } else {
                    second = second.max(*score);
                }
            }
            if self.best == 1 || second == f32::NEG_INFINITY { first } else { first + second }
        };
        let sums: Vec<f32> = rank.chunks(size).map(best).collect();
        let mut order: Vec<usize> = (0..sums.len()).collect();
        order.sort_unstable_by(|a, b| sums[*b].total_cmp(&sums[*a]).then(a.cmp(b)));
        for group in order.into_iter().skip(self.chosen) {
            rank[group * size..(group + 1) * size].fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP_TWO: Routing = Routing {
        score: Score::Softmax,
        experts_per_token: 2,
        groups: None,
        renormalize: true,
        scale: 1.0,
    };

    fn near(chosen: &[(usize, f32)], expected: &[(usize, f32)]) {
        assert_eq!(chosen.len(), expected.len(), "{chosen:?}");
        for ((expert, weight), (other, expected)) in chosen.iter().zip(expected) {
            assert!(expert == other && (weight - expected).abs() < 1e-6, "{chosen:?}");
        }
    }

    #[test]
    fn the_best_experts_share_one_or_keep_their_scores() {
        let logits = vec![0.0, 4f32.ln(), 0.0, 2f32.ln()];
        near(&TOP_TWO.choose(logits.clone(), None), &[(1, 2.0 / 3.0), (3, 1.0 / 3.0)]);
        let kept = Routing { renormalize: false, scale: 2.0, ..TOP_TWO };
        near(&kept.choose(logits, None), &[(1, 1.0), (3, 0.5)]);
    }

    #[test]
    fn a_sparse_mixer_shares_one_among_near_experts_only() {
        let routing = Routing { score: Score::SparseMixer { jitter: 0.01 }, ..TOP_TWO };
        // 10 and 9.9 are near each other, 9 is near neither.
        let first = 1.0 / (1.0 + (-0.1f32).exp());
        near(&routing.choose(vec![9.0, 10.0, 9.9], None), &[(1, first), (2, 1.0)]);
        // NaN chooses some experts and doesn't panic.
        assert_eq!(routing.choose(vec![f32::NAN; 3], None).len(), 2);
    }

    #[test]
    fn of_equal_experts_the_first_are_chosen() {
        near(&TOP_TWO.choose(vec![1.0; 5], None), &[(0, 0.5), (1, 0.5)]);
    }

    #[test]
    fn a_bias_changes_the_choice_and_not_the_weight() {
        let routing = Routing { score: Score::Sigmoid, renormalize: false, ..TOP_TWO };
        let bias = [0.0, 0.0, 5.0];
        near(
            &routing.choose(vec![0.0, 1.0, -1.0], Some(&bias)),
            &[(2, 0.268_941_4), (1, 0.731_058_6)],
        );
        // Of scores that are chosen by their logits, the bias is one of those.
        let routing = Routing { score: Score::SigmoidOfChosen, experts_per_token: 1, ..routing };
        near(&routing.choose(vec![0.0, 1.0, -1.0], Some(&[0.0, 0.0, 1.9])), &[(1, 0.731_058_6)]);
        near(&routing.choose(vec![0.0, 1.0, -1.0], Some(&bias)), &[(2, 0.268_941_4)]);
    }

    #[test]
    fn experts_outside_of_the_best_groups_are_not_chosen() {
        let groups = Some(Groups { count: 2, chosen: 1, best: 2 });
        let routing = Routing { score: Score::Sigmoid, renormalize: false, groups, ..TOP_TWO };
        // The best expert alone is in the first group, the best two together in the second.
        let chosen = routing.choose(vec![3.0, -9.0, 1.0, 1.5], None);
        assert_eq!(chosen.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [3, 2]);
        let groups = Some(Groups { count: 2, chosen: 1, best: 1 });
        let routing = Routing { groups, ..routing };
        let chosen = routing.choose(vec![3.0, -9.0, 1.0, 1.5], None);
        assert_eq!(chosen.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), [0, 1]);
    }
}
