//! Writes calls as the models of each family do.

use serde_json::{Map, Value, json};

/// Families whose markup is dropped even where no call stands.
pub(super) const SKIPS_HEADERS: [&str; 1] = ["harmony"];

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
                    "{{\"tool_call_id\": \"0\", \"tool_name\": {}, \"parameters\": {}}}",
                    json!(name),
                    json!(arguments)
                )
            };
            format!("<|START_ACTION|>[\n{}\n]<|END_ACTION|>", each(&call, ",\n"))
        }
        "internlm" => {
            each(&|n, a| format!("<|action_start|><|plugin|>\n{}<|action_end|>", call(n, a)), "")
        }
        "gigachat" => each(&|n, a| format!("<|function_call|>{}", call(n, a)), ""),
        "generic" => list(),
        "llama3_json" => each(&|n, a| object("parameters", n, a), "; "),
        "apertus" => {
            let calls = each(&|n, a| json!({ n: a }).to_string(), ", ");
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

fn tagged(family: &str, calls: &Calls) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let each =
        |head: &str, parameter: &dyn Fn(&str, &Value) -> String, foot: &str, between: &str| {
            let write = |(name, arguments): &(String, Map<String, Value>)| {
                let parameters: String =
                    arguments.iter().map(|(key, value)| parameter(key, value)).collect();
                format!("{}{parameters}{foot}", head.replace("NAME", name))
            };
            calls.iter().map(write).collect::<Vec<_>>().join(between)
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
        "deepseek_dsml" => {
            let pair = |k: &str, v: &Value| {
                let (text, is_text) = (plain(v), v.is_string());
                format!(
                    "<｜DSML｜parameter name=\"{k}\" string=\"{is_text}\">{text}</｜DSML｜parameter>\n"
                )
            };
            let calls = each("<｜DSML｜invoke name=\"NAME\">\n", &pair, "</｜DSML｜invoke>\n", "");
            format!("<｜DSML｜tool_calls>\n{calls}</｜DSML｜tool_calls>")
        }
        "pythonic" => python_list(calls),
        "lfm2" => format!("<|tool_call_start|>{}<|tool_call_end|>", python_list(calls)),
        _ => panic!("nothing writes calls of {family}"),
    }
}

fn python_list(calls: &Calls) -> String {
    let write = |(name, arguments): &(String, Map<String, Value>)| {
        let arguments: Vec<String> =
            arguments.iter().map(|(key, value)| format!("{key}={}", python(value))).collect();
        format!("{name}({})", arguments.join(", "))
    };
    format!("[{}]", calls.iter().map(write).collect::<Vec<_>>().join(", "))
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
