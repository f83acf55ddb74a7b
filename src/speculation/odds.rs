//! How often a draft's next token turns out right, learned from every token that is sampled.
//!
//! The longer the context that a draft's source has in common with the text, the likelier it goes on
//! alike. So chances are kept by length, for each kind of source, over all sequences and for each one;
//! a sequence's own count more with every observation. A token is an observation whether or not it was
//! drafted, so nothing has to be tried only to learn of it.

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The text that a request predicts.
    Prediction,
    /// The sequence's own prompt and answer.
    Own,
    /// Answers of other requests.
    Others,
    /// The only tokens that a grammar allows.
    Grammar,
    /// A draft model. In place of a length it has what `certainty` says.
    Model,
}

const SOURCES: usize = 5;

/// Lower ends of the classes of lengths.
const LENGTHS: [usize; 9] = [0, 2, 3, 4, 5, 7, 10, 16, 32];

/// Chances before anything is known, by class of length.
const TEXTS: [f32; 9] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9];

/// Lower ends of the classes of a draft model's probabilities.
const PROBABILITIES: [f32; 9] = [0.0, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97];

/// Chances of a draft model's tokens before anything is known, by class of probability.
const MODEL: [f32; 9] = [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// Observations that the chances over all sequences weigh for one of them.
const WEIGHT_OF_ALL: f32 = 4.0;

/// Observations after which older ones count half.
const MEMORY: f32 = 256.0;

/// Right and wrong tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    right: f32,
    all: f32,
}

/// Tallies by source and class of length.
#[derive(Clone, Debug)]
pub(super) struct Odds([[Tally; LENGTHS.len()]; SOURCES]);

impl Odds {
    /// Nothing observed.
    pub(super) fn unknown() -> Self {
        Self([[Tally::default(); LENGTHS.len()]; SOURCES])
    }

    /// What is expected before anything is observed.
    pub(super) fn expected() -> Self {
        let tally = |chance| Tally { right: 8.0 * chance, all: 8.0 };
        let of_texts = TEXTS.map(tally);
        let likely = [tally(0.8); LENGTHS.len()];
        let mut odds = Self::unknown();
        odds.0[Source::Prediction as usize] = likely;
        odds.0[Source::Own as usize] = of_texts;
        odds.0[Source::Others as usize] = of_texts;
        odds.0[Source::Grammar as usize] = likely;
        odds.0[Source::Model as usize] = MODEL.map(tally);
        odds
    }

    /// Counts a token that a source predicted behind `length` common ones.
    pub(super) fn observe(&mut self, source: Source, length: usize, right: bool) {
        let tally = &mut self.0[source as usize][class(length)];
        tally.right += f32::from(u8::from(right));
        tally.all += 1.0;
        if tally.all > MEMORY {
            tally.right /= 2.0;
            tally.all /= 2.0;
        }
    }

    /// The chance that a source is right behind `length` common tokens: own tallies, and those over
    /// `all` sequences.
    pub(super) fn chance(&self, all: &Self, source: Source, length: usize) -> f32 {
        let (own, all) = (self.0[source as usize], all.0[source as usize]);
        let (own, all) = (own[class(length)], all[class(length)]);
        let expected = all.right / all.all.max(1.0);
        (own.right + WEIGHT_OF_ALL * expected) / (own.all + WEIGHT_OF_ALL)
    }

    /// The chance that a source is right whatever the length: own tallies, and those over `all`
    /// sequences.
    pub(super) fn average(&self, all: &Self, source: Source) -> f32 {
        let sum = |odds: &Self| {
            let tallies = odds.0[source as usize].iter();
            tallies.fold((0.0, 0.0), |(right, all), tally| (right + tally.right, all + tally.all))
        };
        let ((own_right, own_all), (right, all)) = (sum(self), sum(all));
        (own_right + WEIGHT_OF_ALL * right / all.max(1.0)) / (own_all + WEIGHT_OF_ALL)
    }
}

/// What counts as a length for a token that a draft model gives this probability.
pub(super) fn certainty(probability: f32) -> usize {
    // A number that is none counts as the least.
    let classes = PROBABILITIES.iter().filter(|least| probability >= **least).count();
    LENGTHS[classes.max(1) - 1]
}

fn class(length: usize) -> usize {
    LENGTHS.partition_point(|least| *least <= length) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_observations_outweigh_those_of_all_in_time() {
        let (mut all, mut own) = (Odds::expected(), Odds::unknown());
        let before = own.chance(&all, Source::Own, 5);
        assert!((before - 0.6).abs() < 1e-6);
        for _ in 0..60 {
            own.observe(Source::Own, 6, false);
        }
        assert!(own.chance(&all, Source::Own, 5) < 0.05);
        assert_eq!(own.chance(&all, Source::Own, 8).to_bits(), 0.7_f32.to_bits());
        assert_eq!(own.chance(&all, Source::Others, 5).to_bits(), before.to_bits());
        for _ in 0..2000 {
            all.observe(Source::Own, 6, true);
        }
        assert!(Odds::unknown().chance(&all, Source::Own, 5) > 0.98);
    }

    #[test]
    fn a_draft_model_is_judged_by_its_own_probabilities() {
        let (mut all, own) = (Odds::expected(), Odds::unknown());
        let chance =
            |all: &Odds, probability| own.chance(all, Source::Model, certainty(probability));
        for (probability, expected) in [(0.0, 0.1), (f32::NAN, 0.1), (0.5, 0.5), (1.0, 0.95)] {
            assert!((chance(&all, probability) - expected).abs() < 1e-6, "{probability}");
        }
        for _ in 0..500 {
            all.observe(Source::Model, certainty(0.99), false);
        }
        assert!(chance(&all, 0.99) < 0.05 && chance(&all, 0.9) > 0.85);
        assert!(own.average(&all, Source::Model) < 0.2);
    }
}
