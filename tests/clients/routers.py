#!/usr/bin/env python3
"""Replicas behind routers that people run: what is lost when one is killed or drained, and what is cached.

    routers.py [--binary target/debug/sconce] [--replicas 2 4] [--json FILE] [NAME...]

NAME is haproxy, nginx (Debian), sglang-router, smg, vllm-router or litellm (PyPI); without one, all that are
there are run, each once least-loaded and once by what is cached, if it can. For each of these: requests per
second, the share of prompt tokens that came from a cache, and the requests lost while one replica is killed
(kill -9) and while one is drained (SIGTERM). Of a killed replica only streams that have begun may be lost; of
one that drains, nothing.

Programs from PyPI are looked for in $PATH and in --venvs FOLDER/*/bin. Rates are those of a debug build of
the demo model: they compare nothing but runs of this script on one machine.
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from serving import Program, Server, checks, free_port, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = 6
# Conversations with beginnings of their own, and questions to each.
GROUPS, QUESTIONS = 8, 6
DRAIN_DELAY = 3


# LiteLLM would ask a host elsewhere for prices first, and start with a key only.
ENVIRONMENT = {
    **os.environ,
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


class Router(Program):
    """One program in front of replicas."""

    program = ""
    # By the words of our table, what the program calls them.
    policies: dict[str, list[str]] = {}

    def __init__(self, path: str, policy: str, servers: list[Server], folder: pathlib.Path):
        super().__init__(folder, ENVIRONMENT)
        self.path, self.policy, self.servers = path, policy, servers
        self.urls = [server.url for server in servers]

    def is_ready(self):
        return ask(self.port, self.model(), "Hi", 1).text is not None

    def model(self) -> str:
        return self.servers[0].model()

    def headers(self, group: str) -> dict:
        """What a client sends so that a router can keep a conversation together."""
        return {}


class HaProxy(Router):
    name = program = "haproxy"
    policies = {"least-loaded": [], "cache-aware": []}

    def command(self):
        config = (ROOT / "docker" / "haproxy.cfg").read_text()
        config = config.replace("bind 0.0.0.0:8080", f"bind 127.0.0.1:{self.port}")
        config = config.replace("bind 127.0.0.1:8404", f"bind 127.0.0.1:{free_port()}")
        lines = []
        for line in config.splitlines():
            if line.startswith("    server replica-a"):
                servers = enumerate(self.servers)
                lines += [f"    server replica-{i} 127.0.0.1:{s.port}" for i, s in servers]
            elif not line.startswith("    server replica-"):
                lines.append(line)
        config = "\n".join(lines) + "\n"
        if self.policy == "cache-aware":
            hashed = "balance hash req.hdr(x-session-id)\n    hash-type consistent"
            config = config.replace("balance leastconn", hashed)
        (self.folder / "haproxy.cfg").write_text(config)
        return [self.path, "-db", "-f", str(self.folder / "haproxy.cfg")]

    def headers(self, group):
        return {"x-session-id": group}


class Nginx(Router):
    name = program = "nginx"
    policies = {"least-loaded": [], "cache-aware": []}

    def command(self):
        config = (ROOT / "docker" / "nginx.conf").read_text()
        config = config.replace("listen 8080", f"listen 127.0.0.1:{self.port}")
        lines = []
        for line in config.splitlines():
            if "server sconce-a:8000" in line:
                lines += [line.replace("sconce-a:8000", f"127.0.0.1:{s.port}") for s in self.servers]
            elif "server sconce-b:8000" not in line:
                lines.append(line)
        config = "\n".join(lines)
        if self.policy == "cache-aware":
            config = config.replace("least_conn;", "hash $http_x_session_id consistent;")
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]:
            config = config.replace("http {", f"http {{\n    {kind}_temp_path {self.folder}/{kind};", 1)
        config = f"pid {self.folder}/nginx.pid;\ndaemon off;\nerror_log stderr warn;\n" + config
        (self.folder / "nginx.conf").write_text(config)
        return [self.path, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"), "-e", "stderr"]

    def headers(self, group):
        return {"x-session-id": group}


class Gateway(Router):
    """SGLang's router and what grew from it, which take the same flags."""

    start: list[str] = []
    # They learn of a dead replica by asking; the default is once a minute.
    health = ["--health-check-interval-secs", "1", "--health-failure-threshold", "2"]

    def command(self):
        ports = ["--port", str(self.port), "--prometheus-port", str(free_port())]
        flags = [*self.start, "--host", "127.0.0.1", *ports, "--worker-urls", *self.urls]
        health = [*self.health, "--health-success-threshold", "1"]
        return [self.path, *flags, *self.policies[self.policy], *health, *self.more()]

    def more(self) -> list[str]:
        return []


class SglangRouter(Gateway):
    name, program, start = "sglang-router", "smg", ["launch"]
    policies = {"least-loaded": ["--policy", "power_of_two"], "cache-aware": ["--policy", "cache_aware"]}

    def more(self):
        return ["--health-check-endpoint", "/health_generate"]


class Smg(Gateway):
    name, program, start = "smg", "smg", ["launch"]
    policies = {"least-loaded": ["--policy", "least_load"], "cache-aware": ["--policy", "cache_aware"]}

    def more(self):
        # Else it forgets a replica that was away; it is to come back.
        return ["--load-monitor-interval", "1", "--no-remove-unhealthy-workers"]


class VllmRouter(Gateway):
    name = program = "vllm-router"
    policies = {
        "least-loaded": ["--policy", "power_of_two"],
        "cache-aware": ["--policy", "cache_aware"],
        "by KV events": ["--policy", "kv_aware", "--kv-event-block-size", "32"],
    }

    def more(self):
        if self.policy != "by KV events":
            return []
        flags = ["--kv-event-model", self.model()]
        for server in self.servers:
            flags += ["--kv-event-source", f"{server.url}=tcp://127.0.0.1:{server.events}"]
            flags += ["--kv-event-replay-source", f"{server.url}=tcp://127.0.0.1:{server.replay}"]
        return flags


class LiteLlm(Router):
    name = program = "litellm"
    policies = {"least-loaded": ["least-busy"]}

    def command(self):
        def entry(url):
            params = {"model": f"openai/{self.model()}", "api_base": f"{url}/v1", "api_key": "none"}
            return {"model_name": self.model(), "litellm_params": params}

        settings = {
            "routing_strategy": self.policies[self.policy][0],
            "num_retries": 3,
            "retry_after": 0,
            "allowed_fails": 1,
            "cooldown_time": 2,
        }
        config = {"model_list": [entry(url) for url in self.urls], "router_settings": settings}
        # JSON is YAML.
        (self.folder / "litellm.yaml").write_text(json.dumps(config))
        listen = ["--host", "127.0.0.1", "--port", str(self.port)]
        return [self.path, "--config", str(self.folder / "litellm.yaml"), *listen]


ROUTERS = [HaProxy, Nginx, SglangRouter, Smg, VllmRouter, LiteLlm]


class Lost(Exception):
    """A request that got no whole answer."""

    def __init__(self, begun: bool, reason: str):
        super().__init__(f"{'cut' if begun else 'refused'}: {reason}")
        self.begun = begun


Answer = collections.namedtuple("Answer", "text prompt cached")


def ask(port, model, prompt, tokens, headers=None, seed=0) -> Answer:
    """One streamed answer."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begun, text, done, usage = False, "", False, None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        with contextlib.closing(connection):
            headers = {"content-type": "application/json", **(headers or {})}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise Lost(False, f"{response.status} {response.read(200)!r}")
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                begun = True
                if line[5:].strip() == b"[DONE]":
                    done = True
                    continue
                frame = json.loads(line[5:])
                if frame.get("error"):
                    raise Lost(begun, str(frame["error"]))
                usage = frame.get("usage") or usage
                text += "".join(c["delta"].get("content") or "" for c in frame.get("choices") or [])
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        raise Lost(begun, repr(error)) from error
    if not done:
        raise Lost(begun, "the stream has no end")
    details = (usage or {}).get("prompt_tokens_details") or {}
    return Answer(text, (usage or {}).get("prompt_tokens", 0), details.get("cached_tokens") or 0)


class Traffic:
    """Clients that ask without pause."""

    def __init__(self, router: Router, tokens=48):
        self.router, self.tokens, self.model = router, tokens, router.model()
        self.running, self.ended, self.lost = True, [], []
        self.threads = [threading.Thread(target=self._ask_on, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _ask_on(self, client):
        count = 0
        while self.running:
            count += 1
            # No beginning that any replica has: one that comes back would get nothing else.
            prompt = f"{random.random()}: client {client} asks for the {count}. time"
            headers = self.router.headers(f"{client}-{count}")
            try:
                ask(self.router.port, self.model, prompt, self.tokens, headers)
                self.ended.append(time.monotonic())
            except Lost as lost:
                self.lost.append(lost)
                time.sleep(0.02)

    def more(self, count: int, what: str):
        """Waits for more answers."""
        wanted = len(self.ended) + count
        wait_until(lambda: len(self.ended) >= wanted, 120, what)

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()


def shared_beginnings(router: Router) -> tuple[float, float]:
    """Requests per second, and the share of prompt tokens that were cached."""
    salt = f"{router.name} {router.policy} {random.random()}"
    words = "the river ran past old mills and quiet fields until it met the sea".split()
    beginnings = []
    for group in range(GROUPS):
        shuffled = random.Random(f"{salt}{group}")
        beginnings.append(f"{salt} {group}: " + " ".join(shuffled.choice(words) for _ in range(120)))
    asked = [(group, question) for question in range(QUESTIONS) for group in range(GROUPS)]
    # Each conversation's first question comes before its others; groups are mixed.
    shuffle = random.Random(salt)
    order = [(question + shuffle.random(), group, question) for group, question in asked]
    queue = collections.deque((g, q) for _, g, q in sorted(order))
    answers, failed, model = [], [], router.model()

    def work():
        while True:
            try:
                group, question = queue.popleft()
            except IndexError:
                return
            try:
                prompt = f"{beginnings[group]}. Question {question}?"
                answers.append(ask(router.port, model, prompt, 8, router.headers(str(group))))
            except Lost as lost:
                failed.append(lost)

    began = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    assert not failed, f"{len(failed)} of {len(asked)} lost: {failed[0]}"
    prompt = sum(answer.prompt for answer in answers)
    assert prompt > 0, "no usage came through"
    return len(answers) / seconds, sum(answer.cached for answer in answers) / prompt


def served(server: Server) -> float:
    return server.metric("vllm:request_success_total")


def comes_back(check, name, server: Server, traffic: Traffic):
    with check(f"{name}: a replica that is started again gets requests"):
        server.start()
        wait_until(lambda: served(server) >= 1, 90, "a request")


def killed(check, name, traffic: Traffic, server: Server) -> tuple[int, int]:
    """Of a replica that is killed: its streams that were lost, and other requests."""
    with check(f"{name}: of a replica that is killed only streams that had begun are lost"):
        wait_until(lambda: server.metric("vllm:num_requests_running") > 0, 60, "it has a request")
        running = server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting")
        server.process.kill()
        server.process.wait()
        traffic.more(4 * CLIENTS, "answers of the others")
        begun = [lost for lost in traffic.lost if lost.begun]
        refused = [lost for lost in traffic.lost if not lost.begun]
        # Between the look and the kill each client may have begun one more.
        assert len(begun) <= max(running, 1) + CLIENTS and not refused, (running, traffic.lost[:3])
    return sum(l.begun for l in traffic.lost), sum(not l.begun for l in traffic.lost)


def drained(check, name, traffic: Traffic, server: Server) -> int:
    with check(f"{name}: nothing is lost when a replica drains"):
        before = len(traffic.lost)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=90) == 0
        traffic.more(2 * CLIENTS, "answers of the others")
        assert len(traffic.lost) == before, traffic.lost[before:][:3]
    return len(traffic.lost) - before


def run(check, kind, path, policy, servers, rows):
    name = f"{kind.name}, {len(servers)} replicas, {policy}"
    row = {"router": kind.name, "replicas": len(servers), "policy": policy}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # A router may run as a user of its own (nginx).
        folder.chmod(0o755)
        router = None
        with check(f"{name}: starts and answers"):
            router = stack.enter_context(kind(path, policy, servers, folder))
        if router is None:
            return
        with check(f"{name}: shared beginnings"):
            row["requests_per_s"], row["cached_share"] = shared_beginnings(router)
        traffic = Traffic(router)
        try:
            row["drained_lost"] = drained(check, name, traffic, servers[1])
            comes_back(check, name, servers[1], traffic)
            traffic.lost.clear()
            row["killed_lost"], row["killed_others_lost"] = killed(check, name, traffic, servers[0])
            comes_back(check, name, servers[0], traffic)
        finally:
            traffic.stop()
        if check.failed:
            print(router.log_tail(8))
    rows.append(row)
    print(f"       {json.dumps(row)}", flush=True)


def found(kind, venvs) -> str | None:
    # Two packages have a program of the same name.
    for folder in sorted(pathlib.Path(venvs).glob("*/bin")) if venvs else []:
        package = folder.parent / "lib"
        has = list(package.glob(f"python*/site-packages/{kind.name.replace('-', '_')}*.dist-info"))
        if has and (folder / kind.program).exists():
            return str(folder / kind.program)
    return shutil.which(kind.program)


def new_server(binary) -> Server:
    events, replay = free_port(), free_port()
    config = {
        "enable_kv_cache_events": True,
        # Bound; one with a host would be connected to.
        "endpoint": f"tcp://*:{events}",
        "replay_endpoint": f"tcp://*:{replay}",
        "topic": "kv-events",
    }
    flags = ["--kv-events-config", json.dumps(config), "--drain-delay", str(DRAIN_DELAY), "--threads", "1"]
    server = Server(binary, *flags, "--drain-timeout", "60")
    server.events, server.replay = events, replay
    return server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--venvs")
    parser.add_argument("--replicas", type=int, nargs="+", default=[2])
    parser.add_argument("--policy", help="only this one")
    parser.add_argument("--json")
    args = parser.parse_args()
    names = args.names or [kind.name for kind in ROUTERS]
    rows = []
    with contextlib.ExitStack() as stack, checks() as check:
        servers = [new_server(args.binary) for _ in range(max(args.replicas))]
        for server in servers:
            stack.enter_context(server)
        for kind in ROUTERS:
            path = found(kind, args.venvs)
            if kind.name not in names:
                continue
            if path is None:
                print(f"left out: {kind.name} is not installed")
                continue
            for count in args.replicas:
                for policy in kind.policies:
                    if args.policy in (None, policy):
                        run(check, kind, path, policy, servers[:count], rows)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print(row)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
