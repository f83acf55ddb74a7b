#!/usr/bin/env python3
"""What each launch of a step moves, by arithmetic: bytes from HBM, bytes through L2, and how long that
takes on an H200, beside the targets. Nothing here is measured; `run.py` measures.

    model.py                        the table of all steps
    model.py --launches 8b 64       each launch of one step, here 64 streams of the 8B model
    model.py --without CROSSOVER TILES
                                    as it was before some of CHANGES

The sizes of blocks are those of `src/kernels/*/cuda.rs`; `--without` shows what each change is worth.
"""

import argparse
import dataclasses
import math

# H200: what a copy and a bf16 product reach, what L2 gives, and the bytes that stay in it. The first two
# were measured, by others' programs; the third is a guess between what H100 and B200 are known for.
HBM, L2, FLOPS, L2_BYTES = 4.3e12, 5.5e12, 788e12, 50e6
# Of a launch in a graph: from the end of one kernel to the first bytes of the next, and the shortest
# kernel. Of cuBLAS: the part of HBM's rate that few tokens reach, and of the products' that many do.
GAP, SHORTEST, BLAS_HBM, BLAS_FLOPS = 1.0e-6, 2.0e-6, 0.85, 0.80
MULTIPROCESSORS = 132
MOST_SHARED = 227 << 10

# What is better than it was, by the item's number in the review of this code.
CHANGES = {
    "TILES": "P1: two tiles of rows share the tokens of a block, of 33 to 64 tokens too",
    "CROSSOVER": "P1: cuBLAS multiplies where it moves fewer bytes, if results may depend on it",
    "ROUNDED": "P3: a gate gives the type that the next product rounds its inputs to",
    "TOGETHER": "P2: experts of up to 8 tokens are chosen and listed by one kernel",
    "PIECES": "P6: a context that is much longer than others is split among warps",
    "NORMED": "P2: products of up to 3 tokens normalize them",
    "NARROW": "P3: norms and attention give the type that the next product rounds its inputs to",
    "PACKED": "P4, P11: quantized weights have kernels of our own, which need no decision of the host",
    "GROUPED": "P5: experts of many tokens multiply in tiles of 128 rows with 64 tokens",
}


@dataclasses.dataclass
class Model:
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    dim: int
    vocab: int
    experts: int = 0
    per_token: int = 0
    # Of a weight.
    bits: float = 16


MODELS = {
    "0.6b": Model(1024, 3072, 28, 16, 8, 128, 151_936),
    "8b": Model(4096, 14_336, 32, 32, 8, 128, 128_256),
    "a3b": Model(2048, 768, 48, 32, 4, 128, 151_936, 128, 8),
}
# The same in Q4_K.
MODELS |= {f"{name}-q4": dataclasses.replace(MODELS[name], bits=4.5) for name in ("8b", "a3b")}
# A launch that the host makes by itself, and its wait for what the device computed.
EAGER, WAIT = 4.0e-6, 20e-6


@dataclasses.dataclass
class Launch:
    """A kernel: bytes of weights, caches and tables from HBM; bytes of activations, which are HBM's too
    if they don't fit in L2; other bytes through L2; operations and the rate that they reach."""

    name: str
    hbm: float = 0
    activations: float = 0
    l2: float = 0
    flops: float = 0
    blas: bool = False
    # Seconds that one warp or block takes for the longest piece of work.
    longest: float = 0
    # Launched by the host, one by one.
    eager: bool = False

    @property
    def from_hbm(self):
        return self.hbm + (self.activations if self.activations > L2_BYTES else 0)

    @property
    def through_l2(self):
        return self.hbm + self.activations + self.l2

    @property
    def seconds(self):
        rate = HBM * (BLAS_HBM if self.blas else 1)
        moved = max(self.from_hbm / rate, self.through_l2 / L2)
        own = max(moved, self.flops / (FLOPS * BLAS_FLOPS), self.longest, SHORTEST) + GAP
        return max(own, EAGER) if self.eager else own


def form(tokens, inputs, rows, without):
    """Tokens and tiles of a block of `linear_bf16_*`: the form that `linear/cuda.rs` chooses."""
    padded = math.ceil(inputs / 512) * 512
    capacity = min(64, max(8, 1 << (tokens - 1).bit_length()))
    while capacity > 8 and min(min(tokens, capacity) * (2 * padded + 64),
                               2 * min(tokens, capacity) * (2 * 512 + 64)) > MOST_SHARED:
        capacity //= 2
    two = rows // 16 >= 512 and capacity > 8 and (capacity < 64 or "TILES" not in without)
    return capacity, 2 if two else 1


def is_ours(tokens, inputs, rows, saved, without):
    """Whether kernels of our own multiply; `saved` launches of cuBLAS and around it are not needed then.
    As `Shape::is_for_few` in `linear/cuda.rs`."""
    if tokens > 64 or "CROSSOVER" in without:
        return tokens <= 64
    weights = 2 * inputs * rows
    capacity, tiles = form(tokens, inputs, rows, without)
    moved = weights * (1 + min(tokens, capacity) / (16 * tiles))
    return max(weights, 0.75 * moved) <= weights / BLAS_HBM + saved * (12 << 20)


def packed_product(name, tokens, inputs, matrices, bits, without, gated, residual):
    """As `product`, with quantized matrices. Products of bytes reach half of the rate, for each block of 32
    inputs has scales."""
    rows = sum(matrices)
    outputs = rows // 2 if gated else rows
    weights = inputs * rows * bits / 8
    if "PACKED" in without:
        # The tensor library quantizes tokens for each matrix, and has tiles of 64 rows and tokens.
        for own in matrices:
            yield Launch(f"quantize {name}", activations=tokens * inputs * 5)
            again = (math.ceil(tokens / 64) - 1) * weights * own / rows
            yield Launch(name, weights * own / rows, tokens * own * 4,
                         tokens * inputs * 1.1 * own / 64 + again, 4.0 * tokens * inputs * own)
        if gated:
            yield Launch(f"gate {name}", activations=tokens * outputs * 12)
        if residual:
            yield Launch(f"add {name}", activations=tokens * outputs * 12)
        return
    if tokens > 256:
        yield Launch(f"widen {name}", weights, inputs * rows * 2)
        yield from product(name, tokens, inputs, matrices, without, gated, residual)
        return
    if tokens >= 4:
        yield Launch(f"quantize {name}", activations=tokens * inputs * 5.25)
    tiles = 2 if tokens > 8 and rows // 32 >= 512 else 1
    x, groups = tokens * inputs * (1.25 if tokens >= 4 else 4), math.ceil(tokens / 64)
    yield Launch(name, weights, tokens * outputs * 4 * (2 if residual else 1),
                 rows / (32 * tiles) * x + (groups - 1) * weights, 4.0 * tokens * inputs * rows)


def product(name, tokens, inputs, matrices, without, gated=False, residual=False, rounded=False, bits=16):
    """Launches of the products of tokens, which may be rounded already, with matrices of these many rows."""
    if bits < 16:
        yield from packed_product(name, tokens, inputs, matrices, bits, without, gated, residual)
        return
    rows = sum(matrices)
    outputs = rows // 2 if gated else rows
    saved = len(matrices) + gated + residual
    if is_ours(tokens, inputs, rows, saved, without):
        capacity, tiles = form(tokens, inputs, rows, without)
        groups = math.ceil(tokens / capacity)
        blocks = math.ceil(rows / (16 * tiles))
        x = tokens * inputs * (2 if tokens >= 8 else 4)
        if tokens >= 8 and not rounded:
            yield Launch(f"round {name}", activations=tokens * inputs * 6)
        yield Launch(name, 2 * inputs * rows, tokens * outputs * 4 * (2 if residual else 1),
                     blocks * x + (groups - 1) * 2 * inputs * rows, 2.0 * tokens * inputs * rows)
        return
    if not rounded:
        yield Launch(f"round {name}", activations=tokens * inputs * 6)
    for index, own in enumerate(matrices):
        # Tiles of 128 x 256, two of which share what they read, or of as many tokens as there are.
        reread = tokens * inputs * 2 * (own / 256) + (max(tokens / 256, 1) - 1) * 2 * inputs * own
        yield Launch(f"{name} by cuBLAS", 2 * inputs * own, tokens * (own * 4 + inputs * 2), reread,
                     2.0 * tokens * inputs * own, blas=True)
    if gated:
        yield Launch(f"gate {name}", activations=tokens * outputs * (12 if "ROUNDED" in without else 10))
    if residual:
        yield Launch(f"add {name}", activations=tokens * outputs * 12)


def splits(model, rows, blocks, spans, without):
    """Blocks that share a context, and the spans of one that is not split: `Splits::of` in
    `paged_attention/cuda.rs`."""
    busy = min(-(-1024 // blocks), spans)
    room = max((64 << 20) // (model.heads * spans * (model.dim + 2) * 4), 1)
    if "PIECES" in without or (busy > 1 and rows <= room):
        return busy, 0
    return max(min(-(-spans // 8), 32_768 // blocks), busy, 1), 8


def attention(model, queries, contexts, without):
    """Attention of sequences with as many new positions each and these contexts before them."""
    group, lengths = model.heads // model.kv_heads, [context + queries for context in contexts]
    cache = sum(lengths) * model.kv_heads * model.dim * 2 * 2
    tokens = queries * len(contexts)
    rows = tokens * model.heads * model.dim * 4
    flops = 4.0 * model.heads * model.dim * sum(queries * (context + queries / 2) for context in contexts)
    long = "PIECES" not in without and queries <= 128 and min(lengths) // 64 >= queries
    if queries > 4 and not long:
        # Four warps with 16 rows each share what they read; a block of 32 positions takes them 1.4 us, and
        # tensor cores reach a quarter of their rate.
        blocks = (tokens * group // 64 + len(contexts)) * model.kv_heads
        waves = max(blocks / (3 * MULTIPROCESSORS), 1)
        yield Launch("attention", cache, 2 * rows, cache * max(queries * group / 64 - 1, 0), flops * 3.2,
                     longest=max(lengths) / 32 * 1.4e-6 / (2 if waves > 1 else 1))
        return
    # A warp takes a block of 32 positions in 1 us.
    spans = -(-max(lengths) // 256)
    blocks = (tokens * group // 16 + len(contexts)) * model.kv_heads
    count, whole = splits(model, tokens, blocks, spans, without)
    pieces = [-(-spans // count) if -(-length // 256) > whole else -(-length // 256) for length in lengths]
    split = [length for length in lengths if count > 1 and -(-length // 256) > whole]
    records = sum(queries * -(-length // 256) for length in split) * model.heads * (model.dim + 2) * 4
    # Blocks that find nothing to do leave after 1 us; a multiprocessor holds 6.
    leaving = blocks * (count - 1) * (1 - len(split) / len(lengths)) / (6 * MULTIPROCESSORS) * 1e-6
    yield Launch("attention", cache, 2 * rows + records, cache * (max(queries * group / 16, 1) - 1), flops,
                 longest=max(pieces) * 8e-6 + leaving)
    if count > 1:
        yield Launch("merge attention", 0, records + rows)


def experts(model, tokens, without):
    """The experts of a layer, by kernels that need no decision of the host, where there are any."""
    pairs = tokens * model.per_token
    hidden, inner, count = model.hidden, model.inner, model.experts
    if model.bits < 16 and "PACKED" in without:
        # The host reads the router's scores; each expert has its tokens brought to it, and its products.
        yield from product("router", tokens, hidden, [count], without)
        yield Launch("wait for scores", longest=WAIT)
        touched = count * (1 - (1 - model.per_token / count) ** tokens)
        for name, inputs, rows in (("gate", hidden, inner), ("up", hidden, inner), ("down", inner, hidden)):
            one = rows * inputs * model.bits / 8
            for _ in range(round(touched)):
                yield Launch(f"quantize for {name}", activations=pairs / touched * inputs * 5, eager=True)
                yield Launch(f"expert: {name}", one, pairs / touched * rows * 4, 0,
                             4.0 * pairs / touched * rows * inputs, eager=True)
        for _ in range(round(touched)):
            yield Launch("rows of an expert", activations=pairs / touched * hidden * 8, eager=True)
            yield Launch("gate of an expert", activations=pairs / touched * inner * 12, eager=True)
        yield Launch("combine", activations=pairs * hidden * 4 + tokens * hidden * 8, eager=True)
        return
    yield from product("router", tokens, hidden, [count], without)
    if tokens <= 8 and "TOGETHER" not in without:
        yield Launch("route and group", activations=tokens * count * 4 + pairs * 8)
    else:
        yield Launch("route", activations=tokens * count * 4)
        yield Launch("group", activations=pairs * 8)
    touched = count * (1 - (1 - model.per_token / count) ** tokens)
    likely = min(64, max(8, 1 << max(2 * pairs // count - 1, 1).bit_length()))
    own, quantized = pairs / touched, model.bits < 16
    many = not quantized and 2 * pairs > 16 * count and "GROUPED" not in without
    if many:
        yield Launch("round tokens", activations=tokens * hidden * 6)
    if quantized and tokens >= 4:
        yield Launch("quantize tokens", activations=tokens * hidden * 5.25)
        yield Launch("quantize inner", activations=pairs * inner * 5.25)
    for name, inputs, rows, outputs in (("gate and up", hidden, 2 * inner, inner),
                                        ("down", inner, hidden, hidden)):
        weights = touched * rows * inputs * model.bits / 8
        if many:
            # Half of a last tile is empty; tensor cores reach half of their rate this way.
            tiles, width = pairs / 64 + touched / 2, 2 if outputs == inner else 4
            yield Launch(f"experts: {name}", weights, pairs * outputs * width,
                         tiles * (64 + 128) * rows / 128 * inputs * 2 - weights,
                         2.0 * tiles * 64 * rows * inputs * BLAS_FLOPS / 0.5)
            continue
        passes = max(own / (64 if likely > 8 and quantized else likely), 1)
        x = (1.25 if tokens >= 4 else 4) / 2 if quantized else 4
        yield Launch(f"experts: {name}", weights, pairs * outputs * 4,
                     pairs * (rows / 16) * inputs * x + (passes - 1) * weights,
                     2.0 * pairs * rows * inputs * (2 if quantized else 1))
    yield Launch("combine", activations=pairs * hidden * 4 + tokens * hidden * 8)


def step(model, queries, contexts, without, logits=None):
    """Launches of a step: sequences with as many new positions each behind these contexts."""
    tokens, hidden = queries * len(contexts), model.hidden
    rows = logits or len(contexts)
    width, kv = model.heads * model.dim, model.kv_heads * model.dim
    yield Launch("embed", tokens * hidden * 2, tokens * hidden * 4)
    yield Launch("angles", activations=tokens * model.dim * 4)
    narrow = "NARROW" not in without and model.bits == 16 and tokens >= 8
    normed = "NORMED" not in without and tokens <= 3
    for _ in range(model.layers):
        if not normed:
            yield Launch("norm", activations=tokens * hidden * (6 if narrow else 8))
        yield from product("q, k, v", tokens, hidden, [width, kv, kv], without, rounded=narrow,
                           bits=model.bits)
        yield Launch("kv_write", activations=tokens * ((2 * width + 2 * kv) * 4 + 4 * kv))
        yield from attention(model, queries, contexts, without)
        yield from product("output", tokens, width, [hidden], without, residual=True, rounded=narrow,
                           bits=model.bits)
        if not normed or model.experts:
            yield Launch("norm", activations=tokens * hidden * (6 if narrow and not model.experts else 8))
        if model.experts:
            yield from experts(model, tokens, without)
        else:
            yield from product("gate and up", tokens, hidden, [model.inner] * 2, without, gated=True,
                               rounded=narrow, bits=model.bits)
            yield from product("down", tokens, model.inner, [hidden], without, residual=True,
                               rounded="ROUNDED" not in without, bits=model.bits)
    yield Launch("norm", activations=rows * hidden * 8)
    yield from product("head", rows, hidden, [model.vocab], without, bits=model.bits)
    # Greedy: one pass by a block a row, of which a multiprocessor holds one.
    waves = math.ceil(rows / MULTIPROCESSORS)
    yield Launch("sample", activations=rows * model.vocab * 4, longest=waves * model.vocab * 4 / 25e9)


def floor(model, queries, contexts):
    """Seconds below which no step of this kind is: its weights and caches, or its operations."""
    tokens = queries * len(contexts)
    attention = model.hidden * model.dim * (2 * model.heads + 2 * model.kv_heads)
    inner = 3 * model.hidden * model.inner
    touched = model.experts * (1 - (1 - model.per_token / model.experts) ** tokens) if model.experts else 1
    head = model.vocab * model.hidden
    weights = model.layers * (attention + inner * touched) + head
    cache = sum(contexts) * model.layers * model.kv_heads * model.dim * 4
    flops = 2.0 * tokens * model.layers * (attention + inner * (model.per_token or 1))
    return max((model.bits / 8 * weights + cache) / HBM, flops / FLOPS)


# What is asked of a step: by what its floor may be divided at most. None: ahead of other servers.
STEPS = [
    ("0.6b", "1 stream", 1, [100], 1 / 1.5),
    ("8b", "1 stream", 1, [100], 0.80),
    ("8b", "8 streams", 1, [500] * 8, None),
    ("8b", "16 streams", 1, [500] * 16, None),
    ("8b", "32 streams", 1, [500] * 32, None),
    ("8b", "48 streams", 1, [500] * 48, None),
    ("8b", "64 streams", 1, [500] * 64, None),
    ("8b", "256 streams", 1, [500] * 256, None),
    ("8b", "prompt of 2,048", 2048, [0], 0.60),
    ("8b", "128 streams, one of 32k", 1, [32_000] + [500] * 127, None),
    ("8b", "20 tokens behind 30k", 20, [30_000], None),
    ("a3b", "1 stream", 1, [100], 0.60),
    ("a3b", "64 streams", 1, [500] * 64, None),
    ("a3b", "256 streams", 1, [500] * 256, None),
    ("a3b", "prompt of 2,048", 2048, [0], None),
    ("8b-q4", "1 stream", 1, [100], None),
    ("8b-q4", "8 streams", 1, [500] * 8, None),
    ("8b-q4", "64 streams", 1, [500] * 64, None),
    ("8b-q4", "prompt of 2,048", 2048, [0], None),
    ("a3b-q4", "1 stream", 1, [100], None),
    ("a3b-q4", "64 streams", 1, [500] * 64, None),
    ("a3b-q4", "prompt of 2,048", 2048, [0], None),
]


def totals(launches):
    launches = list(launches)
    return (len(launches), sum(one.from_hbm for one in launches) / 1e9,
            sum(one.through_l2 for one in launches) / 1e9,
            sum(one.seconds for one in launches) * 1e3)


def print_steps(without):
    print("| model | step | launches | HBM, GB | L2, GB | ms | floor, ms | of the floor | target |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, what, queries, contexts, target in STEPS:
        model = MODELS[name]
        count, hbm, l2, ms = totals(step(model, queries, contexts, without))
        least = floor(model, queries, contexts) * 1e3
        wanted = "" if target is None else f"{target:.2f}"
        print(f"| {name} | {what} | {count} | {hbm:.1f} | {l2:.1f} | {ms:.2f} | {least:.2f} | "
              f"{least / ms:.2f} | {wanted} |")


def print_launches(model, streams, without):
    print("| launch | times | HBM, MB | L2, MB | us, each |\n|---|---|---|---|---|")
    kinds = {}
    for one in step(model, 1, [500] * streams, without):
        kinds.setdefault(one.name, []).append(one)
    for name, all_of_it in kinds.items():
        one = all_of_it[0]
        print(f"| {name} | {len(all_of_it)} | {one.from_hbm / 1e6:.2f} | {one.through_l2 / 1e6:.2f} | "
              f"{one.seconds * 1e6:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--launches", nargs=2, metavar=("MODEL", "STREAMS"))
    parser.add_argument("--without", nargs="+", default=[], choices=CHANGES, metavar="CHANGE",
                        help="\n".join(f"{name}: {what}" for name, what in CHANGES.items()))
    given = parser.parse_args()
    if given.launches:
        print_launches(MODELS[given.launches[0]], int(given.launches[1]), given.without)
    else:
        print_steps(given.without)


if __name__ == "__main__":
    main()
