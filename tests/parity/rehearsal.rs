//! The step that shows how much memory the largest one takes.

use sconce::runner::{KvFormat, LargestSteps, Runner};

use super::{device, load};

#[test]
fn the_largest_step_is_computed_with_a_cache_of_one_block() {
    for name in ["llama3", "mixtral", "qwen3_next", "deepseek_v2"] {
        let model = load(name);
        for step in [[1, 1], [70, 3], [33, 64]] {
            let [tokens, rows] = step;
            let largest = LargestSteps { tokens, rows, context: model.max_position_embeddings() };
            Runner::rehearse(model.as_ref(), device(), largest, KvFormat::Bf16).unwrap();
        }
    }
}
