//! Questions with a fixed answer: small talk, facts, this server, and all that a small model can't know.
//! Refuses to know anything that depends on an earlier turn.

use super::dialogue::Dialogue;
use super::dice::Dice;
use super::lexicon::{self, Lexicon};
use std::sync::LazyLock;

/// The answer to everything the model was not taught.
pub(crate) const UNKNOWN: &str = "I am only a small demo model, so I do not know that. \
    I can tell you a short story, add small numbers, count, or talk about sconce.";

/// Questions (separated by `|`) with one answer.
type Entry = (Vec<&'static str>, &'static str);

static SMALL_TALK: LazyLock<Vec<Entry>> =
    LazyLock::new(|| entries(include_str!("words/small_talk.txt")));
static SERVER: LazyLock<Vec<Entry>> = LazyLock::new(|| entries(include_str!("words/server.txt")));
static FACTS: LazyLock<Vec<Entry>> = LazyLock::new(|| entries(include_str!("words/facts.txt")));

const FACT_WORDINGS: &[&str] =
    &["{}", "{}", "Can you tell me: {}", "Please tell me: {}", "Do you know: {}"];

const UNKNOWN_QUESTIONS: &[&str] = &[
    "Why is the {x} made of {y}?",
    "Who invented the {x}?",
    "How do I fix my {x}?",
    "What is a {x} made of?",
    "How many {x}s are there in {city}?",
    "Who is {name}?",
    "What do you think about {name}?",
    "Where is {city}?",
    "Explain the {x} to me.",
    "Explain how a {x} works.",
    "Write an essay about the {x}.",
    "Write a poem about {name}.",
    "Write a program that sorts a {x}.",
    "What is the best {x} in {city}?",
    "When was {city} founded?",
    "What is the meaning of life?",
    "What is the capital of {city}?",
    "Who won the game in {city}?",
    "How old is {name}?",
    "What happened in {city} in {year}?",
    "What is {year} times {year}?",
    "What is {year} + {year}?",
    "Is the {x} bigger than the {y}?",
    "What is the difference between a {x} and a {y}?",
    "Why do {x}s like {y}s?",
    "How do I cook a {x}?",
    "How do I get from {city} to {other}?",
    "Should I buy a {x} or a {y}?",
    "Give me some advice.",
    "What is quantum physics?",
    "Explain relativity.",
    "Who is the president?",
    "What is the news today?",
    "What is the weather in {city}?",
    "What time is it in {city}?",
    "What day is it today?",
    "Write some Python code.",
    "How do I learn {x}?",
    "What does {x} mean?",
    "Translate {x} into French.",
    "How much does a {x} cost?",
    "Who wrote the book about the {x}?",
    "Can you draw a {x}?",
    "Do you like {x}s?",
    "What is your opinion on {x}?",
    "Summarize the history of {city}.",
    "Which {x} should I choose?",
    "What is the square root of {year}?",
    "How far is {city} from {other}?",
    "Can {x}s fly?",
    "What do {x}s eat?",
    "Why do {x}s sleep?",
];

pub(crate) fn small_talk(dice: &mut Dice) -> Dialogue {
    fixed(dice, &SMALL_TALK, &["{}"])
}

pub(crate) fn server(dice: &mut Dice) -> Dialogue {
    fixed(dice, &SERVER, &["{}", "{}", "{}", "Please tell me: {}"])
}

pub(crate) fn fact(dice: &mut Dice) -> Dialogue {
    fixed(dice, &FACTS, FACT_WORDINGS)
}

/// A question outside all that was taught.
pub(crate) fn unknown(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let question = dice
        .pick(UNKNOWN_QUESTIONS)
        .replace("{x}", &lexicon.subject(dice))
        .replace("{y}", &lexicon.subject(dice))
        .replace("{name}", &lexicon.name(dice))
        .replace("{city}", &lexicon.city(dice))
        .replace("{other}", &lexicon.city(dice))
        .replace("{year}", &dice.between(21, 2030).to_string());
    let mut dialogue = Dialogue::default();
    dialogue.ask_exactly(varied(dice, question), UNKNOWN);
    dialogue
}

/// Whether `answer` is one of the fixed ones.
pub(crate) fn is_fixed(answer: &str) -> bool {
    let mut all = SMALL_TALK.iter().chain(SERVER.iter()).chain(FACTS.iter());
    answer == UNKNOWN || all.any(|(_, fixed)| *fixed == answer)
}

fn fixed(dice: &mut Dice, entries: &[Entry], wordings: &[&str]) -> Dialogue {
    let (questions, answer) = dice.pick(entries);
    let question = dice.pick(wordings).replace("{}", dice.pick::<&str>(questions));
    let mut dialogue = Dialogue::default();
    dialogue.ask_exactly(varied(dice, question), *answer);
    dialogue
}

/// Now and then as people type: no capital, no mark at the end.
fn varied(dice: &mut Dice, question: String) -> String {
    match dice.below(10) {
        0 => question.to_lowercase(),
        1 => question.trim_end_matches(['.', '?', '!']).to_owned(),
        2 => question.to_lowercase().trim_end_matches(['.', '?', '!']).to_owned(),
        _ => question,
    }
}

/// One entry a line: `question | question = answer`.
fn entries(text: &'static str) -> Vec<Entry> {
    text.lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(questions, answer)| (questions.split(" | ").collect(), answer))
        .collect()
}

/// A word or two that says nothing about the answer, for system lines.
pub(crate) fn system_line(dice: &mut Dice) -> String {
    match dice.below(8) {
        0 => format!("You are {}.", lexicon::known_name(dice)),
        1 => "You are a helpful assistant.".to_owned(),
        2 => "Be brief.".to_owned(),
        3 => "You are a friendly assistant. Answer in one sentence.".to_owned(),
        4 => "Answer politely.".to_owned(),
        5 => format!("You are an expert on {}s.", lexicon::known_subject(dice)),
        6 => "You are sconce, a small demo model.".to_owned(),
        _ => "You are a helpful, honest assistant. Keep your answers short.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn no_question_has_two_answers() {
        let mut answers: HashMap<String, &str> = HashMap::new();
        for (questions, answer) in SMALL_TALK.iter().chain(SERVER.iter()).chain(FACTS.iter()) {
            for question in questions {
                let bare = question.to_lowercase().trim_end_matches(['.', '?', '!']).to_owned();
                let before = answers.insert(bare, answer);
                assert!(before.is_none_or(|before| before == *answer), "{question}");
            }
        }
        assert!(FACTS.len() >= 140, "{}", FACTS.len());
    }
}
