//! Whether an answer is right, and whether it is one that the generator's templates could produce at all,
//! its slots in agreement, whatever was asked. Refuses to know how answers are written.

use super::dialogue::Expect;
use super::form::{Bindings, Domain, Form, Slot};
use super::{calling, copying, extraction, numbers, story, talk};
use serde_json::{Value, json};

const SLOTS: &[Slot] = &[
    ("x", Domain::Word),
    ("adj", Domain::Word),
    ("name", Domain::Name),
    ("helper", Domain::OneOf(story::HELPERS)),
    ("kind", Domain::OneOf(copying::KINDS)),
];

/// Whether `answer` is what was expected.
pub(crate) fn is_right(answer: &str, expect: &Expect) -> bool {
    match expect {
        Expect::Story(asked) => story::read(answer, asked).is_some(),
        Expect::OneOf(texts) => texts.iter().any(|text| text == answer),
        Expect::Json(value) => serde_json::from_str::<Value>(answer).is_ok_and(|v| v == *value),
        Expect::Call { name, arguments } => calling::read_call(answer)
            .is_some_and(|call| call == json!({"name": name, "arguments": arguments})),
    }
}

/// Whether some template gives `answer`; bare words count only where such were expected.
pub(crate) fn produces(answer: &str, expect: &Expect) -> bool {
    let repeats = |text: &String| is_bare_words(text) && is_bare_words(answer);
    matches!(expect, Expect::OneOf(texts) if texts.iter().all(repeats))
        || story::read(answer, &Bindings::new()).is_some()
        || extraction::reads(answer)
        || calling::reads_as_call(answer)
        || calling::reads_as_reply(answer)
        || numbers::reads(answer)
        || talk::is_fixed(answer)
        || reads_as_one_line(answer)
}

/// Whether every sentence of `answer` is one that some template could produce: [`produces`] without
/// the demand that a story keeps its subject from sentence to sentence.
pub(crate) fn is_grammatical(answer: &str, expect: &Expect) -> bool {
    produces(answer, expect) || story::reads_by_sentence(answer)
}

/// Words and nothing else, as repeated ones are.
fn is_bare_words(text: &str) -> bool {
    text.split(' ').all(|word| {
        let word = word.strip_suffix(',').unwrap_or(word);
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic())
    }) && !text.ends_with(',')
}

fn reads_as_one_line(answer: &str) -> bool {
    let lines = copying::ANSWERS.iter().chain(story::FOLLOW_UPS.iter().map(|(_, answer)| answer));
    lines.into_iter().any(|line| {
        let form = Form { slots: SLOTS, sentences: vec![vec![(*line).to_owned()]] };
        form.read(answer, &Bindings::new()).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::super::dice::Dice;
    use super::super::lexicon::Lexicon;
    use super::*;

    #[test]
    fn every_answer_of_the_corpus_is_produced() {
        let mut dice = Dice::new(21);
        for _ in 0..1000 {
            let dialogue = super::super::draw(&mut dice, Lexicon::Known);
            for (answer, expect) in dialogue.answers() {
                assert!(produces(&answer, expect), "{answer}");
            }
        }
    }

    #[test]
    fn broken_answers_are_not_produced() {
        let one_of = |text: &str| Expect::OneOf(vec![text.to_owned()]);
        assert!(!produces("Your name is is Anna.", &one_of("Your name is Anna.")));
        assert!(!produces("Your name is anna.", &one_of("Your name is Anna.")));
        assert!(!produces("3, 4, 6.", &one_of("3, 4, 5.")));
        assert!(!produces("It is sunny in.", &one_of("It is sunny in Oslo.")));
        assert!(!produces("owl.owl", &one_of("owl owl")));
        let lost =
            "Once there was a walrus named Otto. One day, the teapot wanted to make a friend.";
        assert!(!is_grammatical(lost, &one_of(lost)), "half a story is none");
        assert!(!is_grammatical("It is sunny in.", &one_of("It is sunny in Oslo.")));
        assert!(produces("Your name is Bob.", &one_of("Your name is Anna.")));
    }
}
