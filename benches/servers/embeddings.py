#!/usr/bin/env python3
"""Embeddings per second: sconce beside sentence-transformers on torch and on ONNX Runtime.

    embeddings.py FOLDER [--sconce BINARY] [--texts 256] [--onnx]

FOLDER is a model that sentence-transformers reads (shapes.py makes `minilm` and `embedding`). Texts of
16 to 512 tokens, mixed: once as one client that sends 32 at a time, once as 32 clients that send one
at a time; in f32 and in bf16, each beside its like. The libraries have no server: they get all texts at
once in batches of 32, sorted by their length as `encode` does, and nothing is taken off for HTTP on our
side. The vectors are compared, and the runs take turns. Needs sentence-transformers and torch, with --onnx also onnx and onnxruntime.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

import numpy
import torch
from sentence_transformers import SentenceTransformer

BATCH = 32


def texts(count, tokenizer):
    """Texts of 16 to 512 tokens; the same ones in every run."""
    draw = random.Random(1)
    words = [word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha()]
    words.sort()
    result = []
    for _ in range(count):
        wanted = draw.randint(16, 500)
        text = " ".join(draw.choice(words) for _ in range(wanted))
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:wanted]
        result.append(tokenizer.decode(ids))
    return result


def post(url, inputs):
    body = json.dumps({"model": "m", "input": inputs, "encoding_format": "float"}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        return [item["embedding"] for item in json.load(response)["data"]]


def parts(inputs, size):
    return [inputs[i : i + size] for i in range(0, len(inputs), size)]


class Server:
    """Sconce, asked by `clients` threads for `each` texts at a time."""

    def __init__(self, binary, folder, kind):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [binary, "serve", "--model", str(folder), "--served-model-name", "m"]
        # Every round sends the same texts; a decoder would find them in its cache.
        command += ["--dtype", kind, "--no-prefix-cache"]
        self.log = tempfile.TemporaryFile()
        # Nothing is kept in the user's own store.
        env = os.environ | {"SCONCE_STORE": "memory"}
        self.process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=self.log, stderr=self.log, env=env
        )
        while True:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=1)
                return
            except OSError:
                if self.process.poll() is not None:
                    self.log.seek(0)
                    raise SystemExit(self.log.read().decode()) from None
                time.sleep(0.05)

    def encode(self, inputs, clients, each):
        ask = lambda part: post(self.url + "/v1/embeddings", part)  # noqa: E731
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            return [vector for part in pool.map(ask, parts(inputs, each)) for vector in part]


class Onnx:
    """The model's graph in ONNX Runtime, pooled and batched as `encode` does."""

    def __init__(self, model, folder):
        import onnxruntime

        self.tokenizer = model.tokenizer
        self.mode = model[1].pooling_mode if hasattr(model[1], "pooling_mode") else "mean"
        path = folder / "model.onnx"
        if not path.exists():
            self.export(model[0].auto_model, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count()
        self.session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    @staticmethod
    def export(inner, path):
        class Hidden(torch.nn.Module):
            def forward(self, input_ids, attention_mask):
                return inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

        ids = torch.ones(2, 8, dtype=torch.long)
        names = ["input_ids", "attention_mask"]
        free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        wrapper = Hidden()
        wrapper.inner = inner
        program = torch.onnx.export(
            wrapper.eval(),
            (ids, torch.ones_like(ids)),
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_shapes={name: free for name in names},
            dynamo=True,
        )
        program.save(str(path))

    def pool(self, hidden, mask):
        if "last" in self.mode:
            last = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
            return hidden[numpy.arange(len(hidden)), last]
        mask = mask[..., None]
        return (hidden * mask).sum(1) / mask.sum(1)

    def encode(self, inputs):
        order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]))
        vectors = [None] * len(inputs)
        for part in parts(order, BATCH):
            batch = [inputs[i] for i in part]
            tokens = self.tokenizer(batch, padding=True, truncation=True, max_length=512, return_tensors="np")
            feed = {name: tokens[name].astype(numpy.int64) for name in ("input_ids", "attention_mask")}
            hidden = self.session.run(["last_hidden_state"], feed)[0]
            pooled = self.pool(hidden, feed["attention_mask"])
            pooled /= numpy.linalg.norm(pooled, axis=1, keepdims=True)
            for i, vector in zip(part, pooled):
                vectors[i] = vector
        return vectors


def seconds(run):
    begun = time.monotonic()
    vectors = run()
    return time.monotonic() - begun, numpy.asarray(vectors, dtype=numpy.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sconce", default="target/release/sconce")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--onnx", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    kinds = {"f32": torch.float32, "bf16": torch.bfloat16}
    load = lambda kind: SentenceTransformer(  # noqa: E731
        str(arguments.folder), device="cpu", model_kwargs={"dtype": kinds[kind]}
    )
    libraries = {kind: load(kind) for kind in kinds}
    inputs = texts(arguments.texts, libraries["f32"].tokenizer)
    servers = {kind: Server(arguments.sconce, arguments.folder, kind) for kind in kinds}
    contenders = {}
    for kind, server in servers.items():
        ask = lambda *how, server=server: server.encode(inputs, *how)  # noqa: E731
        contenders[f"sconce {kind}, 1 client"] = lambda ask=ask: ask(1, BATCH)
        contenders[f"sconce {kind}, 32 clients"] = lambda ask=ask: ask(32, 1)
    for kind, model in libraries.items():
        contenders[f"torch {kind}"] = lambda model=model: model.encode(inputs, batch_size=BATCH)
    if arguments.onnx:
        onnx = Onnx(libraries["f32"], arguments.folder)
        contenders["onnx f32"] = lambda: onnx.encode(inputs)
    reference = libraries["f32"].encode(inputs[:BATCH], batch_size=1)
    rates = {name: [] for name in contenders}
    for _ in range(arguments.rounds):
        for name, run in contenders.items():
            spent, vectors = seconds(run)
            rates[name].append(len(inputs) / spent)
            nearest = (vectors[:BATCH] * reference).sum(1).min()
            assert nearest > 0.99, f"{name}: a vector differs from f32 torch, cosine {nearest:.4f}"
    for server in servers.values():
        server.process.terminate()
    medians = {name: statistics.median(r) for name, r in rates.items()}
    for name, median in medians.items():
        # Beside the best library of the same precision.
        kind = "bf16" if "bf16" in name else "f32"
        peers = [m for peer, m in medians.items() if kind in peer and "sconce" not in peer]
        print(f"{name:25} {median:8.1f} texts/s  {median / max(peers):5.2f}x the best library")


if __name__ == "__main__":
    main()
