//! Random texts, and what holds of every cursor on the way.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check_walks(schema: &Value, seed: u64) {
    let grammar = compile_schema(schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    let mut random = Random(seed | 1);
    for _ in 0..3 {
        let Some(text) = walk(&grammar, &mut random, 300) else { continue };
        // Exponents know no bound in JSON, but in a double.
        match serde_json::from_str(&text) {
            Ok(document) => {
                assert!(validator.is_valid(&document), "{schema}: {text}");
            }
            Err(error) => assert!(error.to_string().contains("out of range"), "{error}: {text}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_texts_are_valid(seed in any::<u64>(), schema in schemas()) {
        match compile_schema(&schema) {
            Ok(_) => check_walks(&schema, seed),
            // An intersection of random schemas may be empty, or not be seen to be.
            Err(
                GrammarError::Unsatisfiable(_)
                | GrammarError::Unsupported { .. }
                | GrammarError::TooComplex(_),
            ) => {}
            Err(error) => panic!("{schema}: {error}"),
        }
    }

    #[test]
    fn random_texts_match_their_regex(seed in any::<u64>(), index in 0_usize..6) {
        let pattern = [
            r"[a-f]{2,6}(-[0-9]{1,3})*", r"(yes|no|maybe), (sir|madam)[.!]?", r"\p{Lu}\w* \d+(\.\d+)?",
            r"<(a|bc)+>[^<>]{0,20}</x>", r"(?i)error: [a-z ]+\n", r"\s*x+y?z*",
        ][index];
        let grammar = compile(&GrammarSpec::Regex(pattern.to_owned())).unwrap();
        let regex = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        if let Some(text) = walk(&grammar, &mut Random(seed | 1), 60) {
            prop_assert!(regex.is_match(&text), "{pattern}: {text:?}");
        }
    }
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "integer", "minimum": -20, "maximum": 300})),
        Just(json!({"type": "number", "exclusiveMinimum": 0.5, "maximum": 99.25})),
        Just(json!({"type": "integer", "multipleOf": 7})),
        Just(json!({"type": "string", "maxLength": 12})),
        Just(json!({"type": "string", "pattern": r"^[^\s]+@\w+\.[a-z]{2,3}$"})),
        Just(json!({"type": "string", "format": "date-time"})),
        Just(json!({"type": "string", "format": "uri-reference"})),
        Just(json!({"type": "string", "format": "ipv6"})),
        Just(json!({"type": "string", "format": "email"})),
        Just(json!({"type": ["boolean", "null"]})),
        Just(json!({"enum": ["red", "green", 3, null, {"deep": [1]}]})),
        Just(json!({"const": "always"})),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let named = prop::collection::btree_map("[a-d]{1,2}", inner.clone(), 1..4);
        prop_oneof![
            (inner.clone(), 0_u32..3).prop_map(|(items, min)| {
                json!({"type": "array", "items": items, "minItems": min, "maxItems": min + 2})
            }),
            (named.clone(), any::<bool>()).prop_map(|(named, open)| {
                let required: Vec<_> = named.keys().take(1).cloned().collect();
                json!({"type": "object", "properties": named, "required": required, "additionalProperties": open})
            }),
            (named, inner.clone()).prop_map(|(named, other)| {
                json!({"type": "object", "properties": named, "patternProperties": {"^x_": other}, "minProperties": 1})
            }),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|any| json!({"anyOf": any})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({"allOf": all})),
            prop::collection::vec(inner, 2..4).prop_map(|one| json!({"oneOf": one})),
        ]
    })
}

#[test]
fn choices_are_drawn_exactly() {
    let choices: Vec<String> = (0..50).map(|n| format!("option {n} ü")).collect();
    let grammar = compile(&GrammarSpec::Choice(choices.clone())).unwrap();
    let mut random = Random(99);
    for _ in 0..30 {
        let text = walk(&grammar, &mut random, 60).unwrap();
        assert!(choices.contains(&text), "{text:?}");
    }
}

#[test]
fn replayed_tokens_lead_to_the_same_state() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "number"}}}, "required": ["a", "b"]});
    let grammar = compile_schema(&schema).unwrap();
    let mut random = Random(7);
    let mut cursor = grammar.cursor();
    let mut accepted: Vec<u32> = Vec::new();
    for step in 0..80 {
        let mask = cursor.mask().unwrap().to_vec();
        if step % 9 == 0 {
            let mut replayed = grammar.cursor();
            for id in &accepted {
                replayed.accept(*id).unwrap();
            }
            assert_eq!(replayed.mask().unwrap(), mask);
            assert_eq!(replayed.can_end().unwrap(), cursor.can_end().unwrap());
            assert_eq!(replayed.forced().unwrap(), cursor.forced().unwrap());
        }
        let ids = allowed(&mask);
        let id = ids[random.below(ids.len())];
        let mut copy = cursor.clone();
        cursor.accept(id).unwrap();
        copy.accept(id).unwrap();
        assert_eq!(copy.mask().unwrap(), cursor.mask().unwrap());
        accepted.push(id);
        if cursor.is_complete() {
            break;
        }
    }
}

#[test]
fn forced_tokens_spell_what_must_come() {
    let schema = json!({"type": "object", "properties": {"temperature": {"const": "warm"}}, "required": ["temperature"], "additionalProperties": false});
    let grammar = compile_schema(&schema).unwrap();
    let mut cursor = grammar.cursor();
    cursor.accept(u32::from(b'{')).unwrap();
    cursor.accept(u32::from(b'"')).unwrap();
    let forced = cursor.forced().unwrap();
    assert!(!forced.is_empty());
    for id in &forced {
        assert!(cursor.allows(*id).unwrap(), "a forced token is allowed");
        cursor.accept(*id).unwrap();
    }
    let text: Vec<u8> = forced.iter().flat_map(|id| TOKENS[*id as usize].clone()).collect();
    assert!(b"temperature\"".starts_with(&text) || text.starts_with(b"temperature"), "{text:?}");
}

#[test]
fn the_end_is_allowed_exactly_where_the_text_may_end() {
    let grammar = compile(&GrammarSpec::Regex("a{1,2}".to_owned())).unwrap();
    let mut cursor = grammar.cursor();
    assert!(!cursor.allows(EOS[0]).unwrap() && !cursor.can_end().unwrap());
    assert_eq!(cursor.accept(EOS[0]), Err(GrammarError::Rejected(EOS[0])));
    cursor.accept(u32::from(b'a')).unwrap();
    assert!(EOS.iter().all(|id| cursor.allows(*id).unwrap()) && !cursor.is_complete());
    assert_eq!(cursor.accept(u32::from(b'b')), Err(GrammarError::Rejected(u32::from(b'b'))));
    assert_eq!(cursor.accept(1_000_000), Err(GrammarError::Rejected(1_000_000)));
    let mut ended = cursor.clone();
    ended.accept(EOS[1]).unwrap();
    assert!(ended.is_complete() && allowed(ended.mask().unwrap()) == EOS);
    assert!(ended.accept(u32::from(b'a')).is_err());
    cursor.accept(u32::from(b'a')).unwrap();
    assert!(cursor.is_complete() && allowed(cursor.mask().unwrap()) == EOS);
    assert!(cursor.forced().unwrap().is_empty());
}

#[test]
fn cursors_of_one_grammar_walk_on_many_threads() {
    let grammar = compile(&GrammarSpec::JsonObject).unwrap();
    std::thread::scope(|scope| {
        for seed in 1..5 {
            let grammar = &grammar;
            scope.spawn(move || {
                if let Some(text) = walk(grammar, &mut Random(seed), 100) {
                    let parsed = serde_json::from_str::<Value>(&text);
                    assert!(
                        parsed.is_ok_and(|v| v.is_object()) || text.contains(['e', 'E']),
                        "{text}"
                    );
                }
            });
        }
    });
}
