//! The examination that a model has to pass before it is embedded. Refuses to know what makes the answers:
//! it is given a function from prompt to answer, so that the trainer and the server are examined alike.

use crate::corpus::dialogue::{Dialogue, Expect};
use crate::corpus::dice::Dice;
use crate::corpus::form::Bindings;
use crate::corpus::lexicon::{self, Lexicon};
use crate::corpus::{self, Topic, grammar, numbers, story};
use anyhow::{Result, anyhow};
use std::fmt;
use tokenizers::Tokenizer;

/// The end of a turn.
const END: &str = "<|im_end|>";
/// Tokens of the longest answer that can be right, with room to spare.
const LIMIT: usize = 400;
const SEED: u64 = 2_026;

/// Gives the tokens that follow a prompt, at most so many; the last one ends the turn if the model did.
pub(crate) type Generate<'a> = dyn FnMut(&[u32], usize) -> Result<Vec<u32>> + 'a;

/// One examination: how many were right, how many there were, how many must be.
#[derive(Clone, Debug)]
pub(crate) struct Score {
    /// What was examined.
    pub(crate) name: &'static str,
    /// How many answers were right.
    pub(crate) right: usize,
    /// How many there were.
    pub(crate) of: usize,
    /// How many must be right.
    pub(crate) needed: usize,
    /// Some wrong answers: prompt and answer.
    pub(crate) wrong: Vec<(String, String)>,
}

impl Score {
    fn new(name: &'static str, of: usize, needed: usize) -> Self {
        Self { name, right: 0, of, needed, wrong: Vec::new() }
    }

    fn count(&mut self, right: bool, prompt: &str, answer: &str) {
        if right {
            self.right += 1;
        } else {
            self.wrong.push((prompt.to_owned(), answer.to_owned()));
        }
    }

    /// Whether enough were right.
    pub(crate) fn passed(&self) -> bool {
        self.right >= self.needed
    }
}

/// All examinations.
#[derive(Clone, Debug)]
pub(crate) struct Scores(pub(crate) Vec<Score>);

impl Scores {
    /// Whether all examinations were passed.
    pub(crate) fn passed(&self) -> bool {
        self.0.iter().all(Score::passed)
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<34} {:>5} {:>5} {:>7}", "examination", "right", "of", "needed")?;
        for score in &self.0 {
            let Score { name, right, of, needed, .. } = score;
            let mark = if score.passed() { "passed" } else { "failed" };
            writeln!(f, "{name:<34} {right:>5} {of:>5} {needed:>7}  {mark}")?;
        }
        Ok(())
    }
}

/// Examines a model.
pub(crate) struct Gate<'a> {
    tokenizer: &'a Tokenizer,
    generate: &'a mut Generate<'a>,
}

impl<'a> Gate<'a> {
    /// Examines what `generate` answers; `tokenizer` is the model's.
    pub(crate) fn new(tokenizer: &'a Tokenizer, generate: &'a mut Generate<'a>) -> Self {
        Self { tokenizer, generate }
    }

    /// Everything.
    pub(crate) fn run(&mut self) -> Result<Scores> {
        let mut scores = vec![self.subjects(50)?, self.sums()?, self.tools(100)?, self.json(100)?];
        scores.extend(self.mixed(200)?);
        Ok(Scores(scores))
    }

    /// Stories about subjects that training never showed.
    pub(crate) fn subjects(&mut self, count: usize) -> Result<Score> {
        let mut dice = Dice::new(SEED);
        let cases: Vec<Dialogue> = lexicon::held_subjects()
            .iter()
            .take(count)
            .map(|subject| {
                let mut dialogue = Dialogue::default();
                let asked = Bindings::from([("x", (*subject).to_owned())]);
                dialogue.ask(story::plain_request(&mut dice, subject), "", Expect::Story(asked));
                dialogue
            })
            .collect();
        self.examine("stories on unseen subjects", &cases, count * 9 / 10)
    }

    fn sums(&mut self) -> Result<Score> {
        let mut dice = Dice::new(SEED + 1);
        let cases: Vec<Dialogue> = numbers::enumerate()
            .map(|sum| {
                let mut dialogue = Dialogue::default();
                dialogue.ask_exactly(sum.question(&mut dice), sum.answer());
                dialogue
            })
            .collect();
        self.examine("sums and differences to 20", &cases, cases.len())
    }

    fn tools(&mut self, count: usize) -> Result<Score> {
        let cases = drawn(Topic::Calling, SEED + 2, count);
        self.examine("calls with unseen arguments", &cases, count * 95 / 100)
    }

    fn json(&mut self, count: usize) -> Result<Score> {
        let cases = drawn(Topic::Extraction, SEED + 3, count);
        self.examine("JSON of unseen values", &cases, count * 95 / 100)
    }

    /// Conversations as training draws them: each last answer has to end by itself and to consist of
    /// sentences that the templates can produce; nearly all have to agree from the first sentence to
    /// the last besides, and to be right.
    fn mixed(&mut self, count: usize) -> Result<[Score; 3]> {
        let mut dice = Dice::new(SEED + 4);
        let mut grammatical = Score::new("mixed answers, grammatical, ended", count, count);
        let mut sound = Score::new("mixed answers, in agreement", count, count * 39 / 40);
        let mut right = Score::new("mixed answers, right", count, count * 9 / 10);
        for _ in 0..count {
            let dialogue = corpus::draw(&mut dice, Lexicon::Known);
            let (prompt, expect) = dialogue.last_prompt();
            let answer = self.answer(&prompt)?;
            let ended = answer.strip_suffix(END);
            grammatical.count(
                ended.is_some_and(|text| grammar::is_grammatical(text, expect)),
                &prompt,
                &answer,
            );
            sound.count(
                ended.is_some_and(|text| grammar::produces(text, expect)),
                &prompt,
                &answer,
            );
            right.count(
                ended.is_some_and(|text| grammar::is_right(text, expect)),
                &prompt,
                &answer,
            );
        }
        Ok([grammatical, sound, right])
    }

    fn examine(&mut self, name: &'static str, cases: &[Dialogue], needed: usize) -> Result<Score> {
        let mut score = Score::new(name, cases.len(), needed);
        for case in cases {
            let (prompt, expect) = case.last_prompt();
            let answer = self.answer(&prompt)?;
            let right =
                answer.strip_suffix(END).is_some_and(|text| grammar::is_right(text, expect));
            score.count(right, &prompt, &answer);
        }
        Ok(score)
    }

    fn answer(&mut self, prompt: &str) -> Result<String> {
        let encoding = self
            .tokenizer
            .encode_fast(prompt, false)
            .map_err(|error| anyhow!("can't tokenize {prompt:?}: {error}"))?;
        let answer = (self.generate)(encoding.get_ids(), LIMIT)?;
        self.tokenizer
            .decode(&answer, false)
            .map_err(|error| anyhow!("can't decode {answer:?}: {error}"))
    }
}

fn drawn(topic: Topic, seed: u64, count: usize) -> Vec<Dialogue> {
    let mut dice = Dice::new(seed);
    (0..count).map(|_| topic.dialogue(&mut dice, Lexicon::HeldOut)).collect()
}
