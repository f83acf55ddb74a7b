"""Servers and what is asked of them: start and stop, a load of `sconce bench`, streamed answers."""

import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "servers"))
import compare  # noqa: E402

# The server writes this where a token was impossible, since JSON has no infinity.
IMPOSSIBLE = -9999.0


class Failed(Exception):
    """What was asked for was tried and did not work."""


class Server:
    """A server in a process group of its own, ready inside the block and gone behind it."""

    def __init__(self, name, command, limit, env=None, ready="/health"):
        self.port = compare.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [part.replace("{port}", str(self.port)) for part in command]
        self.env, self.ready, self.limit = env or {}, ready, limit
        self.log = pathlib.Path(tempfile.gettempdir()) / f"gpu-{name}.log"
        self.seconds = None

    def __enter__(self):
        began = time.monotonic()
        try:
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    self.command, env=os.environ | self.env, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=True,
                )
        except OSError as error:
            raise Failed(f"{self.command[0]} can't be started: {error}") from None
        try:
            while not compare.answers(self.url + self.ready):
                if self.process.poll() is not None:
                    code = self.process.returncode
                    raise Failed(f"the server ended with status {code}, {self.tail()}")
                if time.monotonic() - began > self.limit:
                    raise Failed(f"the server was not ready in {self.limit:.0f} s, {self.tail()}")
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        self.seconds = time.monotonic() - began
        return self

    def __exit__(self, *_):
        compare.stop(self.process)
        try:  # what the server started and left behind
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def tail(self):
        """Where the log is, and on further lines how it ends."""
        lines = self.log.read_text(errors="replace").splitlines()[-12:]
        return "\n    ".join([f"see {self.log}", *lines])

    def failure(self, message):
        """A failure with the log, if the server is to blame."""
        died = self.process.poll() is not None
        return Failed(f"{message}, and the server is gone, {self.tail()}" if died else message)


def bench(sconce, server, flags, limit):
    """What `sconce bench` measures. Requests that take too long are cut and counted."""
    measured = max(1, 0.7 * limit)  # the rest is for the warm-up
    command = [sconce, "bench", "--url", server.url, "--json", "-", *flags]
    command += ["--timeout", f"{limit:.0f}", "--duration", f"{measured:.0f}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise server.failure(f"the load ran past {limit:.0f} s") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise server.failure(f"sconce bench: {done.stderr.strip()[-500:]}") from None


def model_of(server):
    with urllib.request.urlopen(server.url + "/v1/models", timeout=20) as response:
        return json.load(response)["data"][0]["id"]


def ask(server, model, prompt, count, deadline):
    """One greedy stream: its text, its token ids as the server spells them, their logprobs."""
    body = {
        "model": model, "prompt": prompt, "max_tokens": count, "temperature": 0, "stream": True,
        "ignore_eos": True, "logprobs": 1, "return_tokens_as_token_ids": True,
    }
    answer = {"text": "", "tokens": [], "logprobs": []}
    left = max(1, deadline - time.monotonic())
    place = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=left)
    try:
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise server.failure(f"status {response.status}: {response.read(500).decode()}")
        for line in response:
            if time.monotonic() > deadline:
                raise server.failure("an answer took too long")
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise server.failure(f"an answer broke off: {chunk['error']}")
            for choice in chunk["choices"]:
                answer["text"] += choice["text"]
                if choice.get("logprobs"):
                    answer["tokens"] += choice["logprobs"]["tokens"]
                    answer["logprobs"] += choice["logprobs"]["token_logprobs"]
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise server.failure(f"an answer broke off: {error!r}") from None
    finally:
        connection.close()
    if len(answer["tokens"]) != count:
        raise Failed(f"{len(answer['tokens'])} tokens came, {count} were asked for")
    bad = [x for x in answer["logprobs"] if x is None or not math.isfinite(x) or x <= IMPOSSIBLE]
    if bad:
        raise Failed(f"a logprob is {bad[0]}")
    return answer


def ask_all(server, prompts, count, limit, at_once):
    """The answers to all prompts, one after the other or together."""
    deadline, model = time.monotonic() + limit, model_of(server)
    places = len(prompts) if at_once else 1
    pool = concurrent.futures.ThreadPoolExecutor(places)
    try:
        jobs = [pool.submit(ask, server, model, prompt, count, deadline) for prompt in prompts]
        return [job.result() for job in jobs]
    finally:
        # Streams that still run end with the server, which is stopped next.
        pool.shutdown(wait=False, cancel_futures=True)


def distance(one, other):
    """Largest distance of logprobs while two greedy answers agree, and at the first difference:
    there each took its likeliest token, and if only rounding differs these are equally likely."""
    largest = 0.0
    pairs = zip(one["tokens"], other["tokens"], one["logprobs"], other["logprobs"])
    for mine, theirs, a, b in pairs:
        largest = max(largest, abs(a - b))
        if mine != theirs:
            break
    return largest


def agreed(one, other):
    """How many tokens two answers begin with alike."""
    pairs = list(zip(one["tokens"], other["tokens"]))
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
