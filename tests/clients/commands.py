#!/usr/bin/env python3
"""Programs that are started by a command and pointed at such a server, with their defaults.

    commands.py [--binary target/debug/sconce] [NAME ...]

Starts the server itself, and needs the standard library alone. Runs those of `llm` (PyPI: llm),
`litellm` (litellm[proxy]), `aider` (aider-chat) and `sgpt` (shell-gpt, click) that are on PATH and
says which are not. What a toy model says does not matter: that no request is refused but one that
can't fit, and that a program then sees why.
"""

import json
import secrets
import sys
import time
import urllib.request

from command_line import Home, run_commands
from recorder import Recorder
from sections import Programs
from serving import Program, Server

QUESTION = "Tell me a story about a lamp."
# More than ten tokens.
SENTENCE = "The lamp stood by the sea and gave light to all the boats. "
# More than the context of the small server below, less than the demo model's.
LONG = SENTENCE * 60


# So narrow that a toy model comes to its end.
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Oslo", "Rome"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["city", "age"],
    "additionalProperties": False,
}


def llm(p: Programs, home: Home):
    folder = home.folder / "llm"
    folder.mkdir()
    common = dict(model_name=p.model, api_base=p.v1, supports_schema=True, supports_tools=True)
    models = [{"model_id": "chat", **common}, {"model_id": "responses", **common, "responses": True}]
    # JSON is YAML.
    (folder / "extra-openai-models.yaml").write_text(json.dumps(models))
    tools = 'def add(a: int, b: int) -> int:\n    "Adds two numbers."\n    return a + b\n'

    def run(*arguments: str) -> str:
        return home.run("llm", *arguments, LLM_USER_PATH=str(folder))

    for model in ["chat", "responses"]:
        path = "/v1/responses" if model == "responses" else "/v1/chat/completions"
        with p.check(f"llm, {model}: an answer as a stream, whole, and one more in the conversation"):
            assert run("-m", model, QUESTION).strip()
            assert run("-m", model, "--no-stream", QUESTION).strip()
            assert run("-m", model, "-c", "And then?").strip()
        with p.check(f"llm, {model}: a schema"):
            answer = json.loads(run("-m", model, "--schema", json.dumps(SCHEMA), QUESTION))
            assert answer["city"] in ("Oslo", "Rome") and answer["age"] in range(151), answer
        with p.check(f"llm, {model}: tools"):
            assert run("-m", model, "--functions", tools, "-T", "llm_version", QUESTION).strip()
            assert len(p.last(path)["tools"]) == 2
    with p.check("llm: an endpoint without a configuration"):
        assert p.model in run("openai", "endpoint", p.v1, "--models")
        assert run("openai", "endpoint", p.v1, "-m", p.model, QUESTION).strip()


def aider(p: Programs, home: Home):
    folder = home.folder / "repository"
    folder.mkdir()
    for arguments in [("init", "-q"), ("config", "user.name", "A"), ("config", "user.email", "a@b.c")]:
        home.run("git", "-C", str(folder), *arguments)
    (folder / "story.py").write_text('print("Once upon a time")\n')
    (folder / "long.md").write_text(SENTENCE * (p.context // 8))
    home.run("git", "-C", str(folder), "add", ".")
    home.run("git", "-C", str(folder), "commit", "-q", "-m", "A story")

    def run(*arguments: str) -> str:
        return home.run(
            "aider", "--model", f"openai/{p.model}", "--openai-api-base", p.v1, "--openai-api-key",
            "none", "--yes-always", "--no-check-update", "--no-show-release-notes", "--analytics-disable",
            "--no-show-model-warnings", *arguments, PWD=str(folder),
        )

    # It works in the folder that it is started in.
    home.folder, before = folder, home.folder
    try:
        for extra in [[], ["--no-stream"]]:
            with p.check(f"aider {' '.join(extra)}: a message about a file"):
                shown = run("--message", "Say it twice.", *extra, "story.py")
                assert "Tokens:" in shown and "litellm." not in shown, shown
        with p.check("aider: a chat that is too long is told as such, with advice"):
            mark = p.recorder.mark()
            shown = run("--message", "Shorten it.", "long.md")
            p.expect_refused(mark, 400)
            assert "has hit a token limit" in shown and "/drop" in shown, shown
    finally:
        home.folder = before


def sgpt(p: Programs, home: Home):
    environment = dict(API_BASE_URL=p.v1, DEFAULT_MODEL=p.model, OPENAI_API_KEY="none")

    def run(*arguments: str) -> str:
        return home.run("sgpt", "--no-cache", *arguments, **environment)

    for arguments in [[], ["--no-md"], ["--code"], ["--shell", "--no-interaction"], ["--describe-shell"]]:
        with p.check(f"sgpt {' '.join(arguments)}: an answer"):
            assert run(*arguments, QUESTION).strip()
    with p.check("sgpt: a conversation"):
        run("--chat", "one", QUESTION)
        assert run("--chat", "one", "And then?").strip()
        assert len(p.last("/v1/chat/completions")["messages"]) == 4, p.last("/v1/chat/completions")


class Proxy(Program):
    """litellm's proxy before a small and a large server."""

    name = "litellm's proxy"

    def __init__(self, home: Home, small: Recorder, large: Recorder, model: str):
        super().__init__(home.folder, home.environment)
        chat = lambda url: {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "none"}
        messages = lambda url: {"model": f"anthropic/{model}", "api_base": url, "api_key": "none"}
        models = {
            "chat-small": chat(small.url), "chat-large": chat(large.url),
            "messages-small": messages(small.url), "messages-large": messages(large.url),
        }
        config = {
            "model_list": [{"model_name": k, "litellm_params": v} for k, v in models.items()],
            "litellm_settings": {
                "context_window_fallbacks": [
                    {"chat-small": ["chat-large"]}, {"messages-small": ["messages-large"]}
                ],
                "telemetry": False,
            },
        }
        self.key = f"sk-{secrets.token_hex(24)}"
        config["general_settings"] = {"master_key": self.key}
        self.config = home.folder / "litellm.json"
        self.config.write_text(json.dumps(config))

    def command(self):
        return ["litellm", "--config", str(self.config), "--host", "127.0.0.1", "--port", str(self.port)]

    def is_ready(self):
        time.sleep(0.5)
        return self.ask("/health/liveliness")[0] == 200

    def ask(self, path: str, body: dict | None = None) -> tuple[int, str]:
        """Status and text of an answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
            {"content-type": "application/json", "authorization": f"Bearer {self.key}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def litellm(p: Programs, home: Home, binary: str):
    flags = ["--max-model-len", "256", "--served-model-name", p.model]
    with (
        Server(binary, *flags) as server, Recorder(server.url) as small,
        Proxy(home, small, p.recorder, p.model) as proxy,
    ):
        for api in ["chat", "messages"]:
            for entrance in ["/v1/chat/completions", "/v1/messages"]:
                for stream in [False, True]:
                    what = f"litellm: {entrance} to a model by {api}, stream {stream}"
                    _check_fallback(p, proxy, small, what, entrance, f"{api}-small", stream)


def _check_fallback(p, proxy, small, what: str, entrance: str, model: str, stream: bool):
    def ask(text: str) -> tuple[int, str]:
        messages = [{"role": "user", "content": text}]
        return proxy.ask(
            entrance, {"model": model, "messages": messages, "max_tokens": 20, "stream": stream}
        )

    with p.check(f"{what}: what fits is answered by the small server"):
        mark, large = small.mark(), p.recorder.mark()
        status, answer = ask(QUESTION)
        assert status == 200, (status, answer)
        assert {one.status for one in small.since(mark)} == {200} and not p.recorder.since(large)
    with p.check(f"{what}: what doesn't fit falls back to the large one"):
        mark, large = small.mark(), p.recorder.mark()
        status, answer = ask(LONG)
        seen = [(one.path, one.status) for one in small.since(mark) + p.recorder.since(large)]
        assert status == 200, (status, answer[:1500], seen)
        assert small.refused(mark) and p.recorder.since(large), seen


SECTIONS = {"llm": llm, "sgpt": sgpt, "aider": aider, "litellm": litellm}


def main() -> int:
    # litellm's proxy stands before one more server.
    return run_commands(__doc__, SECTIONS, needs_binary={"litellm"})


if __name__ == "__main__":
    sys.exit(main())
