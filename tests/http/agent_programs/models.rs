//! Models as people have them: what their templates ask, and how they write.

use serde_json::Value;

/// A model as people have them: its template, and how it writes.
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) template: &'static str,
    /// Stands in prompts that have tools; titles and summaries have none.
    pub(super) with_tools: &'static str,
    pub(super) call: fn(&str, &Value) -> String,
    pub(super) says: fn(&str) -> String,
}

pub(super) const MODELS: [Model; 6] = [
    // A message of the system comes first or not at all; thoughts stay between calls.
    Model {
        name: "Qwen3.5",
        template: include_str!("../../fixtures/templates/data/Qwen3.5-4B.jinja"),
        with_tools: "<tools>",
        call: tagged_call,
        says: str::to_owned,
    },
    // The roles alternate, ids have nine characters.
    Model {
        name: "Mistral Nemo",
        template: include_str!(
            "../../fixtures/templates/data/mistralai-Mistral-Nemo-Instruct-2407.jinja"
        ),
        with_tools: "[AVAILABLE_TOOLS]",
        call: |name, arguments| {
            format!("[TOOL_CALLS][{{\"name\": \"{name}\", \"arguments\": {arguments}}}]")
        },
        says: str::to_owned,
    },
    // In the manner of Llama 3.1's: one call at a time, bare JSON.
    Model {
        name: "Llama 3.1",
        template: "{% if tools %}<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\n\
            Given the following functions, please respond with a JSON for a function call with its \
            proper arguments. Respond in the format {\"name\": function name, \"parameters\": \
            dictionary of argument name and its value}.\n{% for t in tools %}{{ t | tojson }}\n\
            {% endfor %}<|eot_id|>{% endif %}{% for m in messages %}{% if m.tool_calls %}\
            {% if m.tool_calls | length != 1 %}\
            {{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}\
            <|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"{{ \
            m.tool_calls[0].function.name }}\", \"parameters\": {{ \
            m.tool_calls[0].function.arguments | tojson }}}<|eot_id|>{% else %}\
            <|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n\
            {{ m.content }}<|eot_id|>{% endif %}{% endfor %}{% if add_generation_prompt %}\
            <|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        with_tools: "Given the following functions",
        call: |name, arguments| format!("{{\"name\": \"{name}\", \"parameters\": {arguments}}}"),
        says: str::to_owned,
    },
    // In the manner of gpt-oss': everything is in a channel.
    Model {
        name: "gpt-oss",
        template: "{% if tools %}<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace \
            functions {\n{% for t in tools %}type {{ t.function.name }} = (_: \
            {{ t.function.parameters | tojson }}) => any;\n{% endfor %}} // namespace functions<|end|>\
            {% endif %}{% for m in messages %}{% if m.tool_calls %}<|start|>assistant<|channel|>\
            commentary to=functions.{{ m.tool_calls[0].function.name }} <|constrain|>json<|message|>\
            {{ m.tool_calls[0].function.arguments | tojson }}<|call|>{% elif m.role == 'tool' %}\
            <|start|>functions to=assistant<|channel|>commentary<|message|>{{ m.content }}<|end|>\
            {% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>\
            {{ m.content }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>\
            {% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        with_tools: "namespace functions",
        call: |name, arguments| {
            format!(
                "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
            )
        },
        says: |text| format!("<|channel|>final<|message|>{text}"),
    },
    // The roles of user and assistant alternate, tools are unknown.
    Model {
        name: "alternating",
        template: "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}\
            {{ raise_exception('unknown role') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}\
            <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        with_tools: "<tools>",
        call: hermes_call,
        says: str::to_owned,
    },
    Model {
        name: "ChatML",
        template: include_str!("../../fixtures/templates/data/cz-chatml.jinja"),
        with_tools: "<tools>",
        call: hermes_call,
        says: str::to_owned,
    },
];

fn hermes_call(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
}

fn tagged_call(name: &str, arguments: &Value) -> String {
    let parameter = |(key, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("<parameter={key}>\n{text}\n</parameter>\n")
    };
    let parameters: String = arguments.as_object().unwrap().iter().map(parameter).collect();
    format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
}
