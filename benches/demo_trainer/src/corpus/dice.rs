//! The generator's random choices: everything drawn from one seeded stream, so a seed names a corpus.
//! Refuses to know what is drawn.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A seeded stream of choices.
pub(crate) struct Dice {
    stream: ChaCha8Rng,
    /// What made-up words are sewn from, where that is given.
    pieces: Vec<String>,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_pieces(seed, Vec::new())
    }

    /// Made-up words are mostly sewn from `pieces`: those of the tokenizer, so that all of them, also the
    /// rare ones, are met in words that have to be copied.
    pub(crate) fn with_pieces(seed: u64, pieces: Vec<String>) -> Self {
        Self { stream: ChaCha8Rng::seed_from_u64(seed), pieces }
    }

    pub(crate) fn piece(&mut self) -> Option<String> {
        if self.pieces.is_empty() {
            return None;
        }
        let index = self.below(self.pieces.len());
        Some(self.pieces[index].clone())
    }

    /// A number below `bound`, which must not be 0. The modulo bias is far below what a corpus can show.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.stream.next_u64() % bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// True in `percent` of 100 throws.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A standard normal number (Box-Muller), for initial weights.
    pub(crate) fn normal(&mut self) -> f32 {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (radius, angle) = (unit(self.stream.next_u64()), unit(self.stream.next_u64()));
        ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
    }
}
