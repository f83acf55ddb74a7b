//! The made-up conversations that the demo model is trained on, and is examined with.
//! Refuses to know tokens and training.

pub(crate) mod calling;
pub(crate) mod copying;
pub(crate) mod dialogue;
pub(crate) mod dice;
pub(crate) mod extraction;
pub(crate) mod form;
pub(crate) mod grammar;
pub(crate) mod lexicon;
pub(crate) mod numbers;
pub(crate) mod story;
pub(crate) mod talk;

use dialogue::{Dialogue, Message};
use dice::Dice;
use lexicon::Lexicon;

/// A kind of conversation and its share of the corpus, in percent.
const SHARES: &[(usize, Topic)] = &[
    (19, Topic::Story),
    (10, Topic::Copying),
    (13, Topic::Sums),
    (24, Topic::Calling),
    (9, Topic::Extraction),
    (7, Topic::Facts),
    (10, Topic::Counting),
    (3, Topic::SmallTalk),
    (3, Topic::Server),
    (2, Topic::Unknown),
];

/// What a conversation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Story,
    Copying,
    Sums,
    Calling,
    Extraction,
    Facts,
    Counting,
    SmallTalk,
    Server,
    Unknown,
}

impl Topic {
    pub(crate) fn dialogue(self, dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
        match self {
            Self::Story => story::dialogue(dice, lexicon),
            Self::Copying => copying::dialogue(dice, lexicon),
            Self::Sums => numbers::sums(dice),
            Self::Calling => calling::dialogue(dice, lexicon),
            Self::Extraction => extraction::dialogue(dice, lexicon),
            Self::Facts => talk::fact(dice),
            Self::Counting => numbers::counting(dice),
            Self::SmallTalk => talk::small_talk(dice),
            Self::Server => talk::server(dice),
            Self::Unknown => talk::unknown(dice, lexicon),
        }
    }

    fn draw(dice: &mut Dice) -> Self {
        let mut left = dice.below(SHARES.iter().map(|(share, _)| share).sum());
        for (share, topic) in SHARES {
            match left.checked_sub(*share) {
                Some(rest) => left = rest,
                None => return *topic,
            }
        }
        unreachable!("the number drawn is below the sum of the shares")
    }
}

/// One conversation of the mixture: now and then with a system line, further turns, functions of no use.
pub(crate) fn draw(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let topic = Topic::draw(dice);
    let mut dialogue = topic.dialogue(dice, lexicon);
    let further = match dice.below(100) {
        0..=69 => 0,
        70..=89 => 1,
        90..=96 => 2,
        _ => dice.between(3, 7),
    };
    for _ in 0..further {
        let topic = Topic::draw(dice);
        if topic != Topic::Calling {
            let mut next = topic.dialogue(dice, lexicon);
            next.tools.clear();
            dialogue.follow_with(next);
        }
    }
    let can_distract = !matches!(topic, Topic::Calling | Topic::Unknown);
    if can_distract && further == 0 && dice.chance(3) {
        dialogue = calling::distract(dice, dialogue);
    }
    if dice.chance(15) {
        dialogue.messages.insert(0, Message::System(talk::system_line(dice)));
    }
    dialogue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_a_corpus() {
        let texts = |seed| {
            let mut dice = Dice::new(seed);
            let rows = (0..50).map(|_| draw(&mut dice, Lexicon::Known).stretches());
            rows.collect::<Vec<_>>()
        };
        assert_eq!(texts(4), texts(4));
        assert_ne!(texts(4), texts(5));
    }

    #[test]
    fn shares_sum_to_a_hundred() {
        assert_eq!(SHARES.iter().map(|(share, _)| share).sum::<usize>(), 100);
    }

    #[test]
    fn training_rows_show_no_held_out_word() {
        let mut dice = Dice::new(11);
        for _ in 0..2000 {
            for stretch in draw(&mut dice, Lexicon::Known).stretches() {
                let found = stretch
                    .text
                    .split(|c: char| !c.is_ascii_alphabetic())
                    .find(|word| lexicon::held_out().any(|held| held == *word));
                assert_eq!(found, None, "{}", stretch.text);
            }
        }
    }

    #[test]
    fn every_answer_meets_its_own_expectation() {
        let mut dice = Dice::new(12);
        for _ in 0..500 {
            let dialogue = draw(&mut dice, Lexicon::Known);
            for (answer, expect) in dialogue.answers() {
                assert!(grammar::is_right(&answer, expect), "{answer}: {expect:?}");
            }
        }
    }
}
