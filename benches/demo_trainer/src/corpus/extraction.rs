//! JSON from a sentence: the keys in the order asked for, the values as the sentence has them.
//! Refuses to know prose answers.

use super::dialogue::{Dialogue, Expect, spaced};
use super::dice::Dice;
use super::lexicon::Lexicon;
use serde_json::{Map, Value};

const COLOURS: &[&str] = &[
    "red", "blue", "green", "yellow", "purple", "golden", "silver", "orange", "pink", "white",
    "black", "brown",
];

/// Keys, and the sentences that hold their values.
const SHAPES: &[(&[&str], &[&str])] = &[
    (
        &["name", "age"],
        &["{name} is {age} years old.", "{name} is {age}.", "My friend {name} is {age} years old."],
    ),
    (
        &["name", "city"],
        &["{name} lives in {city}.", "{name} comes from {city}.", "{name} moved to {city}."],
    ),
    (
        &["name", "age", "city"],
        &["{name} is {age} years old and lives in {city}.", "{name}, {age}, lives in {city}."],
    ),
    (&["item", "price"], &["The {item} costs {price} coins.", "A {item} for {price} coins."]),
    (&["animal", "color"], &["The {animal} is {color}.", "We saw a {color} {animal}."]),
    (&["name", "animal"], &["{name} has a {animal}.", "{name} saw a {animal}."]),
    (
        &["item", "count"],
        &["There is a box with {count} of the {item} kind.", "We need {count} of the {item}."],
    ),
    (&["name", "item"], &["{name} bought a {item}.", "{name} wants a {item}."]),
    (&["from", "to"], &["The train goes from {from} to {to}.", "We flew from {from} to {to}."]),
];

const REQUESTS: &[&str] = &[
    "Extract {keys} as JSON: {text}",
    "Give me {keys} as JSON: {text}",
    "Return JSON with {keys}. {text}",
    "{text} Give me {keys} as JSON.",
    "{text} Write {keys} as JSON.",
    "Turn this into JSON with {keys}: {text}",
    "{text} Answer in JSON with {keys}.",
];

pub(crate) fn dialogue(dice: &mut Dice, lexicon: Lexicon) -> Dialogue {
    let (keys, sentences) = *dice.pick(SHAPES);
    let mut keys = keys.to_vec();
    let mut sentence = (*dice.pick(sentences)).to_owned();
    let mut values = Map::new();
    for &key in &keys {
        let value = match key {
            "age" | "price" | "count" => Value::from(dice.between(1, 99)),
            "name" => Value::from(lexicon.name(dice)),
            "city" | "from" | "to" => Value::from(lexicon.city(dice)),
            "color" => Value::from(*dice.pick(COLOURS)),
            _ => Value::from(lexicon.subject(dice)),
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        sentence = sentence.replace(&format!("{{{key}}}"), &text);
        values.insert(key.to_owned(), value);
    }
    if dice.chance(30) {
        dice.shuffle(&mut keys);
    }
    let object: Map<String, Value> =
        keys.iter().map(|&key| (key.to_owned(), values[key].clone())).collect();
    let object = Value::Object(object);
    let question =
        dice.pick(REQUESTS).replace("{keys}", &listed(&keys, dice)).replace("{text}", &sentence);
    let mut dialogue = Dialogue::default();
    dialogue.ask(question, spaced(&object), Expect::Json(object));
    dialogue
}

/// Whether `answer` is an object of one of the shapes, its numbers numbers and its words words.
pub(crate) fn reads(answer: &str) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_str(answer) else { return false };
    let fits = fields.iter().all(|(key, value)| match key.as_str() {
        "age" | "price" | "count" => value.is_u64(),
        _ => value.as_str().is_some_and(|text| !text.is_empty()),
    });
    let one_of_the_shapes = SHAPES.iter().any(|(keys, _)| {
        keys.len() == fields.len() && keys.iter().all(|key| fields.contains_key(*key))
    });
    fits && one_of_the_shapes
}

/// "the name and the age", "name, age and city", ...
fn listed(keys: &[&str], dice: &mut Dice) -> String {
    let article = *dice.pick(&["the ", "", "", "the keys "]);
    let each = if article == "the " { article } else { "" };
    let (last, first) = keys.split_last().expect("every shape has keys");
    let first: Vec<String> = first.iter().map(|key| format!("{each}{key}")).collect();
    let start = if each.is_empty() { article } else { "" };
    format!("{start}{} and {each}{last}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_parse_and_their_values_stand_in_the_question() {
        let mut dice = Dice::new(8);
        for _ in 0..300 {
            let dialogue = dialogue(&mut dice, Lexicon::Known);
            let (prompt, _) = dialogue.last_prompt();
            let (answer, expect) = dialogue.answers().next().expect("one answer");
            assert!(crate::corpus::grammar::is_right(&answer, expect), "{answer}");
            let value: Value = serde_json::from_str(&answer).expect(&answer);
            for value in value.as_object().expect("an object").values() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                assert!(prompt.contains(&text), "{text}: {prompt}");
            }
            assert!(!prompt.contains('{'), "{prompt}");
        }
    }
}
