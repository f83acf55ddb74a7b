#!/usr/bin/env python3
"""Faults of all kinds at once, for a while: nothing that was taken is lost, and nothing is left behind.

    soak.py [--binary target/debug/sconce] [--minutes 60] [--seed 1]

Two servers share a PostgreSQL database, and one of them is killed again and again. Meanwhile clients ask, go
away, send nonsense, read slowly, set deadlines, ask for grammars and give them up, load and unload adapters,
and store batches. Every request must end: answered whole, refused with a reason, or cut by the kill of its
server. At the end nothing runs, no block is in use, every line of every batch has its answer, and memory is
what it was after five minutes.
"""

import argparse
import array
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time

from postgres import Postgres
from serving import Server, checks, wait_until

MODEL = "sconce-demo"
JSON = {"content-type": "application/json"}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer"}},
    "required": ["name", "n"],
    "additionalProperties": False,
}


def write_adapter(folder: pathlib.Path):
    """A small LoRA adapter of the demo model."""
    folder.mkdir()
    modules = [("self_attn.q_proj", 256, 256), ("mlp.gate_proj", 256, 640)]
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 1, "bias": "none",
              "target_modules": [name.split(".")[1] for name, *_ in modules]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    numbers, header, data = random.Random(1), {}, b""
    for layer in range(4):
        for name, inputs, outputs in modules:
            for part, shape in [("A", [2, inputs]), ("B", [outputs, 2])]:
                values = array.array("f", (numbers.uniform(-0.05, 0.05) for _ in range(shape[0] * shape[1])))
                key = f"base_model.model.model.layers.{layer}.{name}.lora_{part}.weight"
                begin, data = len(data), data + values.tobytes()
                header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)



class Client(threading.Thread):
    """Does one kind of thing again and again."""

    def __init__(self, soak: "Soak", work, number: int):
        super().__init__(daemon=True)
        self.soak, self.work = soak, work
        self.random = random.Random(f"{soak.seed} {work.__name__} {number}")

    def run(self):
        while not self.soak.over.is_set():
            server = self.random.choice(self.soak.servers)
            life = self.soak.lives[server]
            began = time.monotonic()
            try:
                end = self.work(self, server)
            except Exception as error:  # noqa: BLE001: whatever went wrong is told
                # It is only excused if its server was killed meanwhile or is not there yet.
                killed = self.soak.lives[server] != life or server in self.soak.down
                end = "cut by a kill" if killed else f"LOST: {type(error).__name__} {error}"[:300]
                if killed:
                    time.sleep(0.2)
            self.soak.count(self.work.__name__, end, time.monotonic() - began)

    def post(self, server: Server, body: dict, path: str = "/v1/completions", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request("POST", path, json.dumps(body), JSON | (headers or {}))
        return connection, connection.getresponse()

    def body(self, **fields) -> dict:
        number = self.random.randrange(1 << 30)
        prompt = "The lamp by the sea. " * self.random.randrange(1, 12) + str(number % 50)
        body = {"model": MODEL, "prompt": prompt, "max_tokens": self.random.randrange(1, 60), "seed": number}
        return body | fields


def answers(client: Client, server: Server) -> str:
    tokens = client.random.randrange(1, 60)
    connection, response = client.post(server, client.body(ignore_eos=True, max_tokens=tokens))
    with contextlib.closing(connection):
        answer = json.loads(response.read())
    if response.status == 200:
        assert answer["usage"]["completion_tokens"] == tokens, answer
        return "answered"
    return refusal(response.status, answer)


def refusal(status: int, answer: dict) -> str:
    assert status in (429, 503) and answer["error"]["message"], (status, answer)
    return f"refused {status}"


def streams(client: Client, server: Server) -> str:
    """Read to the end, sometimes slowly."""
    connection, response = client.post(server, client.body(stream=True))
    with contextlib.closing(connection):
        if response.status != 200:
            return refusal(response.status, json.loads(response.read()))
        slow = client.random.random() < 0.2
        text = b""
        while line := response.readline():
            text += line
            if slow:
                time.sleep(0.02)
    if text.endswith(b"data: [DONE]\n\n"):
        return "answered" if b'"error"' not in text else "ended with an error"
    raise ConnectionError("a stream without its end")


def goes_away(client: Client, server: Server) -> str:
    body = client.body(stream=True, max_tokens=400, ignore_eos=True)
    connection, response = client.post(server, body)
    with contextlib.closing(connection):
        if response.status != 200:
            return refusal(response.status, json.loads(response.read()))
        response.read1(client.random.randrange(1, 4000))
    return "went away"


def nonsense(client: Client, server: Server) -> str:
    kinds = [
        b"\x00\xff\xfe", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
        b"content-type: application/json\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
        b"content-length: 4\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: 8\r\n\r\n{\"a\": [[",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(500)) + b"\r\n",
    ]
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(client.random.choice(kinds))
            sock.shutdown(socket.SHUT_WR)
            answer = sock.recv(65536)
            assert not answer.startswith(b"HTTP/1.1 5"), answer[:200]
    return "refused"


def malformed(client: Client, server: Server) -> str:
    wrong = client.random.choice([
        {"max_tokens": -1}, {"temperature": "hot"}, {"model": "nobody"}, {"prompt": None},
        {"regex": "(a"}, {"logit_bias": {"x": 1}}, {"stop": [""] * 99}, {"n": 100_000},
    ])
    connection, response = client.post(server, client.body() | wrong)
    with contextlib.closing(connection):
        answer = json.loads(response.read())
    assert response.status in (400, 404, 429, 503), (response.status, answer, wrong)
    return "refused"


def deadlines(client: Client, server: Server) -> str:
    body = client.body(max_tokens=500, ignore_eos=True, deadline_ms=client.random.randrange(1, 400))
    connection, response = client.post(server, body)
    with contextlib.closing(connection):
        answer = json.loads(response.read())
    if response.status == 408:
        return "too late"
    if response.status == 200:
        return "answered"
    return refusal(response.status, answer)


def grammars(client: Client, server: Server) -> str:
    body = {
        "model": MODEL, "max_tokens": 120, "seed": client.random.randrange(1 << 30), "stream": True,
        "messages": [{"role": "user", "content": "An object"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": SCHEMA}},
    }
    connection, response = client.post(server, body, "/v1/chat/completions")
    with contextlib.closing(connection):
        if response.status != 200:
            return refusal(response.status, json.loads(response.read()))
        if client.random.random() < 0.5:
            response.read1(200)
            return "went away"
        text = response.read()
    if not text.endswith(b"data: [DONE]\n\n"):
        raise ConnectionError("a stream without its end")
    return "answered"


def adapters(client: Client, server: Server) -> str:
    name = f"lora-{client.random.randrange(3)}"
    path = client.random.choice(["/v1/load_lora_adapter", "/v1/unload_lora_adapter"])
    body = {"lora_name": name} | ({"lora_path": str(client.soak.adapter)} if "/load" in path else {})
    connection, response = client.post(server, body, path)
    with contextlib.closing(connection):
        response.read()
    assert response.status in (200, 400, 404), response.status
    connection, response = client.post(server, client.body(model=name, max_tokens=8))
    with contextlib.closing(connection):
        answer = json.loads(response.read())
    if response.status in (200, 404):
        return "answered" if response.status == 200 else "not loaded"
    return refusal(response.status, answer)


def slowloris(client: Client, server: Server) -> str:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        for byte in b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-a: b":
            if client.soak.over.wait(0.05):
                break
            sock.sendall(bytes([byte]))
    return "went away"


def batches(client: Client, server: Server) -> str:
    lines = [
        json.dumps({"custom_id": str(n), "method": "POST", "url": "/v1/completions",
                    "body": client.body(max_tokens=4)})
        for n in range(8)
    ]
    form = "\r\n".join([
        "--XX", 'content-disposition: form-data; name="purpose"', "", "batch",
        "--XX", 'content-disposition: form-data; name="file"; filename="l.jsonl"', "", "\n".join(lines),
        "--XX--", "",
    ])
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/files", form, {"content-type": "multipart/form-data; boundary=XX"})
        response = connection.getresponse()
        file = json.loads(response.read())
    assert response.status == 200, file
    body = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    connection, response = client.post(server, body, "/v1/batches")
    with contextlib.closing(connection):
        batch = json.loads(response.read())
    assert response.status == 200, batch
    with client.soak.lock:
        client.soak.batches.append(batch["id"])
    client.soak.over.wait(3)
    return "stored"


WORK = {answers: 4, streams: 5, goes_away: 3, nonsense: 1, malformed: 1, deadlines: 2, grammars: 2,
        adapters: 1, slowloris: 3, batches: 1}


class Soak:
    def __init__(self, servers: list[Server], adapter: pathlib.Path, minutes: float, seed: int):
        self.servers, self.adapter, self.minutes, self.seed = servers, adapter, minutes, seed
        self.over, self.lock = threading.Event(), threading.Lock()
        self.counts = collections.Counter()
        self.longest = collections.defaultdict(float)
        self.batches, self.memory = [], []
        self.lives, self.down = {server: 0 for server in servers}, set()

    def count(self, kind: str, end: str, seconds: float):
        with self.lock:
            self.counts[kind, end] += 1
            self.longest[kind] = max(self.longest[kind], seconds)

    def run(self):
        clients = [Client(self, work, n) for work, count in WORK.items() for n in range(count)]
        for client in clients:
            client.start()
        seconds = 60 * self.minutes
        # Every five minutes of an hour, and once at least.
        kills = max(1, int(self.minutes // 5))
        began, killed = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            time.sleep(1)
            self.memory.append((elapsed, resident(self.servers[0])))
            assert self.servers[0].process.poll() is None, "the server that nobody kills has ended"
            if elapsed > seconds * (killed + 0.5) / kills:
                self.kill(self.servers[1])
                killed += 1
        self.over.set()
        for client in clients:
            client.join(timeout=180)
            assert not client.is_alive(), f"{client.work.__name__} hangs"
        return killed

    def kill(self, server: Server):
        self.down.add(server)
        self.lives[server] += 1
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        time.sleep(1)
        server.start()
        self.lives[server] += 1
        self.down.discard(server)


def resident(server: Server) -> int:
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def settle(soak: Soak):
    """Every line has its answer, nothing runs, nothing is kept."""
    server = soak.servers[0]
    for batch in soak.batches:
        done = lambda batch=batch: json.loads(server.request("GET", f"/v1/batches/{batch}")[2])
        wait_until(lambda done=done: done()["status"] == "completed", 300, "a batch ends")
        counts = done()["request_counts"]
        assert counts == {"total": 8, "completed": 8, "failed": 0}, counts
    for one in soak.servers:
        for name in ["vllm:num_requests_running", "vllm:num_requests_waiting", "sconce:kv_blocks_in_use"]:
            wait_until(lambda one=one, name=name: one.metric(name) == 0, 120, name)
        load = lambda one=one: json.loads(one.request("GET", "/load")[2])["server_load"]
        wait_until(lambda load=load: load() == 0, 60, "no place is taken")
    connections = lambda: server.metric("sconce:open_connections")
    wait_until(lambda: connections() <= 2, 90, "connections end")


def memory_is_flat(soak: Soak):
    """After five minutes memory grows by 3 % at most; a run of less than ten has half of its time until then.

    What happens to be under way moves it by that much within seconds: compared are the medians of a thirtieth of
    the time, two minutes of an hour.
    """
    begin = [size for at, size in soak.memory if at > min(300, 30 * soak.minutes)]
    some = max(len(soak.memory) // 30, 1)
    first, last = statistics.median(begin[:some]), statistics.median(begin[-some:])
    grown = last / first - 1
    print(f"    {first / 2**20:.1f} MiB at first, {last / 2**20:.1f} MiB at the end: {100 * grown:+.1f} %")
    part = max(len(begin) // 11, 1)
    print("    in eleven parts:", [size >> 20 for size in begin[::part]], "MiB")
    if soak.minutes >= 20:
        assert grown < 0.03, grown


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/sconce")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    binary = str(pathlib.Path(arguments.binary).resolve())
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as data, checks() as check:
        adapter = pathlib.Path(name) / "adapter"
        write_adapter(adapter)
        postgres = Postgres(data)
        store = ("--store", "memory")
        if postgres.programs:
            postgres.init()
            store = ("--store", postgres.url)
        flags = (*store, "--allow-runtime-lora-updating", "--max-num-seqs", "8", "--max-queued-requests", "12",
                 "--kv-cache-memory", "8MiB", "--max-queued-tokens", "2000")
        try:
            with Server(binary, *flags) as left, Server(binary, *flags) as right:
                # Without a database nobody else runs what a killed server had.
                servers = [left, right] if postgres.programs else [left, left]
                soak = Soak(servers, adapter, arguments.minutes, arguments.seed)
                with check("faults of all kinds, and kills"):
                    killed = soak.run()
                    for (kind, end), count in sorted(soak.counts.items()):
                        print(f"    {kind:12} {end:24} {count:7}")
                    slowest = ", ".join(f"{kind} {most:.1f} s" for kind, most in sorted(soak.longest.items()))
                    print(f"    {killed} kills; slowest: {slowest}")
                    lost = [end for _, end in soak.counts if end.startswith("LOST")]
                    assert not lost, lost
                    assert soak.counts["answers", "answered"] and soak.counts["streams", "answered"]
                with check("nothing is left behind"):
                    settle(soak)
                with check("memory is flat"):
                    memory_is_flat(soak)
        finally:
            if postgres.programs:
                with contextlib.suppress(Exception):
                    postgres.stop()
        return check.exit_status()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
