//! Specifications that are out to hang the server or eat its memory. Each is an error, or is
//! compiled and walked, within seconds.

use std::time::Instant;

use serde_json::json;

use super::*;

/// Generous, for slow machines that do other things too: what counts is that it ends.
const BOUND: Duration = Duration::from_mins(5);

fn survives(name: &str, spec: &GrammarSpec) -> Option<GrammarError> {
    let start = Instant::now();
    let outcome = compile(spec).and_then(|grammar| {
        let (mut cursor, mut random) = (grammar.cursor(), Random(5));
        for _ in 0..100 {
            let ids = allowed(cursor.mask()?);
            cursor.accept(ids[random.below(ids.len())])?;
            if cursor.is_complete() {
                break;
            }
        }
        Ok(())
    });
    assert!(start.elapsed() < BOUND, "{name} took {:?}", start.elapsed());
    if let Err(error @ GrammarError::Internal(_)) = &outcome {
        panic!("{name}: {error}");
    }
    outcome.err()
}

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!({"type": "null"}), |inner, _| wrap(inner))
}

/// An object of so many properties.
fn properties(count: usize) -> Value {
    let named = (0..count).map(|n| (format!("p{n}"), json!({"type": "string"})));
    Value::Object(named.collect())
}

/// Each schema is compiled or refused, soon and in a few words.
fn schemas_end(schemas: impl IntoIterator<Item = (&'static str, Value)>) {
    for (name, schema) in schemas {
        let error = survives(name, &GrammarSpec::JsonSchema(schema));
        if let Some(error) = error {
            assert!(error.to_string().len() < 1000, "{name}: {error}");
        }
    }
}

#[test]
fn nested_and_repeating_schemas_end() {
    schemas_end([
        ("deep properties", nested(60, |inner| json!({"properties": {"a": inner}}))),
        ("deep allOf", nested(60, |inner| json!({"allOf": [inner, {"type": "null"}]}))),
        ("deep anyOf", nested(60, |inner| json!({"anyOf": [inner, true]}))),
        (
            "huge maxItems",
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 999_999}),
        ),
        (
            "huge minItems",
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 99_999}),
        ),
        (
            "nested counts",
            nested(
                6,
                |inner| json!({"type": "array", "items": inner, "minItems": 1000, "maxItems": 9999}),
            ),
        ),
        ("beyond counts", json!({"type": "array", "minItems": u64::MAX})),
        ("huge maxLength", json!({"type": "string", "maxLength": 9_999_999})),
        ("huge minLength", json!({"type": "string", "minLength": 99_999, "pattern": "^(ab?)*$"})),
        ("exploding regex", json!({"type": "string", "pattern": "^(a?){5000}a{5000}$"})),
        (
            "nested repeats",
            json!({"type": "string", "pattern": "^((((a{1,100}){1,100}){1,100}){1,100}){1,100}$"}),
        ),
        (
            "large automaton",
            json!({"type": "string", "pattern": "[ab]*a[ab]{200}$", "maxLength": 100_000}),
        ),
        (
            "unicode classes",
            json!({"type": "string", "pattern": r"^(\p{L}\p{N}[^\p{Lu}]){1,500}$"}),
        ),
    ]);
}

#[test]
fn wide_schemas_end() {
    let choices = |count: usize, salt: usize| {
        let one = |n: usize| json!({"properties": {format!("k{salt}_{n}"): {"type": "integer"}}});
        json!({"anyOf": (0..count).map(one).collect::<Vec<_>>()})
    };
    let wide = json!({"properties": {"x": {"type": "object", "properties": properties(2000)}}});
    schemas_end([
        ("many properties", json!({"type": "object", "properties": properties(20_000)})),
        (
            "many required",
            json!({"type": "object", "properties": properties(3000), "required": (0..3000).map(|n| format!("p{n}")).collect::<Vec<_>>()}),
        ),
        (
            "many choices",
            json!({"enum": (0..20_000).map(|n| format!("value {n}")).collect::<Vec<_>>()}),
        ),
        ("products", json!({"allOf": (0..8).map(|salt| choices(20, salt)).collect::<Vec<_>>()})),
        ("wide products", json!({"allOf": [wide, choices(200, 0), choices(200, 1)]})),
        (
            "many patterns",
            json!({"patternProperties": (0..300).map(|n| (format!("^{n}(a|b)*c{{0,50}}$"), json!(true))).collect::<serde_json::Map<_, _>>()}),
        ),
    ]);
}

#[test]
fn schemas_that_refer_to_each_other_end() {
    schemas_end([
        ("self reference", json!({"$ref": "#"})),
        (
            "reference ring",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ),
        (
            "ring of allOf",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}}),
        ),
        (
            "merged trees",
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
            "a": {"properties": {"l": {"$ref": "#/$defs/a"}, "r": {"$ref": "#/$defs/a"}, "x": {"properties": properties(500)}}},
            "b": {"properties": {"l": {"$ref": "#/$defs/b"}, "r": {"$ref": "#/$defs/b"}}}}}),
        ),
        (
            "doubling references",
            json!({"$ref": "#/$defs/d30", "$defs": (0..31).map(|n| (format!("d{n}"), if n == 0 { json!({"type": "null"}) } else { json!({"allOf": [{"properties": {"l": {"$ref": format!("#/$defs/d{}", n - 1)}}}, {"properties": {"l": {"$ref": format!("#/$defs/d{}", n - 1)}, "r": {"$ref": format!("#/$defs/d{}", n - 1)}}}]}) })).collect::<serde_json::Map<_, _>>()}),
        ),
        (
            "many oneOf",
            json!({"oneOf": (0..400).map(|n| json!({"required": [format!("p{n}")]})).collect::<Vec<_>>()}),
        ),
        (
            "large numbers",
            json!({"type": "number", "minimum": -1e308, "maximum": 1e308, "multipleOf": 0.000_000_1}),
        ),
        (
            "many dependencies",
            json!({"dependentRequired": (0..30).map(|n| (format!("p{n}"), json!([format!("q{n}")]))).collect::<serde_json::Map<_, _>>()}),
        ),
    ]);
}

#[test]
fn schemas_beyond_any_sense_are_refused_clearly() {
    for schema in [
        nested(100, |inner| json!({"properties": {"a": inner}})),
        json!({"const": "x".repeat(10_000_000)}),
        json!({"type": "array", "minItems": 1_000_000_000}),
        json!({"enum": (0..600_000).collect::<Vec<u32>>()}),
    ] {
        let error = compile_schema(&schema).unwrap_err();
        assert!(matches!(error, GrammarError::TooLarge { .. }), "{error}");
    }
}

fn grammars_end(grammars: impl IntoIterator<Item = (&'static str, GrammarSpec)>) {
    for (name, grammar) in grammars {
        survives(name, &grammar);
    }
}

#[test]
fn hostile_regexes_choices_and_gbnf_end() {
    grammars_end([
        ("regex repeats", GrammarSpec::Regex("((a{0,100000}){0,100000}){0,100000}".to_owned())),
        ("regex subsets", GrammarSpec::Regex("(.*a.{30}){10}".to_owned())),
        ("regex nesting", GrammarSpec::Regex(format!("{}a{}", "(".repeat(240), ")".repeat(240)))),
        (
            "regex depth",
            GrammarSpec::Regex(format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000))),
        ),
        ("long regex", GrammarSpec::Regex("(ab|cd)".repeat(50_000))),
        ("choices", GrammarSpec::Choice((0..50_000).map(|n| format!("choice {n}")).collect())),
        (
            "gbnf repeats",
            GrammarSpec::Gbnf("root ::= (root | \"a\"{0,100000}){0,100000}".to_owned()),
        ),
        ("gbnf loop", GrammarSpec::Gbnf("root ::= root".to_owned())),
        (
            "gbnf nullable loop",
            GrammarSpec::Gbnf("root ::= (\"\"*)* a*\na ::= root? \"x\"?".to_owned()),
        ),
        ("gbnf nesting", GrammarSpec::Gbnf(format!("root ::= {}", "(".repeat(50_000)))),
        ("gbnf escapes", GrammarSpec::Gbnf("root ::= \"\\u00é\\U000000é\"".to_owned())),
    ]);
}

#[test]
fn hostile_lark_ends() {
    let chain =
        |define: &dyn Fn(usize) -> String, count| (0..count).map(define).collect::<String>();
    grammars_end([
        (
            "lark nesting",
            GrammarSpec::Lark(format!("start: {}\"a\"{}", "(".repeat(4000), ")".repeat(4000))),
        ),
        (
            "lark chain",
            GrammarSpec::Lark(format!(
                "start: r0\n{}r4000: \"a\"",
                chain(&|n| format!("r{n}: r{}\n", n + 1), 4000)
            )),
        ),
        (
            "lark terminals",
            GrammarSpec::Lark(format!(
                "start: T0\n{}T3000: \"a\"",
                chain(&|n| format!("T{n}: \"b\" T{} | T{} \"c\"\n", n + 1, n + 1), 3000)
            )),
        ),
        ("lark left recursion", GrammarSpec::Lark("start: start start | \"a\" | \"\"".to_owned())),
        (
            "lark hidden recursion",
            GrammarSpec::Lark("start: a start | \"x\"\na: a a | \"\" | \"y\"".to_owned()),
        ),
        (
            "lark repeats",
            GrammarSpec::Lark(
                "start: r{0,100000}\nr: s{0,100000}\ns: \"a\"{0,100000} start?".to_owned(),
            ),
        ),
        ("lark complement", GrammarSpec::Lark("start: T\nT: ~(/(.*a.{15}b.*){3}/)".to_owned())),
        (
            "ambiguous",
            GrammarSpec::Lark(
                "start: (a | b | c)*\na: /x+/ | /x*y/\nb: /x/ a?\nc: start \"x\" start".to_owned(),
            ),
        ),
        ("json in lark", GrammarSpec::Lark("start: %json {\"allOf\": [true, ".to_owned())),
        ("empty lark", GrammarSpec::Lark(String::new())),
        ("no characters", GrammarSpec::Lark("start: /[^\\x{0}-\\x{10FFFF}]/".to_owned())),
    ]);
}

#[test]
fn equal_grammars_are_compiled_once_and_remembered_within_bounds() {
    let vocabulary = Arc::clone(COMPILER.vocabulary());
    let limits = CompilerLimits { cached: 2, time: BOUND, ..Default::default() };
    let compiler = GrammarCompiler::new(vocabulary, limits);
    let spec = |text: &str| GrammarSpec::Choice(vec![text.to_owned()]);
    let grammars: Vec<_> = std::thread::scope(|scope| {
        let one = || compiler.compile(&spec("same")).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(grammars.iter().all(|grammar| Arc::ptr_eq(grammar, &grammars[0])));
    let other = compiler.compile(&spec("other")).unwrap();
    assert!(Arc::ptr_eq(&compiler.compile(&spec("same")).unwrap(), &grammars[0]));
    compiler.compile(&spec("third")).unwrap();
    assert!(Arc::ptr_eq(&compiler.compile(&spec("same")).unwrap(), &grammars[0]));
    assert!(!Arc::ptr_eq(&compiler.compile(&spec("other")).unwrap(), &other), "it was dropped");
}

#[test]
fn a_caller_waits_no_longer_than_its_time() {
    let vocabulary = Arc::clone(COMPILER.vocabulary());
    vocabulary.warm().unwrap();
    let limits = CompilerLimits { time: Duration::ZERO, threads: 1, ..Default::default() };
    let compiler = GrammarCompiler::new(vocabulary, limits);
    let spec = GrammarSpec::Choice((0..3000).map(|n| format!("slow {n}")).collect());
    assert_eq!(compiler.compile(&spec).unwrap_err(), GrammarError::TooSlow(Duration::ZERO));
    let start = Instant::now();
    // What the thread made is there in the end.
    while compiler.compile(&spec).is_err() {
        assert!(start.elapsed() < BOUND);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn callers_wait_for_a_place_as_long_as_their_patience() {
    let vocabulary = Arc::clone(COMPILER.vocabulary());
    vocabulary.warm().unwrap();
    let compiler = |patience| {
        let limits = CompilerLimits { time: BOUND, threads: 1, patience, ..Default::default() };
        GrammarCompiler::new(Arc::clone(&vocabulary), limits)
    };
    let spec = |n: usize| GrammarSpec::Choice((0..500).map(|i| format!("{n} {i}")).collect());
    let outcomes = |compiler: GrammarCompiler| -> Vec<_> {
        std::thread::scope(|scope| {
            let one = |n| {
                let compiler = &compiler;
                scope.spawn(move || compiler.compile(&spec(n)).map(drop))
            };
            let threads: Vec<_> = (0..8).map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    assert_eq!(outcomes(compiler(BOUND)), vec![Ok(()); 8]);
    let hasty = outcomes(compiler(Duration::ZERO));
    let fine =
        |outcome: &Result<(), GrammarError>| matches!(outcome, Ok(()) | Err(GrammarError::Busy(1)));
    assert!(hasty.iter().any(Result::is_ok) && hasty.iter().all(fine), "{hasty:?}");
}
