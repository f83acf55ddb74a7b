#!/usr/bin/env python3
"""Checkpoints with random weights at real shapes, for compare.py and embeddings.py.

    shapes.py OUT [SHAPE ...]

Each OUT/SHAPE is a folder in bf16 as transformers writes it, with a byte-level BPE tokenizer that was
trained on the Python library of this machine; ids that it doesn't know have texts of their own, so
that whatever a random model answers can be streamed. Needs torch, transformers and tokenizers.
"""

import json
import pathlib
import sys
import sysconfig

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ROLES = ["system", "user", "assistant"]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
COMMON = {"vocab_size": 151936, "bos_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": True}
QWEN3 = {"head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 40960}

# The model's class in transformers, and its configuration.
SHAPES = {
    # Qwen2.5-0.5B
    "dense": (
        "Qwen2ForCausalLM",
        {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
        | {"num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768}
        | {"rope_theta": 1e6},
    ),
    # Experts as in Qwen3-30B-A3B, half as wide.
    "experts": (
        "Qwen3MoeForCausalLM",
        QWEN3
        | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 12}
        | {"num_attention_heads": 16, "num_key_value_heads": 4, "num_experts": 64}
        | {"num_experts_per_tok": 8, "moe_intermediate_size": 384, "norm_topk_prob": True},
    ),
    # LFM2-700M, half as deep: short convolutions between layers of attention.
    "convolutions": (
        "Lfm2ForCausalLM",
        {"hidden_size": 1536, "intermediate_size": 6912, "block_auto_adjust_ff_dim": False}
        | {"num_hidden_layers": 8, "num_attention_heads": 24, "num_key_value_heads": 8}
        | {"layer_types": ["conv", "conv", "full_attention", "conv"] * 2, "rope_theta": 1e6},
    ),
    # Mamba 2 layers as in Granite 4.0 H 350M.
    "mamba2": (
        "GraniteMoeHybridForCausalLM",
        {"hidden_size": 768, "intermediate_size": 2048, "shared_intermediate_size": 2048}
        | {"num_hidden_layers": 16, "num_attention_heads": 12, "num_key_value_heads": 4}
        | {"layer_types": (["mamba"] * 7 + ["attention"]) * 2, "num_local_experts": 0}
        | {"num_experts_per_tok": 0, "mamba_n_heads": 48, "mamba_d_head": 32, "mamba_n_groups": 1}
        | {"mamba_d_state": 128, "mamba_expand": 2, "position_embedding_type": "nope"},
    ),
    # Gated delta rule and experts as in Qwen3-Next, an eighth of it.
    "delta": (
        "Qwen3NextForCausalLM",
        {"hidden_size": 1024, "intermediate_size": 2560, "num_hidden_layers": 12}
        | {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256}
        | {"linear_num_key_heads": 8, "linear_num_value_heads": 16, "num_experts": 32}
        | {"num_experts_per_tok": 4, "moe_intermediate_size": 256}
        | {"shared_expert_intermediate_size": 256, "rope_theta": 1e6},
    ),
    # Latent attention as in DeepSeek-V2, with fewer layers, heads and experts.
    "latent": (
        "DeepseekV2ForCausalLM",
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12}
        | {"num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": 768}
        | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
        | {"v_head_dim": 128, "first_k_dense_replace": 4, "max_position_embeddings": 32768}
        | {"n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 704}
        | {"n_shared_experts": 2, "topk_method": "greedy", "n_group": 1, "topk_group": 1},
    ),
    # Llama-2-7B
    "7b": (
        "LlamaForCausalLM",
        {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096}
        | {"vocab_size": 32768, "tie_word_embeddings": False},
    ),
    # all-MiniLM-L6-v2
    "minilm": (
        "BertModel",
        {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6}
        | {"num_attention_heads": 12, "max_position_embeddings": 512, "vocab_size": 30522},
    ),
    # Qwen3-Embedding-0.6B
    "embedding": (
        "Qwen3ForCausalLM",
        QWEN3
        | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
        | {"num_attention_heads": 16, "num_key_value_heads": 8},
    ),
}
# Without these sentence-transformers and the server would not pool and normalize alike.
POOLING = {"minilm": "mean_tokens", "embedding": "lasttoken"}


def train(path):
    """A tokenizer of 30,000 pieces."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, whole])
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = [source.read_text(errors="replace") for source in sources]
    trainer = trainers.BpeTrainer(
        vocab_size=30000,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Roles are one token each, as in all models that chat.
    tokenizer.train_from_iterator([*texts, *ROLES * 1000], trainer)
    tokenizer.save(str(path))


def write_tokenizer(base, folder, vocabulary, length):
    tokenizer = json.loads(base.read_text())
    known = tokenizer["model"]["vocab"]
    first = 1 + max(known.values())
    known.update({f"\u0120w{i}": i for i in range(first, vocabulary)})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": length,
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_pooling(folder, mode, width, length):
    """The modules that sentence-transformers reads."""
    names = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(names, paths))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "lasttoken")}
    pooling = {"word_embedding_dimension": width} | modes
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    settings = {"max_seq_length": min(length, 512), "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))


def make(out, name):
    kind, fields = SHAPES[name]
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**COMMON | fields)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    model = model_class(config)
    folder = out / name
    model.save_pretrained(folder)
    length = getattr(config, "max_position_embeddings", 32768)
    write_tokenizer(out / "tokenizer.json", folder, config.vocab_size, length)
    if name in POOLING:
        write_pooling(folder, POOLING[name], config.hidden_size, length)
    print(f"{name}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters", flush=True)


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    if not (target / "tokenizer.json").exists():
        train(target / "tokenizer.json")
    for shape in sys.argv[2:] or SHAPES:
        make(target, shape)
