#!/usr/bin/env python3
"""`sconce chat` in a real terminal: typing, pasting, Ctrl-C, and without a terminal.

    chat_terminal.py [--binary target/debug/sconce]

Needs the standard library and a Unix.
"""

import argparse
import contextlib
import http.server
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
CTRL_C = b"\x03"
PROMPT = "> "


class Terminal:
    """A child on a pseudo-terminal."""

    def __init__(self, *command: str):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)
        self.screen, self.mark = "", 0

    def type(self, keys: bytes):
        self.mark = len(self.screen)
        os.write(self.fd, keys)

    def wait_for(self, pattern: str, seconds: float = 60) -> str:
        """What was shown since the last keys, as soon as it matches."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.new(), re.DOTALL):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.new()!r}"
            self._read(0.05)
        return self.new()

    def new(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", self.screen[self.mark :])

    def exit_status(self, seconds: float = 20) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self._read(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"still running, showing {self.new()!r}")

    def _read(self, seconds: float):
        with contextlib.suppress(OSError):
            if select.select([self.fd], [], [], seconds)[0]:
                self.screen += os.read(self.fd, 65536).decode(errors="replace")


class Endless(http.server.BaseHTTPRequestHandler):
    """A model that never ends its answer, so that Ctrl-C can't come too late."""

    closed = threading.Event()

    def do_GET(self):
        self._start("application/json")
        self.wfile.write(b'{"data": [{"id": "endless"}]}')

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self._start("text/event-stream")
        try:
            while True:
                self.wfile.write(b'data: {"choices":[{"delta":{"content":"on and "}}]}\n\n')
                time.sleep(0.02)
        except OSError:
            self.closed.set()

    def _start(self, content_type: str):
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("connection", "close")
        self.end_headers()

    def log_message(self, *_):
        pass


def check_interrupt(check, binary: str):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chat = Terminal(binary, "chat", "--url", f"127.0.0.1:{server.server_port}")
        with check("chat: Ctrl-C stops the answer, not the program, and hangs up"):
            chat.wait_for(f"/help.*{PROMPT}")
            for _ in range(2):
                Endless.closed.clear()
                chat.type(b"go on\r")
                chat.wait_for("on and on and on and")
                chat.type(CTRL_C)
                chat.wait_for(f"stopped.*{PROMPT}")
                assert Endless.closed.wait(10), "the connection stays open"
        with check("chat: Ctrl-C at the prompt warns, a second one leaves with status 0"):
            chat.type(CTRL_C)
            chat.wait_for(r"again.*" + PROMPT)
            chat.type(CTRL_C)
            assert chat.exit_status() == 0
        server.shutdown()


def check_terminal(check, binary: str, server: Server):
    chat = Terminal(binary, "chat", "--url", server.url, "--verbose")
    with check("chat: a question is answered, with counts, and the prompt comes back"):
        chat.wait_for(f"/help.*{PROMPT}")
        chat.type(b"Tell me a story about a lamp.\r")
        chat.wait_for(r"tokens in.* out; .*" + PROMPT)
    with check("chat: a pasted text of two lines is one question"):
        chat.type(b"\x1b[200~repeat this:\ntwo lines\x1b[201~")
        chat.wait_for("two lines")
        assert "tokens in" not in chat.new(), "the paste was sent before Enter"
        chat.type(b"\r")
        chat.wait_for(r"tokens in.*" + PROMPT)
    with check("chat: commands answer"):
        chat.type(b"/help\r")
        chat.wait_for(r"/save FILE.*" + PROMPT)
        chat.type(b"/clear\r")
        chat.wait_for(r"empty.*" + PROMPT)
    with check("chat: Ctrl-D leaves with status 0"):
        chat.type(b"\x04")
        assert chat.exit_status() == 0


def check_pipe(check, binary: str, server: Server):
    def ask(*flags: str, text: str | None = None) -> subprocess.CompletedProcess:
        command = [binary, "chat", "--seed", "5", "--max-tokens", "20", *flags]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)

    question = "Tell me a story about a lamp."
    with check("chat: a pipe gets the answer alone"):
        piped = ask("--url", server.url, text=question)
        assert piped.returncode == 0 and piped.stdout.strip(), piped
        given = ask("--url", server.url, "--prompt", question)
        assert given.stdout == piped.stdout, (given.stdout, piped.stdout)
    with check("chat: without --url it loads the demo model itself and answers alike"):
        local = ask("--prompt", question)
        assert local.returncode == 0, local
        served = ask("--url", server.url, "--prompt", question)
        assert local.stdout == served.stdout, (local.stdout, served.stdout)
    with check("chat: no server is an error with its address"):
        refused = ask("--url", "http://127.0.0.1:1", "--prompt", question)
        assert refused.returncode == 1 and "127.0.0.1:1" in refused.stderr, refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    with checks() as check, Server(args.binary) as server:
        check_interrupt(check, args.binary)
        check_terminal(check, args.binary, server)
        check_pipe(check, args.binary, server)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
