#!/usr/bin/env python3
"""Two replicas behind docker/haproxy.cfg: a rolling restart under traffic loses no request.

Starts two servers and HAProxy on free loopback ports (of the configuration only addresses change),
streams answers through it without pause, and restarts first one replica and then the other with
SIGTERM. Every stream must be complete, a replica that is gone must get nothing, and chunks must come
one by one, not at the end.

    haproxy.py [--binary target/debug/sconce] [--haproxy haproxy]

Needs the standard library, HAProxy, and a server that loads its demo model in seconds.
"""

import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from serving import Server, checks, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "docker" / "haproxy.cfg"
CLIENTS = 6
ANSWER_TOKENS = 64


def rewrite(config: str, addresses: dict[str, str]) -> str:
    """The configuration with other addresses; each must be there exactly once."""
    for old, new in addresses.items():
        assert config.count(old) == 1, f"{old} is not once in {CONFIG}"
        config = config.replace(old, new)
    return config


class Traffic:
    """Clients that ask without pause; every answer is checked."""

    def __init__(self, port: int, model: str):
        self.port, self.model = port, model
        self.running = True
        self.failures: list[str] = []
        # (started, ended, replica) of each complete answer.
        self.answers: list[tuple[float, float, str]] = []
        self.threads = [threading.Thread(target=self._ask_on, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()

    def _ask_on(self, seed: int):
        while self.running:
            started = time.monotonic()
            try:
                replica, times, *_ = stream(self.port, self.model, seed)
                assert times, "an answer without text"
                self.answers.append((started, time.monotonic(), replica))
            except Exception as error:  # noqa: BLE001: every kind of failure counts
                self.failures.append(f"{type(error).__name__}: {error}")
                time.sleep(0.05)

    def replicas_since(self, moment: float) -> collections.Counter:
        return collections.Counter(name for start, _, name in self.answers if start >= moment)

    def count(self) -> int:
        return len(self.answers)


def stream(port: int, model: str, seed: int, tokens: int = ANSWER_TOKENS):
    """One streamed answer: the replica, the time of each chunk with text, the text, and how long the
    server decoded, in seconds."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "seed": seed,
        "stream": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        assert response.status == 200, f"{response.status}: {response.read(300)!r}"
        times, text, done, finish, decoded = [], "", False, None, None
        for line in response:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                continue
            frame = json.loads(data)
            assert not frame.get("error"), frame["error"]
            decoded = (frame.get("timings") or {}).get("decode_ms", decoded)
            for choice in frame["choices"]:
                piece = choice["delta"].get("content") or ""
                finish = choice.get("finish_reason") or finish
                if piece:
                    times.append(time.monotonic())
                    text += piece
        assert done and finish, f"a cut stream: done {done}, finish_reason {finish}"
        return response.headers["x-sconce-replica"], times, text, decoded / 1000


def restart_under_traffic(check, traffic: Traffic, server: Server, name: str, other: str):
    def served_again():
        return traffic.replicas_since(started)[name] >= 2

    with check(f"{name} drains on SIGTERM and ends with status 0"):
        before = traffic.count()
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(timeout=60)
        stopped = time.monotonic()
        assert status == 0, f"status {status}"
        wait_until(lambda: traffic.count() > before + 4 * CLIENTS, 60, "answers after the end")
    with check(f"all requests after the end of {name} go to {other}"):
        replicas = traffic.replicas_since(stopped)
        assert set(replicas) == {other}, dict(replicas)
    with check(f"{name} gets requests again after its restart"):
        started = time.monotonic()
        server.start()
        wait_until(served_again, 60, f"answers of {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--haproxy", default="haproxy")
    args = parser.parse_args()
    port, stats_port = free_port(), free_port()
    replicas = {"replica-a": Server(args.binary), "replica-b": Server(args.binary)}
    addresses = {
        "bind 0.0.0.0:8080": f"bind 127.0.0.1:{port}",
        "bind 127.0.0.1:8404": f"bind 127.0.0.1:{stats_port}",
        "sconce-a:8000": f"127.0.0.1:{replicas['replica-a'].port}",
        "sconce-b:8000": f"127.0.0.1:{replicas['replica-b'].port}",
    }
    with contextlib.ExitStack() as stack, checks() as check:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        config = pathlib.Path(folder) / "haproxy.cfg"
        config.write_text(rewrite(CONFIG.read_text(), addresses))
        for server in replicas.values():
            stack.enter_context(server)
        log = stack.enter_context(open(pathlib.Path(folder) / "haproxy.log", "w+"))
        with check("HAProxy accepts the configuration without a warning"):
            lint = subprocess.run([args.haproxy, "-c", "-f", config], capture_output=True, text=True)
            assert lint.returncode == 0 and "WARNING" not in lint.stderr, lint.stderr
        command = [args.haproxy, "-db", "-f", config]
        proxy = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(proxy.wait)
        stack.callback(proxy.kill)
        model = replicas["replica-a"].model()
        wait_until(lambda: proxy_answers(port), 30, "HAProxy")

        with check("a stream passes chunk by chunk"):
            _, times, _, decoded = stream(port, model, seed=1, tokens=200)
            spread = times[-1] - times[0]
            # Chunks that something held back come all at once.
            told = f"{len(times)} chunks within {spread} s, decoded in {decoded} s"
            assert len(times) > 20 and spread > 0.5 * decoded, told
            middle = sum(times[0] + 0.1 * spread < t < times[-1] - 0.1 * spread for t in times)
            assert middle > len(times) / 4, f"{middle} of {len(times)} chunks come on the way"
        with check("both replicas give the same answer to the same seed"):
            texts = {}
            for _ in range(8):
                replica, _, text, _ = stream(port, model, seed=7)
                texts.setdefault(replica, set()).add(text)
            both = [texts.get(name, set()) for name in replicas]
            assert len(set.union(*both)) == 1, texts
        with check("metrics of a replica are not behind the common address"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 404

        traffic = Traffic(port, model)
        try:
            wait_until(lambda: len(traffic.replicas_since(0)) == 2, 30, "answers of both replicas")
            for name, other in [("replica-a", "replica-b"), ("replica-b", "replica-a")]:
                restart_under_traffic(check, traffic, replicas[name], name, other)
        finally:
            traffic.stop()
        with check("without a replica the answer is the error object"):
            for server in replicas.values():
                server.stop()
            status, error = error_of(port)
            assert (status, error["type"]) == (503, "unavailable_error"), (status, error)
        with check(f"none of {traffic.count() + len(traffic.failures)} requests failed"):
            if traffic.failures:
                log.seek(0)
                print("".join(line for line in log if " 200 " not in line)[-3000:])
            assert not traffic.failures, collections.Counter(traffic.failures).most_common(5)
    return check.exit_status()


def error_of(port: int):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", "{}", {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())["error"]


def proxy_answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    return False


if __name__ == "__main__":
    sys.exit(main())
