"""Models at real shapes with random weights: a folder or a GGUF file in seconds, without torch.

Matrices are one block of normal numbers (standard deviation 0.02, fixed seed) repeated over and
over. The block has a prime number of values, so no two rows of a matrix are equal. Norms are ones.
The vocabulary has the 256 bytes, the words of `sconce bench` as one token each, and fillers, so
that every id a random model takes has a text.
"""

import array
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import statistics
import struct
import time

CONTEXT = 8192
LLAMA_8B = {  # Llama 3.1 8B, without the scaling of its rope, which costs no time
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "tie_word_embeddings": False, "attention_bias": False,
    "mlp_bias": False,
}
QWEN_06B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "tie_word_embeddings": True, "attention_bias": False,
    "use_sliding_window": False,
}
SMALL = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1024,
}
# A prime number of values, about 64 MiB; the tiny one keeps tests quick.
BLOCK, TINY_BLOCK = 33_554_393, 131_071
SHARD_BYTES = 4 << 30
END, BEGIN = "<|im_end|>", "<|im_start|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ONE = struct.pack("<H", 0x3F80)  # 1.0 in bf16


def configs(tiny):
    """The configuration of each model by its short name."""
    both = {"8b": LLAMA_8B, "0.6b": QWEN_06B}
    shared = {
        "hidden_act": "silu", "max_position_embeddings": CONTEXT, "torch_dtype": "bfloat16",
        "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
    }
    return {name: config | (SMALL if tiny else {}) | shared for name, config in both.items()}


def tensors(config):
    """(name in a folder, name in a GGUF file, shape) of each tensor; norms have one dimension."""
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    yield "model.embed_tokens", "token_embd", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        yield ours + "input_layernorm", theirs + "attn_norm", (hidden,)
        yield ours + "self_attn.q_proj", theirs + "attn_q", (queries, hidden)
        yield ours + "self_attn.k_proj", theirs + "attn_k", (keys, hidden)
        yield ours + "self_attn.v_proj", theirs + "attn_v", (keys, hidden)
        yield ours + "self_attn.o_proj", theirs + "attn_output", (hidden, queries)
        if config["model_type"] == "qwen3":
            yield ours + "self_attn.q_norm", theirs + "attn_q_norm", (size,)
            yield ours + "self_attn.k_norm", theirs + "attn_k_norm", (size,)
        yield ours + "post_attention_layernorm", theirs + "ffn_norm", (hidden,)
        yield ours + "mlp.gate_proj", theirs + "ffn_gate", (inner, hidden)
        yield ours + "mlp.up_proj", theirs + "ffn_up", (inner, hidden)
        yield ours + "mlp.down_proj", theirs + "ffn_down", (hidden, inner)
    yield "model.norm", "output_norm", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head", "output", (config["vocab_size"], hidden)


def layer_parameters(config):
    """Parameters that every token of a prompt meets: all but the embedding and the output head."""
    return sum(
        math.prod(shape) for name, _, shape in tensors(config)
        if name not in ("model.embed_tokens", "lm_head")
    )


def step_bytes(config):
    """Bytes of weights that a step of decode reads: the layers and the output head."""
    return 2 * (layer_parameters(config) + config["vocab_size"] * config["hidden_size"])


def total_bytes(config):
    return 2 * sum(math.prod(shape) for _, _, shape in tensors(config))


class Numbers:
    """An endless stream of bf16 normals, from which each tensor takes its part."""

    def __init__(self, tiny):
        quantile = statistics.NormalDist(0, 0.02).inv_cdf
        table = [rounded(quantile((step + 0.5) / 65536)) for step in range(65536)]
        count = TINY_BLOCK if tiny else BLOCK
        drawn = array.array("H", random.Random(1).randbytes(2 * count))
        self.ends = math.inf  # a moment of time.monotonic() behind which nothing more is written
        self.block = memoryview(array.array("H", map(table.__getitem__, drawn)).tobytes())

    def write(self, fd, position, count):
        """`count` bytes of the stream, from `position` on."""
        while count > 0:
            if time.monotonic() > self.ends:
                raise TimeoutError("it takes too long")
            at = position % len(self.block)
            done = os.write(fd, self.block[at : at + count])
            position, count = position + done, count - done


def rounded(value):
    """The bits of the bf16 number nearest to a value."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def placed(config):
    """The tensors with their places in the stream of numbers."""
    position = 0
    for ours, theirs, shape in tensors(config):
        yield ours, theirs, shape, position
        position += 2 * math.prod(shape)


def write_folder(folder, config, numbers):
    """config.json comes last: a folder that has it is whole."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokens, special = vocabulary(config["vocab_size"])
    write_tokenizer(folder, tokens, special)
    shards, size = [[]], 0
    for tensor in placed(config):
        if size > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += 2 * math.prod(tensor[2])
    names = [f"model-{n + 1:05}-of-{len(shards):05}.safetensors" for n in range(len(shards))]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(write_safetensors, folder / name, shard, numbers)
            for name, shard in zip(names, shards)
        ]
        for job in jobs:
            job.result()
    where = {f"{t[0]}.weight": name for name, shard in zip(names, shards) for t in shard}
    index = {"metadata": {"total_size": total_bytes(config)}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    ids = {"bos_token_id": special[BEGIN], "eos_token_id": special[END]}
    (folder / "generation_config.json").write_text(json.dumps(ids | {"do_sample": False}))
    (folder / "config.json").write_text(json.dumps(config | ids, indent=1))


def write_safetensors(path, shard, numbers):
    """A length of eight bytes, a JSON header, data (https://github.com/huggingface/safetensors)."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, _, shape, _ in shard:
        end = offset + 2 * math.prod(shape)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, shape, position in shard:
            if len(shape) == 1:
                file.write(ONE * shape[0])
            else:
                numbers.write(file.fileno(), position, 2 * math.prod(shape))


def vocabulary(size):
    """Texts of all ids as byte-level BPE spells them, and the ids of special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    tokens = [characters[byte] for byte in range(256)]
    tokens += ["Ġa"] + [f"Ġ{word}" for word in bench_words()]
    special = {END: len(tokens), BEGIN: len(tokens) + 1}
    tokens += special
    return tokens + [f"Ġw{number}" for number in range(len(tokens), size)], special


def bench_words():
    """The words that `sconce bench` makes prompts of, from its source."""
    source = pathlib.Path(__file__).resolve().parents[2] / "src/cli/bench/prompts.rs"
    words = re.search(r'const WORDS: &str = "(.*?)";', source.read_text(), re.DOTALL)[1]
    return words.replace("\\\n", " ").split()


def write_tokenizer(folder, tokens, special):
    """Words are one token because BPE here takes a whole piece that it knows before any merge."""
    known = {text: number for number, text in enumerate(tokens)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3_SPLIT}, "behavior": "Isolated",
             "invert": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": number, "content": text, "special": True} | flags
            for text, number in special.items()
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": True, "vocab": known, "merges": [["Ġ", "a"]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END,
        "pad_token": END, "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT,
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


# Kinds of values and of tensors in a GGUF file.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
F32, BF16 = 0, 30
PACKED = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
ALIGNMENT = 32


def write_gguf(path, config, numbers):
    """The same weights as one file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

    Queries and keys of a Llama are in another order there; random ones are as good in any."""
    places, offset = [], 0
    for _, name, shape, position in placed(config):
        kind = F32 if len(shape) == 1 else BF16
        places.append((name, shape, position, kind, offset))
        size = math.prod(shape) * (4 if kind == F32 else 2)
        offset += size + -size % ALIGNMENT
    settings = gguf_settings(config)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(places), len(settings))
    head += b"".join(packed(name, STRING) + struct.pack("<I", kind) + packed(value, kind)
                     for name, kind, value in settings)
    for name, shape, _, kind, offset in places:
        head += packed(f"{name}.weight", STRING) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", length) for length in reversed(shape))
        head += struct.pack("<IQ", kind, offset)
    with open(path, "wb", buffering=0) as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT))
        for _, shape, position, kind, _ in places:
            size = math.prod(shape) * (4 if kind == F32 else 2)
            if kind == F32:
                file.write(struct.pack("<f", 1.0) * shape[0])
            else:
                numbers.write(file.fileno(), position, size)
            file.write(b"\0" * (-size % ALIGNMENT))


def gguf_settings(config):
    tokens, special = vocabulary(config["vocab_size"])
    kinds = [3 if text in special else 1 for text in tokens]  # control, normal
    kind = config["model_type"]
    return [
        ("general.architecture", STRING, kind),
        ("general.name", STRING, "random"),
        ("general.file_type", UINT32, 32),
        (f"{kind}.vocab_size", UINT32, config["vocab_size"]),
        (f"{kind}.context_length", UINT32, CONTEXT),
        (f"{kind}.embedding_length", UINT32, config["hidden_size"]),
        (f"{kind}.block_count", UINT32, config["num_hidden_layers"]),
        (f"{kind}.feed_forward_length", UINT32, config["intermediate_size"]),
        (f"{kind}.attention.head_count", UINT32, config["num_attention_heads"]),
        (f"{kind}.attention.head_count_kv", UINT32, config["num_key_value_heads"]),
        (f"{kind}.attention.key_length", UINT32, config["head_dim"]),
        (f"{kind}.attention.value_length", UINT32, config["head_dim"]),
        (f"{kind}.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"]),
        (f"{kind}.rope.dimension_count", UINT32, config["head_dim"]),
        (f"{kind}.rope.freq_base", FLOAT32, config["rope_theta"]),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "llama-bpe"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
        ("tokenizer.ggml.merges", ARRAY, (STRING, ["Ġ a"])),
        ("tokenizer.ggml.bos_token_id", UINT32, special[BEGIN]),
        ("tokenizer.ggml.eos_token_id", UINT32, special[END]),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.chat_template", STRING, CHATML),
    ]


def packed(value, kind):
    if kind == STRING:
        text = value.encode()
        return struct.pack("<Q", len(text)) + text
    if kind == ARRAY:
        inner, values = value
        head = struct.pack("<IQ", inner, len(values))
        return head + b"".join(packed(one, inner) for one in values)
    return struct.pack(PACKED[kind], value)
