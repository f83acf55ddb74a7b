//! What one sequence's next tokens may be: the text that stood behind the same tokens before, in the
//! prompt, in the answer so far, in other answers, or in the text that the request predicts.
//!
//! As prompt lookup and suffix decoding do it (<https://arxiv.org/abs/2411.04975>): of all earlier
//! places the one whose context has most in common with the end of the text is taken, and followed as
//! long as the text goes on as it does.

use super::match_index::{MOST_COMMON, MatchIndex};
use super::odds::{Odds, Source, certainty};

/// Tokens that a context must have in common with the text.
const GRAM: usize = 3;

/// The same for a predicted text, where the right place is near.
const PREDICTED_GRAM: usize = 2;

/// What the beginning of a predicted text counts as having in common.
const AT_START: usize = 8;

/// Tokens that stand in no text.
pub(super) const SEPARATOR: u32 = u32::MAX;

/// A sequence's tokens as far as they were read, and the place whose text it follows.
#[derive(Clone, Debug)]
pub struct Drafter {
    own: MatchIndex,
    prompt_len: usize,
    prediction: Option<MatchIndex>,
    /// Where the text goes on as it does.
    followed: Option<Place>,
    /// The same in the predicted text.
    predicted: Option<Place>,
    /// What a grammar wants next, the last token first.
    required: Vec<u32>,
    /// What a draft model says comes next, with its probabilities, the last token first.
    foretold: Vec<(u32, f32)>,
    /// Where the tokens come from that were offered last.
    offered: Source,
    pub(super) odds: Odds,
    /// Most tokens to draft at a time.
    pub(super) most: usize,
    /// For each token of the answer that was read since they were asked for: whether the predicted text
    /// had it, if it had any.
    outcomes: Vec<Option<bool>>,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: Source,
    /// Position of the token that stands there.
    at: usize,
    /// Tokens before it that are equal.
    pub(super) length: usize,
}

impl Drafter {
    /// A drafter for a sequence that starts with `prompt_len` tokens, which drafts at most `most` at a
    /// time. The answer may be, or begin like, `prediction`.
    pub fn new(prompt_len: usize, prediction: Option<&[u32]>, most: usize) -> Self {
        let prediction = prediction.filter(|tokens| !tokens.is_empty()).map(|tokens| {
            let mut index = MatchIndex::new(PREDICTED_GRAM);
            index.extend(tokens);
            index
        });
        let start = Place { source: Source::Prediction, at: 0, length: AT_START };
        Self {
            own: MatchIndex::new(GRAM),
            prompt_len,
            followed: None,
            predicted: prediction.is_some().then_some(start),
            prediction,
            required: Vec::new(),
            foretold: Vec::new(),
            offered: Source::Own,
            odds: Odds::unknown(),
            most,
            outcomes: Vec::new(),
        }
    }

    /// For each token of the answer that was read since the last call, whether the predicted text had it,
    /// one token at a time: so how many were drafted changes nothing. `None` where it had none.
    pub fn take_outcomes(&mut self) -> Vec<Option<bool>> {
        std::mem::take(&mut self.outcomes)
    }

    /// Reads what is new of the sequence's `tokens`. Those of the answer tell how good the drafts' sources
    /// are, unless there was no choice.
    pub(super) fn read(
        &mut self,
        tokens: &[u32],
        chosen: bool,
        others: &MatchIndex,
        all: &mut Odds,
    ) {
        let known = self.own.tokens().len();
        let new = tokens.get(known..).unwrap_or_default();
        let (prompt, answer) = new.split_at(self.prompt_len.saturating_sub(known).min(new.len()));
        self.own.extend(prompt);
        for token in answer {
            self.follow(*token, chosen, others, all);
        }
        if self.followed.is_none() {
            self.followed = self.find(others);
        }
    }

    /// The answer so far.
    pub(super) fn answer(&self) -> &[u32] {
        self.own.tokens().get(self.prompt_len..).unwrap_or_default()
    }

    /// The place that says best what comes next.
    pub(super) fn best(&self) -> Option<Place> {
        let [one, other] = [self.predicted, self.followed];
        match (one, other) {
            // A predicted text is meant to be followed.
            (Some(predicted), Some(own)) if predicted.length + GRAM < own.length => Some(own),
            (predicted, own) => predicted.or(own),
        }
    }

    /// Remembers where the tokens come from that are offered now.
    pub fn offer(&mut self, source: Source) {
        self.offered = source;
    }

    /// Where the tokens come from that were offered last.
    pub fn offered(&self) -> Source {
        self.offered
    }

    /// Tells the tokens that a grammar wants next, which are drafted before any others.
    pub fn require(&mut self, mut tokens: Vec<u32>) {
        tokens.truncate(self.most);
        tokens.reverse();
        self.required = tokens;
    }

    /// The tokens that a grammar wants next.
    pub(super) fn required(&self) -> Vec<u32> {
        self.required.iter().rev().copied().collect()
    }

    /// Tells the tokens that a draft model says come next, each with the probability that it gives it.
    pub fn foretell(&mut self, mut tokens: Vec<(u32, f32)>) {
        tokens.reverse();
        self.foretold = tokens;
    }

    /// The tokens that a draft model says come next, with their probabilities.
    pub(super) fn foretold(&self) -> impl Iterator<Item = (u32, f32)> {
        self.foretold.iter().rev().copied()
    }

    /// The next `count` tokens as they stand at `place`, fewer where its text ends. Where that is this
    /// text's own end, it goes on with what was drafted.
    pub(super) fn draft(&self, place: Place, count: usize, others: &MatchIndex) -> Vec<u32> {
        let text = self.text(place.source, others);
        let mut draft: Vec<u32> = Vec::with_capacity(count);
        for at in place.at..place.at + count {
            let drafted = (place.source == Source::Own).then(|| at.checked_sub(text.len()));
            let again = drafted.flatten().and_then(|index| draft.get(index));
            match text.get(at).or(again) {
                Some(token) if *token != SEPARATOR => draft.push(*token),
                _ => break,
            }
        }
        draft
    }

    fn text<'a>(&'a self, source: Source, others: &'a MatchIndex) -> &'a [u32] {
        match source {
            Source::Prediction => self.prediction.as_ref().map_or(&[], MatchIndex::tokens),
            Source::Others => others.tokens(),
            Source::Own | Source::Grammar | Source::Model => self.own.tokens(),
        }
    }

    /// Takes a token of the answer: learns who was right, and goes on.
    fn follow(&mut self, token: u32, chosen: bool, others: &MatchIndex, all: &mut Odds) {
        if let Some(wanted) = self.required.pop() {
            self.odds.observe(Source::Grammar, 0, wanted == token);
            all.observe(Source::Grammar, 0, wanted == token);
            if wanted != token {
                self.required.clear();
            }
        }
        if let Some((told, probability)) = self.foretold.pop() {
            if chosen {
                self.odds.observe(Source::Model, certainty(probability), told == token);
                all.observe(Source::Model, certainty(probability), told == token);
            }
            if told != token {
                self.foretold.clear();
            }
        }
        let places = [self.predicted, self.followed];
        let right = places.map(|place| {
            let place = place?;
            let told = *self.text(place.source, others).get(place.at)?;
            let right = told == token;
            if chosen {
                self.odds.observe(place.source, place.length, right);
                all.observe(place.source, place.length, right);
            }
            Some(right)
        });
        self.own.push(token);
        self.outcomes.push(right[0]);
        let [predicted, followed] = places.map(|place| {
            let Place { source, at, length } = place?;
            Some(Place { source, at: at + 1, length: (length + 1).min(MOST_COMMON) })
        });
        self.predicted = match right[0] {
            Some(true) => predicted,
            _ => self.find_predicted(predicted),
        };
        self.followed = match right[1] {
            Some(true) => followed,
            _ => self.find(others),
        };
    }

    /// Where the prompt, the answer or another answer goes on as this text might.
    fn find(&self, others: &MatchIndex) -> Option<Place> {
        let context = self.own.tokens();
        let place = |source, index: &MatchIndex| {
            let found = index.longest(context)?;
            Some(Place { source, at: found.at, length: found.length })
        };
        let found = [place(Source::Others, others), place(Source::Own, &self.own)];
        found.into_iter().flatten().max_by_key(|place| place.length)
    }

    /// Where the predicted text goes on as the answer might: behind tokens like the last ones, or, after
    /// a token in place of another, where it would have gone on (`next`).
    fn find_predicted(&self, next: Option<Place>) -> Option<Place> {
        let index = self.prediction.as_ref()?;
        let at = next.map_or(0, |next| next.at);
        let found = index.nearest(self.answer(), at).map(|found| Place {
            source: Source::Prediction,
            at: found.at,
            length: found.length,
        });
        let next = next.map(|next| Place { length: 0, ..next });
        found.or(next.filter(|next| next.at < index.tokens().len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others() -> MatchIndex {
        MatchIndex::new(GRAM)
    }

    fn drafted(drafter: &Drafter, count: usize) -> Vec<u32> {
        drafter.best().map_or(Vec::new(), |place| drafter.draft(place, count, &others()))
    }

    #[test]
    fn follows_the_prompt_and_its_own_repetitions() {
        let prompt = [1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 4];
        let mut drafter = Drafter::new(prompt.len(), None, 16);
        let mut all = Odds::expected();
        drafter.read(&prompt, true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 5), [5, 6, 7, 9, 2]);
        let text = [&prompt[..], &[5, 8]].concat();
        drafter.read(&text, true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 5), [0; 0]);
        let text = [&text[..], &[20, 21, 20, 21, 20, 21]].concat();
        drafter.read(&text, true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 5), [20, 21, 20, 21, 20], "on with what it drafted");
    }

    #[test]
    fn a_prediction_is_followed_from_its_start_and_past_what_was_changed() {
        let prediction: Vec<u32> = (100..120).collect();
        let mut drafter = Drafter::new(2, Some(&prediction), 16);
        let mut all = Odds::expected();
        drafter.read(&[7, 8], true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 3), [100, 101, 102]);
        let mut text = vec![7, 8, 100, 101, 55];
        drafter.read(&text, true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 2), [103, 104], "one token in place of another");
        text.extend([56, 57, 102, 103]);
        drafter.read(&text, true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 2), [104, 105], "two tokens more");
        text.extend(104..120);
        drafter.read(&text, true, &others(), &mut all);
        assert_eq!(drafted(&drafter, 2), [0; 0], "the text is over");
        let outcomes = drafter.take_outcomes();
        let count = |told| outcomes.iter().filter(|outcome| **outcome == told).count();
        assert_eq!([count(Some(true)), count(Some(false)), count(None)], [18, 5, 0]);
    }
}
