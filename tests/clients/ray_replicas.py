#!/usr/bin/env python3
"""docker/ray_serve.py in a Ray of this machine: two replicas answer, and one that dies is replaced.

    ray_replicas.py [--binary target/debug/sconce]

Needs `ray[serve]`, `httpx` and `openai`.
"""

import argparse
import collections
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import openai
import ray
from ray import serve

from serving import checks, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]


def servers(binary: str) -> set[int]:
    """The processes that replicas have started."""
    done = subprocess.run(["pgrep", "-f", f"^{binary} serve --port"], capture_output=True, text=True)
    return set(map(int, done.stdout.split()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    binary = str(pathlib.Path(args.binary).resolve())
    os.environ.update(SCONCE=binary, SCONCE_STORE="memory", RAY_USAGE_STATS_ENABLED="0")
    sys.path.insert(0, str(ROOT / "docker"))
    from ray_serve import app

    port = free_port()
    # Replicas are processes of their own, which look for the deployment's module as well.
    environment = {"env_vars": {"PYTHONPATH": str(ROOT / "docker")}}
    ray.init(num_cpus=2, include_dashboard=False, logging_level="warning", runtime_env=environment)
    with checks() as check:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(app({"flags": "--threads 1"}), name="llm", route_prefix="/")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=60)
        model = client.models.list().data[0].id

        def ask(stream=False, tokens=24):
            messages = [{"role": "user", "content": "Once upon a time"}]
            return client.chat.completions.create(
                model=model, messages=messages, max_tokens=tokens, seed=1, stream=stream
            )

        with check("two replicas have a server each"):
            wait_until(lambda: len(servers(binary)) == 2, 120, "two servers")
        with check("an answer and a stream say the same, and chunks come one by one"):
            whole = ask().choices[0].message.content
            chunks = [(time.monotonic(), chunk) for chunk in ask(stream=True, tokens=24)]
            text = "".join(c.choices[0].delta.content or "" for _, c in chunks if c.choices)
            assert text == whole and chunks[-1][0] > chunks[0][0]
        with check("a wrong request has the server's error"):
            try:
                client.chat.completions.create(model=model, messages=[], max_tokens=1)
                raise AssertionError("taken")
            except openai.BadRequestError as error:
                assert error.body["message"], error.body
        with check("both replicas get requests"):
            results = collections.Counter()

            def run():
                results[ask(tokens=48).choices[0].finish_reason] += 1

            threads = [threading.Thread(target=run) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(results.values()) == 12, results
        with check("a server that is killed is replaced by a replica with another"):
            before = servers(binary)
            killed = min(before)
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: servers(binary) - before, 120, "another server")
            wait_until(lambda: len(servers(binary)) == 2, 120, "two servers")
            for _ in range(8):
                assert ask(tokens=4).choices
        with check("no server is left when the deployment ends"):
            serve.shutdown()
            wait_until(lambda: not servers(binary), 90, "all ended")
        ray.shutdown()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
