#!/usr/bin/env python3
"""Files of each kind of GGUF blocks, here and in llama.cpp, in turn.

    kinds.py --llama-bench llama-bench [--sconce target/release/sconce] [--rounds 2] FILE ...

`files.py kind` writes such files. Printed are tokens per second of a prompt of 512 tokens and of one stream, with
llama.cpp's beside them, and how much memory a server has once it answered, that of the file's pages and its own,
beside the size of the file. Ours come through the server, by `sconce bench`; llama.cpp's from its own program,
without one. Machines drift: both are measured in turn, `--rounds` times, and the better of each counts. Standard
library only; needs Linux.
"""

import argparse
import json
import os
import pathlib
import subprocess

from served import benched, process


def ours(options, file):
    """Tokens per second of a prompt and of a stream, bytes in memory."""
    options.model = file
    flags = ["--draft-max", "0", "--kv-cache-memory", "64MiB", "--max-num-seqs", "1"]
    with process(options, *flags) as (url, _, process_id):
        prefill = benched(options, url, "--input-len", "512", "--output-len", "1", "--num-requests", "3")
        decode = benched(options, url, "--input-len", "16", "--output-len", "64", "--num-requests", "2")
        status = pathlib.Path(f"/proc/{process_id}/status").read_text()
        resident = 1024 * int(status.split("VmRSS:")[1].split()[0])
    return 512_000 / prefill["ttft_ms"]["p50"], 1000 / decode["tpot_ms"]["p50"], resident


def theirs(options, file):
    """Tokens per second of a prompt and of a stream."""
    command = [options.llama_bench, "-m", file, "-p", "512", "-n", "64", "-r", "2", "-t", str(os.cpu_count()), "-o", "json"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return [next(one["avg_ts"] for one in told if one["n_prompt"] == prompt) for prompt in (512, 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sconce", default="target/release/sconce")
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--port", type=int, default=18461)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    print("| file | MB | prefill, tok/s | | one stream, tok/s | | resident, MB |")
    print("|---|---|---|---|---|---|---|")
    for file in options.files:
        rounds = [(ours(options, file), theirs(options, file)) for _ in range(options.rounds)]
        cells = []
        for at in range(2):
            own, other = (max(one[side][at] for one in rounds) for side in range(2))
            cells += [f"{own:.0f} / {other:.0f}", f"{own / other:.2f}"]
        resident = rounds[-1][0][2] / 1e6
        path = pathlib.Path(file)
        print(f"| {path.stem} | {path.stat().st_size / 1e6:.0f} | {' | '.join(cells)} | {resident:.0f} |", flush=True)


if __name__ == "__main__":
    main()
