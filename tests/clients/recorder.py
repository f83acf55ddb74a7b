#!/usr/bin/env python3
"""A proxy on loopback that writes down what a client asks and what it is answered.

    recorder.py URL_OF_SERVER [--port 0] [--to FILE]     as a program: one JSON line per exchange

Needs the standard library only. Bodies go on as they come, so that a stream stays a stream.
"""

import argparse
import collections
import contextlib
import http.client
import http.server
import json
import sys
import threading
import urllib.parse

# What belongs to one connection and not to the message.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
# Of an answer, as much is kept as shows what kind it was.
KEPT_OF_ANSWER = 4 << 20


class Exchange:
    """One request and the answer to it."""

    def __init__(self, method: str, target: str, headers: dict, body: bytes):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.status, self.answer_headers, self.answer = 0, {}, b""

    @property
    def path(self) -> str:
        return urllib.parse.urlsplit(self.target).path

    def json(self) -> dict:
        return json.loads(self.body)

    def as_json(self) -> dict:
        return {
            "method": self.method, "target": self.target, "status": self.status,
            "headers": self.headers, "body": _json_or_text(self.body),
            "answer_headers": self.answer_headers, "answer": _json_or_text(self.answer),
        }

    def __str__(self):
        body, answer = self.body.decode(errors="replace"), self.answer.decode(errors="replace")
        return f"{self.method} {self.target} {body[:2000]} -> {self.status} {answer[:1000]}"


def _json_or_text(body: bytes):
    text = body.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


class Recorder:
    """Stands before the server at `upstream`; `exchanges` grows as requests end."""

    def __init__(self, upstream: str, port: int = 0, on_exchange=None):
        address = urllib.parse.urlsplit(upstream)
        self.upstream = (address.hostname, address.port)
        self.exchanges, self.on_exchange = [], on_exchange
        self._changed = threading.Condition()
        self._open = 0
        self._server = _Proxy(("127.0.0.1", port), _Handler)
        self._server.recorder = self
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def begin(self):
        with self._changed:
            self._open += 1

    def add(self, exchange: Exchange):
        with self._changed:
            self.exchanges.append(exchange)
            self._open -= 1
            self._changed.notify_all()
        if self.on_exchange:
            self.on_exchange(exchange)

    def _ended(self) -> list[Exchange]:
        """All that ended. A client has its answer a moment before that is so."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, timeout=5)
            return list(self.exchanges)

    def mark(self) -> int:
        """How many there are now; `since` takes it."""
        return len(self._ended())

    def since(self, mark: int, path: str | None = None) -> list[Exchange]:
        return [one for one in self._ended()[mark:] if path is None or one.path == path]

    def refused(self, mark: int = 0) -> list[Exchange]:
        return [one for one in self._ended()[mark:] if one.status >= 400]


def table(named_exchanges: dict[str, list[Exchange]]) -> str:
    """Per program, how often which route gave which status."""
    lines = []
    for program, exchanges in named_exchanges.items():
        counts = collections.Counter((one.method, one.path, one.status) for one in exchanges)
        for (method, path, status), count in sorted(counts.items()):
            lines.append(f"{program:<24} {method:<7} {path:<28} {status} {count:>4}")
    return "\n".join(lines)


class _Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that hangs up is nothing to tell."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _forward(self):
        body = self._body()
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        exchange = Exchange(self.command, self.path, dict(self.headers.items()), body)
        self.server.recorder.begin()
        upstream = http.client.HTTPConnection(*self.server.recorder.upstream, timeout=300)
        try:
            self._exchange(upstream, headers, exchange)
        finally:
            self.server.recorder.add(exchange)

    def _exchange(self, upstream, headers: dict, exchange: Exchange):
        body = exchange.body
        # A client that hangs up is an answer cut short, for the upstream too.
        with contextlib.closing(upstream), contextlib.suppress(OSError):
            if "content-length" in map(str.lower, headers) or not body:
                upstream.request(self.command, self.path, body or None, headers)
            else:
                upstream.request(self.command, self.path, body, headers | {"content-length": str(len(body))})
            self._answer(upstream.getresponse(), exchange)

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = do_PATCH = do_OPTIONS = _forward

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, response: http.client.HTTPResponse, exchange: Exchange):
        exchange.status = response.status
        exchange.answer_headers = dict(response.getheaders())
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or response.status in (204, 304)
        chunked = not bodiless and response.getheader("content-length") is None
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while part := b"" if bodiless else response.read1(65536):
            exchange.answer += part[: KEPT_OF_ANSWER - len(exchange.answer)]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            self.wfile.flush()
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("upstream")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--to", type=argparse.FileType("a"), default=sys.stdout)
    options = parser.parse_args()

    def write(exchange: Exchange):
        options.to.write(json.dumps(exchange.as_json()) + "\n")
        options.to.flush()

    with Recorder(options.upstream, options.port, write) as recorder:
        print(recorder.url, file=sys.stderr, flush=True)
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
