//! The texts that families of models put around their reasoning.
//!
//! Sources: the chat templates of the models named, which write them for earlier answers or at the
//! end of a prompt; for Granite 3.2 its model card, for gpt-oss OpenAI's "Harmony response format".

use super::family::Family;
use super::tags::{PLAIN, Tags};

/// In the order in which templates are asked: those whose marks say more come first.
pub(super) const FAMILIES: &[Family] = &[
    // gpt-oss: reasoning is messages on a channel of their own. All other messages stay as they
    // are, headers and all, for whoever reads calls. Reasoning with a recipient is a call.
    Family {
        name: "harmony",
        detect: |template| has_all(template, &["<|start|>", "<|channel|>", "<|message|>"]),
        tags: Tags {
            opens: &[
                "<|channel|>analysis<|message|>",
                "<|start|>assistant<|channel|>analysis<|message|>",
            ],
            closes: &["<|end|>", "<|return|>"],
            breaks: &["<|start|>", "<|channel|>"],
            anywhere: true,
            ..PLAIN
        },
        markers: &[
            "<|start|>",
            "<|channel|>",
            "<|constrain|>",
            "<|message|>",
            "<|end|>",
            "<|call|>",
            "<|return|>",
        ],
    },
    // Muse: every message names its recipient, and reasoning is messages to oneself.
    Family {
        name: "muse",
        detect: |template| has_all(template, &["to=self<|message|>", "<|eom|>"]),
        tags: Tags {
            opens: &[" to=self<|message|>", "<|start|>assistant to=self<|message|>"],
            closes: &["<|eom|>", "<|eot|>"],
            anywhere: true,
            dropped: &[
                " to=user<|message|>",
                "<|start|>assistant to=user<|message|>",
                "<|eom|>",
                "<|eot|>",
            ],
            ..PLAIN
        },
        markers: &["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"],
    },
    // Solar Open: every message names its kind.
    Family {
        name: "solar",
        detect: |template| has_all(template, &["<|think|>", "<|begin|>assistant", "<|content|>"]),
        tags: Tags {
            opens: &["<|think|>", "<|begin|>assistant<|think|>"],
            closes: &["<|end|>"],
            breaks: &["<|begin|>", "<|tool_calls|>"],
            anywhere: true,
            dropped: &["<|begin|>assistant", "<|content|>", "<|end|>"],
            ..PLAIN
        },
        markers: &["<|begin|>", "<|think|>", "<|content|>", "<|end|>"],
    },
    // Kimi K3: reasoning, text and calls stand in tags of their own.
    Family {
        name: "kimi_k3",
        detect: |template| has_all(template, &["<|open|>", "<|close|>", "'think'"]),
        tags: Tags {
            opens: &["<|open|>think<|sep|>"],
            closes: &["<|close|>think<|sep|>"],
            breaks: &["<|open|>tools<|sep|>"],
            anywhere: true,
            dropped: &[
                "<|open|>response<|sep|>",
                "<|close|>response<|sep|>",
                "<|close|>message<|sep|>",
            ],
            ..PLAIN
        },
        markers: &["<|open|>", "<|close|>", "<|sep|>"],
    },
    // Gemma 4: reasoning is a channel.
    Family {
        name: "gemma4",
        detect: |template| template.contains("<|channel>"),
        tags: Tags {
            opens: &["<|channel>thought"],
            closes: &["<channel|>"],
            breaks: &["<|tool_call>"],
            anywhere: true,
            ..PLAIN
        },
        markers: &["<|channel>", "<channel|>"],
    },
    // MiniMax M3 may close reasoning that it has not opened, and then there is none.
    Family {
        name: "minimax_m3",
        detect: |template| template.contains("<mm:think>"),
        tags: Tags {
            opens: &["<mm:think>"],
            closes: &["</mm:think>"],
            wraps: &["</mm:think>"],
            ..PLAIN
        },
        markers: &["<mm:think>", "</mm:think>"],
    },
    // Hunyuan 3: tags end with a word in the open models.
    Family {
        name: "hy_v3",
        detect: |template| {
            ["<think{}>", "<think:opensource>"].iter().any(|tag| template.contains(tag))
        },
        tags: Tags {
            opens: &["<think:opensource>", "<think>"],
            closes: &["</think:opensource>", "</think>"],
            ..PLAIN
        },
        markers: &["<think:opensource>", "</think:opensource>", "<think>", "</think>"],
    },
    // Command R7B, Command A.
    Family {
        name: "command_r",
        detect: |template| template.contains("<|START_THINKING|>"),
        tags: Tags {
            opens: &["<|START_THINKING|>"],
            closes: &["<|END_THINKING|>"],
            breaks: &["<|START_ACTION|>"],
            anywhere: true,
            dropped: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
            ..PLAIN
        },
        markers: &[
            "<|START_THINKING|>",
            "<|END_THINKING|>",
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
            "<|START_TEXT|>",
            "<|END_TEXT|>",
            "<|START_ACTION|>",
        ],
    },
    // Apertus calls functions within its reasoning.
    Family {
        name: "apertus",
        detect: |template| template.contains("<|inner_prefix|>"),
        tags: Tags {
            opens: &["<|inner_prefix|>"],
            closes: &["<|inner_suffix|>"],
            breaks: &["<|tools_prefix|>"],
            anywhere: true,
            ..PLAIN
        },
        markers: &["<|inner_prefix|>", "<|inner_suffix|>"],
    },
    Family {
        name: "seed_oss",
        detect: |template| template.contains("<seed:think>"),
        tags: Tags { opens: &["<seed:think>"], closes: &["</seed:think>"], ..PLAIN },
        markers: &["<seed:think>", "</seed:think>"],
    },
    // Kimi VL and Kimi-Dev.
    Family {
        name: "kimi",
        detect: |template| template.contains("◁think▷"),
        tags: Tags { opens: &["◁think▷"], closes: &["◁/think▷"], ..PLAIN },
        markers: &["◁think▷", "◁/think▷"],
    },
    // Magistral, Ministral 3.
    Family {
        name: "magistral",
        detect: |template| template.contains("[THINK]"),
        tags: Tags { opens: &["[THINK]"], closes: &["[/THINK]"], ..PLAIN },
        markers: &["[THINK]", "[/THINK]"],
    },
    // Apriel Thinker: the prompt ends with the opening phrase.
    Family {
        name: "apriel",
        detect: |template| template.contains("[BEGIN FINAL RESPONSE]"),
        tags: Tags {
            opens: &["Here are my reasoning steps:"],
            closes: &["[BEGIN FINAL RESPONSE]"],
            breaks: &["<tool_calls>["],
            spaces: true,
            unwraps: &["[END FINAL RESPONSE]"],
            ..PLAIN
        },
        markers: &[],
    },
    // Granite 3.2.
    Family {
        name: "granite",
        detect: |template| template.contains("Here is my thought process:"),
        tags: Tags {
            opens: &["Here is my thought process:", "Here's my thought process:"],
            closes: &["Here is my response:", "Here's my response:"],
            spaces: true,
            ..PLAIN
        },
        markers: &[],
    },
    // Granite 3.3, Hunyuan A13B, Ernie 4.5: the answer has tags as well.
    Family {
        name: "think_and_answer",
        detect: |template| {
            let answer = ["<answer>", "<response>"].iter().any(|tag| template.contains(tag));
            answer && template.contains("<think>")
        },
        tags: Tags {
            opens: &["<think>"],
            closes: &["</think>"],
            wraps: &["<answer>", "<response>"],
            unwraps: &["</answer>", "</response>"],
            ..PLAIN
        },
        markers: &["<think>", "</think>"],
    },
    // Qwen3, QwQ, DeepSeek R1 and later, GLM 4.5 and later, MiniMax M2, Kimi K2 Thinking, LFM2,
    // Nemotron, Ling, Laguna and many more.
    Family {
        name: "think",
        detect: |template| ["<think>", "</think>"].iter().any(|tag| template.contains(tag)),
        tags: Tags {
            opens: &["<think>"],
            closes: &["</think>"],
            breaks: &["<|tool_calls_section_begin|>"],
            ..PLAIN
        },
        markers: &["<think>", "</think>"],
    },
];

fn has_all(template: &str, marks: &[&str]) -> bool {
    marks.iter().all(|mark| template.contains(mark))
}
