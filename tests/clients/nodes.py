#!/usr/bin/env python3
"""One model on two machines: the second one is a network namespace, with a delay and a loss between both.

    nodes.py [--binary target/debug/sconce] [--json FILE]

Needs root, iproute2 and /dev/net/tun. The model is split within its layers (tensor parallel) and by its layers
(pipeline parallel). Answers must be those of two ranks on one machine, to the bit, and of stages those of one
process, whatever the network does; a wrong secret is refused; a rank that dies ends its requests with an error and then
the server, and the group is there again once a supervisor has started the server again. Rates are those of a
debug build of the demo model, and compare only with each other.
"""

import argparse
import contextlib
import fcntl
import heapq
import json
import os
import pathlib
import random
import secrets
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from serving import Server, checks, child, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE, THERE = "10.213.28.1", "10.213.28.2"
SPLITS = ["tensor", "pipeline"]
# Enough for several microbatches of a step.
STREAMS = 32
PROMPTS = ["Once upon a time", "What is 12 plus 30?", "The fox", "A cat sat on"]
# Of each way, so a round trip has twice as much.
NETWORKS = {"0 ms": {}, "1 ms": {"delay": 0.001}, "20 ms": {"delay": 0.02}, "1 % loss": {"loss": 0.01}}


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Network:
    """A namespace, and a cable to it: two TUN devices, and what carries packets from one to the other. (netem
    does the same to a veth, where the kernel has it.)"""

    def __init__(self):
        self.name = f"sconce{os.getpid()}"
        self.ends = [f"sc{os.getpid()}a", f"sc{os.getpid()}b"]
        # Seconds each way, the share of packets that is lost, and whether there is a cable at all.
        self.delay, self.loss, self.plugged, self.open = 0.0, 0.0, True, True

    def __enter__(self):
        ip("netns", "add", self.name)
        self.files = [self._tun(end) for end in self.ends]
        here, there = self.ends
        ip("link", "set", there, "netns", self.name)
        for place, end, own, other in [([], here, HERE, THERE), (["-n", self.name], there, THERE, HERE)]:
            ip(*place, "addr", "add", own, "peer", other, "dev", end)
            ip(*place, "link", "set", end, "up")
        self.carrier = threading.Thread(target=self._carry)
        self.carrier.start()
        return self

    def __exit__(self, *_):
        self.open = False
        self.carrier.join()
        for file in self.files:
            os.close(file)
        ip("netns", "del", self.name)

    def _tun(self, name) -> int:
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        # TUNSETIFF, with IFF_TUN | IFF_NO_PI.
        fcntl.ioctl(file, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))
        return file

    def _carry(self):
        chance, count, under_way = random.Random(28), 0, []
        while self.open:
            wait = under_way[0][0] - time.monotonic() if under_way else 0.1
            ready, _, _ = select.select(self.files, [], [], max(0, min(wait, 0.1)))
            now = time.monotonic()
            for file in ready:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        packet = os.read(file, 1 << 16)
                        if self.plugged and chance.random() >= self.loss:
                            other = self.files[file == self.files[0]]
                            count += 1
                            heapq.heappush(under_way, (now + self.delay, count, other, packet))
            while under_way and under_way[0][0] <= now:
                _, _, file, packet = heapq.heappop(under_way)
                with contextlib.suppress(OSError):
                    os.write(file, packet)

    def become(self, delay: float = 0, loss: float = 0):
        self.delay, self.loss = delay, loss


class Node:
    """Machine 1, in the namespace."""

    def __init__(self, network: Network, binary: str, flags: list[str]):
        self.log = tempfile.TemporaryFile("w+")
        command = ["ip", "netns", "exec", network.name, binary, "serve", *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def text(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def rank(self) -> int | None:
        """The process that computes."""
        return child(self.process.pid)


def answers(server: Server) -> list:
    """Token ids and log-probabilities, alone and in a batch."""

    def one(prompt):
        body = {"model": "sconce-demo", "prompt": prompt, "max_tokens": 24, "temperature": 0}
        status, answer = server.post("/v1/completions", {**body, "logprobs": 3, "return_token_ids": True})
        assert status == 200, answer
        choice = answer["choices"][0]
        return choice["token_ids"], choice["logprobs"]

    alone = [one(prompt) for prompt in PROMPTS]
    together = [None] * len(PROMPTS)

    def run(index):
        together[index] = one(PROMPTS[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone, "a batch changes answers"
    return alone


def rate(server: Server, streams: int = 1) -> float:
    """Tokens per second of so many streams together."""
    body = {"model": "sconce-demo", "prompt": "Once", "max_tokens": 32, "ignore_eos": True}
    told = []

    def run():
        told.append(server.post("/v1/completions", body))

    threads = [threading.Thread(target=run) for _ in range(streams)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    for status, answer in told:
        assert status == 200 and answer["usage"]["completion_tokens"] == 32, answer
    assert len(told) == streams
    return 32 * streams / seconds


def secret_file(folder: pathlib.Path, name: str) -> str:
    file = folder / name
    file.write_text(secrets.token_hex(32) + "\n")
    return str(file)


def check_secret(check, network, binary, flags, folder, server):
    with check("a machine with another secret is refused with a clear word, and rank 0 waits on"):
        wrong = [f"--rank-secret-file={secret_file(folder, 'wrong')}", "--node-rank=1"]
        kept = [flag for flag in flags if not flag.startswith("--rank-secret-file")]
        with Node(network, binary, [*kept, *wrong]) as node:
            assert node.process.wait(timeout=60) == 1
            assert "the secrets (--rank-secret-file) are not the same" in node.text(), node.text()
        assert server.process.poll() is None
    split, *others = flags
    otherwise = next(f"--{other}-parallel=2" for other in SPLITS if other not in split)
    for what, other in {
        "with another kind of cache": [*flags, "--kv-cache-dtype=f32"],
        "that splits the model otherwise": [otherwise, *others],
    }.items():
        with check(f"so is one {what}"), Node(network, binary, [*other, "--node-rank=1"]) as node:
            assert node.process.wait(timeout=60) == 1
            assert "refuses this rank: it has sconce" in node.text(), node.text()


class Waiting(Server):
    """A server that is started before its other machine is there."""

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdout=self.log, stderr=subprocess.STDOUT, env=clean_environment()
        )

    def ready(self):
        wait_until(self._is_ready_or_dead, 120, "the server is ready")
        assert self.process.poll() is None, self.log_tail()


def clean_environment() -> dict:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCONCE_")}
    return {**environment, "SCONCE_STORE": "memory"}


@contextlib.contextmanager
def running_request(network: Network, server: Server, max_tokens: int):
    """A request that runs while the block does; its status and answer are in the list afterwards.

    The cable is slow meanwhile: at full speed 64 tokens would be there before anybody saw that they are computed."""
    body = {"model": "sconce-demo", "prompt": "Once", "max_tokens": max_tokens, "ignore_eos": True}
    told = []
    asking = threading.Thread(target=lambda: told.extend(server.post("/v1/completions", body)))
    network.become(delay=0.005)
    asking.start()
    wait_until(lambda: server.metric("vllm:num_requests_running") > 0, 30, "it runs")
    yield told
    asking.join(timeout=60)
    network.become()


def check_deaths(check, network, server: Waiting, node: Node, expected):
    with check("a rank that dies ends a stream with an error, and then the server"):
        with running_request(network, server, 400) as told:
            os.kill(node.rank(), signal.SIGKILL)
        assert told and told[0] >= 500 and told[1]["error"]["message"], told
        assert server.process.wait(timeout=60) == 1, "a supervisor would not start it again"
    with check("the group comes back when the server does, and says the same"):
        server.start()
        server.ready()
        assert answers(server) == expected
    with check("a rank that dies while nothing is computed is missed as well"):
        os.kill(node.rank(), signal.SIGKILL)
        assert server.process.wait(timeout=30) == 1
        server.start()
        server.ready()
        assert answers(server) == expected
    with check("a server that is killed comes back, too"):
        server.process.kill()
        server.process.wait()
        server.start()
        server.ready()
        assert answers(server) == expected


def check_gone(check, network, server: Waiting, node: Node, expected):
    with check("a machine that is cut off is given up within half a minute"):
        network.plugged = False
        assert server.process.wait(timeout=40) == 1
        network.plugged = True
        server.start()
        server.ready()
        assert answers(server) == expected


def check_stop(check, network, server: Waiting, node: Node):
    with check("SIGTERM to all: the other machine stays until rank 0 has let its stream end"):
        processes = [node.process.pid, server.process.pid, node.rank()]
        with running_request(network, server, 64) as told:
            for process in processes:
                os.kill(process, signal.SIGTERM)
        assert told and told[0] == 200, told
        assert server.process.wait(timeout=60) == 0
        assert node.process.wait(timeout=60) == 0, node.text()[-2000:]


def serve_split(check, network, folder, binary: str, split: str, expected, rows: dict):
    """The same model on two machines, split so; answers must be `expected`."""
    flags = [
        f"--{split}-parallel=2",
        "--nnodes=2",
        f"--master-addr={HERE}",
        f"--master-port={free_port()}",
        f"--rank-secret-file={secret_file(folder, 'secret')}",
        "--threads=1",
    ]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Waiting(binary, *flags, "--node-rank=0"))
        check_secret(check, network, binary, flags, folder, server)
        node = stack.enter_context(Node(network, binary, [*flags, "--node-rank=1"]))
        try:
            server.ready()
            for name, settings in NETWORKS.items():
                with check(f"{split} parallel, {name} between two machines: the bits of one machine"):
                    network.become(**settings)
                    assert answers(server) == expected
                    rows[f"{split} parallel, {name}"] = [rate(server), rate(server, STREAMS)]
            network.become()
            check_deaths(check, network, server, node, expected)
            if split == "tensor":
                check_gone(check, network, server, node, expected)
            check_stop(check, network, server, node)
        except Exception:
            print(server.log_tail(), node.text()[-3000:])
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--json")
    args = parser.parse_args()
    rows, expected = {}, {}
    with contextlib.ExitStack() as stack, checks() as check:
        network = stack.enter_context(Network())
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, flags in {"one process": [], **{split: [f"--{split}-parallel=2"] for split in SPLITS}}.items():
            with Server(args.binary, "--threads", "1", *flags) as one:
                kind = f"{name} parallel, one machine" if flags else name
                rows[kind] = [rate(one), rate(one, STREAMS)]
                expected[name] = answers(one)
        with check("two ranks choose the tokens of one process, and two stages have its bits"):
            tokens = [[token_ids for token_ids, _ in expected[name]] for name in ("tensor", "one process")]
            assert tokens[0] == tokens[1]
            assert expected["pipeline"] == expected["one process"]
        for split in SPLITS:
            serve_split(check, network, folder, args.binary, split, expected[split], rows)
    for name, (alone, together) in rows.items():
        print(f"{name:32} {alone:8.1f} tokens/s, {together:8.1f} of {STREAMS} streams")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
