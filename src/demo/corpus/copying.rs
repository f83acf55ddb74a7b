//! Saying again what was said: repeated words, names and favourites kept across turns.
//! Refuses to know what the words mean.

use super::dialogue::Dialogue;
use super::dice::Dice;
use super::lexicon::{self, Lexicon};

pub fn dialogue(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    match dice.below(10) {
        0..=4 => repeat(dice, lexicon),
        5..=7 => introduction(dice, lexicon),
        _ => favourite(dice, lexicon),
    }
}

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
    let name = lexicon.name(dice);
    let greeting = *dice.pick(&[
        "My name is {}.", "I am {}.", "Hello, my name is {}.", "Hi, I'm {}.", "Hello, I am {}.", "my name is {}",
        "Call me {}.",
    ]);
    let mut dialogue = Dialogue::default();
    dialogue.ask_exactly(
        greeting.replace("{}", &name),
        format!("Nice to meet you, {name}! What can I do for you?"),
    );
    if dice.chance(60) {
        let question = *dice.pick(&["What is my name?", "What's my name?", "Do you remember my name?", "Who am I?"]);
        dialogue.ask_exactly(question, format!("Your name is {name}."));
    }
    dialogue
}

fn favourite(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let kind = *dice.pick(&["animal", "word", "toy", "food", "color"]);
    let thing = match dice.below(3) {
        0 => lexicon::made_up(dice),
        _ => lexicon.subject(dice),
    };
    let mut dialogue = Dialogue::default();
    if dice.chance(50) {
        dialogue.ask_exactly(
            format!("My favourite {kind} is {thing}."),
            format!("I will remember that your favourite {kind} is {thing}."),
        );
        dialogue.ask_exactly(
            format!("What is my favourite {kind}?"),
            format!("Your favourite {kind} is {thing}."),
        );
    } else {
        dialogue.ask_exactly(
            format!("My favourite {kind} is {thing}. What is my favourite {kind}?"),
            format!("Your favourite {kind} is {thing}."),
        );
    }
    dialogue
}
