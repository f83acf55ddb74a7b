//! Which texts a specification has.

use serde_json::{Value, json};

use super::*;

/// Schemas with documents; the validator says which of them are valid.
type Cases = Vec<(Value, Vec<Value>)>;

/// Schemas of strings, numbers and constants.
fn scalars() -> Cases {
    vec![
        (json!({"type": "integer"}), vec![json!(1), json!(-7), json!(1.5), json!("1")]),
        (json!({"type": ["string", "null"]}), vec![json!("a"), json!(null), json!(1)]),
        (json!({"const": "a\"b\n"}), vec![json!("a\"b\n"), json!("a")]),
        (
            json!({"enum": [1, "1", null, [1, {"a": 2}]]}),
            vec![json!(1), json!("1"), json!([1, {"a": 2}]), json!([1]), json!(2)],
        ),
        (
            json!({"type": "integer", "minimum": 3, "exclusiveMaximum": 7}),
            vec![json!(2), json!(3), json!(6), json!(7)],
        ),
        (
            json!({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "$schema": "http://json-schema.org/draft-04/schema#"}),
            vec![json!(3), json!(4)],
        ),
        (json!({"type": "integer", "maximum": 18_446_744_073_709_551_615_u64}), vec![json!(5)]),
        (json!({"type": "number", "multipleOf": 0.25}), vec![json!(0.25), json!(0.3), json!(2)]),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 3}),
            vec![json!("a"), json!("ab"), json!("日本語"), json!("abcd")],
        ),
        (
            json!({"type": "string", "pattern": "^a.c$|^z"}),
            vec![json!("abc"), json!("ac"), json!("zebra"), json!("a\nc")],
        ),
        (
            json!({"type": "string", "format": "date", "pattern": "^2"}),
            vec![json!("2024-02-29"), json!("1999-01-01"), json!("2023-02-29")],
        ),
    ]
}

/// Schemas of arrays.
fn arrays() -> Cases {
    vec![
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
            vec![json!([]), json!([1]), json!([1, 2]), json!([1, 2, 3]), json!(["a"])],
        ),
        (
            json!({"type": "array", "items": [{"type": "integer"}], "additionalItems": false, "$schema": "http://json-schema.org/draft-07/schema#"}),
            vec![json!([]), json!([1]), json!([1, 2])],
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}),
            vec![json!([1, "a"]), json!([1, 2]), json!([])],
        ),
        (
            json!({"type": "array", "uniqueItems": true, "maxItems": 1}),
            vec![json!([1]), json!([1, 1])],
        ),
    ]
}

/// Schemas of objects.
fn objects() -> Cases {
    vec![
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}),
            vec![json!({"a": 1}), json!({}), json!({"a": 1, "b": 2})],
        ),
        (
            json!({"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}),
            vec![json!({"a": 1, "b": "x"}), json!({"a": "x"}), json!({"b": 1}), json!(3)],
        ),
        (
            json!({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "anyOf": [{"required": ["x-a"]}, {"required": ["b"]}], "properties": {"b": true}, "additionalProperties": false}),
            vec![json!({"x-a": 1}), json!({"b": 1}), json!({}), json!({"c": 1})],
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}, "properties": {"d": true, "a": {"type": "null"}}}),
            vec![json!({"a": null}), json!({"abc": 1}), json!({"d": 1}), json!({"a": 1})],
        ),
        (
            json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}}),
            vec![json!({"a": 1}), json!({"c": 1}), json!({"b": "x"})],
        ),
        (
            json!({"type": "object", "minProperties": 1, "properties": {"a": true, "b": true}}),
            vec![json!({}), json!({"a": 1}), json!({"z": 1})],
        ),
        (
            json!({"type": "object", "minProperties": 1, "maxProperties": 1, "properties": {"a": true, "b": true}, "additionalProperties": false}),
            vec![json!({}), json!({"a": 1}), json!({"a": 1, "b": 1})],
        ),
        (
            json!({"type": "object", "dependentRequired": {"a": ["b"]}, "properties": {"a": true, "b": true}}),
            vec![json!({"a": 1}), json!({"a": 1, "b": 1}), json!({})],
        ),
        (
            json!({"type": "object", "dependencies": {"a": {"properties": {"b": {"type": "integer"}}}}, "properties": {"a": true, "b": true}, "$schema": "http://json-schema.org/draft-07/schema#"}),
            vec![json!({"a": 1, "b": 1}), json!({"a": 1, "b": "x"}), json!({"b": "x"})],
        ),
    ]
}

/// Schemas that combine others.
fn combinations() -> Cases {
    vec![
        (
            json!({"not": {"type": ["string", "number"]}}),
            vec![json!(null), json!("a"), json!(1), json!([])],
        ),
        (
            json!({"type": "string", "not": {"enum": ["a", "ab"]}}),
            vec![json!("a"), json!("ab"), json!("abc"), json!("")],
        ),
        (
            json!({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}}, "required": ["kind"], "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["n"]}, "else": {"properties": {"n": false}}, "additionalProperties": false}),
            vec![
                json!({"kind": "a", "n": 1}),
                json!({"kind": "a"}),
                json!({"kind": "b"}),
                json!({"kind": "b", "n": 1}),
            ],
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
            vec![json!("a"), json!(1), json!(1.5)],
        ),
        (json!({"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 5}]}), vec![]),
        (
            json!({"oneOf": [{"enum": ["none", "auto"]}, {"type": "string", "pattern": "\\.json$"}]}),
            vec![json!("none"), json!("a.json"), json!("x")],
        ),
        (
            json!({"type": "object", "properties": {"a": true, "b": true}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "additionalProperties": false}),
            vec![json!({"a": 1}), json!({"b": 1}), json!({"a": 1, "b": 1}), json!({})],
        ),
        (
            json!({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {
            "cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]},
            "dog": {"type": "object", "properties": {"kind": {"const": "dog"}, "tail": {"type": "boolean"}}, "required": ["kind"]}}}),
            vec![
                json!({"kind": "cat", "lives": 9}),
                json!({"kind": "dog", "tail": true}),
                json!({"kind": "cow"}),
                json!({"kind": "dog", "tail": 1}),
            ],
        ),
        (
            json!({"allOf": [{"$ref": "#/definitions/base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}], "definitions": {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}),
            vec![json!({"a": "x", "b": 1}), json!({"a": "x"}), json!({"b": 1})],
        ),
    ]
}

/// Schemas that refer to others, and keywords that say nothing.
fn references() -> Cases {
    vec![
        (
            json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["value"], "additionalProperties": false}}}),
            vec![
                json!({"value": 1, "children": [{"value": 2}]}),
                json!({"value": 1, "children": [{}]}),
            ],
        ),
        (
            json!({"properties": {"contains": {"type": "integer"}, "uniqueItems": {"type": "string"}, "not": {"type": "null"}}}),
            vec![json!({"contains": 1, "uniqueItems": "a", "not": null}), json!({"contains": "a"})],
        ),
        (
            json!({"$id": "https://example.org/s", "$ref": "https://example.org/s#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}),
            vec![json!(1), json!("a")],
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$id": "#name", "type": "integer"}}, "$ref": "#name", "uniqueItems": true}),
            vec![json!(1), json!("a")],
        ),
        (
            json!({"type": "string", "unevaluatedProperties": false, "uniqueItems": true, "title": "t", "x-any": [1]}),
            vec![json!("a"), json!(1)],
        ),
        (
            json!({"type": "object", "properties": {"a": true}, "unevaluatedProperties": false}),
            vec![json!({"a": 1}), json!({"b": 1})],
        ),
        (json!(true), vec![json!({"a": [1, "b", null]}), json!(1)]),
    ]
}

#[test]
fn documents_are_accepted_as_a_validator_accepts_them() {
    let cases = [scalars(), arrays(), objects(), combinations(), references()].concat();
    for (schema, documents) in cases {
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        if documents.is_empty() {
            assert!(compile_schema(&schema).is_err(), "{schema}");
            continue;
        }
        let grammar = compile_schema(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
        for document in documents {
            let valid = validator.is_valid(&document);
            for text in [document.to_string(), serde_json::to_string_pretty(&document).unwrap()] {
                assert_eq!(accepts(&grammar, &text), valid, "{schema}: {text}");
            }
        }
    }
}

#[test]
fn keywords_that_can_not_be_enforced_are_refused_by_name_and_place() {
    for (schema, keyword, pointer) in [
        (json!({"properties": {"a": {"uniqueItems": true}}}), "uniqueItems", "/properties/a"),
        (json!({"items": {"contains": {"type": "null"}}}), "contains", "/items"),
        (
            json!({"$defs": {"a/b": {"not": {"pattern": "a"}}}, "$ref": "#/$defs/a~1b"}),
            "not",
            "/$defs/a~1b",
        ),
        (json!({"if": {"minimum": 3}, "then": {"maximum": 4}}), "if", ""),
        (json!({"oneOf": [{"minimum": 3}, {"maximum": 4}]}), "oneOf", ""),
        (json!({"anyOf": [true, {"format": "regex"}]}), "format", "/anyOf/1"),
        (json!({"type": "string", "pattern": "a(?=b)"}), "pattern", ""),
        (json!({"$ref": "https://example.org/other.json"}), "$ref", ""),
        (json!({"$ref": "#/nowhere"}), "$ref", ""),
        (json!({"$dynamicRef": "#a"}), "$dynamicRef", ""),
        (json!({"allOf": [true], "unevaluatedProperties": false}), "unevaluatedProperties", ""),
        (json!({"contains": {"type": "integer"}, "unevaluatedItems": false}), "contains", ""),
        (json!({"minProperties": 2}), "minProperties", ""),
        (json!({"patternProperties": {"a": true, "b": {"type": "null"}}}), "patternProperties", ""),
        (json!({"const": 9_007_199_254_740_993_u64}), "const", ""),
        (json!({"const": "\u{1}"}), "const", ""),
        (json!({"minimum": 1e300}), "minimum", ""),
        (json!({"multipleOf": 1e-12}), "multipleOf", ""),
    ] {
        let error = compile_schema(&schema).expect_err(&schema.to_string());
        let GrammarError::Unsupported { keyword: found, pointer: place, .. } = &error else {
            panic!("{schema}: {error}")
        };
        assert_eq!((found.as_str(), place.as_str()), (keyword, pointer), "{schema}: {error}");
    }
}

#[test]
fn schemas_that_are_none_are_told_from_those_that_nothing_satisfies() {
    for schema in [
        json!(3),
        json!({"type": "text"}),
        json!({"required": true}),
        json!({"properties": []}),
        json!({"minLength": -1}),
        json!({"items": 3}),
        json!({"anyOf": []}),
    ] {
        let error = compile_schema(&schema).expect_err(&schema.to_string());
        assert!(matches!(error, GrammarError::MalformedSchema { .. }), "{schema}: {error}");
    }
    for schema in [
        json!(false),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"type": "string", "enum": [1]}),
        json!({"type": "object", "required": ["a"], "properties": {"a": false}}),
    ] {
        let error = compile_schema(&schema).expect_err(&schema.to_string());
        assert!(matches!(error, GrammarError::Unsatisfiable(_)), "{schema}: {error}");
    }
}

#[test]
fn a_property_can_not_pass_under_an_escaped_name() {
    let schema = json!({"type": "object", "properties": {"foo": {"type": "integer"}}, "additionalProperties": {"type": "string"}});
    let grammar = compile_schema(&schema).unwrap();
    assert!(!accepts(&grammar, r#"{"\u0066oo":"x"}"#));
    assert!(accepts(&grammar, r#"{"fo":"x"}"#));
    // The engine's own escape hatch is not the client's.
    let schema = json!({"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}});
    assert!(compile_schema(&schema).is_err());
}

#[test]
fn white_space_is_a_space_or_a_line_with_its_indentation() {
    let grammar = compile(&GrammarSpec::JsonObject).unwrap();
    for text in [
        "{}",
        "{\"a\":1}",
        "{ \"a\" : [ 1, 2 ] }",
        "{\n  \"a\": {\n    \"b\": 1\n  }\n}",
        "{\n\t\"a\": 1\n}",
    ] {
        assert!(accepts(&grammar, text), "{text}");
    }
    for text in ["{  }", "{\n\n}", " {}", "{}\n\n", "{\t}", "[]", "{\"a\":1,}"] {
        assert!(!accepts(&grammar, text), "{text}");
    }
    let mut cursor = grammar.cursor();
    for byte in b"{}" {
        cursor.accept(u32::from(*byte)).unwrap();
    }
    assert!(cursor.is_complete(), "nothing follows the last brace");
    assert_eq!(allowed(cursor.mask().unwrap()), EOS);
}

#[test]
fn regexes_match_whole_texts() {
    for (pattern, texts) in [
        ("[a-c]+x?", vec!["abc", "abcx", "x", "", "abcxx"]),
        ("^(?:yes|no)$", vec!["yes", "no", "maybe", "yes "]),
        (r"\d{3}-\d{4}", vec!["555-1234", "555-12345", "5551234"]),
        (r"(?i)hello/world\n", vec!["HeLLo/World\n", "hello"]),
        ("(a|ab)(c|bcd)", vec!["abcd", "ac", "abc", "abbcd", "abcdx"]),
        ("", vec!["", "a"]),
    ] {
        let grammar = compile(&GrammarSpec::Regex(pattern.to_owned())).unwrap();
        let regex = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        for text in texts {
            assert_eq!(accepts(&grammar, text), regex.is_match(text), "{pattern}: {text:?}");
        }
    }
    for pattern in ["(", "a(?=b)", r"(a)\1", r"\bx"] {
        let error = compile(&GrammarSpec::Regex(pattern.to_owned())).unwrap_err();
        assert!(
            matches!(error, GrammarError::Syntax { notation: "regex", .. }),
            "{pattern}: {error}"
        );
    }
}

#[test]
fn choices_are_exact() {
    let choices = ["a", "ab", "a b", "\"q\"\n", "日本", "\u{7f}/*"].map(str::to_owned).to_vec();
    let grammar = compile(&GrammarSpec::Choice(choices.clone())).unwrap();
    for text in &choices {
        assert!(accepts(&grammar, text), "{text:?}");
    }
    for text in ["", "abc", "b", "A"] {
        assert!(!accepts(&grammar, text), "{text:?}");
    }
    let grammar = compile(&GrammarSpec::Choice(vec![String::new(), "x".to_owned()])).unwrap();
    assert!(accepts(&grammar, "") && accepts(&grammar, "x") && !accepts(&grammar, "xx"));
    assert!(compile(&GrammarSpec::Choice(vec![])).is_err());
    let grammar = compile(&GrammarSpec::Choice(vec![String::new()])).unwrap();
    assert!(accepts(&grammar, "") && grammar.cursor().can_end().unwrap());
}

#[test]
fn gbnf_grammars_mean_what_they_say() {
    let arithmetic = "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\n\
                      term ::= ident | num | \"(\" ws expr \")\" ws\nident ::= [a-z] [a-z0-9_]* ws\n\
                      num ::= [0-9]+ ws\nws ::= [ \\t\\n]*";
    let lists = "root ::= item+\n# comment\nitem ::= \"- \" [^\\r\\n\\x0b]{1,5} \"\\n\"";
    let nested = "root ::= \"[\" (root (\",\" root)*)? \"]\" | .{2}";
    for (grammar, good, bad) in [
        (arithmetic, vec!["x=1\n", "(a +2)*b1 = 3\n1=1\n"], vec!["x", "x=\n", "(x=1\n"]),
        (lists, vec!["- a\n", "- abc\n- d\n"], vec!["- \n", "- abcdef\n", "a"]),
        (nested, vec!["[]", "[[],[[]]]", "日é", "[ab]"], vec!["[", "abc", "[[]"]),
    ] {
        let compiled = compile(&GrammarSpec::from_grammar_text(grammar)).unwrap();
        for text in good {
            assert!(accepts(&compiled, text), "{grammar}: {text:?}");
        }
        for text in bad {
            assert!(!accepts(&compiled, text), "{grammar}: {text:?}");
        }
    }
}

#[test]
fn lark_grammars_hold_schemas_and_special_tokens() {
    let lark = "start: <[258]> body <[259]>\nbody: %json {\"type\": \"integer\"}";
    let mut cursor = compile(&GrammarSpec::Lark(lark.to_owned())).unwrap().cursor();
    assert_eq!(allowed(cursor.mask().unwrap()), [258]);
    cursor.accept(258).unwrap();
    assert!(cursor.allows(u32::from(b'7')).unwrap() && !cursor.allows(u32::from(b'"')).unwrap());
    cursor.accept(u32::from(b'7')).unwrap();
    cursor.accept(259).unwrap();
    assert!(cursor.is_complete());
    let named = GrammarSpec::Lark("start: <tool_call> \"x\"".to_owned());
    assert_eq!(allowed(compile(&named).unwrap().cursor().mask().unwrap()), [258]);
    let error = compile(&GrammarSpec::Lark("start: \"a\nb: c".to_owned())).unwrap_err();
    assert!(matches!(error, GrammarError::Syntax { notation: "Lark grammar", .. }), "{error}");
}

#[test]
fn objects_have_only_the_properties_that_a_schema_names() {
    let named =
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let text = json!({"type": "object", "properties": {"t": {"const": "x"}}, "required": ["t"]});
    for (schema, before, after) in [
        (named.clone(), "", ""),
        (json!({"properties": {"p": named}, "additionalProperties": true}), "{\"p\":", "}"),
        (json!({"type": "array", "items": named}), "[", "]"),
        (json!({"prefixItems": [named], "type": "array"}), "[", "]"),
        (json!({"anyOf": [named, {"type": "null"}]}), "", ""),
        (json!({"oneOf": [{"type": "null"}, named]}), "", ""),
        (json!({"allOf": [named], "title": "one"}), "", ""),
        (json!({"$ref": "#/$defs/n", "$defs": {"n": named}}), "", ""),
        (json!({"additionalProperties": named, "type": "object"}), "{\"q\":", "}"),
    ] {
        let grammar = compile_schema(&schema).unwrap();
        assert!(accepts(&grammar, &format!("{before}{{\"a\":1}}{after}")), "{schema}");
        assert!(!accepts(&grammar, &format!("{before}{{\"a\":1,\"b\":2}}{after}")), "{schema}");
    }
    // Where others speak of the same object, or it says that there may be more, there may be.
    let beside = json!({"properties": {"b": {"type": "integer"}}});
    for schema in [
        json!({"type": "object", "properties": {"a": true}, "additionalProperties": true}),
        json!({"type": "object", "properties": {"a": true}, "unevaluatedProperties": true}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"a": true}, "required": ["b"]}),
        json!({"type": "object", "properties": {"a": true}, "minProperties": 1}),
        json!({"type": "object", "properties": {"a": true}, "patternProperties": {"^b": true}}),
        json!({"allOf": [named, beside]}),
        json!({"type": "object", "properties": {"a": true}, "anyOf": [beside, text]}),
        json!({"oneOf": [named, {"type": "object", "required": ["c"]}]}),
        json!({"allOf": [{"$ref": "#/$defs/n"}, beside], "$defs": {"n": named}}),
        json!({"type": "object", "properties": {"a": true}, "not": {"required": ["c"]}}),
    ] {
        let grammar = compile_schema(&schema).unwrap();
        assert!(accepts(&grammar, "{\"a\":1,\"b\":2}"), "{schema}");
    }
    // One definition, alone here and beside another there.
    let schema = json!({
        "type": "object",
        "properties": {
            "alone": {"$ref": "#/$defs/n"},
            "both": {"allOf": [{"$ref": "#/$defs/n"}, beside]},
        },
        "$defs": {"n": named},
    });
    let grammar = compile_schema(&schema).unwrap();
    assert!(accepts(&grammar, "{\"alone\":{\"a\":1},\"both\":{\"a\":1,\"b\":2}}"));
    assert!(!accepts(&grammar, "{\"alone\":{\"a\":1,\"b\":2}}"));
}
