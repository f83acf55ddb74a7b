//! Short stories on a subject that the prompt names. Refuses to know how a conversation is rendered.
//!
//! A plot is a goal with the obstacle, the help and the end that go with it; the sentences around it are
//! the same for all plots. Subject, adjective, name and helper come back in several sentences each.

use super::dialogue::{Dialogue, Expect};
use super::dice::Dice;
use super::form::{Bindings, Domain, Form, Slot, fill};
use super::lexicon::{self, Lexicon};

pub(crate) const ADJECTIVES: &[&str] = &[
    "brave",
    "shy",
    "clever",
    "lazy",
    "tiny",
    "tall",
    "old",
    "young",
    "grumpy",
    "cheerful",
    "kind",
    "curious",
    "lonely",
    "hungry",
    "sleepy",
    "proud",
    "gentle",
    "noisy",
    "quiet",
    "silly",
    "red",
    "blue",
    "green",
    "yellow",
    "purple",
    "golden",
    "silver",
    "orange",
    "pink",
    "white",
    "black",
    "brown",
    "friendly",
    "clumsy",
    "forgetful",
    "patient",
    "angry",
    "happy",
    "sad",
    "small",
];

const PLACES: &[&str] = &[
    "by the sea",
    "in a small town",
    "at the edge of a forest",
    "on a green hill",
    "near a quiet lake",
    "behind an old mill",
    "in a warm valley",
    "next to a stone bridge",
];

pub(crate) const HELPERS: &[&str] = &[
    "owl", "fox", "rabbit", "robot", "wizard", "goat", "duck", "mouse", "bear", "dragon", "pirate",
    "turtle", "baker", "sparrow", "donkey", "fairy", "frog", "crow", "sailor", "squirrel",
];

/// goal, obstacle, help, attempt, end.
const PLOTS: &[[&str; 5]] = &[
    [
        "learn to swim",
        "the water was cold and deep",
        "showed the {x} how to float",
        "practised in the pond every morning",
        "swam all the way across the lake",
    ],
    [
        "see the world",
        "the road was long and there was no map",
        "brought an old map",
        "walked for a hundred days",
        "saw every corner of the world",
    ],
    [
        "bake a cake",
        "there was no flour left",
        "gave the {x} a bag of flour",
        "stirred and baked all afternoon",
        "tasted the best cake in the land",
    ],
    [
        "fly a kite",
        "there was no wind at all",
        "knew a hill where the wind never slept",
        "climbed the hill",
        "flew the kite high above the trees",
    ],
    [
        "find the lost treasure",
        "the cave was dark",
        "lit a small lamp",
        "looked under every stone",
        "found the treasure behind a rock",
    ],
    [
        "sing at the fair",
        "every song came out too quiet",
        "taught the {x} a louder song",
        "sang until the sun went down",
        "sang for the whole town",
    ],
    [
        "grow a garden",
        "the ground was hard and dry",
        "carried water from the river",
        "dug and planted all spring",
        "had the finest garden of all",
    ],
    [
        "win the race",
        "the other runners were much faster",
        "told the {x} about a secret path",
        "trained every single day",
        "won the race by one step",
    ],
    [
        "build a boat",
        "there was no wood to be found",
        "brought ten strong planks",
        "worked with saw and hammer",
        "sailed away in a fine boat",
    ],
    [
        "paint the sky",
        "the paint was all gone",
        "mixed new paint from berries",
        "painted from dawn to dusk",
        "made the sky shine in every colour",
    ],
    [
        "touch the moon",
        "the moon was too far away",
        "brought the longest ladder in the land",
        "climbed up and up all night",
        "touched the moon with a smile",
    ],
    [
        "make a friend",
        "everyone was too busy to talk",
        "sat down for a cup of tea",
        "talked and laughed for hours",
        "was never alone again",
    ],
];

const SLOTS: &[Slot] = &[
    ("x", Domain::Word),
    ("adj", Domain::Word),
    ("name", Domain::Name),
    ("place", Domain::OneOf(PLACES)),
    ("helper", Domain::OneOf(HELPERS)),
    ("several", Domain::OneOf(&["three", "four", "five", "many"])),
];

const SINGULAR: &[&[&str]] = &[
    &[
        "Once there was {an adj} {x} named {name}.",
        "Once upon a time, {an adj} {x} named {name} lived {place}.",
        "There once was {an adj} {x} named {name}, who lived {place}.",
    ],
    &[
        "One day, the {x} wanted to {goal}.",
        "More than anything, the {x} wanted to {goal}.",
        "Every night, {name} the {x} dreamed of one thing: to {goal}.",
    ],
    &[
        "But {obstacle}.",
        "But {obstacle}, and {name} did not know what to do.",
        "Sadly, {obstacle}.",
    ],
    &["Then {an helper} came by and {help}.", "Luckily, {an helper} came along and {help}."],
    &["Together, the {x} and the {helper} {attempt}.", "So the {x} and the {helper} {attempt}."],
    &["At last, {name}, the {adj} {x}, {end}.", "And that is how {name}, the {adj} {x}, {end}."],
    &[
        "From that day on, the {x} and the {helper} were the best of friends.",
        "And the {x} never forgot the {helper}.",
        "The {x} thanked the {helper} and went home happy.",
    ],
];

const PLURAL: &[&[&str]] = &[
    &["Once there were {several} {x}.", "Once upon a time, {several} {x} lived {place}."],
    &["One day, the {x} wanted to {goal}.", "More than anything, the {x} wanted to {goal}."],
    &["But {obstacle}.", "Sadly, {obstacle}."],
    &["Then {an helper} came by and {help}.", "Luckily, {an helper} came along and {help}."],
    &["Together, the {x} and the {helper} {attempt}.", "So the {x} and the {helper} {attempt}."],
    &["In the end, all was well.", "And they were all very happy."],
    &[
        "From that day on, the {x} and the {helper} were the best of friends.",
        "And the {x} never forgot the {helper}.",
    ],
];

const REQUESTS: &[&str] = &[
    "Tell me a story about {}.",
    "Tell me a short story about {}.",
    "Write a story about {}.",
    "Write a short story about {}.",
    "Can you tell me a story about {}?",
    "Please tell me a story about {}.",
    "Please write a short story about {}.",
    "I want to hear a story about {}.",
    "A story about {}, please.",
    "Make up a story about {}.",
    "Write me a bedtime story about {}.",
    "tell me a story about {}",
    "story about {}",
    "Could you write a little story about {}?",
];

/// Questions about a story, and their answers.
pub(crate) const FOLLOW_UPS: &[(&str, &str)] = &[
    ("What was the name of the {x}?", "The {x} was named {name}."),
    ("Who helped the {x}?", "The {helper} helped the {x}."),
    ("Who was {name}?", "{name} was the {adj} {x}."),
];

const OPEN_REQUESTS: &[&str] = &[
    "Tell me a story.",
    "Tell me a short story.",
    "Write a story.",
    "Please tell me a story.",
    "Can you tell me a story?",
    "I want to hear a story.",
    "tell me a story",
    "Another story, please.",
];

/// A request for a story, the story, and sometimes a question about it.
pub(crate) fn dialogue(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    if dice.chance(12) {
        return plural(dice, lexicon);
    }
    let mut asked = Bindings::new();
    asked.insert("x", lexicon.subject(dice));
    if dice.chance(35) {
        asked.insert("adj", adjective(dice));
    }
    if dice.chance(35) {
        asked.insert("name", lexicon.name(dice));
    }
    let mut bindings = asked.clone();
    let request = if lexicon == Lexicon::Known && dice.chance(6) {
        bindings.insert("x", lexicon::known_subject(dice).to_owned());
        asked.clear();
        (*dice.pick(OPEN_REQUESTS)).to_owned()
    } else {
        request(dice, &asked)
    };
    bindings.entry("adj").or_insert_with(|| (*dice.pick(ADJECTIVES)).to_owned());
    bindings.entry("name").or_insert_with(|| lexicon::known_name(dice).to_owned());
    let story = write(dice, SINGULAR, &mut bindings);
    let mut dialogue = Dialogue::default();
    dialogue.ask(request, story, Expect::Story(asked));
    if dice.chance(20) {
        follow_up(dice, &bindings, &mut dialogue);
    }
    dialogue
}

/// A plain request for a story about one subject, as the gate asks for it.
pub(crate) fn plain_request(dice: &mut Dice, subject: &str) -> String {
    request(dice, &Bindings::from([("x", subject.to_owned())]))
}

/// The slots' values if `text` is a story the templates can produce under `asked`.
pub(crate) fn read(text: &str, asked: &Bindings) -> Option<Bindings> {
    [SINGULAR, PLURAL]
        .iter()
        .flat_map(|skeleton| PLOTS.iter().map(|plot| form(skeleton, plot)))
        .find_map(|form| form.read(text, asked))
        .filter(|read| read["x"] != read["helper"])
}

/// Whether `text` is a story sentence by sentence, even one that loses its subject on the way.
pub(crate) fn reads_by_sentence(text: &str) -> bool {
    [SINGULAR, PLURAL]
        .iter()
        .flat_map(|skeleton| PLOTS.iter().map(|plot| form(skeleton, plot)))
        .any(|form| form.reads_by_sentence(text))
}

fn plural(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let subject = lexicon.subject(dice) + "s";
    let asked = Bindings::from([("x", subject.clone())]);
    let request = dice.pick(REQUESTS).replace("{}", &subject);
    let story = write(dice, PLURAL, &mut asked.clone());
    let mut dialogue = Dialogue::default();
    dialogue.ask(request, story, Expect::Story(asked));
    dialogue
}

fn adjective(dice: &mut Dice) -> String {
    match dice.below(4) {
        0 => lexicon::made_up(dice),
        _ => (*dice.pick(ADJECTIVES)).to_owned(),
    }
}

fn request(dice: &mut Dice, asked: &Bindings) -> String {
    let described = if asked.contains_key("adj") { "{an adj} {x}" } else { "{an x}" };
    let mut subject = fill(described, asked);
    if let Some(name) = asked.get("name") {
        let link = dice.pick(&["named", "called", "named"]);
        subject = format!("{subject} {link} {name}");
    }
    dice.pick(REQUESTS).replace("{}", &subject)
}

fn write(dice: &mut Dice, skeleton: &[&[&str]], bindings: &mut Bindings) -> String {
    loop {
        let helper = *dice.pick(HELPERS);
        if bindings["x"] != helper {
            bindings.insert("helper", helper.to_owned());
            break;
        }
    }
    let plot = dice.pick(PLOTS);
    form(skeleton, plot).write(dice, bindings)
}

fn form(skeleton: &[&[&str]], plot: &[&str; 5]) -> Form {
    let wording = |text: &&str| {
        ["{goal}", "{obstacle}", "{help}", "{attempt}", "{end}"]
            .iter()
            .zip(plot)
            .fold((*text).to_owned(), |text, (slot, part)| text.replace(slot, part))
    };
    Form {
        slots: SLOTS,
        sentences: skeleton.iter().map(|wordings| wordings.iter().map(wording).collect()).collect(),
    }
}

fn follow_up(dice: &mut Dice, bindings: &Bindings, dialogue: &mut Dialogue) {
    let (question, answer) = *dice.pick(FOLLOW_UPS);
    let answer = fill(answer, bindings);
    dialogue.ask(fill(question, bindings), answer.clone(), Expect::OneOf(vec![answer]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_story_is_read_back_and_keeps_what_was_asked() {
        let mut dice = Dice::new(5);
        for _ in 0..300 {
            let dialogue = dialogue(&mut dice, Lexicon::Known);
            let (answer, expect) = dialogue.answers().next().expect("one answer");
            let Expect::Story(asked) = expect else { panic!("{expect:?}") };
            let read = read(&answer, asked).unwrap_or_else(|| panic!("{answer}"));
            let subject = &read["x"];
            assert!(answer.matches(subject.as_str()).count() >= 4, "{answer}");
            for value in asked.values() {
                assert!(answer.contains(value.as_str()), "{value}: {answer}");
            }
        }
    }

    #[test]
    fn a_garbled_subject_is_refused() {
        let mut dice = Dice::new(6);
        let asked = Bindings::from([("x", "walrus".to_owned())]);
        let mut bindings = asked.clone();
        bindings.insert("adj", "shy".to_owned());
        bindings.insert("name", "Pip".to_owned());
        let story = write(&mut dice, SINGULAR, &mut bindings);
        assert!(read(&story, &asked).is_some());
        assert!(read(&story.replacen("the walrus", "the wallrus", 1), &asked).is_none());
    }
}
