#!/usr/bin/env python3
"""Whether replicas that only read prompts, and others that only answer, would be better than replicas that do both.

    disaggregation.py [--prefill 942] [--one 0.0169] [--sixteen 0.0226] [--kv-bytes 12288] [--link 1.25e9] ...

A simulation on paper: nothing is served. A step of a replica takes what was measured of steps with one and with
sixteen streams (a line between them and beyond), and `1 / --prefill` more for each token of a prompt in it. Replicas
that do both take as much of a prompt into a step beside streams as keeps it within `--target-step`, as this server
does; apart, a replica reads one prompt after the other, and its KV cache crosses the link before the first token
behind it is decoded.
Requests come at random to the least loaded replica. `sconce bench` measures the inputs: prompts of 512 tokens, and
the time per token of one and of sixteen streams. Standard library only.
"""

import argparse
import collections
import heapq
import random

Request = collections.namedtuple("Request", "at prompt answer")


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def requests(options, rate):
    """So many requests, with lengths around the means, as exponential ones vary."""
    drawn, at = random.Random(options.seed), 0.0
    for _ in range(options.requests):
        at += drawn.expovariate(rate)
        length = lambda mean: max(1, min(int(drawn.expovariate(1 / mean)), 4 * mean))
        yield Request(at, length(options.prompt), length(options.answer))


class Replica:
    """What runs and waits on one machine; `prompts_at_once` are most prompts that a step has tokens of."""

    def __init__(self, options, prompts_at_once):
        self.options, self.prompts_at_once = options, prompts_at_once
        # Prompts as [request, tokens that are left], streams as [request, tokens that are left, time of the last].
        self.prompts, self.streams, self.until = collections.deque(), [], None

    def load(self):
        """Seconds of work that are known of."""
        prompts = sum(left for _, left in self.prompts) / self.options.prefill
        return prompts + sum(left for _, left, _ in self.streams) * self.options.one

    def begin(self, now):
        """Plans the next step, if there is something to do, and says when it ends."""
        reads, streams = [], len(self.streams)
        each = (self.options.sixteen - self.options.one) / 15
        decoding = self.options.one + each * (streams - 1) if streams else 0.0
        room = self.options.most_tokens
        if streams:
            room = min(room, max(1, int((self.options.target_step - decoding) * self.options.prefill)))
        places = min(self.prompts_at_once, self.options.streams - streams)
        for prompt in list(self.prompts)[:max(0, places)]:
            if room == 0:
                break
            reads.append((prompt, min(room, prompt[1])))
            room -= reads[-1][1]
        if not reads and not streams:
            return None
        self.reads = reads
        self.until = now + decoding + sum(tokens for _, tokens in reads) / self.options.prefill
        return self.until

    def end(self, report):
        """What the step gave: tokens of streams, and prompts that are read, which are returned."""
        now, self.until, read = self.until, None, []
        for stream in self.streams:
            report.gaps.append(now - stream[2])
            stream[1:] = [stream[1] - 1, now]
        self.streams = [stream for stream in self.streams if stream[1] > 0]
        for prompt, tokens in self.reads:
            prompt[1] -= tokens
            if prompt[1] == 0:
                self.prompts.remove(prompt)
                report.firsts.append(now - prompt[0].at)
                read.append(prompt[0])
        return read


class Report:
    def __init__(self):
        self.firsts, self.gaps = [], []


def simulate(options, rate, readers, answerers):
    """Without readers the answerers do both."""
    report, events, order = Report(), [], 0
    decoding = [Replica(options, options.streams) for _ in range(answerers)]
    # One prompt at a time is as fast as many, and the first is done earlier.
    reading = [Replica(options, 1) for _ in range(readers)] or decoding

    def push(at, *event):
        nonlocal order
        order += 1
        heapq.heappush(events, (at, order, event))

    def wake(replica, now):
        if replica.until is None and (until := replica.begin(now)) is not None:
            push(until, "step", replica)

    for request in requests(options, rate):
        push(request.at, "come", request)
    while events:
        now, _, event = heapq.heappop(events)
        if event[0] == "come":
            replica = min(reading, key=Replica.load)
            replica.prompts.append([event[1], event[1].prompt])
        elif event[0] == "moved":
            replica, request, since = event[1:]
            replica.streams.append([request, request.answer - 1, since])
        else:
            replica = event[1]
            for request in replica.end(report):
                if request.answer == 1:
                    continue
                if readers:
                    to = min(decoding, key=Replica.load)
                    push(now + request.prompt * options.kv_bytes / options.link, "moved", to, request, now)
                else:
                    replica.streams.append([request, request.answer - 1, now])
        wake(replica, now)
    return report


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--prefill", type=float, default=942.0, help="tokens of prompts a second")
    arguments.add_argument("--one", type=float, default=0.0169, help="seconds of a step with one stream")
    arguments.add_argument("--sixteen", type=float, default=0.0226, help="seconds of a step with sixteen")
    arguments.add_argument("--kv-bytes", type=float, default=12288, help="of a token")
    arguments.add_argument("--link", type=float, default=1.25e9, help="bytes a second between replicas")
    arguments.add_argument("--prompt", type=int, default=512, help="tokens, on average")
    arguments.add_argument("--answer", type=int, default=128, help="tokens, on average")
    arguments.add_argument("--most-tokens", type=int, default=512, help="of prompts in a step")
    arguments.add_argument("--target-step", type=float, default=0.175, help="seconds of a step beside streams")
    arguments.add_argument("--streams", type=int, default=64, help="most streams of a replica")
    arguments.add_argument("--replicas", type=int, default=8)
    arguments.add_argument("--requests", type=int, default=4000)
    arguments.add_argument("--load", type=float, nargs="+", default=[0.5, 0.7, 0.85],
                           help="parts of what all replicas could do with sixteen streams each")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    each = options.prompt / options.prefill + options.answer * options.sixteen / 16
    print("| load | replicas | first token p50, s | p99 | gap p50, s | p99 |")
    print("|---|---|---|---|---|---|")
    for load in options.load:
        rate = load * options.replicas / each
        for readers in range(options.replicas):
            answerers = options.replicas - readers
            report = simulate(options, rate, readers, answerers)
            name = f"{readers} read, {answerers} answer" if readers else f"{answerers} do both"
            figures = [percentile(values, part) for values in (report.firsts, report.gaps) for part in (0.5, 0.99)]
            print(f"| {load} | {name} | " + " | ".join(f"{figure:.3g}" for figure in figures) + " |", flush=True)


if __name__ == "__main__":
    main()
