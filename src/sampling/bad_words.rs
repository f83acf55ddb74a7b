//! Sequences of tokens that an answer may not hold: the last token of each is excluded where the
//! others have just been drawn.

/// The excluded sequences and the end of the answer.
#[derive(Clone, Debug)]
pub(super) struct BadWords {
    sequences: Vec<Vec<u32>>,
    /// The last tokens of the answer, as many as the longest sequence needs.
    recent: Vec<u32>,
    longest: usize,
}

impl BadWords {
    /// Before the first token; `None` if nothing is excluded.
    pub(super) fn new(sequences: &[Vec<u32>]) -> Option<Self> {
        let longest = sequences.iter().map(Vec::len).max()?;
        Some(Self { sequences: sequences.to_vec(), recent: Vec::new(), longest })
    }

    /// Takes a drawn token.
    pub(super) fn push(&mut self, token_id: u32) {
        self.recent.push(token_id);
        if self.recent.len() >= self.longest {
            self.recent.remove(0);
        }
    }

    /// Excludes the tokens that would complete a sequence from `logits` (`[vocab_size]`).
    pub(super) fn apply(&self, logits: &mut [f32]) {
        for sequence in &self.sequences {
            let Some((last, before)) = sequence.split_last() else { continue };
            if self.recent.ends_with(before)
                && let Some(logit) = logits.get_mut(*last as usize)
            {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_is_excluded_behind_the_others() {
        let mut words = BadWords::new(&[vec![3], vec![1, 2], vec![1, 1, 0]]).unwrap();
        let mut excluded = |drawn: Option<u32>| {
            if let Some(token) = drawn {
                words.push(token);
            }
            let mut logits = [0.0; 5];
            words.apply(&mut logits);
            (0..5).filter(|token| logits[*token].is_infinite()).collect::<Vec<usize>>()
        };
        assert_eq!(excluded(None), [3]);
        assert_eq!(excluded(Some(1)), [2, 3]);
        assert_eq!(excluded(Some(1)), [0, 2, 3]);
        assert_eq!(excluded(Some(4)), [3]);
        assert!(BadWords::new(&[]).is_none());
    }
}
