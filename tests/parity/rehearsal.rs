//! The step that shows how much memory the largest one takes.

use sconce::runner::{DraftRunner, HeadInput, KvFormat, LargestSteps, Runner};

use super::{device, draft_heads, load};

#[test]
fn the_largest_step_is_computed_with_a_cache_of_one_block() {
    for name in ["llama3", "mixtral", "qwen3_next", "deepseek_v2"] {
        let model = load(name);
        for step in [[1, 1], [70, 3], [33, 64]] {
            let [tokens, rows] = step;
            let largest = LargestSteps { tokens, rows, context: model.max_position_embeddings() };
            for told in [HeadInput::Nothing, HeadInput::Hidden, HeadInput::Layers(vec![0, 1])] {
                let kv_format = KvFormat::Bf16;
                Runner::rehearse(model.as_ref(), device(), largest, kv_format, &told).unwrap();
            }
        }
    }
}

#[test]
fn so_are_those_of_what_drafts() {
    for [model, drafter] in draft_heads::of_each_kind() {
        for step in [[1, 1], [70, 3], [33, 33]] {
            let [tokens, rows] = step;
            let largest = LargestSteps { tokens, rows, context: 64 };
            let (drafter, size) = (drafter.as_ref(), model.hidden_size());
            DraftRunner::rehearse(drafter, size, device(), largest, KvFormat::F32).unwrap();
        }
    }
}
