#!/usr/bin/env python3
"""Large inputs for compare.py that nobody has to convert.

    files.py 7b OUT/7b-Q4_K_M.gguf --tokenizer OUT/tokenizer.json
    files.py kind IQ2_XXS OUT/IQ2_XXS.gguf --tokenizer OUT/tokenizer.json
    files.py adapters OUT/adapters --of OUT/dense [--count 8] [--rank 16]

`7b` writes a file of Llama-2-7B's shape whose Q4_K and Q6_K blocks are random, in the mixture of
llama-quantize's Q4_K_M; `kind` one of half a billion weights, in random blocks of one kind but for the vocabulary's
(Q6_K); both need numpy and gguf. `adapters` writes LoRA adapters with random weights for all projections of a
checkpoint that shapes.py made, as PEFT does; needs torch and safetensors.
"""

import argparse
import dataclasses
import json
import pathlib

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclasses.dataclass
class Shape:
    """Of a Llama."""
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int


SEVEN = Shape(layers=32, width=4096, hidden=11008, heads=32, kv_heads=32, vocabulary=32768)
# Rows of whole blocks of 256, which the half billion of Qwen2.5 doesn't have.
HALF = Shape(layers=24, width=1024, hidden=4608, heads=16, kv_heads=4, vocabulary=32768)
# What questions about 8,000 tokens need.
CONTEXT = 16384
# Where a block's f16 scale is, if not at its beginning.
SCALES = {"Q6_K": 208, "TQ1_0": 52, "TQ2_0": 64}


def random_blocks(numpy, generator, rows, columns, kind):
    """Random blocks, of the size that trained weights have where one scale says it."""
    import gguf

    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    data = generator.integers(0, 256, (rows, columns // weights, size), dtype=numpy.uint8)
    scale = numpy.array([2e-5 if kind in ("Q4_K", "Q6_K") else 1e-3], dtype=numpy.float16).view(numpy.uint8)
    if kind == "IQ1_M":
        # In the upper four bits of four words.
        for at, four in zip([49, 51, 53, 55], [scale[0] & 15, scale[0] >> 4, scale[1] & 15, scale[1] >> 4]):
            data[:, :, at] = data[:, :, at] & 15 | four << 4
    elif kind == "MXFP4":
        data[:, :, 0] = 119
    elif kind == "NVFP4":
        data[:, :, :4] = 24
    else:
        at = SCALES.get(kind, 0)
        data[:, :, at:at + 2] = scale
        if kind == "Q4_K":
            data[:, :, 2:4] = scale
    return data.reshape(rows, columns // weights * size)


def more_bits(layer):
    """Where llama-quantize takes Q6_K for values and the last product."""
    eighth = SEVEN.layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def matrices(shape, kind_of):
    """Name, rows, columns and kind of each matrix of the layers."""
    square, values = (shape.width, shape.width), (shape.width // shape.heads * shape.kv_heads, shape.width)
    sizes = {"attn_q": square, "attn_k": values, "attn_v": values, "attn_output": square,
             "ffn_gate": (shape.hidden, shape.width), "ffn_up": (shape.hidden, shape.width),
             "ffn_down": (shape.width, shape.hidden)}
    return [(f"blk.{layer}.{name}.weight", *size, kind_of(layer, name))
            for layer in range(shape.layers) for name, size in sizes.items()]


def write_7b(path, tokenizer):
    mixed = lambda layer, name: "Q6_K" if name in ("attn_v", "ffn_down") and more_bits(layer) else "Q4_K"
    vocabulary = [("token_embd.weight", SEVEN.vocabulary, SEVEN.width, "Q4_K"),
                  ("output.weight", SEVEN.vocabulary, SEVEN.width, "Q6_K")]
    write(path, tokenizer, SEVEN, "MOSTLY_Q4_K_M", vocabulary + matrices(SEVEN, mixed))


def write_kind(path, tokenizer, kind):
    vocabulary = [("token_embd.weight", HALF.vocabulary, HALF.width, "Q6_K")]
    file_type = {"MXFP4": "MOSTLY_MXFP4_MOE"}.get(kind, f"MOSTLY_{kind}")
    write(path, tokenizer, HALF, file_type, vocabulary + matrices(HALF, lambda layer, name: kind))


def write(path, tokenizer, shape, file_type, tensors):
    import gguf
    import numpy

    generator = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    writer.add_name("random weights")
    writer.add_file_type(gguf.LlamaFileType[file_type])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(shape.vocabulary)
    model = json.loads(pathlib.Path(tokenizer).read_text())["model"]
    add_tokenizer(writer, model, shape.vocabulary, gguf)
    norms = [f"blk.{layer}.{name}_norm.weight" for layer in range(shape.layers) for name in ("attn", "ffn")]
    for name in [*norms, "output_norm.weight"]:
        writer.add_tensor(name, numpy.ones(shape.width, dtype=numpy.float32))
    for name, rows, columns, kind in tensors:
        kind_id = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, random_blocks(numpy, generator, rows, columns, kind), raw_dtype=kind_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, model, vocabulary, gguf):
    """The byte-level tokenizer, with texts for the ids that it doesn't know."""
    tokens = sorted(model["vocab"], key=model["vocab"].get)[:vocabulary]
    tokens += [f"\u0120w{i}" for i in range(len(tokens), vocabulary)]
    kinds = [gguf.TokenType.NORMAL] * vocabulary
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
    one = kinds.add_parser("kind")
    one.add_argument("name", help="as gguf names it: IQ4_XS, TQ2_0, ...")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--tokenizer", required=True)
    adapters = kinds.add_parser("adapters")
    adapters.add_argument("out", type=pathlib.Path)
    adapters.add_argument("--of", type=pathlib.Path, required=True)
    adapters.add_argument("--count", type=int, default=8)
    adapters.add_argument("--rank", type=int, default=16)
    options = parser.parse_args()
    if options.kind == "7b":
        write_7b(options.out, options.tokenizer)
    elif options.kind == "kind":
        write_kind(options.out, options.tokenizer, options.name)
    else:
        write_adapters(options.out, options.of, options.count, options.rank)


if __name__ == "__main__":
    main()
