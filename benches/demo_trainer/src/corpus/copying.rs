//! Saying again what was said: repeated words, names and favourites kept across turns.
//! Refuses to know what the words mean.

use super::dialogue::Dialogue;
use super::dice::Dice;
use super::form::{Bindings, fill};
use super::lexicon::Lexicon;

pub(crate) fn dialogue(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    match dice.below(10) {
        0..=4 => repeat(dice, lexicon),
        5..=7 => introduction(dice, lexicon),
        _ => favourite(dice, lexicon),
    }
}

/// What one can have a favourite of.
pub(crate) const KINDS: &[&str] = &["animal", "word", "toy", "food", "color"];

/// The answers that are not bare repetitions.
pub(crate) const ANSWERS: &[&str] = &[
    "Nice to meet you, {name}! What can I do for you?",
    "Your name is {name}.",
    "I will remember that your favourite {kind} is {x}.",
    "Your favourite {kind} is {x}.",
];

/// "Repeat after me" with one to six words.
fn repeat(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let words: Vec<String> = (0..dice.between(1, 6))
        .map(|_| match dice.below(8) {
            0 => lexicon.name(dice),
            1 => lexicon.city(dice),
            _ => lexicon.subject(dice),
        })
        .collect();
    let text = words.join(*dice.pick(&[" ", ", ", " "]));
    let request = *dice.pick(&[
        "Repeat after me: {}",
        "Say {}",
        "Repeat: {}",
        "Please repeat this: {}",
        "Say this again: {}",
        "Write {}",
        "Please say {}",
        "Echo: {}",
    ]);
    let mut dialogue = Dialogue::default();
    dialogue.ask_exactly(request.replace("{}", &text), text);
    dialogue
}

fn introduction(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let values = Bindings::from([("name", lexicon.name(dice))]);
    let greeting = *dice.pick(&[
        "My name is {name}.",
        "I am {name}.",
        "Hello, my name is {name}.",
        "Hi, I'm {name}.",
        "Hello, I am {name}.",
        "my name is {name}",
        "Call me {name}.",
    ]);
    let mut dialogue = Dialogue::default();
    dialogue.ask_exactly(fill(greeting, &values), fill(ANSWERS[0], &values));
    if dice.chance(60) {
        let question = *dice.pick(&[
            "What is my name?",
            "What's my name?",
            "Do you remember my name?",
            "Who am I?",
        ]);
        dialogue.ask_exactly(question, fill(ANSWERS[1], &values));
    }
    dialogue
}

fn favourite(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let thing = lexicon.subject(dice);
    let values = Bindings::from([("kind", (*dice.pick(KINDS)).to_owned()), ("x", thing)]);
    let mut dialogue = Dialogue::default();
    let (told, asked) = ("My favourite {kind} is {x}.", "What is my favourite {kind}?");
    if dice.chance(50) {
        dialogue.ask_exactly(fill(told, &values), fill(ANSWERS[2], &values));
        dialogue.ask_exactly(fill(asked, &values), fill(ANSWERS[3], &values));
    } else {
        let both = format!("{told} {asked}");
        dialogue.ask_exactly(fill(&both, &values), fill(ANSWERS[3], &values));
    }
    dialogue
}
