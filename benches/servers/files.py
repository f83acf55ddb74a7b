#!/usr/bin/env python3
"""Large inputs for compare.py that nobody has to convert.

    files.py 7b OUT/7b-Q4_K_M.gguf --tokenizer OUT/tokenizer.json
    files.py adapters OUT/adapters --of OUT/dense [--count 8] [--rank 16]

`7b` writes a file of Llama-2-7B's shape whose Q4_K and Q6_K blocks are random, in the mixture of
llama-quantize's Q4_K_M; needs numpy and gguf. `adapters` writes LoRA adapters with random weights for all
projections of a checkpoint that shapes.py made, as PEFT does; needs torch and safetensors.
"""

import argparse
import json
import pathlib

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LAYERS, WIDTH, HIDDEN, VOCABULARY, HEADS = 32, 4096, 11008, 32768, 32


def random_blocks(numpy, generator, rows, columns, kind):
    """Random blocks of 256 weights, of the size that trained weights have."""
    blocks = columns // 256
    size = {"Q4_K": 144, "Q6_K": 210}[kind]
    data = generator.integers(0, 256, (rows, blocks, size), dtype=numpy.uint8)
    scale = numpy.array([2e-5], dtype=numpy.float16).view(numpy.uint8)
    if kind == "Q4_K":
        data[:, :, 0:2] = scale
        data[:, :, 2:4] = scale
    else:
        data[:, :, 208:210] = scale
    return data.reshape(rows, blocks * size)


def more_bits(layer):
    """Where llama-quantize takes Q6_K for values and the last product."""
    eighth = LAYERS // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def write_7b(path, tokenizer):
    import gguf
    import numpy

    generator = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    writer.add_name("random 7B")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(VOCABULARY)
    add_tokenizer(writer, json.loads(pathlib.Path(tokenizer).read_text())["model"], gguf)
    tensors = [("token_embd.weight", VOCABULARY, WIDTH, "Q4_K"), ("output.weight", VOCABULARY, WIDTH, "Q6_K")]
    for layer in range(LAYERS):
        large = "Q6_K" if more_bits(layer) else "Q4_K"
        square = [("attn_q", "Q4_K"), ("attn_k", "Q4_K"), ("attn_v", large), ("attn_output", "Q4_K")]
        tensors += [(f"blk.{layer}.{name}.weight", WIDTH, WIDTH, kind) for name, kind in square]
        tensors += [(f"blk.{layer}.ffn_{name}.weight", HIDDEN, WIDTH, "Q4_K") for name in ("gate", "up")]
        tensors.append((f"blk.{layer}.ffn_down.weight", WIDTH, HIDDEN, large))
    norms = [f"blk.{layer}.{name}_norm.weight" for layer in range(LAYERS) for name in ("attn", "ffn")]
    for name in [*norms, "output_norm.weight"]:
        writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))
    for name, rows, columns, kind in tensors:
        kind_id = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, random_blocks(numpy, generator, rows, columns, kind), raw_dtype=kind_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, model, gguf):
    """The byte-level tokenizer, with texts for the ids that it doesn't know."""
    tokens = sorted(model["vocab"], key=model["vocab"].get)[:VOCABULARY]
    tokens += [f"\u0120w{i}" for i in range(len(tokens), VOCABULARY)]
    kinds = [gguf.TokenType.NORMAL] * VOCABULARY
    kinds[:3] = [gguf.TokenType.CONTROL] * 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = model["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def write_adapters(out, base, count, rank):
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    torch.manual_seed(1)
    with safe_open(base / "model.safetensors", "pt") as tensors:
        names = [n for n in tensors.keys() if n.split(".")[-2] in PROJECTIONS]
        shapes = {name: tensors.get_slice(name).get_shape() for name in names if name.endswith(".weight")}
    for index in range(count):
        folder = out / str(index)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {}
        for name, (rows, columns) in shapes.items():
            at = "base_model.model." + name.removesuffix(".weight")
            weights[f"{at}.lora_A.weight"] = (torch.randn(rank, columns) * 0.02).bfloat16()
            weights[f"{at}.lora_B.weight"] = (torch.randn(rows, rank) * 0.02).bfloat16()
        save_file(weights, folder / "adapter_model.safetensors")
        config = {
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none",
            "target_modules": PROJECTIONS, "base_model_name_or_path": base.name,
        }
        (folder / "adapter_config.json").write_text(json.dumps(config))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    file = kinds.add_parser("7b")
    file.add_argument("out", type=pathlib.Path)
    file.add_argument("--tokenizer", required=True)
    adapters = kinds.add_parser("adapters")
    adapters.add_argument("out", type=pathlib.Path)
    adapters.add_argument("--of", type=pathlib.Path, required=True)
    adapters.add_argument("--count", type=int, default=8)
    adapters.add_argument("--rank", type=int, default=16)
    options = parser.parse_args()
    if options.kind == "7b":
        write_7b(options.out, options.tokenizer)
    else:
        write_adapters(options.out, options.of, options.count, options.rank)


if __name__ == "__main__":
    main()
