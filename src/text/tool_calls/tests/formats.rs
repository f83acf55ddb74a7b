//! Writes calls as the models of each family do.

use serde_json::{Map, Value, json};

/// Families whose markup is dropped even where no call stands.
pub(super) const SKIPS_HEADERS: [&str; 4] = ["harmony", "muse", "functionary_v32", "gigachat"];

type Calls = [(String, Map<String, Value>)];

type Write<'w> = &'w dyn Fn(&str, &Map<String, Value>) -> String;

/// Calls, each as `write` has it.
fn joined(calls: &Calls, write: Write, between: &str) -> String {
    let calls: Vec<String> = calls.iter().map(|(name, arguments)| write(name, arguments)).collect();
    calls.join(between)
}

/// Calls in a family's format.
pub(super) fn written(family: &str, calls: &Calls) -> String {
    let each = |write: Write, between: &str| joined(calls, write, between);
    let object = |key: &str, name: &str, arguments: &Map<String, Value>| {
        format!("{{\"name\": {}, \"{key}\": {}}}", json!(name), json!(arguments))
    };
    let call = |name: &str, arguments: &Map<String, Value>| object("arguments", name, arguments);
    let list = || format!("[{}]", each(&call, ", "));
    match family {
        "hermes" => each(&|n, a| format!("<tool_call>\n{}\n</tool_call>", call(n, a)), "\n"),
        "granite" => format!("<|tool_call|>{}", list()),
        "phi4_mini" => format!("functools{}", list()),
        "tool_list" => format!("<tool_calls>{}</tool_calls>", list()),
        "nemotron" => format!("<TOOLCALL>{}</TOOLCALL>", list()),
        "command_r" => {
            let call = |name: &str, arguments: &_| {
                format!(
                    "    {{\"tool_call_id\": \"0\", \"tool_name\": {}, \"parameters\": {}}}",
                    json!(name),
                    json!(arguments)
                )
            };
            format!("<|START_ACTION|>[\n{}\n]<|END_ACTION|>", each(&call, ",\n"))
        }
        "command_r_plus" => {
            let call = |name: &str, arguments: &_| {
                format!(
                    "    {{\n        \"tool_name\": {},\n        \"parameters\": {}\n    }}",
                    json!(name),
                    json!(arguments)
                )
            };
            format!("Action:\n```json\n[\n{}\n]```", each(&call, ",\n"))
        }
        "minimax_m1" => format!("<tool_calls>\n{}\n</tool_calls>", each(&call, "\n")),
        "longcat" => {
            let tags = ("<longcat_tool_call>", "</longcat_tool_call>");
            each(&|n, a| format!("{}\n{}\n{}", tags.0, call(n, a), tags.1), "\n")
        }
        "internlm" => {
            let call = |name: &str, arguments: &_| object("parameters", name, arguments);
            each(&|n, a| format!("<|action_start|><|plugin|>\n{}<|action_end|>", call(n, a)), "")
        }
        "gigachat" => each(&|n, a| format!("<|function_call|>{}", call(n, a)), ""),
        "generic" => list(),
        "llama3_json" => each(&|n, a| object("parameters", n, a), "; "),
        "apertus" => {
            let calls = each(&|n, a| format!("{{{}: {}}}", json!(n), json!(a)), ", ");
            format!("<|tools_prefix|>[{calls}]<|tools_suffix|>")
        }
        _ => named(family, calls),
    }
}

fn named(family: &str, calls: &Calls) -> String {
    let each = |write: Write, between: &str| joined(calls, write, between);
    match family {
        "mistral" => each(&|n, a| format!("[TOOL_CALLS]{n}[CALL_ID]abc12[ARGS]{}", json!(a)), ""),
        "kimi_k2" => {
            let write = |n: &str, a: &_| {
                format!(
                    "<|tool_call_begin|>functions.{n}:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                    json!(a)
                )
            };
            format!("<|tool_calls_section_begin|>{}<|tool_calls_section_end|>", each(&write, ""))
        }
        "solar" => {
            let write = |n: &str, a: &_| {
                format!(
                    "<|tool_call:begin|>id1<|tool_call:name|>{n}<|tool_call:args|>{}<|tool_call:end|>",
                    json!(a)
                )
            };
            format!("<|tool_calls|>{}<|calls|>", each(&write, ""))
        }
        "functionary_v32" => each(&|n, a| format!("{n}\n{}", json!(a)), ">>>"),
        "functionary" => each(&|n, a| format!("<function={n}>{}</function>", json!(a)), ""),
        "mcp" => {
            let write = |n: &str, a: &_| {
                let server = "\n<server_name>s</server_name>\n<tool_name>";
                format!("{server}{n}</tool_name>\n<arguments>\n{}\n</arguments>", json!(a))
            };
            format!("<use_mcp_tool>{}\n</use_mcp_tool>", each(&write, ""))
        }
        "deepseek_v3" => {
            let write = |n: &str, a: &_| {
                format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{}\n```<｜tool▁call▁end｜>",
                    json!(a)
                )
            };
            format!("<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>", each(&write, "\n"))
        }
        "deepseek_v31" => {
            let write = |n: &str, a: &_| {
                format!("<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{}<｜tool▁call▁end｜>", json!(a))
            };
            format!("<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>", each(&write, ""))
        }
        "harmony" => each(
            &|n, a| {
                format!(
                    "<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{}<|call|>",
                    json!(a)
                )
            },
            "<|start|>assistant",
        ),
        _ => tagged(family, calls),
    }
}

/// Calls between a head that has the name and a foot, with parameters as `pair` has them.
fn in_tags(
    calls: &Calls,
    [head, foot, between]: [&str; 3],
    pair: &dyn Fn(&str, &Value) -> String,
) -> String {
    let write = |name: &str, arguments: &Map<String, Value>| {
        let parameters: String = arguments.iter().map(|(key, value)| pair(key, value)).collect();
        format!("{}{parameters}{foot}", head.replace("NAME", name))
    };
    joined(calls, &write, between)
}

fn tagged(family: &str, calls: &Calls) -> String {
    let each = |head: &str, pair: &dyn Fn(&str, &Value) -> String, foot: &str, between: &str| {
        in_tags(calls, [head, foot, between], pair)
    };
    match family {
        "glm" => {
            let pair = |k: &str, v: &Value| {
                format!("<arg_key>{k}</arg_key>\n<arg_value>{}</arg_value>\n", plain(v))
            };
            each("<tool_call>NAME\n", &pair, "</tool_call>", "\n")
        }
        "qwen3_coder" => {
            let pair =
                |k: &str, v: &Value| format!("<parameter={k}>\n{}\n</parameter>\n", plain(v));
            each("<tool_call>\n<function=NAME>\n", &pair, "</function>\n</tool_call>", "\n")
        }
        "seed_oss" => {
            let pair = |k: &str, v: &Value| format!("<parameter={k}>{}</parameter>\n", plain(v));
            each(
                "<seed:tool_call>\n<function=NAME>\n",
                &pair,
                "</function>\n</seed:tool_call>",
                "\n",
            )
        }
        "minimax_m2" => {
            let pair =
                |k: &str, v: &Value| format!("<parameter name=\"{k}\">{}</parameter>\n", plain(v));
            let calls = each("<invoke name=\"NAME\">\n", &pair, "</invoke>\n", "");
            format!("<minimax:tool_call>\n{calls}</minimax:tool_call>")
        }
        _ => attributed(family, calls),
    }
}

/// Calls whose tags have the names as attributes, and those of newer formats.
fn attributed(family: &str, calls: &Calls) -> String {
    let each = |head: &str, pair: &dyn Fn(&str, &Value) -> String, foot: &str, between: &str| {
        in_tags(calls, [head, foot, between], pair)
    };
    match family {
        "deepseek_dsml" => marked(calls, "DSML"),
        "gigachat35" => marked(calls, "GCML"),
        "step3" => {
            let tag = "steptml:parameter";
            let pair = |k: &str, v: &Value| format!("<{tag} name=\"{k}\">{}</{tag}>\n", plain(v));
            let head =
                "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"NAME\">\n";
            let foot = "</steptml:invoke><｜tool_call_end｜>\n";
            format!("<｜tool_calls_begin｜>\n{}<｜tool_calls_end｜>", each(head, &pair, foot, ""))
        }
        "solar_open2" => {
            let pair = |k: &str, v: &Value| {
                format!("<|tool_arg:start|>{k}<|tool_arg:value|>{}<|tool_arg:end|>\n", plain(v))
            };
            each("<|tool_call:start|>NAME\n", &pair, "<|tool_call:end|>", "\n")
        }
        "hy_v3" => {
            let end = ":opensource>";
            let pair = |k: &str, v: &Value| {
                let key = format!("<arg_key{end}{k}</arg_key{end}");
                format!("{key}\n<arg_value{end}{}</arg_value{end}\n", plain(v))
            };
            let head = format!("<tool_call{end}NAME<tool_sep{end}\n");
            let calls = each(&head, &pair, &format!("</tool_call{end}\n"), "");
            format!("<tool_calls{end}\n{calls}</tool_calls{end}")
        }
        "minicpm5" => {
            let pair = |k: &str, v: &Value| {
                let value = match v {
                    Value::String(text) if text.contains(['<', '&', '\n']) => {
                        format!("<![CDATA[{text}]]>")
                    }
                    _ => plain(v),
                };
                format!("<param name=\"{k}\">{value}</param>")
            };
            each("<function name=\"NAME\">", &pair, "</function>", "\n")
        }
        "muse" => {
            let tag = "atem:parameter";
            let pair = |k: &str, v: &Value| format!("<{tag} name=\"{k}\">{}</{tag}>\n", plain(v));
            let head = " to=NAME<|message|><atem:function_calls>\n<atem:invoke name=\"NAME\">\n";
            let foot = "</atem:invoke>\n</atem:function_calls>";
            each(head, &pair, foot, "<|eom|><|start|>assistant")
        }
        "kimi_k3" => kimi_k3(calls),
        _ => other(family, calls),
    }
}

/// The markup of DeepSeek V3.2 and later and of GigaChat 3.5: the same but for one word.
fn marked(calls: &Calls, word: &str) -> String {
    let write = |name: &str, arguments: &Map<String, Value>| {
        let pair = |(k, v): (&String, &Value)| {
            let (text, is_text) = (plain(v), v.is_string());
            format!("<MLparameter name=\"{k}\" string=\"{is_text}\">{text}</MLparameter>\n")
        };
        let parameters: String = arguments.iter().map(pair).collect();
        format!("<MLinvoke name=\"{name}\">\n{parameters}</MLinvoke>\n")
    };
    let text = format!("<MLtool_calls>\n{}</MLtool_calls>", joined(calls, &write, ""));
    text.replace("<ML", &format!("<｜{word}｜")).replace("</ML", &format!("</｜{word}｜"))
}

/// A value as it is written where texts stand as they are.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn kimi_k3(calls: &Calls) -> String {
    let tag = |name: &str, attributes: &str, text: &str| {
        format!("<|open|>{name}{attributes}<|sep|>{text}<|close|>{name}<|sep|>")
    };
    let pair = |(k, v): (&String, &Value)| {
        let kind = match v {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        tag("argument", &format!(" key=\"{k}\" type=\"{kind}\""), &plain(v))
    };
    let write = |n: &str, a: &Map<String, Value>| {
        let arguments: String = a.iter().map(pair).collect();
        tag("call", &format!(" tool=\"{n}\" index=\"1\""), &arguments)
    };
    tag("tools", "", &joined(calls, &write, ""))
}

fn other(family: &str, calls: &Calls) -> String {
    match family {
        "gemma4" => gemma(calls, ["<|tool_call>", "<|\"|>", "<tool_call|>"]),
        "functiongemma" => {
            gemma(calls, ["<start_function_call>", "<escape>", "<end_function_call>"])
        }
        "minimax_m3" => {
            let write = |n: &str, a: &Map<String, Value>| {
                let parameters: String = a.iter().map(|(k, v)| nested(k, v)).collect();
                format!("^<invoke name=\"{n}\">{parameters}^</invoke>\n")
            };
            let calls = joined(calls, &write, "");
            format!("^<tool_call>\n{calls}^</tool_call>").replace('^', "]<]minimax[>[")
        }
        "pythonic" => format!("[{}]", python_calls(calls, ", ")),
        "lfm2" => {
            format!("<|tool_call_start|>[{}]<|tool_call_end|>", python_calls(calls, ", "))
        }
        "olmo3" => format!("<function_calls>\n{}\n</function_calls>", python_calls(calls, "\n")),
        "minicpm3" => {
            let calls = python_calls(calls, "\n");
            format!("<|tool_call_start|>\n```python\n{calls}\n```\n<|tool_call_end|>")
        }
        _ => panic!("nothing writes calls of {family}"),
    }
}

fn gemma(calls: &Calls, [open, quote, close]: [&str; 3]) -> String {
    let write = |n: &str, a: &Map<String, Value>| {
        let arguments = a.iter().map(|(k, v)| format!("{k}:{}", literal(v, quote)));
        format!("{open}call:{n}{{{}}}{close}", arguments.collect::<Vec<_>>().join(","))
    };
    joined(calls, &write, "")
}

/// A value as Gemma models write it, with keys between marks where they are no words.
fn literal(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| literal(item, quote)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let is_word = |key: &str| {
                !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            let member = |(k, v): (&String, &Value)| {
                let quote_of = if is_word(k) { "" } else { quote };
                format!("{quote_of}{k}{quote_of}:{}", literal(v, quote))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
        _ => value.to_string(),
    }
}

/// A value in tags behind marks, which are `^` here.
fn nested(key: &str, value: &Value) -> String {
    let inner: String = match value {
        Value::Array(items) => items.iter().map(|item| nested("item", item)).collect(),
        Value::Object(members) => members.iter().map(|(k, v)| nested(k, v)).collect(),
        _ => plain(value),
    };
    format!("^<{key}>{inner}^</{key}>")
}

/// Whether all keys within values may be names of tags, each of them once.
pub(super) fn nests_in_tags(calls: &Calls) -> bool {
    fn nests(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().all(nests),
            Value::Object(members) => {
                let is_tag =
                    |key: &str| !key.is_empty() && !key.starts_with('/') && !key.contains('>');
                members.iter().all(|(key, value)| is_tag(key) && nests(value))
            }
            _ => true,
        }
    }
    calls.iter().all(|(_, arguments)| arguments.values().all(nests))
}

fn python_calls(calls: &Calls, between: &str) -> String {
    let write = |(name, arguments): &(String, Map<String, Value>)| {
        let arguments: Vec<String> =
            arguments.iter().map(|(key, value)| format!("{key}={}", python(value))).collect();
        format!("{name}({})", arguments.join(", "))
    };
    calls.iter().map(write).collect::<Vec<_>>().join(between)
}

/// A value as Python writes it.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
            format!("'{text}'")
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                format!("{}: {}", python(&Value::from(key.as_str())), python(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Markup of a family beyond what its special tokens are.
pub(super) fn marks(family: &str) -> Vec<&'static str> {
    let mut marks = super::markers(family).to_vec();
    marks.extend([
        "{\"name\": \"f\", ",
        "\"arguments\": {\"é\": [\"",
        "\"]}}",
        "f(a=1, ",
        "[TOOL_CALLS][",
    ]);
    marks.extend(["<tool_call>", "</tool_call>", "<function=f>", "<parameter=a>", "</parameter>"]);
    marks
}
