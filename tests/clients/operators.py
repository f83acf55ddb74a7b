#!/usr/bin/env python3
"""What operators and hostile clients do to a server, by programs that aren't ours: curl, OpenSSL, zstd
and Python's h2.

    operators.py [--binary target/debug/sconce]

Compressed bodies, HTTP/2 with and without TLS, streams that are reset in a hurry, a certificate that
changes under running streams, a Unix socket, a port for operators, idle connections and more requests
than fit. Times are only bounded where a hang would be seen.
"""

import argparse
import contextlib
import gzip
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import h2.config
import h2.connection
import h2.events

from serving import Server, checks, free_port, wait_until

JSON = {"content-type": "application/json"}


def completion(**fields) -> dict:
    return {"model": "sconce-demo", "prompt": "Once upon a time", "max_tokens": 8} | fields


def run(*command: str, data: bytes | None = None) -> str:
    done = subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr.decode()}"
    return done.stdout.decode()


def curl(*arguments: str, data: dict | None = None) -> tuple[int, str, str]:
    """Status, version of HTTP and body."""
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code} %{http_version}"]
    if data is not None:
        command += ["--json", json.dumps(data)]
    body, _, end = run(*command, *arguments).rpartition("\n")
    status, version = end.split()
    return int(status), version, body


def text_of(body: str) -> str:
    return json.loads(body)["choices"][0]["text"]


def encodings(server: Server):
    plain = json.dumps(completion(temperature=0)).encode()
    status, _, expected = server.request("POST", "/v1/completions", plain, JSON)
    assert status == 200, expected
    zstd = subprocess.run(["zstd", "--stdout"], input=plain, capture_output=True, check=True).stdout
    for encoding, data in [("gzip", gzip.compress(plain)), ("zstd", zstd)]:
        headers = JSON | {"content-encoding": encoding}
        status, _, body = server.request("POST", "/v1/completions", data, headers)
        assert status == 200 and text_of(body) == text_of(expected), (encoding, body)
    # What is decoded counts, however small it was on the way.
    bomb = gzip.compress(b" " * (100 << 20))
    headers = JSON | {"content-encoding": "gzip"}
    status, _, body = server.request("POST", "/v1/completions", bomb, headers)
    assert status == 413, (status, body)
    status, _, body = server.request("POST", "/v1/completions", b"not gzip", headers)
    assert status == 400, (status, body)
    headers = JSON | {"content-encoding": "br"}
    status, _, body = server.request("POST", "/v1/completions", plain, headers)
    assert status == 415 and b"gzip, zstd" in body, (status, body)


def http2(server: Server):
    url = f"{server.url}/v1/completions"
    status, version, body = curl("--http2-prior-knowledge", url, data=completion())
    assert (status, version) == (200, "2"), body
    status, version, body = curl("--http2-prior-knowledge", url, data=completion(stream=True))
    assert (status, version) == (200, "2") and "[DONE]" in body, body
    status, version, _ = curl("--http1.1", url, data=completion())
    assert (status, version) == (200, "1.1")


def reset_in_a_hurry(server: Server):
    """Streams that are opened and reset at once, as in CVE-2023-44487."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    headers = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/v1/models")]
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        connection.initiate_connection()
        sock.sendall(connection.data_to_send())
        ended = False
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                for _ in range(50):
                    stream = connection.get_next_available_stream_id()
                    connection.send_headers(stream, headers, end_stream=True)
                    connection.reset_stream(stream)
                sock.sendall(connection.data_to_send())
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(65536):
                events = connection.receive_data(data)
                ended |= any(isinstance(one, h2.events.ConnectionTerminated) for one in events)
                if ended:
                    break
            else:
                ended = True
    assert ended, "the connection was not ended"
    assert server.request("GET", "/health/ready")[0] == 200


def idle_connections(server: Server, count: int):
    """They cost nobody anything, and one too many is told so."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count - 20)]
    try:
        # Some that trickle the beginning of a request.
        for sock in idle[:50]:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-a: ")
        status, body = server.post("/v1/completions", completion())
        assert status == 200, body
        assert server.metric("sconce:open_connections") > count - 20
        # Which of them is the one too many depends on when the server sees that those above are gone.
        last = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(21)]
        idle += last
        told, _, _ = select.select(last, [], [], 60)
        assert told, "none was refused"
        answer = b""
        told[0].settimeout(60)
        with contextlib.suppress(ConnectionError):
            while part := told[0].recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 503 "), answer
    finally:
        for sock in idle:
            sock.close()
    wait_until(lambda: is_served(server), 60, "there is room again")
    assert server.metric("sconce:refused_connections_total") >= 1


def is_served(server: Server) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return server.request("GET", "/health/ready")[0] == 200
    return False


def overload(binary: str):
    """Of many more requests than fit, each is answered or refused with a time to come back."""
    flags = ["--max-num-seqs", "2", "--max-queued-requests", "4", "--max-queued-tokens", "200"]
    with Server(binary, *flags) as server:
        seen, lock = [], threading.Lock()

        def ask(number: int):
            body = json.dumps(completion(max_tokens=60, seed=number, ignore_eos=True)).encode()
            status, headers, answer = server.request("POST", "/v1/completions", body, JSON)
            with lock:
                seen.append((status, headers.get("retry-after"), answer))

        for _ in range(3):
            threads = [threading.Thread(target=ask, args=(number,)) for number in range(30)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(seen) == 90
        answered = [answer for status, _, answer in seen if status == 200]
        refused = [after for status, after, _ in seen if status == 429]
        assert len(answered) + len(refused) == 90, {status for status, *_ in seen}
        assert answered and refused, (len(answered), len(refused))
        assert all(1 <= int(after) <= 60 for after in refused), refused
        assert all(json.loads(answer)["usage"]["completion_tokens"] == 60 for answer in answered)
        assert server.metric("sconce:admission_rejections_total") == len(refused)
        long = completion(prompt=list(range(5, 205)), max_tokens=1)
        assert server.post("/v1/completions", long)[0] == 200, "alone it may come"
        for name in ["vllm:num_requests_running", "vllm:num_requests_waiting",
                     "sconce:kv_blocks_in_use"]:
            wait_until(lambda name=name: server.metric(name) == 0, 60, name)


def unix_socket(binary: str, folder: pathlib.Path):
    path = folder / "sconce.sock"
    # What a server that was killed leaves behind.
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    server = Server(binary, "--uds", str(path))
    server._is_ready_or_dead = lambda: server.process.poll() is not None or is_unix_ready(path)
    with server:
        at = ["--unix-socket", str(path)]
        status, _, body = curl(*at, "http://sconce/v1/completions", data=completion())
        assert status == 200, body
        status, version, _ = curl(*at, "--http2-prior-knowledge", "http://sconce/v1/models")
        assert (status, version) == (200, "2")
        # A second one doesn't take it away.
        second = subprocess.run(
            [binary, "serve", "--uds", str(path)], capture_output=True, timeout=60, check=False
        )
        assert second.returncode == 1 and b"can't listen on" in second.stderr, second.stderr
        assert is_unix_ready(path)
        assert server.stop() == 0
    assert not path.exists()


def is_unix_ready(path: pathlib.Path) -> bool:
    try:
        return curl("--unix-socket", str(path), "http://sconce/health/ready")[0] == 200
    except AssertionError:
        return False


def port_of_operators(binary: str):
    port = free_port()
    with Server(binary, "--admin-port", str(port)) as server:
        status = lambda port, path: curl(f"http://127.0.0.1:{port}{path}")[0]
        for path in ["/health/live", "/v1/models", "/version"]:
            assert [status(server.port, path), status(port, path)] == [200, 200], path
        assert [status(server.port, "/metrics"), status(port, "/metrics")] == [404, 200]
        asked = curl(f"http://127.0.0.1:{port}/v1/completions", data=completion())
        assert asked[0] == 404, asked
        assert server.post("/v1/completions", completion())[0] == 200


class Certificate:
    """A certificate that signs itself, for one name."""

    def __init__(self, folder: pathlib.Path, name: str):
        self.name = name
        self.chain, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        run(
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(self.key), "-out", str(self.chain),
        )

    def put(self, folder: pathlib.Path):
        for source, name in [(self.key, "live.key"), (self.chain, "live.crt")]:
            # As a new file under the old name, the way in which secrets are mounted.
            new = folder / f"{name}.new"
            new.write_bytes(source.read_bytes())
            os.replace(new, folder / name)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.chain))


class TlsStream:
    """A streamed answer over TLS that is read bit by bit."""

    def __init__(self, port: int, context: ssl.SSLContext, **fields):
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=120)
        body = json.dumps(completion(stream=True, ignore_eos=True, **fields))
        self.connection.request("POST", "/v1/completions", body, JSON)
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        self.begin = self.response.readline()

    def rest(self) -> str:
        with contextlib.closing(self.connection):
            return (self.begin + self.response.read()).decode()


def tls(binary: str, folder: pathlib.Path):
    old, new = Certificate(folder, "old"), Certificate(folder, "new")
    old.put(folder)
    flags = ["--ssl-certfile", str(folder / "live.crt"), "--ssl-keyfile", str(folder / "live.key")]
    server = Server(binary, *flags)

    def served_by() -> str | None:
        """Whose certificate a new connection gets."""
        for certificate in (old, new):
            with contextlib.suppress(OSError, ssl.SSLError):
                with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
                    context = certificate.context()
                    with context.wrap_socket(sock, server_hostname="127.0.0.1"):
                        return certificate.name
        return None

    server._is_ready_or_dead = lambda: server.process.poll() is not None or served_by() is not None
    with server:
        url = f"https://127.0.0.1:{server.port}"
        wait_until(
            lambda: curl("--cacert", str(old.chain), f"{url}/health/ready")[0] == 200, 60, "ready"
        )
        asked = curl("--cacert", str(old.chain), "--http2", f"{url}/v1/completions", data=completion())
        assert asked[:2] == (200, "2"), asked
        asked = curl("--cacert", str(old.chain), "--http1.1", f"{url}/v1/models")
        assert asked[:2] == (200, "1.1"), asked
        with contextlib.suppress(OSError, http.client.HTTPException):
            status = server.request("GET", "/health/ready")[0]
            raise AssertionError(f"answered {status} to a client without TLS")
        # A certificate that changes under streams.
        context = old.context()
        streams = [TlsStream(server.port, context, max_tokens=300, seed=n) for n in range(12)]
        new.put(folder)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: served_by() == "new", 60, "the new certificate is used")
        answers = [stream.rest() for stream in streams]
        assert all(answer.count("data: ") > 100 and "[DONE]" in answer for answer in answers)
        # One that is no good changes nothing; then one without a signal.
        (folder / "live.crt").write_text("nothing")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the certificate stays as it was" in server.log_tail(), 60, "it is told")
        assert served_by() == "new"
        old.put(folder)
        wait_until(lambda: served_by() == "old", 60, "files that changed are read without a signal")
        assert server.stop() == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/sconce")
    arguments = parser.parse_args()
    binary = str(pathlib.Path(arguments.binary).resolve())
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, checks() as check:
        folder = pathlib.Path(name)
        with Server(binary, "--max-connections", "300") as server:
            for work in [encodings, http2, reset_in_a_hurry]:
                with check(work.__name__):
                    work(server)
            with check("idle_connections"):
                idle_connections(server, 300)
        with check("overload"):
            overload(binary)
        with check("port_of_operators"):
            port_of_operators(binary)
        for work in [unix_socket, tls]:
            with check(work.__name__):
                work(binary, folder)
        print(f"{time.monotonic() - began:.1f} s")
        return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
