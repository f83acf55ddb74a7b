#!/usr/bin/env python3
"""A newcomer's conversation in Open WebUI's page, with its defaults, in Chromium.

    open_webui.py [--binary target/debug/sconce] [--screenshot FILE] [--request FILE]

Starts the server, Open WebUI and the browser itself. Needs `open-webui` (PyPI, works without torch)
and `node` on PATH, `playwright-core` (npm) in the folder that --in names, and a Chromium.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request

from recorder import Exchange, Recorder, table
from serving import Program, Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path(__file__).with_suffix(".mjs")


class OpenWebUI(Program):
    """Open WebUI with an empty data folder, before one server."""

    name = "Open WebUI"

    def __init__(self, folder: str, v1: str):
        # What the README of such a server tells, and what keeps it to this machine.
        super().__init__(pathlib.Path(folder), {
            "PATH": os.environ["PATH"], "HOME": folder, "DATA_DIR": folder, "LANG": "C.UTF-8",
            "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none", "OPENAI_API_BASE_URL": v1,
            "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1",
        })
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self):
        return ["open-webui", "serve", "--host", "127.0.0.1", "--port", str(self.port)]

    def is_ready(self):
        time.sleep(0.5)
        return self._get("/health").get("status") is True

    def version(self) -> str:
        return self._get("/api/version")["version"]

    def _get(self, path: str) -> dict:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.load(answer)


def streamed_text(exchange: Exchange) -> str:
    """What the deltas of a chat completion spell."""
    lines = exchange.answer.decode().splitlines()
    chunks = [json.loads(one[6:]) for one in lines if one.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def converse(options, web: OpenWebUI, model: str) -> dict:
    """What the page showed, by the script in the browser."""
    done = subprocess.run(
        ["node", str(SCRIPT), web.url, model, options.screenshot], cwd=options.folder,
        stdout=subprocess.PIPE, text=True, timeout=240,
    )
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout)


def check_conversation(check, options, web: OpenWebUI, recorder: Recorder, model: str):
    shown, chats = {"answers": []}, []
    with check("open-webui: the page takes two messages and shows an answer to each"):
        shown = converse(options, web, model)
        assert len(shown["answers"]) == 2 and all(shown["answers"]), shown
        assert not shown["errors"], shown
    with check("open-webui: the page shows what the server sent"):
        asked = recorder.since(0, "/v1/chat/completions")
        chats = [one for one in asked if one.json().get("stream")]
        assert len(chats) >= 2, [str(one) for one in asked]
        for chat, answer in zip(chats, shown["answers"], strict=False):
            plain = lambda text: "".join(filter(str.isalnum, text))
            assert plain(streamed_text(chat)).startswith(plain(answer)[:40]), (answer, str(chat))
    if chats:
        body = chats[0].json()
        print(f"  the first message: {len(chats[0].body)} bytes, {len(body.get('tools', []))} tools")
        print(f"  first words on the page after {shown.get('seconds')} s: {shown['answers'][:1]}")
        if options.request:
            pathlib.Path(options.request).write_text(json.dumps(body, indent=1))
    with check("open-webui: nothing was refused"):
        assert not recorder.refused(), "\n".join(map(str, recorder.refused()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--serve", default="", help="more flags of `sconce serve`")
    parser.add_argument("--in", dest="folder", default=".", help="the folder with node_modules")
    parser.add_argument("--screenshot", default=os.devnull)
    parser.add_argument("--request", help="where the first message's request is written")
    options = parser.parse_args()
    options.screenshot = str(pathlib.Path(options.screenshot).resolve())
    with (
        checks() as check, Server(options.binary, *shlex.split(options.serve)) as server,
        Recorder(server.url) as recorder,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        OpenWebUI(folder, f"{recorder.url}/v1") as web,
    ):
        print(f"  open-webui {web.version()}", flush=True)
        with check("open-webui: came to its end"):
            check_conversation(check, options, web, recorder, server.model())
        print(table({"open-webui": recorder.exchanges}), flush=True)
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
