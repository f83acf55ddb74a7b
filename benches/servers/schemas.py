"""Asks a running server for answers by many JSON schemas and judges what comes back.

    python benches/servers/schemas.py URL FOLDER [--count 300] [--max-tokens 1500] [--streams 8]

FOLDER holds one schema a file, in subfolders or not (JSONSchemaBench's `data`, for example);
as many as asked for are taken from all subfolders alike, by a fixed seed. Each schema is asked for
twice: once with one token, whose time is that of the compilation, and once at temperature 1 up to
its end. An answer is valid, invalid, cut by its length or refused; refusals are counted by their
message. Needs `jsonschema` with its formats, and nothing else beside the standard library.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import time
import urllib.error
import urllib.request

import jsonschema


def model_of(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=60) as response:
        return json.load(response)["data"][0]["id"]


def ask(url, model, schema, seed, max_tokens):
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Give an example."}],
        "temperature": 1.0, "seed": seed, "max_tokens": max_tokens,
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "example", "strict": True, "schema": schema}},
    }
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"], time.monotonic() - began
    return 200, answer["choices"][0], time.monotonic() - began


def judge(url, model, index, schema, max_tokens):
    """What became of it, and the time of its compilation."""
    status, answer, seconds = ask(url, model, schema, index, 1)
    if status != 200:
        return ("refused" if status == 400 else f"status {status}"), answer, seconds
    status, answer, _ = ask(url, model, schema, index, max_tokens)
    if status != 200:
        return f"status {status}", answer, seconds
    if answer["finish_reason"] == "length":
        return "cut", "", seconds
    text = answer["message"]["content"]
    try:
        # Numbers that no double holds are valid JSON all the same.
        document = json.loads(text)
        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        kind(schema, format_checker=kind.FORMAT_CHECKER).validate(document)
    except (ValueError, jsonschema.ValidationError) as error:
        return "invalid", f"{str(error)[:200]} in {text[:300]}", seconds
    return "valid", "", seconds


def sample(folder, count):
    groups = collections.defaultdict(list)
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        groups[path.parent].append(path)
    draw = random.Random(7)
    queues = [draw.sample(paths, len(paths)) for _, paths in sorted(groups.items())]
    taken = []
    while len(taken) < count and any(queues):
        taken += [queue.pop() for queue in queues if queue]
    return taken[:count]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--max-tokens", type=int, default=1500)
    parser.add_argument("--streams", type=int, default=8)
    arguments = parser.parse_args()
    model = model_of(arguments.url)
    paths = sample(arguments.folder, arguments.count)
    with concurrent.futures.ThreadPoolExecutor(arguments.streams) as pool:
        judged = pool.map(
            lambda item: judge(arguments.url, model, item[0], json.loads(item[1].read_text()),
                               arguments.max_tokens),
            enumerate(paths))
        results = list(judged)
    outcomes = collections.Counter(outcome for outcome, _, _ in results)
    times = sorted(seconds for _, _, seconds in results)
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]
    print(dict(outcomes))
    print(f"first token: p50 {at(0.5):.3f} s, p99 {at(0.99):.3f} s, most {times[-1]:.3f} s")
    for path, (outcome, message, seconds) in zip(paths, results):
        if outcome not in ("valid", "cut"):
            print(f"{outcome} {seconds:.2f} s {path.parent.name}/{path.name}: {message[:300]}")


if __name__ == "__main__":
    main()
