//! Every family's texts around reasoning, pieces of any size, and text without markup.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// Reasoning and content.
fn read(family: &str, inside: bool, pieces: &[&str]) -> (String, String) {
    let mut parser = parser(family, inside).unwrap();
    let mut events: Vec<_> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let (mut reasoning, mut content) = (String::new(), String::new());
    for event in events {
        match event {
            ReasoningEvent::Reasoning(text) => reasoning.push_str(&text),
            ReasoningEvent::Content(text) => content.push_str(&text),
        }
    }
    (reasoning, content)
}

#[track_caller]
fn check(family: &str, inside: bool, text: &str, reasoning: &str, content: &str) {
    let expected = (reasoning.to_owned(), content.to_owned());
    assert_eq!(read(family, inside, &[text]), expected, "{family}: {text}");
    let single: Vec<String> = text.chars().map(String::from).collect();
    let single: Vec<&str> = single.iter().map(String::as_str).collect();
    assert_eq!(read(family, inside, &single), expected, "{family}: {text}");
}

#[test]
fn reasoning_in_tags_is_parted_from_the_answer() {
    check("think", false, "<think>\nHm.\n</think>\n\nYes.\n", "Hm.", "Yes.\n");
    check("think", true, "\nHm.\n</think>\n\n  Yes.", "Hm.", "  Yes.");
    check("think", true, "<think>\nHm.</think>Yes.", "Hm.", "Yes.");
    check("think", false, " \n<think></think>Yes.", "", "Yes.");
    check("think", false, "\n Yes.\n", "", "\n Yes.\n");
    check("think", true, "Hm.\n", "Hm.\n", "");
    check("think", true, "a\n\nb </think >", "a\n\nb </think >", "");
    check("magistral", false, "[THINK]Hm.[/THINK]Yes.", "Hm.", "Yes.");
    check("kimi", false, "◁think▷Hm.◁/think▷Yes.", "Hm.", "Yes.");
    check("minimax_m3", false, "<mm:think>Hm.</mm:think>Yes.", "Hm.", "Yes.");
    check("minimax_m3", false, "</mm:think>Yes.", "", "Yes.");
    check("hy_v3", true, "Hm.</think:opensource>Yes.", "Hm.", "Yes.");
    check("hy_v3", false, "<think>Hm.</think>Yes.", "Hm.", "Yes.");
    check("seed_oss", false, "<seed:think>Hm.</seed:think>Yes.", "Hm.", "Yes.");
}

#[test]
fn tags_elsewhere_are_text() {
    let stray = "Hm.\n</think>\n\nYes.";
    check("think", false, stray, "", stray);
    let talk = "The tag <think> opens, </think> closes.";
    check("think", false, talk, "", talk);
    check("think", true, &format!("Hm.</think>{talk}"), "Hm.", talk);
    check("think", true, "a <think> b</think>c", "a <think> b", "c");
}

#[test]
fn calls_end_reasoning_that_was_not_closed() {
    let call = "<|tool_calls_section_begin|>...";
    check("think", true, &format!("Hm.\n{call}"), "Hm.", call);
    check("apriel", true, "Hm.\n<tool_calls>[{}]", "Hm.", "<tool_calls>[{}]");
}

#[test]
fn phrases_part_as_tags_do() {
    let text = "Here is my thought process: Hm.\n\nHere is my response: Yes.";
    check("granite", false, text, "Hm.", "Yes.");
    check("granite", false, "Here is my response.", "", "Here is my response.");
    let text = "Hm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]\n";
    check("apriel", true, text, "Hm.", "Yes.");
    check("apriel", false, &format!("Here are my reasoning steps:\n{text}"), "Hm.", "Yes.");
}

#[test]
fn wrappers_of_answers_are_dropped() {
    let text = "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>";
    check("think_and_answer", false, text, "Hm.", "Yes.");
    check("think_and_answer", false, "a </answer> b <answer>", "", "a </answer> b <answer>");
    let text = "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>";
    check("command_r", false, text, "Hm.", "Yes.");
    check("command_r", true, "Hm.<|START_ACTION|>[]", "Hm.", "<|START_ACTION|>[]");
}

#[test]
fn channels_but_for_reasoning_stay_as_they_are() {
    let call = "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>";
    let text = format!("<|channel|>analysis<|message|>Hm.<|end|>{call}");
    check("harmony", false, &text, "Hm.", call);
    let answer = "<|start|>assistant<|channel|>final<|message|>Yes.<|return|>";
    let text = format!("<|channel|>analysis<|message|>Hm.<|end|>{answer}");
    check("harmony", false, &text, "Hm.", answer);
    let again = "<|channel|>analysis<|message|>a<|channel|>analysis<|message|>b<|end|>c";
    check("harmony", false, again, "ab", "c");
    let call = "<|channel|>analysis to=functions.f<|message|>{}";
    check("harmony", false, call, "", call);
}

#[test]
fn headers_of_messages_are_dropped() {
    let text = "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes.<|end|>";
    check("solar", false, text, "Hm.", "Yes.");
    let calls = "<|tool_calls|><|tool_call:begin|>...";
    check("solar", false, &format!("<|think|>Hm.<|end|><|begin|>assistant{calls}"), "Hm.", calls);
    let text = " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.<|eot|>";
    check("muse", false, text, "Hm.", "Yes.");
    check("apertus", false, "a<|inner_prefix|>b<|inner_suffix|>c", "b", "ac");
    let text = "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|>";
    check("kimi_k3", true, text, "Hm.", "Yes.");
    let calls = "<|open|>tools<|sep|>...";
    check("kimi_k3", true, &format!("{text}{calls}"), "Hm.", &format!("Yes.{calls}"));
    check("gemma4", false, "<|channel>thought\nHm.\n<channel|>Yes.", "Hm.", "Yes.");
    check("gemma4", false, "<|channel>thought\n<channel|>Yes.", "", "Yes.");
    check("command_r", true, "Hm.<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>", "Hm.", "Yes.");
}

fn fixtures(folder: &str) -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/templates");
    let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = name.trim_end_matches(".jinja").trim_end_matches(".json").to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    named.collect()
}

#[test]
fn every_template_tells_its_family() {
    let expected = |name: &str| match name {
        "Apertus-8B-Instruct" => Some("apertus"),
        "Apriel-1.6-15b-Thinker-fixed" => Some("apriel"),
        "upstage-Solar-Open-100B" => Some("solar"),
        "muse-glimmer" => Some("muse"),
        "GLM-4.7-Flash"
        | "LFM2.5-8B-A1B"
        | "Qwen-QwQ-32B"
        | "Qwen3.5-4B"
        | "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"
        | "deepseek-ai-DeepSeek-V3.1"
        | "deepseek-ai-DeepSeek-V4"
        | "ik-MiroThinker"
        | "inclusionai-ling-3.0-flash"
        | "poolside-Laguna-S-2.1"
        | "poolside-Laguna-XS.2" => Some("think"),
        _ => None,
    };
    for (name, source) in fixtures("data") {
        assert_eq!(detect(&source), expected(&name), "{name}");
    }
    assert_eq!(detect("Write your thoughts after 'Here is my thought process:'"), Some("granite"));
    assert_eq!(
        detect("between <think></think> and <response></response>"),
        Some("think_and_answer")
    );
    assert_eq!(detect("<|start|>assistant<|channel|>final<|message|>"), Some("harmony"));
    assert_eq!(detect("'<|open|>' '<|close|>' open_tag('think')"), Some("kimi_k3"));
    assert_eq!(detect("'<|channel>thought\\n' + thinking + '<channel|>'"), Some("gemma4"));
    assert_eq!(detect("set think_begin_token = '<mm:think>'"), Some("minimax_m3"));
    assert_eq!(detect("'<think{}>'.format(HYTK)"), Some("hy_v3"));
}

#[test]
fn prompts_tell_where_answers_start() {
    let expected = [
        ("Qwen3.5-4B", true),
        ("GLM-4.7-Flash", true),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", true),
        ("Apriel-1.6-15b-Thinker-fixed", true),
        ("deepseek-ai-DeepSeek-V4", false),
        ("ik-MiroThinker", false),
        ("upstage-Solar-Open-100B", false),
    ];
    let sources = fixtures("data");
    for (name, json) in fixtures("expected") {
        let Some((_, inside)) = expected.iter().find(|(template, _)| *template == name) else {
            continue;
        };
        let source = &sources.iter().find(|(template, _)| *template == name).unwrap().1;
        let family = detect(source).unwrap();
        let prompts: serde_json::Value = serde_json::from_str(&json).unwrap();
        let prompt = prompts["cases"]["tools_no_system"]["text"].as_str();
        let Some(prompt) = prompt else { continue };
        assert_eq!(starts_inside(family, prompt), *inside, "{name}");
    }
    assert!(!starts_inside("think", "<think> is a tag<|im_end|>\n<|im_start|>assistant\n"));
    assert!(!starts_inside("think", "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(continues_inside("think", "<think>\nHm, so"));
    assert!(!continues_inside("think", "<think>\nHm.</think>So"));
    assert!(!continues_inside("think", "So"));
}

#[test]
fn markers_and_ends_are_told() {
    let think = Marks { open: Some("<think>"), close: "</think>", always: false };
    assert_eq!(marks("think"), Some(think));
    assert_eq!(marks("harmony").unwrap().close, "<|channel|>final<|message|>");
    assert_eq!(marks("none"), None);
    assert_eq!(markers("magistral"), ["[THINK]", "[/THINK]"]);
    assert!(names().all(|name| parser(name, false).is_some() && marks(name).is_some()));
}

fn scraps(family: &'static str) -> impl Strategy<Value = String> {
    let tags = &super::family(family).unwrap().tags;
    let marks = [tags.opens, tags.closes, tags.breaks, tags.dropped, tags.wraps, tags.unwraps];
    let marks: Vec<String> = marks.concat().iter().map(|mark| (*mark).to_owned()).collect();
    let cut = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let piece = cut.prop_map(move |(mark, cut)| {
        let mark = &marks[mark.index(marks.len())];
        let bounds: Vec<usize> = mark.char_indices().map(|(at, _)| at).collect();
        let at = cut.index(bounds.len() * 2);
        mark[..bounds.get(at).copied().unwrap_or(mark.len())].to_owned()
    });
    let garbage = "[ \n<|a/\\[◁é]{0,3}";
    prop::collection::vec(prop_oneof![piece, garbage, Just(" word ".to_owned())], 0..10)
        .prop_map(|pieces| pieces.concat())
}

fn family_and_scraps() -> impl Strategy<Value = (&'static str, String)> {
    (0..FAMILIES.len()).prop_flat_map(|at| (Just(FAMILIES[at].name), scraps(FAMILIES[at].name)))
}

/// Whether `part` is what is left of `whole` without some characters.
fn is_within(part: &str, whole: &str) -> bool {
    let mut rest = whole.chars();
    part.chars().all(|c| rest.any(|other| other == c))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_split_gives_what_the_whole_text_gives(
        (family, text) in family_and_scraps(),
        inside in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| bounds[cut.index(bounds.len())]).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        let whole = read(family, inside, &[&text]);
        prop_assert_eq!(read(family, inside, &pieces), whole, "{}: {:?}", family, text);
    }

    #[test]
    fn nothing_but_markup_is_lost((family, text) in family_and_scraps(), inside in any::<bool>()) {
        let (reasoning, content) = read(family, inside, &[&text]);
        prop_assert!(is_within(&reasoning, &text) && is_within(&content, &text));
        let tags = &super::family(family).unwrap().tags;
        let marks = [tags.opens, tags.closes, tags.breaks, tags.dropped, tags.wraps, tags.unwraps];
        if !marks.concat().iter().any(|mark| text.contains(mark)) {
            let margin = if tags.spaces { char::is_whitespace } else { |c| c == '\n' };
            let expected = if inside { text.trim_start_matches(margin) } else { "" };
            let rest = if inside { "" } else { text.as_str() };
            prop_assert_eq!((reasoning.as_str(), content.as_str()), (expected, rest), "{}: {:?}", family, text);
        }
        let words = |text: &str| text.matches("word").count();
        let (reasoning, content) = read(family, inside, &[&text]);
        prop_assert_eq!(words(&reasoning) + words(&content), words(&text), "{}: {:?}", family, text);
    }
}
