//! Answers with drafts and without, over whole engines: the same tokens with the same bits.

use sconce::config::EngineConfig;
use sconce::engine::EngineHandle;
use sconce::engine::output::Foreseen;
use sconce::engine::request::EngineRequest;

use super::engine::{Answer, VOCAB, collect_noting, request, start};
use super::prompt;

/// Fixtures without states, whose drafts a GPU verifies in captured steps, and with them.
const MODELS: [&str; 5] = ["llama3", "gemma3", "deepseek_v2", "lfm2", "qwen3_next"];

fn config(draft_max: usize) -> EngineConfig {
    EngineConfig {
        max_num_seqs: 4,
        target_step_time: None,
        kv_cache_bytes: Some(8 << 20),
        draft_max,
        ..EngineConfig::default()
    }
}

/// The answers to requests that are there at once, and how many tokens were drafted and drawn.
fn answers(engine: &EngineHandle, requests: &[EngineRequest]) -> (Vec<Answer>, [u32; 2]) {
    let mut drafts = [0; 2];
    let streams: Vec<_> = requests.iter().map(|one| engine.submit(one.clone())).collect();
    let mut note = |foreseen: Foreseen| {
        drafts[0] += foreseen.drafted;
        drafts[1] += u32::from(foreseen.accepted);
    };
    let all = streams.into_iter().map(|stream| collect_noting(stream, &mut note).0).collect();
    (all, drafts)
}

/// Requests whose draws a device makes where it can, one of which repeats itself when it is greedy.
fn requests(predictions: Option<&[Answer]>) -> Vec<EngineRequest> {
    let prompts = [prompt(40, VOCAB), prompt(7, VOCAB), prompt(90, VOCAB)[50..].to_vec()];
    let made = prompts.iter().zip(0..).map(|(tokens, seed)| {
        let mut request = request(tokens, 24, seed);
        request.sampling.logprobs = Some(5);
        request.sampling.temperature = if seed == 1 { 0.0 } else { 1.0 };
        request.sampling.repetition_penalty = if seed == 2 { 1.1 } else { 1.0 };
        let told = predictions.map(|told| &told[usize::try_from(seed).unwrap()].0);
        // One token in seven is another.
        let told =
            told.map(|told| told.iter().zip(1..).map(|(id, at)| id ^ u32::from(at % 7 == 0)));
        request.prediction = told.map(Iterator::collect);
        request
    });
    made.collect()
}

#[test]
fn drafts_change_no_bit() {
    for name in MODELS {
        let (plain, drafting) = (start(name, &config(0)), start(name, &config(8)));
        let (expected, none) = answers(&plain, &requests(None));
        assert_eq!(none, [0, 0], "{name}");
        let asked = requests(Some(&expected));
        let (together, [drafted, accepted]) = answers(&drafting, &asked);
        assert!(together == expected, "{name}, together");
        assert!(accepted > 0 && drafted >= accepted, "{name}: {drafted} drafted");
        for (one, expected) in asked.iter().zip(&expected) {
            let (alone, _) = answers(&drafting, std::slice::from_ref(one));
            assert!(alone[0] == *expected, "{name}, alone");
        }
    }
}
