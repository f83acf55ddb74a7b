//! The words that fill slots: subjects, names and cities, real or made up, and those held out for the gate.
//! Refuses to know sentences.

use super::dice::Dice;
use std::sync::LazyLock;

static SUBJECTS: LazyLock<Vec<&str>> = LazyLock::new(|| split(include_str!("words/subjects.txt")));
static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| split(include_str!("words/names.txt")));
static CITIES: LazyLock<Vec<&str>> = LazyLock::new(|| split(include_str!("words/cities.txt")));
static HELD_SUBJECTS: LazyLock<Vec<&str>> =
    LazyLock::new(|| split(include_str!("words/held_subjects.txt")));
static HELD_NAMES: LazyLock<Vec<&str>> =
    LazyLock::new(|| split(include_str!("words/held_names.txt")));
static HELD_CITIES: LazyLock<Vec<&str>> =
    LazyLock::new(|| split(include_str!("words/held_cities.txt")));

/// Where slot words come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lexicon {
    /// Known words and made-up ones, for training.
    Known,
    /// Real words that training never shows, for the gate.
    HeldOut,
}

impl Lexicon {
    /// A lower-case noun.
    pub(crate) fn subject(self, dice: &mut Dice) -> String {
        match self {
            Self::HeldOut => (*dice.pick(&HELD_SUBJECTS)).to_owned(),
            Self::Known if dice.chance(50) => (*dice.pick(&SUBJECTS)).to_owned(),
            Self::Known => made_up(dice),
        }
    }

    /// A person's or animal's name.
    pub(crate) fn name(self, dice: &mut Dice) -> String {
        self.proper(dice, &NAMES, &HELD_NAMES)
    }

    pub(crate) fn city(self, dice: &mut Dice) -> String {
        self.proper(dice, &CITIES, &HELD_CITIES)
    }

    fn proper(self, dice: &mut Dice, known: &[&str], held: &[&str]) -> String {
        match self {
            Self::HeldOut => (*dice.pick(held)).to_owned(),
            Self::Known if dice.chance(50) => (*dice.pick(known)).to_owned(),
            Self::Known if dice.chance(50) => capitalised(&made_up(dice)),
            Self::Known => made_up_name(dice),
        }
    }
}

/// Every held-out subject, in file order.
pub(crate) fn held_subjects() -> &'static [&'static str] {
    &HELD_SUBJECTS
}

/// Every word that is held out for the gate.
pub(crate) fn held_out() -> impl Iterator<Item = &'static str> {
    HELD_SUBJECTS.iter().chain(HELD_NAMES.iter()).chain(HELD_CITIES.iter()).copied()
}

/// Every known subject, name and city.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    SUBJECTS.iter().chain(NAMES.iter()).chain(CITIES.iter()).copied()
}

/// A known subject, for what a story brings in by itself.
pub(crate) fn known_subject(dice: &mut Dice) -> &'static str {
    dice.pick::<&str>(&SUBJECTS)
}

/// A known name, for what a story brings in by itself.
pub(crate) fn known_name(dice: &mut Dice) -> &'static str {
    dice.pick::<&str>(&NAMES)
}

/// A lower-case word that is in no list, 3 to 11 letters: stretches of real words sewn together, so that
/// it falls into the same pieces as real words do, only in new orders.
pub(crate) fn made_up(dice: &mut Dice) -> String {
    loop {
        let mut word = String::new();
        let sewn = dice.chance(60);
        for _ in 0..dice.between(2, 3) {
            if let (true, Some(piece)) = (sewn, dice.piece()) {
                word.push_str(&piece.to_lowercase());
                continue;
            }
            let list: &[&str] = match dice.below(4) {
                0 => &NAMES,
                1 => &CITIES,
                _ => &SUBJECTS,
            };
            let source = dice.pick(list).to_lowercase();
            let length = dice.between(2, 4).min(source.len());
            let start = dice.below(source.len() - length + 1);
            word.push_str(&source[start..start + length]);
        }
        let held = held_out().any(|held| held.eq_ignore_ascii_case(&word));
        if (3..=11).contains(&word.len()) && !held && !repeats_itself(&word) {
            return word;
        }
    }
}

/// As `made_up`, but begins with a piece that is capitalised as it stands, where the dice have pieces.
fn made_up_name(dice: &mut Dice) -> String {
    for _ in 0..100 {
        let Some(piece) = dice.piece() else { break };
        if piece.starts_with(|c: char| c.is_ascii_uppercase()) {
            let end = made_up(dice);
            let name = piece + &end[..end.len().min(4)];
            let held = held_out().any(|held| held.eq_ignore_ascii_case(&name));
            if !held && !repeats_itself(&name.to_lowercase()) {
                return name;
            }
        }
    }
    capitalised(&made_up(dice))
}

pub(crate) fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The indefinite article for `word`.
pub(crate) fn article(word: &str) -> &'static str {
    // "an unicorn" would be wrong, so the few words that begin with the sound of "you" are named.
    let sounds_like_you = ["uni", "eu", "use", "uk"].iter().any(|start| word.starts_with(start));
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) && !sounds_like_you { "an" } else { "a" }
}

/// Three equal letters in a row, or a stretch of two or three said twice running, teach a model to loop.
fn repeats_itself(word: &str) -> bool {
    let letters = word.as_bytes();
    let thrice = letters.windows(3).any(|w| w[0] == w[1] && w[1] == w[2]);
    let twice =
        [2, 3].iter().any(|&n| letters.windows(2 * n).any(|window| window[..n] == window[n..]));
    thrice || twice
}

fn split(text: &'static str) -> Vec<&'static str> {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn held_out_words_are_in_no_training_list() {
        let known: HashSet<String> = known().map(str::to_lowercase).collect();
        let overlap: Vec<_> = held_out().filter(|w| known.contains(&w.to_lowercase())).collect();
        assert!(overlap.is_empty(), "{overlap:?}");
    }

    #[test]
    fn made_up_words_are_plain_and_never_held_out() {
        let mut dice = Dice::new(1);
        for _ in 0..2000 {
            let word = made_up(&mut dice);
            assert!(word.bytes().all(|b| b.is_ascii_lowercase()), "{word}");
            assert!(!held_out().any(|held| held.eq_ignore_ascii_case(&word)));
        }
    }

    #[test]
    fn articles_follow_the_sound() {
        assert_eq!(article("owl"), "an");
        assert_eq!(article("unicorn"), "a");
        assert_eq!(article("walrus"), "a");
    }
}
