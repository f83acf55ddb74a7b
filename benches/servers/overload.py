#!/usr/bin/env python3
"""What a server does with ten times the requests that it can answer, and with thousands of idle connections.

    overload.py [--sconce target/release/sconce] [--model MODEL] [--minutes 5] [--times 10] [--idle 10000]

First as many clients as `--streams` ask in turn: that is the rate that can be answered, and their time to
first token what it takes when the server is full. Then `--times` as many requests arrive at random, whatever
comes back. Printed are the time to first token of those that were taken, how soon the others were refused,
memory before and after, and that nothing is left over; then the time to first token of a lone client without
and with idle connections, of which some trickle. Standard library only; needs Linux, and file descriptors.
"""

import asyncio
import json
import pathlib
import random
import resource
import sys
import time
import urllib.request

from served import WORDS, parser, process


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Asked:
    """One request, on a connection of its own: its status, and seconds to its first token or its refusal."""

    def __init__(self, options, model):
        words = " ".join(random.choices(WORDS, k=options.words))
        body = {"model": model, "prompt": f"{random.random()} {words}", "max_tokens": options.tokens,
                "ignore_eos": True, "stream": True}
        body = json.dumps(body)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" \
               f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.port, self.bytes = options.port, (head + body).encode()
        self.status, self.first, self.is_whole = None, None, False

    async def run(self):
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self.bytes)
        status = await reader.readline()
        self.status = int(status.split()[1])
        async for line in reader:
            if self.status != 200 or line.startswith(b'data: {"'):
                self.first = self.first or time.monotonic() - begun
            self.is_whole |= line.startswith(b"data: [DONE]")
        writer.close()
        return self


async def in_turn(options, model, clients, seconds):
    """What so many clients are answered that ask one request after the other."""
    done, until = [], time.monotonic() + seconds

    async def client():
        while time.monotonic() < until:
            done.append(await Asked(options, model).run())

    await asyncio.gather(*(client() for _ in range(clients)))
    return done


async def at_random(options, model, rate, seconds):
    """What requests are answered that arrive at a rate, whatever becomes of those before."""
    tasks, begun = [], time.monotonic()
    at = 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0, begun + at - time.monotonic()))
        tasks.append(asyncio.create_task(Asked(options, model).run()))
    return await asyncio.gather(*tasks)


async def connect(port, count):
    """Idle connections, every hundredth of which has begun a request."""
    opened = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if number % 100 == 0:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nx-a: ")
        opened.append(writer)
    return opened


def memory(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def metric(options, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{options.port}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


async def overload(options, model, pid):
    alone = await in_turn(options, model, options.streams, options.seconds)
    rate = len(alone) / options.seconds
    before = memory(pid)
    full = percentile([one.first for one in alone], 0.99)
    print(f"full: {rate:.1f} requests a second, first token p99 {full * 1e3:.0f} ms; "
          f"behind {options.waiting} others {(full + options.waiting / rate) * 1e3:.0f} ms", flush=True)
    came = await at_random(options, model, rate * options.times, options.minutes * 60)
    taken = [one for one in came if one.status == 200]
    refused = [one for one in came if one.status == 429]
    others = len(came) - len(taken) - len(refused)
    print(f"{len(came)} came in {options.minutes} minutes: {len(taken)} taken, {len(refused)} refused, "
          f"{others} neither, {sum(not one.is_whole for one in taken)} of the taken not answered whole")
    for name, group in [("first token of those taken", taken), ("refused after", refused)]:
        firsts = [one.first for one in group]
        print(f"{name}: p50 {percentile(firsts, 0.5) * 1e3:.0f} ms, p99 {percentile(firsts, 0.99) * 1e3:.0f} ms, "
              f"most {max(firsts) * 1e3:.0f} ms")
    print(f"memory: {before:.0f} MiB before, {memory(pid):.0f} MiB after")
    left = {name: metric(options, name) for name in
            ("vllm:num_requests_running", "vllm:num_requests_waiting", "sconce:kv_blocks_in_use")}
    print(f"left over: {left}")
    return others or any(left.values())


async def idle(options, model, pid):
    before, room = memory(pid), await in_turn(options, model, 1, options.seconds)
    opened = await connect(options.port, options.idle)
    beside = await in_turn(options, model, 1, options.seconds)
    firsts = [percentile([one.first for one in group], 0.99) for group in (room, beside)]
    print(f"{options.idle} idle connections: first token p99 {firsts[0] * 1e3:.1f} ms without, "
          f"{firsts[1] * 1e3:.1f} ms with, {firsts[1] / firsts[0]:.2f}; "
          f"{(memory(pid) - before) * 1024 / options.idle:.1f} KiB each")
    for writer in opened:
        writer.close()
    return any(one.status != 200 or not one.is_whole for one in beside)


def main():
    arguments = parser(__doc__, 18439)
    arguments.add_argument("--minutes", type=float, default=5)
    arguments.add_argument("--times", type=float, default=10)
    arguments.add_argument("--idle", type=int, default=10_000)
    arguments.add_argument("--streams", type=int, default=16, help="that the server runs at once")
    arguments.add_argument("--waiting", type=int, default=16, help="that may wait")
    arguments.add_argument("--seconds", type=float, default=20, help="for what is compared with")
    arguments.add_argument("--words", type=int, default=100)
    arguments.add_argument("--tokens", type=int, default=100)
    options = arguments.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    flags = ["--max-num-seqs", str(options.streams), "--max-queued-requests", str(options.waiting),
             "--max-connections", str(options.idle + 1000)]
    with process(options, *flags) as (_, model, pid):
        failed = asyncio.run(overload(options, model, pid))
        failed |= asyncio.run(idle(options, model, pid))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
