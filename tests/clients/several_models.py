#!/usr/bin/env python3
"""Several models in one server, as the openai and ollama packages see them, and `sconce`'s own commands.

    several_models.py [--binary target/debug/sconce] [--seconds 10]

Needs `openai` and `ollama`. Ports llama.cpp's test_router.py and test_sleep.py as far as they say what a
server does: what is loaded, who goes for whom, who waits, and what a sleeping model still answers.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import ollama
import openai

from serving import Server, checks, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "src/demo/model"
NAMES = ["alpha", "beta", "gamma"]


def make_models(folder: pathlib.Path):
    for name in NAMES:
        shutil.copytree(DEMO, folder / name)


class Subject:
    def __init__(self, server: Server):
        self.server = server
        self.openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        self.ollama = ollama.Client(host=server.url)

    def states(self) -> dict:
        return {one.id: one.status["value"] for one in self.openai.models.list().data}

    def load(self, name: str):
        status, answer = self.server.post("/models/load", {"model": name})
        assert (status, answer) == (200, {"success": True}), answer
        wait_until(lambda: self.states()[name] == "loaded", 60, f"{name} is loaded")

    def chat(self, name: str, tokens: int = 8, **fields):
        messages = [{"role": "user", "content": "Tell me a story."}]
        return self.openai.chat.completions.create(
            model=name, messages=messages, max_tokens=tokens, **fields
        )

    def tokenize(self, name: str) -> int:
        return self.server.post("/tokenize", {"model": name, "prompt": "hello world"})[0]


class InBackground(threading.Thread):
    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.result, self.error, self.ended = work, None, None, 0.0
        self.start()

    def run(self):
        try:
            self.result = self.work()
        except Exception as error:  # told by whoever waits
            self.error = error
        self.ended = time.monotonic()

    def wait(self, patience: float = 90):
        self.join(patience)
        assert not self.is_alive(), "it did not end"
        assert self.error is None, self.error
        return self.result


class Busy:
    """An answer that goes on until it is ended, read as it comes."""

    def __init__(self, t: Subject, name: str):
        stream = t.chat(name, 30_000, stream=True, extra_body={"ignore_eos": True})
        next(stream)
        self.over = threading.Event()
        self.reader = InBackground(lambda: self._read(stream))

    def _read(self, stream):
        with stream:
            for _ in stream:
                if self.over.is_set():
                    return
        raise AssertionError("it ended by itself")

    def end(self) -> float:
        """When it was over."""
        self.over.set()
        self.reader.wait()
        return self.reader.ended


def check_packages(check, t: Subject):
    with check("openai lists all models and loads the one that is named"):
        assert t.states() == dict.fromkeys(NAMES, "unloaded")
        answer = t.chat("alpha")
        assert answer.model == "alpha" and answer.choices[0].message.content
        assert t.states()["alpha"] == "loaded" and t.states()["beta"] == "unloaded"
    with check("openai streams from another one"):
        chunks = list(t.chat("beta", stream=True))
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    with check("openai raises for a name that nobody has"):
        try:
            t.chat("nobody")
        except openai.NotFoundError:
            pass
        else:
            raise AssertionError("no error")
    with check("ollama lists, shows, chats, and says how long a model stays"):
        assert sorted(one.model for one in t.ollama.list().models) == NAMES
        assert "{%" in t.ollama.show("gamma").template
        messages = [{"role": "user", "content": "Hello"}]
        answer = t.ollama.chat("gamma", messages, options={"num_predict": 4}, keep_alive="10m")
        assert answer.done
        loaded = {one.model: one for one in t.ollama.ps().models}
        assert "gamma" in loaded and loaded["gamma"].expires_at is not None
        t.ollama.generate("gamma", "", keep_alive=0)
        wait_until(lambda: t.states()["gamma"] == "unloaded", 30, "gamma is unloaded")
    with check("ollama raises for what isn't done here"):
        try:
            t.ollama.pull("org/name")
        except ollama.ResponseError as error:
            assert "--models hub" in str(error)
        else:
            raise AssertionError("no error")


def check_router(check, binary: str, folder: str):
    def serve(*flags):
        return Server(binary, "--models", folder, "--kv-cache-memory", "64MiB", "--threads", "1", *flags)

    with serve("--models-max", "2", "--no-models-autoload") as server:
        t = Subject(server)
        with check("the router's own properties"):
            _, _, body = server.request("GET", "/props")
            assert b'"role":"router"' in body and b'"max_instances":2' in body, body
        with check("without autoload a request is refused until the model is loaded"):
            try:
                t.chat("alpha")
            except openai.BadRequestError as error:
                assert "not loaded" in str(error)
            else:
                raise AssertionError("no error")
            t.load("alpha")
            t.chat("alpha")
        with check("the third of two evicts the one used longest ago"):
            t.load("beta")
            t.load("gamma")
            assert t.states() == {"alpha": "unloaded", "beta": "loaded", "gamma": "loaded"}
    with serve("--models-max", "1", "--models-min-residency", "1") as server:
        t = Subject(server)
        t.load("alpha")
        with check("a busy model is not evicted; who waits is served in order of arrival"):
            busy = Busy(t, "alpha")
            assert running(t, "alpha") == 1
            first = InBackground(lambda: t.tokenize("beta"))
            time.sleep(0.5)
            second = InBackground(lambda: t.tokenize("gamma"))
            ended = busy.end()
            assert first.wait() == 200 and second.wait() == 200
            assert ended < first.ended < second.ended
        t.load("alpha")
        with check("a client that leaves while it waits costs nobody a model"):
            busy = Busy(t, "alpha")
            impatient = t.openai.with_options(timeout=0.3)
            try:
                impatient.chat.completions.create(
                    model="beta", messages=[{"role": "user", "content": "a"}], max_tokens=2
                )
            except openai.APITimeoutError:
                pass
            else:
                raise AssertionError("it did not wait")
            busy.end()
            time.sleep(1)
            assert t.states() == {"alpha": "loaded", "beta": "unloaded", "gamma": "unloaded"}
    with serve("--models-max", "2") as server:
        t = Subject(server)
        t.load("alpha")
        t.load("beta")
        with check("many requests for one model cost one other its place"):
            busy = Busy(t, "alpha")
            waiting = [InBackground(lambda: t.tokenize("gamma")) for _ in range(3)]
            time.sleep(0.5)
            busy.end()
            assert [one.wait() for one in waiting] == [200] * 3
            assert t.states() == {"alpha": "loaded", "beta": "unloaded", "gamma": "loaded"}


def check_turns(check, binary: str, folder: str, seconds: float):
    flags = ["--models-max", "1", "--models-min-residency", "1", "--kv-cache-memory", "8MiB", "--threads", "1"]
    with Server(binary, "--models", folder, *flags) as server:
        t = Subject(server)
        with check("two models in turn, of which one fits, answer all of eight clients"):
            until = time.monotonic() + seconds

            def client(first: int) -> list[int]:
                answered = [0, 0]
                while time.monotonic() < until or not all(answered):
                    at = (first + sum(answered)) % 2
                    answer = t.chat(NAMES[at], 16)
                    assert answer.model == NAMES[at] and answer.choices[0].message.content
                    answered[at] += 1
                return answered

            clients = [InBackground(lambda number=number: client(number)) for number in range(8)]
            answered = [one.wait(seconds + 90) for one in clients]
            print(f"       {[sum(of) for of in zip(*answered)]} answers in {seconds:.0f} s")


def running(t: Subject, name: str) -> int:
    model = t.openai.models.retrieve(name)
    return model.status.get("requests", {}).get("running", 0)


def check_sleep(check, binary: str):
    with Server(binary, "--sleep-idle-seconds", "1", "--served-model-name", "demo") as server:
        t = Subject(server)

        def sleeps() -> bool:
            return b'"is_sleeping":true' in server.request("GET", "/props")[2]

        with check("a sleeping model answers what can be known, and wakes for a request"):
            t.chat("demo")
            wait_until(sleeps, 30, "it sleeps")
            for path in ("/health", "/v1/models", "/metrics", "/props"):
                assert server.request("GET", path)[0] == 200, path
            assert sleeps()
            assert t.chat("demo").choices[0].message.content
            assert not sleeps()
        with check("counting tokens wakes it, too"):
            for path, body in (
                ("/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
                ("/v1/responses/input_tokens", {"input": "Hi"}),
                ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
            ):
                wait_until(sleeps, 30, "it sleeps")
                status, answer = server.post(path, {"model": "demo", **body})
                assert status == 200 and answer["input_tokens"] > 0, answer
                assert not sleeps()


def check_commands(check, t: Subject, binary: str):
    environment = {**os.environ, "SCONCE_URL": t.server.url}

    def sconce(*arguments: str) -> str:
        done = subprocess.run(
            [binary, *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with check("list, run, ps and stop"):
        listed = sconce("list")
        assert all(name in listed for name in NAMES), listed
        assert sconce("run", "beta", "Tell", "me", "a", "story").strip()
        assert "beta" in sconce("ps")
        sconce("stop", "beta")
        wait_until(lambda: t.states()["beta"] == "unloaded", 30, "beta is unloaded")
    with check("selftest finds nothing wrong"):
        told = subprocess.run(
            [binary, "selftest", t.server.url, "--model", "alpha"],
            capture_output=True, text=True, timeout=600,
        )
        assert told.returncode == 0, told.stdout + told.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--seconds", type=float, default=10, help="how long two models take turns")
    args = parser.parse_args()
    with checks() as check, tempfile.TemporaryDirectory() as folder:
        make_models(pathlib.Path(folder))
        with Server(args.binary, "--models", folder, "--kv-cache-memory", "8MiB") as server:
            subject = Subject(server)
            check_packages(check, subject)
            check_commands(check, subject, args.binary)
        check_router(check, args.binary, folder)
        check_turns(check, args.binary, folder, args.seconds)
        check_sleep(check, args.binary)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
