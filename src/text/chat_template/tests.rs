//! What templates of models rely on, beyond the fixtures in `tests/`.

use super::*;
use serde_json::json;

#[track_caller]
fn render(source: &str) -> Result<String, TemplateError> {
    let template = ChatTemplate::new(source, SpecialTokens::default())?;
    template.render(&ChatPrompt::new(json!([
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}
    ]))?)
}

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
}

#[track_caller]
fn fails(source: &str, part: &str) {
    let error = render(source).unwrap_err().to_string();
    assert!(error.contains(part), "{source}: {error}");
}

#[test]
fn values_print_as_in_python() {
    check("{{ [1, 'a', 2.5, none, true, {'k': [1]}] }}", "[1, 'a', 2.5, None, True, {'k': [1]}]");
    check("{{ (1,) }}{{ 4/2 }} {{ 1e20 }} {{ 0.00001 }}", "(1,)2.0 1e+20 1e-05");
    check("{{ messages[0] }}", "{'role': 'system', 'content': 'Be brief.'}");
    check("{{ nothing }}{{ none }}", "None");
}

#[test]
fn operators_are_those_of_python() {
    check("{{ 'a' ~ 1 ~ 2.0 ~ none ~ [1, 'x'] }}", "a12.0None[1, 'x']");
    check("{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** -1 }} {{ 'x' * 3 }}", "-4 2 0.5 xxx");
    check("{{ '%s and %r: %05.2f' % ('a', 'b', 3.14159) }}", "a and 'b': 03.14");
    check("{{ [1] + [2] }}{{ true + 1 }}{{ 1 == 1.0 }}", "[1, 2]2True");
}

#[test]
fn operators_refuse_what_python_refuses() {
    fails("{{ 'a' + 1 }}", "unsupported operand types for +: 'str' and 'int'");
    fails("{{ none + 'a' }}", "'NoneType' and 'str'");
    fails("\n\n{{ 1 % 0 }}", "line 3: modulo by zero");
    fails("{% for x in none %}{% endfor %}", "'NoneType' object is not iterable");
    fails("{{ [].append(1) }}", "may not change values");
    fails("{{ {}.update({}) }}", "may not change values");
}

#[test]
fn slices_are_those_of_python() {
    check(
        "{{ [][::-1] }}{{ ''[::-1] }}{{ [1, 2, 3][::-1] }}{{ 'abcdef'[4:1:-1] }}",
        "[][3, 2, 1]edc",
    );
    check(
        "{{ 'abcdef'[2:0:-1] }}{{ [1, 2][-9:9] }}{{ (1, 2, 3)[1:] }}{{ none[1:] }}",
        "cb[1, 2](2, 3)",
    );
    check("{% for m in messages[::-1] %}{{ m.role }}{% endfor %}{{ 'ab'[1:][0] }}", "usersystemb");
    fails("{{ nothing[1:] }}", "undefined");
}

#[test]
fn strings_have_the_methods_of_python() {
    check("{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b '.split() }}", "['a,b', 'c']['a', 'b']");
    check("{{ 'xxaxx'.strip('x') }}{{ 'abc'.startswith(('z', 'ab')) }}", "aTrue");
    check("{{ 'ñbc'.find('c') }}{{ 'abc'.find('z') }}{{ 'aaa'.replace('a', 'b', 2) }}", "2-1bba");
    check("{{ \"they're here\".title() }}|{{ 'ab'.center(5, '*') }}", "They'Re Here|**ab*");
    check("{{ '{} {x!r} {:>3}'.format(1, 'a', x='b') }}", "1 'b'   a");
    check("{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'x-y'.removeprefix('x-') }}", "['a', 'b', 'c']y");
}

#[test]
fn json_is_that_of_python() {
    check("{{ {'b': 1.0, 'a': ['<é>', none]}|tojson }}", r#"{"b": 1.0, "a": ["<é>", null]}"#);
    check("{{ {'a': [1]}|tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}");
    check(
        "{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}",
        r#"{"a":2,"b":1}"#,
    );
    check("{{ 'é😀'|tojson(ensure_ascii=true) }}", r#""\u00e9\ud83d\ude00""#);
}

#[test]
fn markup_escapes_what_is_added_to_it() {
    check("{{ '<' + '<'|safe }}{{ '<'|safe ~ '<' }}", "&lt;<<<");
}

#[test]
fn loops_know_where_they_are() {
    check("{% for c in 'ab' %}{{ c }}{{ loop.last }}{% endfor %}", "aFalsebTrue");
    check(
        "{% for m in messages|selectattr('role', 'equalto', 'user') %}{{ loop.last }}{% endfor %}",
        "True",
    );
    check("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1");
}

#[test]
fn generation_marks_leave_no_trace() {
    let marked = "{% for m in messages %}\n  {% generation %}\n{{ loop.index }}\n  {% endgeneration %}\n{% endfor %}";
    check(marked, "1\n2\n");
}

#[test]
fn a_template_can_refuse_a_conversation() {
    let raised = TemplateError::Raised("roles must alternate: 1".to_owned());
    let source =
        "{% macro f() %}{{ raise_exception('roles must alternate: ' ~ 1) }}{% endmacro %}{{ f() }}";
    assert_eq!(render(source), Err(raised));
}

#[test]
fn syntax_errors_name_their_line() {
    let error = render("a\nb\n{% if true %}\n{% endfor %}").unwrap_err();
    assert!(matches!(error, TemplateError::Syntax { line: 4, .. }), "{error:?}");
    assert!(matches!(render("{{ 'open }}"), Err(TemplateError::Syntax { .. })));
}

#[test]
fn the_clock_is_the_one_given() {
    let template = ChatTemplate::new("{{ strftime_now('%d %b %Y') }}", SpecialTokens::default());
    let mut prompt = ChatPrompt::new(json!([])).unwrap();
    prompt.now = NaiveDateTime::parse_from_str("2026-01-05 00:00", "%Y-%m-%d %H:%M").ok();
    assert_eq!(template.unwrap().render(&prompt).unwrap(), "05 Jan 2026");
}

#[test]
fn reasoning_is_found_under_each_of_its_names() {
    let source = "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}";
    let template = ChatTemplate::new(source, SpecialTokens::default()).unwrap();
    let render = |message: Value| template.render(&ChatPrompt::new(json!([message])).unwrap());
    assert_eq!(render(json!({"reasoning": "r"})).unwrap(), "rr");
    assert_eq!(render(json!({"thinking": "t", "reasoning": "r"})).unwrap(), "tt");
    assert_eq!(render(json!({"reasoning_content": null, "reasoning": "r"})).unwrap(), "rr");
    assert_eq!(render(json!({"content": "c"})).unwrap(), "");
}

#[test]
fn a_continued_message_ends_the_prompt() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>\n{% endfor %}";
    let template = ChatTemplate::new(source, SpecialTokens::default()).unwrap();
    let render = |content: Value| {
        let messages =
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]);
        let mut prompt = ChatPrompt::new(messages).unwrap();
        prompt.continue_final_message = true;
        template.render(&prompt)
    };
    assert_eq!(render(json!("So far ")).unwrap(), "<user>a<end>\n<assistant>So far");
    assert!(matches!(render(Value::Null), Err(TemplateError::Messages(_))));
    let dropping =
        ChatTemplate::new("{{ messages[0].content }}", SpecialTokens::default()).unwrap();
    let mut prompt = ChatPrompt::new(json!([{"content": "a"}, {"content": "b"}])).unwrap();
    prompt.continue_final_message = true;
    assert!(matches!(dropping.render(&prompt), Err(TemplateError::Messages(_))));
}

#[test]
fn what_loops_or_explodes_ends_with_an_error() {
    fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion");
    let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    fails(nested, "fuel");
    let doubling = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s OP ns.s %}{% endfor %}";
    fails(&doubling.replace("OP", "~"), "bytes of text");
    fails(&doubling.replace("OP", "+"), "bytes of text");
    fails(&doubling.replace("'ab'", "[1]").replace("OP", "+"), "bytes of text");
    fails("{{ 'a' * 10 ** 12 }}", "bytes of text");
    fails("{{ 'a'.ljust(10 ** 12) }}", "bytes of text");
}

#[test]
fn messages_must_be_objects() {
    let template = ChatTemplate::new("", SpecialTokens::default()).unwrap();
    let prompt = ChatPrompt::new(json!(["hello"])).unwrap();
    assert!(matches!(template.render(&prompt), Err(TemplateError::Messages(_))));
    assert!(matches!(ChatPrompt::new(json!({})), Err(TemplateError::Messages(_))));
}

#[test]
fn what_would_nest_too_deep_is_refused_before_it_is_parsed() {
    let deep = |open: &str, middle: &str, close: &str| {
        format!("{{{{ {}{middle}{} }}}}", open.repeat(50_000), close.repeat(50_000))
    };
    let sources = [
        deep("(", "1", ")"),
        deep("[", "1", "]"),
        deep("{1:", "1", "}"),
        deep("not ", "1", ""),
        deep("-", "1", ""),
        deep("1 if 1 else ", "1", ""),
        deep("1 ** ", "1", ""),
        deep("", "x", ".a"),
        deep("", "x", "[0]"),
        deep("", "x", "()"),
        deep("", "x", "|upper"),
        deep("", "1", " is defined"),
        format!("{{% if 1 %}}{}{{% endif %}}", "{%- elif 1 %}".repeat(50_000)),
        format!("{{% set {}a{} = 1 %}}", "(".repeat(50_000), ")".repeat(50_000)),
        "{% if true %}".repeat(50_000),
        "{% for a in b %}".repeat(50_000),
        "{% macro a() %}".repeat(50_000),
    ];
    for source in sources {
        // As small a stack as any thread of the server has.
        let compiled = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(move || ChatTemplate::new(&format!("\n{source}"), SpecialTokens::default()))
            .unwrap()
            .join()
            .unwrap();
        assert!(matches!(compiled, Err(TemplateError::Syntax { line: 2, .. })), "{compiled:?}");
    }
}
