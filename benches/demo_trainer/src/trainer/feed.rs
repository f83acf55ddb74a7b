//! Tokenized conversations in batches, drawn from the corpus as training goes.
//! Refuses to know the network.
//!
//! Early on, many rows are random tokens said two or three times: nothing predicts them but looking back,
//! which is what copying an unknown word later needs (induction: Olsson et al. 2022).

use super::network::Batch;
use super::vocabulary::SPECIAL;
use crate::corpus;
use crate::corpus::dialogue::Dialogue;
use crate::corpus::dice::Dice;
use crate::corpus::lexicon::Lexicon;
use anyhow::{Result, anyhow};
use tokenizers::Tokenizer;

/// Share of random repeated rows at the start, in percent, and for good.
const REPEATS: (f64, f64) = (40.0, 5.0);

/// Draws batches.
pub(crate) struct Feed<'a> {
    tokenizer: &'a Tokenizer,
    dice: Dice,
    longest: usize,
}

impl<'a> Feed<'a> {
    /// `longest`: tokens of the longest conversation taken.
    pub(crate) fn new(tokenizer: &'a Tokenizer, seed: u64, longest: usize) -> Self {
        let mut pieces: Vec<String> = tokenizer.get_vocab(false).into_keys().collect();
        pieces.retain(|piece| {
            let (first, rest) = piece.split_at_checked(1).unwrap_or_default();
            let letters = first.bytes().all(|byte| byte.is_ascii_alphabetic());
            let small = rest.bytes().all(|byte| byte.is_ascii_lowercase());
            letters && small && (1..=4).contains(&rest.len())
        });
        pieces.sort_unstable();
        Self { tokenizer, dice: Dice::with_pieces(seed, pieces), longest }
    }

    /// About `tokens` tokens in `parts` batches of like size. `done` is the part of the phase of repeats
    /// that has passed, from 0 to 1.
    pub(crate) fn draw(&mut self, tokens: usize, parts: usize, done: f64) -> Result<Vec<Batch>> {
        let share = REPEATS.0 + (REPEATS.1 - REPEATS.0) * done.min(1.0);
        let mut batches = vec![Batch::default(); parts];
        let mut total = 0;
        while total < tokens {
            let (row, marks) = if (self.dice.below(1000) as f64) < share * 10.0 {
                self.repeats()
            } else {
                tokenize(self.tokenizer, &corpus::draw(&mut self.dice, Lexicon::Known))?
            };
            if row.len() > self.longest {
                continue;
            }
            total += row.len();
            let shortest = batches.iter_mut().min_by_key(|batch| batch.tokens.len());
            shortest.expect("there is at least one part").push(&row, &marks);
        }
        batches.retain(|batch| !batch.scored.is_empty());
        Ok(batches)
    }

    fn repeats(&mut self) -> (Vec<u32>, Vec<bool>) {
        let length = self.dice.between(4, 40);
        let size = self.tokenizer.get_vocab_size(true);
        let once: Vec<u32> =
            (0..length).map(|_| self.dice.between(SPECIAL.len(), size - 1) as u32).collect();
        let row = once.repeat(self.dice.between(2, 3));
        let marks = (0..row.len()).map(|index| index > length).collect();
        (row, marks)
    }
}

/// A conversation's tokens, and which of them the model is to say.
pub(crate) fn tokenize(
    tokenizer: &Tokenizer,
    dialogue: &Dialogue,
) -> Result<(Vec<u32>, Vec<bool>)> {
    let (mut tokens, mut marks) = (Vec::new(), Vec::new());
    for stretch in dialogue.stretches() {
        let encoding = tokenizer
            .encode_fast(stretch.text.as_str(), false)
            .map_err(|error| anyhow!("can't tokenize {:?}: {error}", stretch.text))?;
        tokens.extend(encoding.get_ids());
        marks.resize(tokens.len(), stretch.spoken);
    }
    Ok((tokens, marks))
}
