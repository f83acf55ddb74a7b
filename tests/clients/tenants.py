#!/usr/bin/env python3
"""Keys with limits, as OpenAI's and Anthropic's own clients see them.

    tenants.py [--binary target/debug/sconce]

Keys are made by `sconce key new`; their file is changed under running servers. Two servers share limits and
usage in PostgreSQL, where Debian's `postgresql` is installed. Needs `openai` and `anthropic`.
"""

import argparse
import concurrent.futures
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import anthropic
import openai

from postgres import Postgres
from serving import Server, checks, wait_until

MODEL = "sconce-demo"


def new_key(binary: str, *arguments: str) -> tuple[str, str]:
    """The key, and its entry for the file."""
    done = subprocess.run([binary, "key", "new", *arguments], capture_output=True, text=True, check=True)
    key = done.stderr.strip()
    assert re.fullmatch(r"sk-[\w-]{43}", key), key
    assert key not in done.stdout
    return key, done.stdout


def client(server: Server, key: str, **more) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, timeout=120, **{"max_retries": 0} | more)


def complete(of: openai.OpenAI, **fields):
    return of.completions.create(model=MODEL, prompt="Once", **{"max_tokens": 4} | fields)


def refused(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError("it was not refused")


def usage(server: Server, key: str) -> dict[str, list[int]]:
    """Requests, prompt tokens and answer tokens by key."""
    page = client(server, key).get("/usage", cast_to=object)
    sums = {}
    for bucket in page["data"]:
        for row in bucket["results"]:
            sums.setdefault(row["key"], [0, 0, 0])
            names = ["num_model_requests", "input_tokens", "output_tokens"]
            sums[row["key"]] = [a + row[name] for a, name in zip(sums[row["key"]], names)]
    return sums


def one_server(binary: str, folder: pathlib.Path, check):
    file = folder / "keys.toml"
    keys, text = {}, ""
    for name, *flags in [
        ("plain",),
        ("slow", "--requests-per-minute", "3"),
        ("short", "--tokens-per-minute", "60"),
        ("vectors", "--scope", "embeddings"),
        ("watch", "--scope", "metrics"),
        ("other", "--model", "something-else"),
        ("old", "--expires", "2020-01-01"),
    ]:
        keys[name], entry = new_key(binary, name, *flags)
        text += entry
    file.write_text(text)
    done = subprocess.run([binary, "key", "new", "a b"], capture_output=True, check=False)
    assert done.returncode == 2, done
    with Server(binary, "--api-key-file", str(file)) as server:
        of = lambda name, **more: client(server, keys[name], **more)

        with check("keys: the SDKs' errors say what is the matter"):
            assert complete(of("plain")).usage.completion_tokens == 4
            refused(openai.AuthenticationError, lambda: complete(client(server, "sk-other")))
            error = refused(openai.AuthenticationError, lambda: complete(of("old")))
            assert "expired" in str(error), error
            error = refused(openai.PermissionDeniedError, lambda: complete(of("vectors")))
            assert "the scope infer" in str(error), error
            error = refused(openai.PermissionDeniedError, lambda: complete(of("other")))
            assert error.code == "model_not_allowed", error
            assert [model.id for model in of("other").models.list()] == []
            assert [model.id for model in of("plain").models.list()] == [MODEL]

        with check("keys: limits are told in OpenAI's headers, and its client waits as it is told"):
            left = []
            for _ in range(3):
                raw = of("slow").completions.with_raw_response.create(model=MODEL, prompt="x", max_tokens=1)
                left.append(raw.headers["x-ratelimit-remaining-requests"])
            assert left == ["2", "1", "0"], left
            error = refused(openai.RateLimitError, lambda: complete(of("slow")))
            assert error.code == "rate_limit_exceeded" and error.type == "requests", error.body
            assert 1 <= int(error.response.headers["retry-after"]) <= 20
            began = time.monotonic()
            assert complete(of("slow", max_retries=3)).usage.total_tokens > 0
            assert time.monotonic() - began > 5, "the client's own wait is half a second"
            assert complete(of("short"), max_tokens=70, extra_body={"ignore_eos": True})
            error = refused(openai.RateLimitError, lambda: complete(of("short")))
            assert error.type == "tokens" and "tokens per min (TPM): Limit 60" in str(error), error
            claude = anthropic.Anthropic(base_url=server.url, api_key=keys["short"], max_retries=0)
            ask = lambda: claude.messages.create(
                model=MODEL, max_tokens=3, messages=[{"role": "user", "content": "x"}]
            )
            assert "TPM" in str(refused(anthropic.RateLimitError, ask))

        with check("keys: usage adds up to the usage of answers"):
            told, lock = {name: [0, 0, 0] for name in ("plain",)}, threading.Lock()
            before = usage(server, keys["watch"])["plain"]

            def ask(number: int):
                one = of("plain")
                if number % 3 == 0:
                    answer = complete(one, n=2, max_tokens=5, seed=number).usage
                elif number % 3 == 1:
                    stream = one.chat.completions.create(
                        model=MODEL, max_tokens=6, stream=True, stream_options={"include_usage": True},
                        messages=[{"role": "user", "content": f"Tell {number}"}],
                    )
                    answer = [chunk.usage for chunk in stream if chunk.usage][-1]
                else:
                    answer = one.embeddings.create(model=MODEL, input=["a", "b c"]).usage
                with lock:
                    sums = told["plain"]
                    sums[0] += 1
                    sums[1] += answer.prompt_tokens
                    sums[2] += getattr(answer, "completion_tokens", 0)

            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                list(pool.map(ask, range(36)))
            after = usage(server, keys["watch"])["plain"]
            assert [b - a for a, b in zip(before, after)] == told["plain"], (before, after, told)
            metrics = lambda name: of("watch").get(
                f"{server.url}/metrics", cast_to=str
            ).split(f'sconce:key_{name}_total{{key="plain"')[1].splitlines()[0].split()[-1]
            assert [int(metrics(name)) for name in
                    ("requests", "prompt_tokens", "generation_tokens")] == after
            assert set(usage(server, keys["plain"])) == {"plain"}

        with check("keys: the file is read again at SIGHUP, and a broken one changes nothing"):
            again, entry = new_key(binary, "late")
            file.write_text(text + entry)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: opens(server, again), 30, "the new key opens")
            file.write_text("[[keys]]\nname = 3")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the keys stay as they were" in server.log_tail(), 30, "it is told")
            assert opens(server, again) and opens(server, keys["plain"])
            file.write_text(text)
            wait_until(lambda: not opens(server, again), 30, "changes are seen without a signal")
            assert opens(server, keys["plain"])
            assert server.stop() == 0
    file.write_text(text.replace("[[keys]]", "[[key]]"))
    wrong = subprocess.run(
        [binary, "serve", "--port", "0", "--api-key-file", str(file)], capture_output=True, timeout=60,
        check=False,
    )
    with check("keys: a server doesn't start with a broken file"):
        assert wrong.returncode == 1 and b"--api-key-file can't be used" in wrong.stderr, wrong.stderr


def opens(server: Server, key: str) -> bool:
    return server.request("GET", "/v1/models", headers={"authorization": f"Bearer {key}"})[0] == 200


def two_servers(binary: str, folder: pathlib.Path, postgres: Postgres, check):
    file = folder / "shared.toml"
    keys, text = {}, ""
    for name, *flags in [
        ("counted", "--requests-per-minute", "20"),
        ("tokens", "--tokens-per-minute", "200"),
        ("crowd", "--max-concurrent", "3"),
        ("watch", "--scope", "metrics"),
    ]:
        keys[name], entry = new_key(binary, name, *flags)
        text += entry
    file.write_text(text)
    flags = ("--store", postgres.url, "--api-key-file", str(file))
    with Server(binary, *flags) as left, Server(binary, *flags) as right:
        both = [left, right]

        def status(server: Server, name: str, **fields) -> int:
            body = {"model": MODEL, "prompt": "x", "max_tokens": 1} | fields
            return server.post("/v1/completions", body, {"authorization": f"Bearer {keys[name]}"})[0]

        with check("two servers: requests a minute are those of both"):
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                seen = list(pool.map(lambda n: status(both[n % 2], "counted"), range(60)))
            # A third of a request comes back each second.
            most = 20 + int((time.monotonic() - began) / 3) + 1
            assert 20 <= seen.count(200) <= most, (seen.count(200), most)
            assert seen.count(200) + seen.count(429) == 60

        with check("two servers: tokens a minute are those of both"):
            answered = 0
            for number in range(20):
                answered += status(both[number % 2], "tokens", max_tokens=40, ignore_eos=True) == 200
            # 41 each: the fifth leaves nothing, and what runs meanwhile is one.
            assert 5 <= answered <= 7, answered

        with check("two servers: requests at once are those of both, also after one is killed"):
            run = lambda n: status(both[n % 2], "crowd", max_tokens=150, ignore_eos=True)
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                seen = list(pool.map(run, range(12)))
            assert seen.count(429) >= 1 and seen.count(200) >= 3, seen
            assert seen.count(200) + seen.count(429) == 12, seen
            wait_until(lambda: status(left, "crowd") == 200, 30, "there is room again")
            # Each server tells once a second what has ended.
            time.sleep(2.5)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                hung = [pool.submit(long_request, right, keys["crowd"]) for _ in range(3)]
                # Before it has all places, a request to the other server could take one.
                wait_until(lambda: running(right, keys["watch"]) == 3, 60, "all places are taken")
                wait_until(lambda: status(left, "crowd") == 429, 10, "the other server knows it")
                right.process.kill()
                wait_until(lambda: status(left, "crowd") == 200, 60, "places of the dead are free")
                for one in hung:
                    one.result()

        with check("two servers: usage is that of both"):
            # Requests of the server that was killed may be lost for a second.
            assert usage(left, keys["watch"])["counted"][0] >= 20

        with check("two servers: without the database limits are each server's own"):
            postgres.stop()
            assert status(left, "crowd") == 200
            assert left.request("GET", "/health/ready")[0] == 200
            postgres.start()


def running(server: Server, key: str) -> float:
    return server.metric("vllm:num_requests_running", {"authorization": f"Bearer {key}"})


def long_request(server: Server, key: str):
    body = {"model": MODEL, "prompt": "x", "max_tokens": 30_000, "ignore_eos": True}
    try:
        server.post("/v1/completions", body, {"authorization": f"Bearer {key}"})
    except OSError:
        pass
    except Exception:  # noqa: BLE001: the server is killed under it
        pass


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/sconce")
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    with tempfile.TemporaryDirectory() as name, checks() as check:
        folder = pathlib.Path(name)
        one_server(binary, folder, check)
        with tempfile.TemporaryDirectory() as data:
            postgres = Postgres(data)
            if postgres.programs is None:
                print("left out: PostgreSQL is not installed")
                return check.exit_status()
            postgres.init()
            try:
                two_servers(binary, folder, postgres, check)
            finally:
                postgres.stop()
        return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
