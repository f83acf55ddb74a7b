#!/usr/bin/env python3
"""What a batch of many lines costs the streams beside it, and what it loses against requests sent at once.

    batches.py [--sconce target/release/sconce] [--model MODEL] [--lines 1000] [--rate 1.0]

Streams of 128 tokens in and 64 out arrive at random, `--rate` a second, first alone and then while a batch
runs; then the batch runs alone, and the same lines are sent by 16 clients. Printed are the ratios: time to
first token (p50 and p99) and longest gap with and without the batch, and the batch's tokens per second
against those of the clients. Only ratios within one run mean something. Standard library only.
"""

import concurrent.futures
import json
import subprocess
import sys
import time

from served import call, parser, server

LINE = {"max_tokens": 32, "temperature": 0, "ignore_eos": True}


class Batch:
    """A batch on a server, from its file on."""

    def __init__(self, url, model, lines, first):
        self.url = url
        rows = [
            {"custom_id": str(at), "method": "POST", "url": "/v1/completions", "body": body(model, at)}
            for at in range(first, first + lines)
        ]
        text = "\n".join(map(json.dumps, rows))
        boundary = "lines-of-a-batch"
        parts = [("purpose", "", "batch"), ("file", '; filename="lines.jsonl"', text)]
        form = "".join(
            f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
            for name, more, value in parts
        )
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        file = call(f"{url}/v1/files", f"{form}--{boundary}--\r\n".encode(), headers)
        asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
        self.begun = time.monotonic()
        self.id = call(f"{url}/v1/batches", asked)["id"]

    def state(self):
        return call(f"{self.url}/v1/batches/{self.id}")

    def wait(self):
        """Seconds until all lines were answered."""
        while (state := self.state())["status"] not in ("completed", "failed", "expired"):
            time.sleep(0.2)
        if state["status"] != "completed" or state["request_counts"]["failed"]:
            sys.exit(f"the batch went wrong: {state}")
        return time.monotonic() - self.begun

    def cancel(self):
        call(f"{self.url}/v1/batches/{self.id}/cancel", {})


def body(model, at):
    """No two begin alike."""
    return {"model": model, "prompt": f"{at}. What is to be told of number {at}? " * 6, **LINE}


def streams(options, url):
    """The report of `sconce bench` for streams that arrive at random, the same ones each time."""
    command = [options.sconce, "bench", "--url", url, "--json", "-", "--input-len", "128"]
    command += ["--output-len", "64", "--num-requests", str(options.streams), "--seed", "1"]
    command += ["--request-rate", str(options.rate)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def sent_at_once(url, model, lines, first):
    """Seconds that 16 clients take for the same number of lines."""
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        ask = lambda at: call(f"{url}/v1/completions", body(model, at))
        list(pool.map(ask, range(first, first + lines)))
    return time.monotonic() - begun


def main():
    arguments = parser(__doc__, 18437)
    arguments.add_argument("--lines", type=int, default=1000)
    arguments.add_argument("--streams", type=int, default=60)
    arguments.add_argument("--rate", type=float, default=1.0)
    options = arguments.parse_args()
    # The same streams come twice, and are computed twice, token by token: the first answers would be drafts.
    with server(options, "--no-prefix-cache", "--draft-max", "0") as (url, model):
        alone = streams(options, url)
        batch = Batch(url, model, options.lines, 0)
        beside = streams(options, url)
        if batch.state()["status"] == "completed":
            sys.exit("the batch ended before the streams did: give it more --lines")
        batch.cancel()
        told(alone, beside)
        while batch.state()["status"] in ("in_progress", "cancelling", "finalizing"):
            time.sleep(0.2)
        few = options.lines // 4
        as_batch = Batch(url, model, few, 1_000_000).wait()
        as_requests = sent_at_once(url, model, few, 2_000_000)
    print(f"batch against 16 clients: {as_requests / as_batch:.2f} of their tokens per second")


def told(alone, beside):
    for name, key in [("first token, p50", "p50"), ("first token, p99", "p99")]:
        ratio = beside["ttft_ms"][key] / alone["ttft_ms"][key]
        print(f"{name}: {alone['ttft_ms'][key]:.0f} ms, {beside['ttft_ms'][key]:.0f} ms beside, {ratio:.2f}")
    gaps = [report["longest_gap_ms"]["max"] for report in (alone, beside)]
    print(f"longest gap: {gaps[0]:.0f} ms, {gaps[1]:.0f} ms beside, {gaps[1] / gaps[0]:.2f}")
    tpot = [report["tpot_ms"]["p50"] for report in (alone, beside)]
    print(f"time per token: {tpot[0]:.1f} ms, {tpot[1]:.1f} ms beside, {tpot[1] / tpot[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
