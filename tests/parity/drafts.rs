//! Answers with drafts and without, over whole engines: the same tokens with the same bits.

use std::path::Path;

use candle_core::safetensors;
use sconce::config::EngineConfig;
use sconce::engine::EngineHandle;
use sconce::engine::output::Foreseen;
use sconce::engine::request::EngineRequest;

use super::engine::{Answer, VOCAB, collect_noting, request, start, start_with};
use super::{draft_heads, folder, open, open_folder, prompt};

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
fn requests(predictions: Option<&[Answer]>, greedy: bool) -> Vec<EngineRequest> {
    let prompts = [prompt(40, VOCAB), prompt(7, VOCAB), prompt(90, VOCAB)[50..].to_vec()];
    let made = prompts.iter().zip(0..).map(|(tokens, seed)| {
        let mut request = request(tokens, 24, seed);
        request.sampling.logprobs = Some(5);
        request.sampling.temperature = if greedy || seed == 1 { 0.0 } else { 1.0 };
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

/// Holds the answers of an engine that drafts to `expected`, in company and alone; how many tokens were
/// drafted in company, and how many of them drawn.
fn assert_equal(
    name: &str,
    drafting: &EngineHandle,
    asked: &[EngineRequest],
    expected: &[Answer],
) -> [u32; 2] {
    let (together, counts) = answers(drafting, asked);
    assert!(together == expected, "{name}, together");
    for (one, expected) in asked.iter().zip(expected) {
        let (alone, _) = answers(drafting, std::slice::from_ref(one));
        assert!(alone[0] == *expected, "{name}, alone");
    }
    counts
}

/// The answers of an engine that drafts nothing.
fn undrafted(name: &str, asked: &[EngineRequest]) -> Vec<Answer> {
    let (answers, drafts) = answers(&start(name, &config(0)), asked);
    assert_eq!(drafts, [0, 0], "{name}");
    answers
}

#[test]
fn drafts_change_no_bit() {
    for name in MODELS {
        let expected = undrafted(name, &requests(None, false));
        let asked = requests(Some(&expected), false);
        let drafting = start(name, &config(8));
        let [drafted, accepted] = assert_equal(name, &drafting, &asked, &expected);
        assert!(accepted > 0 && drafted >= accepted, "{name}: {drafted} drafted");
    }
}

/// The model drafts for itself: it is right wherever nothing is drawn, however seldom that pays.
#[test]
fn draft_models_change_no_bit_and_are_right_where_they_are_the_model() {
    let mut all = 0;
    for name in ["llama3", "deepseek_v2"] {
        let source = open(name);
        let drafting = start_with(&source, Some(&source), &config(8));
        for greedy in [false, true] {
            let asked = requests(None, greedy);
            let [drafted, accepted] =
                assert_equal(name, &drafting, &asked, &undrafted(name, &asked));
            // An answer may end within its drafts.
            assert!(!greedy || 2 * accepted >= drafted, "{name}: {accepted} of {drafted}");
            all += if greedy { accepted } else { 0 };
        }
    }
    assert!(all > 0, "nothing was drafted");
}

/// A checkpoint with its head, as a folder.
fn with_head(name: &str, at: &Path) {
    safetensors::save(&draft_heads::tensors(name, true), at.join("model.safetensors")).unwrap();
    std::fs::copy(folder(name).join("config.json"), at.join("config.json")).unwrap();
}

/// Heads that are told the last hidden states, of a plain model, one with latent attention and one with
/// recurrent layers, and drafters of tokens and of blocks that are told the inputs of layers.
#[test]
fn heads_that_draft_change_no_bit() {
    let (mut all, asked) = (0, requests(None, false));
    for name in ["glm4_moe", "deepseek_v3", "qwen3_next"] {
        let at = tempfile::tempdir().unwrap();
        with_head(name, at.path());
        let drafting = start_with(&open_folder(at.path()), None, &config(8));
        let [drafted, _] = assert_equal(name, &drafting, &asked, &undrafted(name, &asked));
        all += drafted;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (name, head) in
        [("llama4", "eagle/llama4"), ("gemma3", "eagle/gemma3"), ("llama4", "dflash/llama4")]
    {
        let head = open_folder(&fixtures.join(head));
        let drafting = start_with(&open(name), Some(&head), &config(8));
        let [drafted, _] = assert_equal(name, &drafting, &asked, &undrafted(name, &asked));
        all += drafted;
    }
    assert!(all > 0, "nothing was drafted");
}
