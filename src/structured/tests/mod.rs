//! The room as a whole, on a vocabulary of bytes and common fragments: what is accepted, what
//! random texts look like, and what hostile specifications meet.

mod accepts;
mod adversarial;
mod corpus;
mod json_string;
mod tags;
mod walks;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;

use super::compiler::{CompilerLimits, GrammarCompiler};
use super::error::GrammarError;
use super::grammar::Grammar;
use super::spec::GrammarSpec;
use super::vocabulary::Vocabulary;

/// Two ids that end a sequence, and special tokens that don't.
const EOS: [u32; 2] = [256, 257];
const SPECIALS: [&str; 5] = ["<eos>", "<|end|>", "<tool_call>", "</tool_call>", "[TOOL]"];

static TOKENS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut tokens: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    tokens.extend(SPECIALS.map(|_| Vec::new()));
    let words = "name value type true false null id text data list item number string the and of \
                 to in is with for color size date time user address street city country price";
    for word in words.split_whitespace() {
        for form in ["{}", " {}", "\"{}", "{}\"", "\"{}\"", "{}\":", "_{}"] {
            tokens.push(form.replace("{}", word).into_bytes());
        }
    }
    let marks = [
        "{\"", "\":", "\": ", "\",", "\", \"", "\"}", "},", "[{", "}]", "\"]", "\\n", "\\\"", "é",
        "日本", "😀", "):", "\"\"", "[]", "{}", "://", "=\"", "\n  ", "\n    ", ", ", "<tool",
        "_call>",
    ];
    tokens.extend(marks.map(|mark| mark.as_bytes().to_vec()));
    tokens.extend((0..1000).map(|n| n.to_string().into_bytes()));
    let letters = b"etaoinshrdlucmfwypvbgkqjxz";
    for a in letters {
        for b in letters {
            tokens.push(vec![*a, *b]);
            tokens.push(vec![b' ', *a, *b]);
        }
    }
    tokens
});

static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let special = (256..).zip(SPECIALS.map(str::to_owned));
    let special: Vec<(u32, String)> = special.collect();
    let vocabulary =
        Vocabulary::new(TOKENS.clone(), special, EOS.to_vec(), Box::new(longest_tokens));
    // Tests share two cores with each other; the time is the adversarial tests' subject alone.
    let limits = CompilerLimits { time: Duration::from_mins(1), threads: 64, ..Default::default() };
    GrammarCompiler::new(Arc::new(vocabulary), limits)
});

// The longest token first: stable under appending, like the merges of a real tokenizer mostly are.
fn longest_tokens(text: &str) -> Vec<u32> {
    static IDS: LazyLock<std::collections::HashMap<&[u8], u32>> = LazyLock::new(|| {
        let tokens = TOKENS.iter().map(Vec::as_slice).filter(|bytes| !bytes.is_empty());
        let ids = (0..).zip(TOKENS.iter()).filter(|(_, bytes)| !bytes.is_empty());
        tokens.zip(ids.map(|(id, _)| id)).collect()
    });
    let (mut ids, mut rest) = (Vec::new(), text.as_bytes());
    while !rest.is_empty() {
        let len = (1..=rest.len().min(12)).rev().find(|len| IDS.contains_key(&rest[..*len]));
        let (token, after) = rest.split_at(len.expect("every byte is a token"));
        ids.push(IDS[token]);
        rest = after;
    }
    ids
}

fn compile(spec: &GrammarSpec) -> Result<Arc<Grammar>, GrammarError> {
    COMPILER.compile(spec)
}

fn compile_schema(schema: &Value) -> Result<Arc<Grammar>, GrammarError> {
    compile(&GrammarSpec::JsonSchema(schema.clone()))
}

/// Whether the grammar has exactly this text among its texts, spelled in single bytes.
fn accepts(grammar: &Arc<Grammar>, text: &str) -> bool {
    let mut cursor = grammar.cursor();
    // Masks may ask for the canonical tokens of forced text; any tokens of it are accepted.
    let all = text.bytes().all(|byte| cursor.accept(u32::from(byte)).is_ok());
    all && cursor.can_end().expect("the grammar is within its limits")
}

fn allowed(mask: &[u32]) -> Vec<u32> {
    let bits = |(word, bits): (u32, &u32)| {
        let bits = *bits;
        (0..32).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 32 + bit)
    };
    (0..).zip(mask).flat_map(bits).collect()
}

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// A random text of the grammar: uniform over the allowed tokens, with a taste for closing what is
/// open, which grows after `patience` tokens. `None` when it doesn't end.
fn walk(grammar: &Arc<Grammar>, random: &mut Random, patience: usize) -> Option<String> {
    let mut cursor = grammar.cursor();
    let mut text = Vec::new();
    for step in 0..4 * patience {
        let mut ids = allowed(cursor.mask().unwrap());
        let late = step > patience;
        let closing = |id: &u32| match TOKENS[*id as usize].as_slice() {
            _ if EOS.contains(id) => 0,
            b"}" | b"]" => 1,
            b"\"" => 2,
            b"," | b":" => 3,
            _ => 4,
        };
        if late && random.below(10) > 0 || random.below(5) == 0 {
            let best = ids.iter().map(closing).min()?;
            ids.retain(|id| closing(id) == best);
        }
        let id = ids[random.below(ids.len())];
        cursor.accept(id).unwrap();
        if EOS.contains(&id) {
            assert!(cursor.is_complete());
            return Some(String::from_utf8(text).expect("grammars make characters"));
        }
        text.extend_from_slice(&TOKENS[id as usize]);
    }
    None
}
