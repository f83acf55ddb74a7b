//! Whatever tokens come and however they are cut into deltas: the folded deltas are the answer.

use std::sync::Arc;

use proptest::prelude::*;
use sconce::http::answer::decoder::{ChoiceDecoder, DecodingOptions};
use sconce::http::answer::delta::{
    CompletedChoice, CompletedToolCall, Delta, FinishKind, TokenRecord,
};
use sconce::http::answer::reader::ReadingPlan;
use sconce::scheduler::stop::{FinishReason, StopConditions};
use sconce::text::reasoning::{self, ReasoningEvent};
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tool_calls::{self, Functions, ToolEvent};

use super::fake_engine::logprobs_of;
use super::fixture::{EOS, IM_END, tokenizer};

struct Run {
    deltas: Vec<Delta>,
    /// Tokens that the decoder took.
    taken: usize,
}

fn stop_conditions(max_tokens: usize) -> StopConditions {
    StopConditions {
        max_tokens,
        min_tokens: 0,
        eos_token_ids: Arc::from([EOS, IM_END]),
        stop_token_ids: vec![7],
        ignore_eos: false,
    }
}

/// Plays tokens as the engine would.
fn run(tokenizer: &Arc<Tokenizer>, tokens: &[u32], options: &DecodingOptions) -> Run {
    let stop = stop_conditions(tokens.len());
    let mut decoder = ChoiceDecoder::new(Arc::clone(tokenizer), options, stop.clone());
    let mut deltas = Vec::new();
    for (at, &id) in tokens.iter().enumerate() {
        if let Some(delta) = decoder.push(id, Some(logprobs_of(id, 1))) {
            deltas.push(delta);
        }
        if deltas.last().is_some_and(|delta| delta.finish.is_some()) {
            return Run { deltas, taken: at + 1 };
        }
        if let Some(reason) = stop.check(id, at + 1) {
            deltas.push(decoder.finish(reason));
            return Run { deltas, taken: at + 1 };
        }
    }
    deltas.push(decoder.finish(FinishReason::Length));
    Run { deltas, taken: tokens.len() }
}

/// The answer by definition: decode everything, then cut at the first stop string.
fn expected(tokenizer: &Tokenizer, tokens: &[u32], options: &DecodingOptions) -> String {
    let stop = stop_conditions(tokens.len());
    let end = (0..tokens.len()).find(|&at| {
        let ended = stop.check(tokens[at], at + 1);
        matches!(ended, Some(FinishReason::Eos | FinishReason::StopToken(_)))
    });
    let keep = usize::from(options.include_stop_str_in_output);
    let text_tokens = &tokens[..end.map_or(tokens.len(), |end| end + keep)];
    let text = tokenizer.decode(text_tokens, options.skip_special_tokens);
    let cut = options
        .stop_strings
        .iter()
        .filter_map(|stop| text.find(stop.as_str()).map(|at| (at + stop.len(), at)))
        .min();
    match cut {
        Some((end, _)) if options.include_stop_str_in_output => text[..end].to_owned(),
        Some((_, begin)) => text[..begin].to_owned(),
        None => text,
    }
}

fn fold(deltas: &[Delta]) -> CompletedChoice {
    let mut folded = CompletedChoice::default();
    for delta in deltas {
        folded.add(delta.clone());
    }
    folded
}

fn tokens() -> impl Strategy<Value = Vec<u32>> {
    let text = "a-bé😀".bytes().map(u32::from).collect::<Vec<u32>>();
    let token = prop_oneof![
        12 => proptest::sample::select(text),
        4 => 0..=IM_END,
    ];
    prop::collection::vec(token, 1..40)
}

proptest! {
    #[test]
    fn folded_deltas_are_the_answer(
        tokens in tokens(),
        stops in prop::collection::vec("[ab-]{1,3}", 0..3),
        include: bool,
        skip: bool,
    ) {
        let tokenizer = Arc::new(tokenizer());
        let options = DecodingOptions {
            stop_strings: stops,
            include_stop_str_in_output: include,
            skip_special_tokens: skip,
            reading: ReadingPlan::default(),
        };
        let Run { deltas, taken } = run(&tokenizer, &tokens, &options);
        let folded = fold(&deltas);
        prop_assert_eq!(&folded.content, &expected(&tokenizer, &tokens, &options));
        let records: Vec<TokenRecord> = tokens[..taken]
            .iter()
            .map(|&id| TokenRecord { id, logprobs: Some(logprobs_of(id, 1)) })
            .collect();
        prop_assert_eq!(&folded.tokens, &records);
        let (last, others) = deltas.split_last().unwrap();
        prop_assert!(last.finish.is_some());
        prop_assert!(others.iter().all(|delta| delta.finish.is_none() && !delta.content.is_empty()));
    }

    /// A token never comes before its text.
    #[test]
    fn tokens_travel_with_the_delta_that_releases_their_text(tokens in tokens()) {
        let tokenizer = Arc::new(tokenizer());
        let options = DecodingOptions {
            stop_strings: vec!["-a-".to_owned()],
            include_stop_str_in_output: false,
            skip_special_tokens: true,
            reading: ReadingPlan::default(),
        };
        let Run { deltas, .. } = run(&tokenizer, &tokens, &options);
        let mut text = String::new();
        let mut ids: Vec<u32> = Vec::new();
        for delta in &deltas[..deltas.len() - 1] {
            text.push_str(&delta.content);
            ids.extend(delta.tokens.iter().map(|token| token.id));
            let of_ids = tokenizer.decode(&ids, true);
            prop_assert!(text.starts_with(of_ids.trim_end_matches('\u{fffd}')), "{text:?} {of_ids:?}");
        }
    }
}

/// The thoughts and calls in a text by the parsers' own account, given all of it at once.
fn parsed(text: &str, plan: &ReadingPlan) -> CompletedChoice {
    let mut thoughts = reasoning::parser(plan.reasoning.unwrap(), plan.starts_inside).unwrap();
    let mut parser = tool_calls::parser(plan.tools.unwrap(), &Functions::default()).unwrap();
    let mut folded = CompletedChoice::default();
    let mut parted = thoughts.push(text);
    parted.extend(thoughts.finish());
    let mut events = Vec::new();
    for part in parted {
        match part {
            ReasoningEvent::Reasoning(text) => folded.reasoning.push_str(&text),
            ReasoningEvent::Content(text) => events.extend(parser.push(&text)),
        }
    }
    events.extend(parser.finish());
    for event in events {
        match event {
            ToolEvent::Content(text) => folded.content.push_str(&text),
            ToolEvent::CallBegin { name, id, .. } => {
                folded.tool_calls.push(CompletedToolCall { name, id, arguments: String::new() });
            }
            ToolEvent::Arguments { index, arguments } => {
                folded.tool_calls[index].arguments.push_str(&arguments);
            }
        }
    }
    folded
}

/// Two families, and texts made of their markup and of what calls consist of.
fn marked_texts() -> impl Strategy<Value = (ReadingPlan, String)> {
    let thoughts: Vec<&'static str> = reasoning::names().collect();
    let tools: Vec<&'static str> = tool_calls::names().collect();
    let families = (proptest::sample::select(thoughts), proptest::sample::select(tools));
    (families, any::<bool>()).prop_flat_map(|((reasoning, tools), starts_inside)| {
        let plan = ReadingPlan {
            reasoning: Some(reasoning),
            starts_inside,
            tools: Some(tools),
            ..ReadingPlan::default()
        };
        let marks = reasoning::markers(reasoning).iter().chain(tool_calls::markers(tools));
        // Not all families have special tokens.
        let spelled = ["<think>", "</think>", "<function=f>", "<parameter=x>", "</function>"];
        let marks: Vec<&'static str> = marks.copied().chain(spelled).collect();
        let common = vec![
            "{\"name\": \"f\", \"arguments\": {\"é\": [1, \"}\"]}}",
            "{\"name\": ",
            "f",
            "{}",
            "[",
            "]",
            "g(x='é', y=[1, {'a': None}])",
            "text ",
            "é",
            "😀",
            "\n",
            "<",
            "</",
            ">",
            "\"",
            ": 1",
        ];
        let piece = prop_oneof![
            3 => proptest::sample::select(marks),
            4 => proptest::sample::select(common),
        ];
        let text = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
        (Just(plan), text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// However a text with thoughts and calls of whatever families falls into tokens, down to single
    /// bytes, the folded deltas are what the text says.
    #[test]
    fn folded_thoughts_and_calls_are_those_of_the_whole_text((plan, text) in marked_texts()) {
        let options = DecodingOptions {
            stop_strings: Vec::new(),
            include_stop_str_in_output: false,
            skip_special_tokens: true,
            reading: plan.clone(),
        };
        let stop = stop_conditions(usize::MAX);
        let mut decoder = ChoiceDecoder::new(Arc::new(tokenizer()), &options, stop);
        let mut deltas: Vec<Delta> =
            text.bytes().filter_map(|byte| decoder.push(u32::from(byte), None)).collect();
        deltas.push(decoder.finish(FinishReason::Eos));
        let (folded, expected) = (fold(&deltas), parsed(&text, &plan));
        let families = (plan.reasoning, plan.tools, &text);
        prop_assert_eq!(&folded.reasoning, &expected.reasoning, "{:?}", families);
        prop_assert_eq!(&folded.content, &expected.content, "{:?}", families);
        prop_assert_eq!(&folded.tool_calls, &expected.tool_calls, "{:?}", families);
        prop_assert_eq!(folded.tokens.len(), text.len());
        let kind =
            if expected.tool_calls.is_empty() { FinishKind::Stop } else { FinishKind::ToolCalls };
        prop_assert_eq!(folded.finish.unwrap().reason, kind);
    }
}

#[test]
fn the_finish_names_what_ended_it() {
    let tokenizer = Arc::new(tokenizer());
    let options = DecodingOptions {
        stop_strings: vec!["b".to_owned()],
        include_stop_str_in_output: false,
        skip_special_tokens: true,
        reading: ReadingPlan::default(),
    };
    let kind = |tokens: &[u32]| {
        let finish = fold(&run(&tokenizer, tokens, &options).deltas).finish.unwrap();
        (finish.reason, finish.cause.is_some())
    };
    assert_eq!(kind(&[97, EOS]), (FinishKind::Stop, false));
    assert_eq!(kind(&[97, 7]), (FinishKind::Stop, true));
    assert_eq!(kind(&[97, 98]), (FinishKind::Stop, true));
    assert_eq!(kind(&[97, 97]), (FinishKind::Length, false));
}
