#!/usr/bin/env python3
"""What `sconce plan` says of models, beside what is measured of them.

    plan.py [--sconce target/release/sconce] MODEL[,FLAG...] ...

Each model is planned with a KV cache of `--cache` and then served so: memory is that of the process once every
block of the cache was written, which takes as long as reading so many tokens, speeds are those of a prompt of 512
tokens and of one stream behind 16 without drafts. FLAGs are those of `sconce serve`
(models/dense,--quantize,q8_0). Shared machines change their speed within minutes, so speeds are foretold and
measured in turn, beside a server that is idle meanwhile, and the medians of `--rounds` are told. Standard library
only; needs Linux.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess

from served import benched, call, process, text


def planned(options, flags):
    command = [options.sconce, "plan", options.model, "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def resident(process_id):
    """Bytes of a process that are in memory and are no file's."""
    status = pathlib.Path(f"/proc/{process_id}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return 1024 * sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


def fill(url, model, tokens, context):
    """Writes every block of the cache, and the largest steps where the cache holds them."""
    # A text has some tokens more than were asked for.
    part = min(1000, context // 2)
    rounds = tokens // part
    ask = lambda at: call(f"{url}/v1/completions",
                          {"model": model, "prompt": text(url, model, part, at), "max_tokens": 1})
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(rounds + min(rounds + 1, 16))))


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--sconce", default="target/release/sconce")
    arguments.add_argument("--port", type=int, default=18441)
    arguments.add_argument("--cache", default="256MiB")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("models", nargs="+")
    options = arguments.parse_args()
    print("| model | memory, MB | | prefill, tok/s | | one stream, tok/s | |")
    print("|---|---|---|---|---|---|---|")
    for one in options.models:
        options.model, *more = one.split(",")
        cells = []
        for rounds in compared(options, more):
            said, measured, ratio = (
                statistics.median(column)
                for column in zip(*((said, measured, said / measured) for said, measured in rounds))
            )
            cells += [f"{said:.0f} / {measured:.0f}", f"{ratio:.2f}"]
        name = " ".join([pathlib.Path(options.model).name, *more])
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def compared(options, more):
    """Memory, speed of a prompt and of a stream: what was said and what was measured, in each round."""
    flags = ["--kv-cache-memory", options.cache, "--max-num-seqs", "16", "--draft-max", "0", *more]
    memory, prompts, streams = [], [], []
    with process(options, *flags) as (url, model, process_id):
        for at in range(options.rounds):
            plan = planned(options, flags)
            speed = plan["speed"]
            # Other prompts in each round, or they would be found in the cache.
            bench = lambda *more, seed=str(at): benched(options, url, "--seed", seed, *more)  # noqa: E731
            prompt = bench("--input-len", "512", "--output-len", "1", "--num-requests", "5")
            stream = bench("--input-len", "16", "--output-len", "64", "--num-requests", "3")
            prompts.append((speed["prefill_tokens_per_second"], 512_000 / prompt["ttft_ms"]["p50"]))
            streams.append((speed["decode_tokens_per_second"], 1000 / stream["tpot_ms"]["p50"]))
        fill(url, model, plan["plan"]["kv_tokens"], plan["plan"]["max_model_len"])
        memory.append((plan["process_bytes"] / 1e6, resident(process_id) / 1e6))
    return memory, prompts, streams


if __name__ == "__main__":
    main()
