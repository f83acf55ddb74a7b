"""What benchmarks of this server alone share: it as a child process, requests, texts of a length."""

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
import urllib.request

WORDS = "lamp river stone cloud garden winter letter house window street apple music paper bridge".split()


def call(url, body=None, headers=None):
    """The answer to a request: a POST of bytes, or of what JSON says, if there is a body."""
    if body is not None and not isinstance(body, bytes):
        body, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers or {})
    with urllib.request.urlopen(request, timeout=1800) as response:
        return json.load(response)


def timed(url, body):
    """Seconds and answer of a request."""
    begun = time.monotonic()
    answer = call(url, body)
    return time.monotonic() - begun, answer


def parser(about, port):
    """Reads which program serves which model at which port."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--sconce", default="target/release/sconce")
    made.add_argument("--model", help="instead of the demo model")
    made.add_argument("--port", type=int, default=port)
    return made


@contextlib.contextmanager
def process(options, *flags):
    """`sconce serve` as the options have it, which ends with the context: URL, model, and its id."""
    url = f"http://127.0.0.1:{options.port}"
    command = [options.sconce, "serve", "--port", str(options.port), "--store", "memory", *flags]
    command += ["--model", options.model] if options.model else []
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            with contextlib.suppress(OSError):
                model = call(f"{url}/v1/models")["data"][0]["id"]
                break
            time.sleep(0.1)
        else:
            sys.exit("the server is not ready")
        yield url, model, started.pid
    finally:
        started.terminate()
        started.wait()


@contextlib.contextmanager
def server(options, *flags):
    """The same: URL and model."""
    with process(options, *flags) as (url, model, _):
        yield url, model


def benched(options, url, *more):
    """What `sconce bench` measures of a server, one request after the other."""
    command = [options.sconce, "bench", "--url", url, "--json", "-", "--concurrency", "1", *more]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def text(url, model, tokens, seed):
    """A text of so many tokens or a few more, unlike that of any other seed from its beginning on."""
    draw = random.Random(seed)
    told, short = f"{seed}.", tokens
    while short > 0:
        # A word is one to four tokens: no step but the last goes past the length.
        told += "".join(" " + draw.choice(WORDS) for _ in range(-(-short // 4)))
        short = tokens - length(url, model, told)
    return told


def length(url, model, told):
    """Tokens of a text."""
    return call(f"{url}/tokenize", {"model": model, "prompt": told})["count"]
