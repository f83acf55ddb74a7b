#!/usr/bin/env python3
"""A checkpoint that has a known answer, for drafts at a real shape: speculation.py asks it.

    successors.py OUT [--acceptance 0.8] [--cycle 512]

OUT becomes a folder of Qwen2.5-1.5B's shape in bf16 with a head for multi-token prediction, as MiMo has one. Each
token is followed by one other, round after round of so many tokens; a prompt of one round is copied by the answer,
and no answer within a round repeats anything. Layers compute as much as those of a trained model and add nothing.
The head is right as often as asked, at random: noise in its projection is chosen so. Needs torch, safetensors and
tokenizers.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file

from shapes import train, write_tokenizer

HIDDEN, MIDDLE, LAYERS, HEADS, KV_HEADS, VOCABULARY = 1536, 8960, 28, 12, 2, 151936
CONTEXT = 32768
# Those before are special.
FIRST = 16
CONFIG = {
    "architectures": ["MiMoForCausalLM"],
    "model_type": "mimo",
    "hidden_size": HIDDEN,
    "intermediate_size": MIDDLE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": True,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def successors(cycle):
    """Which token follows each: rounds of neighbouring ids; what is left over follows itself."""
    after = torch.arange(VOCABULARY)
    for first in range(FIRST, VOCABULARY - cycle + 1, cycle):
        after[first : first + cycle] = torch.arange(first, first + cycle).roll(-1)
    return after


def layer(name):
    """A decoder layer that adds nothing to its input."""
    draw = lambda *shape: torch.randn(shape, dtype=torch.bfloat16) * 0.02
    wide = KV_HEADS * HIDDEN // HEADS
    made = {}
    for part, out in [("q", HIDDEN), ("k", wide), ("v", wide)]:
        made[f"{name}.self_attn.{part}_proj.weight"] = draw(out, HIDDEN)
        made[f"{name}.self_attn.{part}_proj.bias"] = draw(out)
    made[f"{name}.self_attn.o_proj.weight"] = torch.zeros(HIDDEN, HIDDEN, dtype=torch.bfloat16)
    made[f"{name}.mlp.gate_proj.weight"] = draw(MIDDLE, HIDDEN)
    made[f"{name}.mlp.up_proj.weight"] = draw(MIDDLE, HIDDEN)
    made[f"{name}.mlp.down_proj.weight"] = torch.zeros(HIDDEN, MIDDLE, dtype=torch.bfloat16)
    for norm in ["input_layernorm", "post_attention_layernorm"]:
        made[f"{name}.{norm}.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    return made


def projection(embedding, head, after, acceptance):
    """What joins the head's inputs, `[hidden, 2 hidden]`: a token's embedding and so much noise that the share
    of tokens whose successor is found is `acceptance`."""
    tokens = torch.randint(FIRST, VOCABULARY, (1000,))
    noise = torch.randn(HIDDEN, HIDDEN) / HIDDEN**0.5
    chosen = embedding[tokens].float()
    disturbed, head = chosen @ noise.T, head.float()
    low, high = 0.0, 32.0
    for _ in range(8):
        middle = (low + high) / 2
        found = (chosen + middle * disturbed) @ head.T
        share = (found.argmax(1) == after[tokens]).float().mean().item()
        low, high = (middle, high) if share > acceptance else (low, middle)
    print(f"the head is right {share:.3f} of the time")
    join = torch.zeros(HIDDEN, 2 * HIDDEN)
    join[:, HIDDEN:] = torch.eye(HIDDEN) + middle * noise
    return join.to(torch.bfloat16)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--acceptance", type=float, default=0.8)
    parser.add_argument("--cycle", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(1)
    options.out.mkdir(parents=True, exist_ok=True)
    after = successors(options.cycle)
    embedding = (torch.randn(VOCABULARY, HIDDEN) / HIDDEN**0.5).to(torch.bfloat16)
    head = torch.empty_like(embedding)
    head[after] = embedding
    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": ones.clone(),
        "lm_head.weight": head,
        "model.mtp_layers.0.input_proj.weight": projection(embedding, head, after, options.acceptance),
    }
    for norm in ["token_layernorm", "hidden_layernorm", "final_layernorm"]:
        tensors[f"model.mtp_layers.0.{norm}.weight"] = ones.clone()
    for name in [*(f"model.layers.{index}" for index in range(LAYERS)), "model.mtp_layers.0"]:
        tensors |= layer(name)
    save_file(tensors, options.out / "model.safetensors", metadata={"format": "pt"})
    told = {"cycle": options.cycle, "first": FIRST}
    (options.out / "config.json").write_text(json.dumps(CONFIG | {"successors": told}, indent=1))
    tokenizer = options.out.parent / "tokenizer.json"
    if not tokenizer.exists():
        train(tokenizer)
    write_tokenizer(tokenizer, options.out, VOCABULARY, CONTEXT)


if __name__ == "__main__":
    main()
