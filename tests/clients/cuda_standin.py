#!/usr/bin/env python3
"""A build for NVIDIA GPUs on a stand-in for their driver, which refuses what a driver refuses.

    cuda_standin.py --binary target/debug/sconce --libraries DIR

`tests/cuda/standin/build.sh` makes the libraries. Servers run tiny checkpoints: they must compute what
transformers computed, with captured steps, in company as alone, and get over whatever fails.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import mmap
import os
import pathlib
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time

from levels import checkpoint, equals_reference, prompt
from serving import Server, checks, child, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The words of the driver's control page, in its order.
WORDS = [
    "allocation_fails_in", "launch_breaks_in", "capture_fails_in",
    "violations", "allocations", "captures", "replays", "launches", "bytes_in_use", "most_bytes",
]
# Sizes of at most 8 sequences and 16 blocks: 1, 2, 4 and 8 tokens, twice.
SIZES = 8
FLAGS = ["--device", "cuda:0", "--max-num-seqs", "8", "--max-num-batched-tokens", "64"]


class Control:
    """What the driver is told to do and what it has seen."""

    def __init__(self, path: pathlib.Path):
        path.write_bytes(bytes(4096))
        self.file = path.open("r+b")
        self.page = mmap.mmap(self.file.fileno(), 4096)

    def __getitem__(self, name: str) -> int:
        return struct.unpack_from("<Q", self.page, 8 * WORDS.index(name))[0]

    def __setitem__(self, name: str, value: int):
        struct.pack_into("<Q", self.page, 8 * WORDS.index(name), value)


class Subject:
    """A binary on the stand-in, with a model."""

    def __init__(self, folder: pathlib.Path, options):
        self.control = Control(folder / "control")
        self.start = folder / "sconce-cuda"
        self.start.write_text(
            "#!/bin/sh\n"
            f"export LD_LIBRARY_PATH={shlex.quote(str(pathlib.Path(options.libraries).resolve()))}\n"
            f"export STANDIN_CONTROL={shlex.quote(str(folder / 'control'))} STANDIN_DEVICES=2\n"
            f'exec {shlex.quote(str(pathlib.Path(options.binary).resolve()))} "$@" {" ".join(FLAGS)}\n'
        )
        self.start.chmod(0o755)
        self.model = checkpoint(folder, "llama3")

    def order(self, **orders: int):
        """What the driver is told to do, and no more; it has seen nothing yet."""
        for word in WORDS:
            self.control[word] = orders.get(word, 0)

    @contextlib.contextmanager
    def serving(self, *flags: str, **orders: int):
        """A server; the driver's orders stand before it starts."""
        self.order(**orders)
        with Server(str(self.start), "--model", str(self.model), *flags) as server:
            yield server
            self.no_violation(server)

    def no_violation(self, server):
        assert self.control["violations"] == 0, log_of(server)


def log_of(server) -> str:
    server.log.seek(0)
    return server.log.read()


def completion(index: int, tokens: int = 24, **fields) -> dict:
    return {
        "prompt": prompt(5 + 7 * index, 320), "max_tokens": tokens, "temperature": 0,
        "ignore_eos": True, "return_token_ids": True, **fields,
    }


def choice_of(server, index: int, **fields) -> dict:
    status, answer = server.post("/v1/completions", completion(index, **fields))
    assert status == 200, (status, answer)
    return answer["choices"][0]


def tokens_of(server, index: int, **fields) -> list[int]:
    return choice_of(server, index, **fields)["token_ids"]


def computes(subject: Subject):
    equals_reference(str(subject.start), subject.model)
    assert subject.control["violations"] == 0


def captures(subject: Subject):
    with subject.serving() as server:
        assert subject.control["captures"] >= SIZES, subject.control["captures"]
        before = subject.control["replays"]
        tokens_of(server, 0)
        # The first token comes from the prompt's own step.
        assert subject.control["replays"] - before >= 22, subject.control["replays"] - before
        assert "not captured" not in log_of(server), log_of(server)


def embeds(subject: Subject):
    """A step without logits, alone and beside an answer."""
    with subject.serving() as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        def embedding(_):
            body = {"input": [prompt(40, 320)], "model": server.model()}
            status, answer = server.post("/v1/embeddings", body)
            assert status == 200, (status, answer)
            return answer["data"][0]["embedding"]

        alone = embedding(0)
        answer = pool.submit(tokens_of, server, 0, tokens=100)
        assert list(pool.map(embedding, range(3))) == [alone] * 3
        assert len(answer.result()) == 100


def company(subject: Subject, *flags: str):
    """1, 2, 8 and 1 streams: the same tokens, and nothing is captured after the start."""
    with subject.serving(*flags) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        captured = subject.control["captures"]
        alone = [tokens_of(server, index) for index in range(8)]
        for streams in [1, 2, 8, 5, 1]:
            together = list(pool.map(lambda index: tokens_of(server, index), range(streams)))
            assert together == alone[:streams], streams
        sampled = {"temperature": 0.9, "top_p": 0.8, "seed": 5, "logprobs": 2,
                   "repetition_penalty": 1.1}
        assert tokens_of(server, 3, **sampled) == tokens_of(server, 3, **sampled)
        assert subject.control["captures"] == captured


def adapter(subject: Subject):
    """An adapter is loaded and dropped while others are answered."""
    path = str(ROOT / "tests/fixtures/lora/llama3-bf16")
    with subject.serving("--allow-runtime-lora-updating") as server, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        captured = subject.control["captures"]
        alone = [tokens_of(server, index, tokens=200) for index in range(3)]
        traffic = [pool.submit(tokens_of, server, index, tokens=200) for index in range(3)]
        told = None
        for _ in range(3):
            body = {"lora_name": "own", "lora_path": path}
            status, _, answer = server.request(
                "POST", "/v1/load_lora_adapter", json.dumps(body).encode(),
                {"content-type": "application/json"})
            assert status == 200, answer
            own = tokens_of(server, 0, model="own")
            assert own == (told or own)
            told = own
            status, _, answer = server.request(
                "POST", "/v1/unload_lora_adapter", json.dumps({"lora_name": "own"}).encode(),
                {"content-type": "application/json"})
            assert status == 200, answer
        assert [one.result() for one in traffic] == alone
        assert subject.control["captures"] == captured


def one_size_less(subject: Subject):
    with subject.serving(capture_fails_in=3) as server:
        assert f"1 of {SIZES} sizes" in log_of(server), log_of(server)
        assert len(tokens_of(server, 1)) == 24


def out_of_memory(subject: Subject):
    """Every allocation of an answer fails once: that request may, and no other."""
    with subject.serving("--no-prefix-cache") as server:
        expected = tokens_of(server, 2, tokens=4)
        failed = 0
        for allocation in range(1, 2000):
            subject.control["allocation_fails_in"] = allocation
            status, answer = server.post("/v1/completions", completion(2, tokens=4))
            survived = subject.control["allocation_fails_in"] > 0
            subject.control["allocation_fails_in"] = 0
            assert status == 200 or "memory" in json.dumps(answer).lower(), answer
            failed += status != 200
            assert tokens_of(server, 2, tokens=4) == expected, allocation
            if survived:
                break
        assert failed >= 10, (failed, allocation)
        print(f"       {failed} of {allocation} allocations failed a request")


def breaks(subject: Subject):
    """After an error that a GPU does not recover from requests end and so does the process."""
    with subject.serving() as server:
        assert server.request("GET", "/health/ready")[0] == 200
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = [pool.submit(server.post, "/v1/completions", completion(index, tokens=300))
                       for index in range(2)]
            time.sleep(0.3)
            subject.control["launch_breaks_in"] = 5
            answers = [one.result() for one in running]
        assert all(status == 500 for status, _ in answers), answers
        wait_until(lambda: server.process.poll() is not None, 20, "the process ends")
        assert server.process.returncode not in (0, None), server.process.returncode
        assert "the GPU has failed" in log_of(server), log_of(server)


def two_ranks(subject: Subject):
    """Steps that two GPUs compute together are captured on both, and have the bits of those that are not."""
    flags = ["--tensor-parallel", "2"]
    fields = {"logprobs": 3, "tokens": 40}
    with subject.serving() as server:
        alone = [tokens_of(server, index, **fields) for index in range(8)]

    def answers(server, indices):
        def one(index):
            choice = choice_of(server, index, **fields)
            return choice["token_ids"], choice["logprobs"]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(one, indices))

    with subject.serving(*flags, "--enforce-eager") as server:
        assert subject.control["captures"] == 0
        eager = answers(server, range(8))
        assert subject.control["replays"] == 0
    assert [tokens for tokens, _ in eager] == alone
    with subject.serving(*flags) as server:
        # Both count in one place, at the same time, and may lose some.
        assert subject.control["captures"] > 1.5 * SIZES, subject.control["captures"]
        before = subject.control["replays"]
        for streams in [1, 2, 8, 5, 1]:
            assert answers(server, range(streams)) == eager[:streams], streams
        assert subject.control["replays"] - before > 1.5 * 4 * 39, subject.control["replays"] - before
        assert "not captured" not in log_of(server), log_of(server)


def ranks_differ(subject: Subject):
    """A step that one rank captured and another didn't would have sums of two sizes: the start ends with it."""
    subject.order(capture_fails_in=3)
    command = [str(subject.start), "serve", "--port", str(free_port()), "--model", str(subject.model)]
    done = subprocess.run(
        [*command, "--tensor-parallel", "2"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.returncode
    assert "all must have the same" in done.stdout + done.stderr, done.stderr


def rank_dies(subject: Subject):
    """A GPU that waits for one that is gone waits for ever: the server ends all the same."""
    with subject.serving("--tensor-parallel", "2") as server, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = pool.submit(server.post, "/v1/completions", completion(0, tokens=400))
        wait_until(lambda: server.metric("vllm:num_requests_running") > 0, 30, "it runs")
        os.kill(child(server.process.pid), signal.SIGKILL)
        wait_until(lambda: server.process.poll() is not None, 40, "the process ends")
        assert server.process.returncode == 1, server.process.returncode
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, answer = running.result()
            assert status == 500, (status, answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--only", default="", help="names of checks, with commas between them")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    everything = {
        "computes": ("a model computes what transformers does", computes),
        "captures": ("all sizes are captured and replayed", captures),
        "embeds": ("texts are embedded, alone and beside an answer", embeds),
        "company": ("1, 2, 8 and 1 streams agree", company),
        "adapter": ("an adapter is loaded under traffic", adapter),
        "one_size_less": ("a size that can't be captured leaves the others", one_size_less),
        "out_of_memory": ("no memory at each allocation in turn", out_of_memory),
        "breaks": ("a broken GPU ends the process", breaks),
        "two_ranks": ("two GPUs capture what they compute together", two_ranks),
        "ranks_differ": ("ranks that captured different steps are told", ranks_differ),
        "rank_dies": ("a rank that dies ends the server", rank_dies),
    }
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check = stack.enter_context(checks())
        subject = Subject(folder, options)
        for name, (what, work) in everything.items():
            if not only or name in only:
                with check(what):
                    work(subject)
        return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
