#!/usr/bin/env python3
"""A server on every level of CPU kernels, also of a CPU that is only emulated.

    levels.py --binary sconce --levels scalar,neon [--run "qemu-aarch64 -L /usr/aarch64-linux-gnu"]
              [--expect target/debug/sconce]

Tiny checkpoints must give the tokens and log-probabilities that transformers computed; the demo model
must tell the same story whatever its weights are rounded to, as `--expect` (another build) tells it.
"""

import argparse
import contextlib
import json
import pathlib
import shlex
import shutil
import sys
import tempfile

from serving import Server, checks

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures/parity"
# Full and sliding attention, experts, a compressed cache, recurrent layers.
FAMILIES = ["qwen3", "gemma2", "qwen3_moe", "deepseek_v3", "granite_hybrid"]
# Each kind of products: pairs of bf16, wide and small bytes, two scales.
ROUNDED = [[], ["--quantize", "q8_0"], ["--quantize", "q4_k"], ["--quantize", "q6_k"]]
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a lamp."}]}


def launcher(folder: pathlib.Path, run: str, binary: str, level: str) -> str:
    """A program that starts the binary on a level. A server gets no variables of ours otherwise."""
    script = folder / f"sconce-{level or 'best'}"
    set_level = f"SCONCE_KERNELS={level} " if level else ""
    script.write_text(f'#!/bin/sh\n{set_level}exec {run} {shlex.quote(binary)} "$@"\n')
    script.chmod(0o755)
    return str(script)


def checkpoint(folder: pathlib.Path, family: str) -> pathlib.Path:
    """The fixture with a tokenizer, of which only the number of tokens matters."""
    model = folder / family
    shutil.copytree(FIXTURES / family, model)
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {f"t{i}": i for i in range(vocab)},
            "unk_token": "t0",
        },
    }
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model


def prompt(length: int, vocab: int) -> list[int]:
    """The fixed prompt of this length, as the fixture script computes it."""
    return [(length * 31 + i * i * 7 + i * 3) % (vocab - 4) + 4 for i in range(length)]


@contextlib.contextmanager
def serving(start: str, *flags: str):
    with Server(start, *flags) as server:
        assert "is not available here" not in server.log_tail(), "the CPU lacks the level"
        yield server


def equals_reference(start: str, model: pathlib.Path):
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    reference = json.loads((model / "reference.json").read_text())
    exact = ["--dtype", "f32", "--kv-cache-dtype", "f32", "--model", str(model)]
    with serving(start, *exact) as server:
        for run in reference["float32"]:
            body = {
                "prompt": prompt(run["prompt"], vocab),
                "max_tokens": len(run["tokens"]),
                "temperature": 0,
                "ignore_eos": True,
                "logprobs": 1,
                "return_token_ids": True,
            }
            status, answer = server.post("/v1/completions", body)
            assert status == 200, answer
            choice = answer["choices"][0]
            assert choice["token_ids"] == run["tokens"], (choice["token_ids"], run["tokens"])
            ours = choice["logprobs"]["token_logprobs"]
            theirs = [
                step[ids.index(token)]
                for token, ids, step in zip(run["tokens"], run["ids"], run["logprobs"])
            ]
            off = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            assert off < 2e-4, f"a log-probability is {off} off"


def story(start: str, flags: list[str]) -> str:
    with serving(start, *flags) as server:
        status, answer = server.post(
            "/v1/chat/completions",
            {**STORY, "model": server.model(), "temperature": 0, "max_tokens": 40},
        )
        assert status == 200, answer
        text = answer["choices"][0]["message"]["content"]
        assert text.strip()
        return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--levels", required=True, help="with commas between them")
    parser.add_argument("--run", default="", help="what runs the binary, with its flags")
    parser.add_argument("--expect", help="a binary whose stories are expected")
    parser.add_argument("--families", default=",".join(FAMILIES))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check = stack.enter_context(checks())
        models = [checkpoint(folder, family) for family in options.families.split(",")]
        expected = {}
        if options.expect:
            start = launcher(folder, "", options.expect, "")
            expected = {tuple(flags): story(start, flags) for flags in ROUNDED}
        for level in options.levels.split(","):
            start = launcher(folder, options.run, options.binary, level)
            for model in models:
                with check(f"{level}: {model.name} computes what transformers does"):
                    equals_reference(start, model)
            for flags in ROUNDED:
                with check(f"{level}: the demo model tells its story {' '.join(flags)}"):
                    told = story(start, flags)
                    assert told == expected.get(tuple(flags), told), (told, expected)
        return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
