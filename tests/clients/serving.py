"""What the checks with foreign clients share: a server as a child process, and counted checks."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import traceback


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition, seconds: float, what: str):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def child(pid: int) -> int | None:
    """The process that this one has started, if there is one."""
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return int(done.stdout) if done.stdout.strip() else None


class Server:
    """`sconce serve` on a free loopback port; starts with the context and ends with it."""

    def __init__(self, binary: str, *flags: str):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [binary, "serve", "--host", "127.0.0.1", "--port", str(self.port), *flags]
        self.process = None
        self.log = tempfile.TemporaryFile("w+")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def start(self):
        environment = dict(os.environ)
        # A key or an address of the user's own must not reach the server under test.
        for name in [name for name in environment if name.startswith("SCONCE_")]:
            del environment[name]
        # What checks store is not the user's, unless they name a place.
        environment["SCONCE_STORE"] = "memory"
        self.process = subprocess.Popen(
            self.command, stdout=self.log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            wait_until(self._is_ready_or_dead, 120, "the server is ready")
            assert self.process.poll() is None, f"{self.command} ended at once"
        except AssertionError:
            print(self.log_tail())
            raise

    def stop(self) -> int:
        """SIGTERM; the exit status after the drain."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def log_tail(self) -> str:
        self.log.seek(0)
        return "".join(self.log.readlines()[-20:])

    def request(self, method: str, path: str, body: bytes | None = None, headers=None):
        """Status, headers and body of one plain request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def post(self, path: str, body: dict, headers=None):
        """Status and parsed body of a JSON request."""
        headers = {"content-type": "application/json", **(headers or {})}
        status, _, answer = self.request("POST", path, json.dumps(body).encode(), headers)
        return status, json.loads(answer)

    def model(self) -> str:
        return self.about_model()["id"]

    def about_model(self) -> dict:
        """The first entry of the list of models."""
        _, _, body = self.request("GET", "/v1/models")
        return json.loads(body)["data"][0]

    def metric(self, name: str, headers=None) -> float:
        """Sum over all labels of one metric; it must be there."""
        _, _, body = self.request("GET", "/metrics", headers=headers)
        lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if _is_metric(line, name)]
        assert values, f"no metric {name}"
        return sum(values)

    def _is_ready_or_dead(self) -> bool:
        if self.process.poll() is not None:
            return True
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/health/ready")[0] == 200
        return False


class Program:
    """A program of other people, which runs while its context does. What it prints is kept."""

    name = ""

    def __init__(self, folder: pathlib.Path, environment: dict):
        self.folder, self.environment = folder, environment
        self.port, self.process, self.log = free_port(), None, None

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Asked again while it is false or a request fails."""
        raise NotImplementedError

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.command(), stdout=self.log, stderr=subprocess.STDOUT, cwd=self.folder, env=self.environment
        )
        try:
            wait_until(self._answers, 150, f"{self.name} answers")
        except AssertionError:
            print(self.log_tail())
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=20)
        self.process.kill()
        self.process.wait()
        self.log.close()

    def log_tail(self, lines=25) -> str:
        self.log.seek(0)
        return "".join(self.log.readlines()[-lines:])

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"{self.name} ended with status {self.process.returncode}"
        with contextlib.suppress(Exception):
            return self.is_ready()
        return False


def _is_metric(line: str, name: str) -> bool:
    return line.startswith(name) and line[len(name)] in " {"


class Checks:
    """Counts checks; one that fails is told and the others go on."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    @contextlib.contextmanager
    def __call__(self, name: str):
        try:
            yield
        except Exception:  # noqa: BLE001: whatever a client raises is a failed check
            self.failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            self.passed += 1
            print(f"ok     {name}", flush=True)

    def exit_status(self) -> int:
        return 1 if self.failed or not self.passed else 0


@contextlib.contextmanager
def checks():
    """Prints `N passed, N failed` at the end, whatever happens."""
    counter = Checks()
    try:
        yield counter
    except BaseException:
        counter.failed += 1
        raise
    finally:
        print(f"{counter.passed} passed, {counter.failed} failed", flush=True)
