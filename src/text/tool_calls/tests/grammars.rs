//! Every family's grammar, as it is enforced, against calls as they are written in the family's format.

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value, json};
use toktrie::ApproximateTokEnv;

use super::super::{CallRules, FunctionRule, grammar, names};
use super::formats::written;
use super::schema_of;

type Calls = Vec<(String, Map<String, Value>)>;

/// Members in the order of their keys, in which some families write them.
fn calls() -> Calls {
    let arguments = json!({
        "all": [1.5, -2, 3e10],
        "deep": {"lat": 1.5, "name": "a \"b\" <c>, {d} 'e'"},
        "flag": true,
        "many": 12,
        "none": null,
        "text": "Zürich: \"x\", [y] <z> & 'it'",
    });
    let call =
        |name: &str, arguments: Value| (name.to_owned(), arguments.as_object().unwrap().clone());
    vec![call("f", arguments), call("g", json!({}))]
}

/// The functions of these calls, whose parameters are all required.
fn functions(calls: &Calls) -> Vec<FunctionRule> {
    let function = |(name, arguments): &(String, Map<String, Value>)| {
        let mut schema = schema_of(&Value::from(arguments.clone()));
        schema["required"] = arguments.keys().cloned().collect();
        FunctionRule { name: name.clone(), schema, text: None }
    };
    calls.iter().map(function).collect()
}

/// Whether the grammar takes a text, the whole of it and nothing less.
fn takes(factory: &ParserFactory, lark: &str, text: &str) -> Result<(), String> {
    let grammar = TopLevelGrammar::from_lark(lark.to_owned());
    let mut matcher = Matcher::new(factory.create_parser(grammar));
    for (at, byte) in text.bytes().enumerate() {
        let taken = matcher.try_consume_tokens(&[u32::from(byte)]).unwrap_or(0);
        if taken == 0 {
            return Err(format!("{at}: {:?}", matcher.get_error()));
        }
    }
    let whole = matcher.is_accepting().unwrap_or(false);
    if whole { Ok(()) } else { Err("more is to come".to_owned()) }
}

#[test]
fn grammars_take_what_models_write() {
    let mut factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
    factory.quiet();
    let (calls, token_id) = (calls(), |_: &str| None);
    let functions = functions(&calls);
    let mut failures = Vec::new();
    for family in names() {
        // One call ends the answer.
        let calls = if family == "harmony" { &calls[..1] } else { &calls };
        for required in [true, false] {
            let rules = CallRules {
                functions: &functions,
                required,
                preamble: false,
                parallel: true,
                answer: None,
                reasoning: None,
                token_id: &token_id,
            };
            let lark = grammar(family, &rules).unwrap();
            // Without tokens of the newer ways the calls are a list.
            let text = match family {
                "mistral" => format!("[TOOL_CALLS]{}", written("generic", calls)),
                _ => written(family, calls),
            };
            if let Err(why) = takes(&factory, &lark, &text) {
                failures.push(format!("{family} {why}: {text}"));
            }
            if required {
                let unknown = [("h".to_owned(), Map::new())];
                assert!(takes(&factory, &lark, &written(family, &unknown)).is_err(), "{family}");
                let wrong = [("f".to_owned(), Map::new())];
                assert!(takes(&factory, &lark, &written(family, &wrong)).is_err(), "{family}");
                assert!(takes(&factory, &lark, "Hm.").is_err(), "{family}");
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
