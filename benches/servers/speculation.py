"""Speculative decoding against decoding token by token, on one server of each, requests in turn.

    speculation.py [--sconce target/release/sconce] [--model MODEL] [--streams 1,4,16] [--reps 5]
                   [--cases free,copy] [--llama-server FILE --gguf FILE]

Prints for each case and number of streams the median ratio of tokens per second of decoding, its lowest and
highest, and how many tokens were drafted and accepted; and whether all answers were equal, which they must
be. With `--llama-server` the same for llama.cpp's own (n-gram) drafts, where it has the case.

Cases: `free` text drawn at temperature 1, `greedy`, `copy` of a text in the prompt (for models that can),
`prediction` of the greedy answer and `edited`, the same with one token in thirty missing, `json` by a schema
and `json logprobs`, whose tokens may not be skipped. A checkpoint of successors.py has three others: `copied`, whose
answer is its prompt, `copied in part`, where every thirtieth token of the prompt is another, and `head`, whose answer
only the checkpoint's own head foresees. Standard library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

STORY = "Tell me a long story about a fox and a lamp."
CODE = "".join(
    f"def area_{i}(width, height):\n    scale = {i}\n    return scale * width * height\n\n"
    for i in range(12)
)
PERSON = {
    "type": "object",
    "additionalProperties": False,
    "required": ["firstname", "occupation", "temperature"],
    "properties": {
        "firstname": {"type": "string", "maxLength": 8},
        "occupation": {"enum": ["carpenter", "astronaut"]},
        "temperature": {"type": "integer", "minimum": 0, "maximum": 99},
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["people"],
    "properties": {"people": {"type": "array", "minItems": 8, "maxItems": 8, "items": PERSON}},
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}


def user(text):
    return [{"role": "user", "content": text}]


CASES = {
    "free": {"messages": user(STORY), "temperature": 1.0, "ignore_eos": True},
    "greedy": {"messages": user(STORY), "temperature": 0, "ignore_eos": True},
    "copy": {"messages": user("Repeat exactly: " + CODE), "temperature": 0, "ignore_eos": True},
    "prediction": {"messages": user(STORY), "temperature": 0, "ignore_eos": True},
    "edited": {"messages": user(STORY), "temperature": 0, "ignore_eos": True},
    "json": {"messages": user("List people."), "temperature": 1.0, "response_format": FORMAT},
    "json logprobs": {
        "messages": user("List people."),
        "temperature": 1.0,
        "response_format": FORMAT,
        "logprobs": True,
    },
}
LLAMA_CASES = ["free", "greedy", "copy"]


def known_cases(model):
    """The cases of a checkpoint by successors.py, none of others."""
    config = pathlib.Path(model or "", "config.json")
    told = json.loads(config.read_text()).get("successors") if model and config.exists() else None
    if told is None:
        return {}

    def whole(index):
        return [told["first"] + told["cycle"] * index + at for at in range(told["cycle"])]

    def in_part(index):
        return [token + 5000 * (at % 30 == 29) for at, token in enumerate(whole(index))]

    def few(index):
        return whole(index)[:4]

    cases = {"copied": whole, "copied in part": in_part, "head": few}
    return {
        name: {"prompt": prompt, "temperature": 0, "ignore_eos": True} for name, prompt in cases.items()
    }


class Server:
    def __init__(self, command, port):
        # Nothing is kept in the user's own store.
        env = os.environ | {"SCONCE_STORE": "memory"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
        )
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=2).read()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"not ready: {command}")

    def post(self, body):
        data = json.dumps(body).encode()
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=1200) as response:
            return json.load(response)

    def run(self, body, streams):
        """Tokens per second of decoding, drafted and accepted tokens, the texts."""
        answers = [None] * streams

        def one(index):
            asked = {name: part(index) if callable(part) else part for name, part in body.items()}
            answers[index] = self.post({**asked, "seed": index + 1})

        threads = [threading.Thread(target=one, args=(index,)) for index in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        timings = [answer["timings"] for answer in answers]
        tokens = sum(timing["predicted_n"] for timing in timings)
        rate = tokens / max(timing["predicted_ms"] for timing in timings) * 1000
        drafts = [
            sum(timing.get(name) or 0 for timing in timings)
            for name in ("draft_n", "draft_n_accepted")
        ]
        choices = [answer["choices"][0] for answer in answers]
        texts = [choice["text"] if "text" in choice else choice["message"]["content"] for choice in choices]
        return rate, drafts, texts


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def compare(name, body, pair, streams, reps):
    plain, drafting = pair
    ratios, rates, equal = [], [], True
    for rep in range(reps):
        asked = dict(body)
        if name in ("prediction", "edited"):
            text = plain.post({**body, "seed": 1})["choices"][0]["message"]["content"]
            words = text.split(" ")
            if name == "edited":
                words = [word for at, word in enumerate(words) if at % 30 != 29]
            asked["prediction"] = {"type": "content", "content": " ".join(words)}
        slow, _, expected = plain.run(asked, streams)
        # What others answered is no draft for this one.
        fast, drafts, found = drafting.run({**asked, "cache_salt": f"{name}{rep}"}, streams)
        ratios.append(fast / slow)
        rates.append((slow, fast))
        equal &= found == expected
    middle = sorted(range(reps), key=lambda rep: ratios[rep])[reps // 2]
    slow, fast = rates[middle]
    print(
        f"{streams:3} {name:14} {statistics.median(ratios):5.2f} "
        f"[{min(ratios):.2f} to {max(ratios):.2f}] {slow:7.0f} -> {fast:7.0f} tok/s, "
        f"drafted {drafts[0]}, accepted {drafts[1]}, {'equal' if equal else 'NOT EQUAL'}",
        flush=True,
    )
    return equal


def measure(title, commands, known, cases, options):
    print(title)
    servers = []
    equal = True
    try:
        for command in commands:
            port = free_port()
            servers.append(Server([part.replace("{port}", str(port)) for part in command], port))
        for streams in options.streams:
            for name in cases:
                body = {**known[name], "max_tokens": options.tokens}
                equal &= compare(name, body, servers, streams, options.reps)
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait()
    return equal


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--sconce", default="target/release/sconce")
    parser.add_argument("--model")
    parser.add_argument("--streams", type=numbers, default=[1, 4, 16])
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--cases", type=lambda text: text.split(","))
    parser.add_argument("--llama-server")
    parser.add_argument("--gguf")
    options = parser.parse_args()
    sconce = [options.sconce, "serve", "--port", "{port}"]
    sconce += ["--model", options.model] if options.model else []
    known = known_cases(options.model) or CASES
    cases = options.cases or list(known)
    equal = measure("sconce", [[*sconce, "--draft-max", "0"], sconce], known, cases, options)
    if options.llama_server:
        llama = [options.llama_server, "-m", options.gguf, "--port", "{port}", "-t", "2", "-tb", "2"]
        llama += ["--parallel", str(max(options.streams)), "-cb", "-c", "32768"]
        cases = [name for name in cases if name in LLAMA_CASES]
        drafting = [*llama, "--spec-type", "ngram-simple"]
        measure("llama.cpp", [llama, drafting], known, cases, options)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
