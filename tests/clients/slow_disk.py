#!/usr/bin/env python3
"""Blocks on a disk that reads and writes 100 KB a second, made by bindfs: nobody's tokens change or wait.

    slow_disk.py --binary target/debug/sconce

The longest gaps between two tokens with and without such a disk are printed, and not judged: how long a
step takes is the machine's affair.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from serving import Server, checks, wait_until

RATE = "100k"
STREAMS = 4
FLAGS = ["--served-model-name", "demo"]


class SlowDisk:
    """A folder behind a file system that takes its time."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(self.folder.name)
        self.real, self.slow = root / "real", root / "slow"
        self.real.mkdir()
        self.slow.mkdir()
        rates = [f"--read-rate={RATE}", f"--write-rate={RATE}"]
        subprocess.run(["bindfs", *rates, self.real, self.slow], check=True)
        return self

    def __exit__(self, *_):
        # A server that was killed may still have a file open.
        subprocess.run(["umount", "-l", self.slow], check=True)
        self.folder.cleanup()

    def tier(self, milliseconds: int) -> list:
        return ["--kv-disk", str(self.slow), "--kv-disk-wait", str(milliseconds)]


def prompt(index: int) -> str:
    return f"Story {index}. " + "Once upon a time there lived a fox in a quiet village. " * 40


def stream(server: Server, index: int):
    """The tokens of an answer, and the longest gap between two of them in seconds."""
    body = {
        "model": "demo", "prompt": prompt(index), "max_tokens": 120, "temperature": 1.0, "seed": 5,
        "ignore_eos": True, "stream": True, "return_token_ids": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
    )
    tokens, gap, last = [], 0.0, None
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        tokens += json.loads(line[6:])["choices"][0].get("token_ids") or []
        now = time.monotonic()
        gap = max(gap, now - (last or now))
        last = now
    connection.close()
    return tokens, gap


def answers(server: Server):
    """The tokens of all streams, and the longest gap of any."""
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        streams = list(pool.map(lambda index: stream(server, index), range(STREAMS)))
    return [tokens for tokens, _ in streams], max(gap for _, gap in streams)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with checks() as check, SlowDisk() as disk:
        with Server(binary, *FLAGS) as server:
            expected, gap = answers(server)
            assert all(len(tokens) == 120 for tokens in expected), "whole answers"
            print(f"longest gap without a disk {gap * 1000:.0f} ms")
        with Server(binary, *FLAGS, *disk.tier(1000)) as server:
            with check("streams beside a disk that is being written have the same tokens"):
                tokens, gap = answers(server)
                assert tokens == expected
                print(f"longest gap beside the slow disk {gap * 1000:.0f} ms")
            wait_until(
                lambda: server.metric("sconce:kv_disk_stored_blocks_total") > 0, 60, "a block is written"
            )
        # Leaving the context killed it in the middle of its writing.
        with check("what a killed server left is whole"):
            done = subprocess.run([binary, "cache", "verify", disk.real], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        with Server(binary, *FLAGS, *disk.tier(100)) as server:
            with check("prompts whose blocks are read too slowly are computed"):
                tokens, gap = answers(server)
                assert tokens == expected
                assert server.metric("vllm:external_prefix_cache_queries_total") > 0
                print(f"longest gap while blocks are read slowly {gap * 1000:.0f} ms")
            with check("the server wrote no panic into its log"):
                assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
