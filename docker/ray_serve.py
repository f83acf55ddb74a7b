"""sconce as a deployment of Ray Serve: each replica starts a server and passes requests on to it.

    pip install 'ray[serve]' httpx
    serve run docker.ray_serve:app                                  from the repository's root
    serve run docker.ray_serve:app flags="--model org/name"         with flags of `sconce serve`

Ray starts replicas, counts their requests, replaces those that fail and scales by how many requests each has
(`autoscaling_config`). The program is `sconce` in $PATH, or what $SCONCE names. The API is that of the server,
at http://127.0.0.1:8000/v1.
"""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time

import httpx
from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

DRAIN = 60
# Headers that belong to one connection.
OWN = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


@serve.deployment(
    # As many as one server decodes together; more wait in Ray, which may start another replica.
    max_ongoing_requests=64,
    autoscaling_config={"min_replicas": 2, "max_replicas": 8, "target_ongoing_requests": 32},
    health_check_period_s=5,
    graceful_shutdown_timeout_s=DRAIN + 15,
)
class Sconce:
    def __init__(self, flags: str = ""):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        command = [os.environ.get("SCONCE", "sconce"), "serve", "--port", str(port)]
        command += ["--drain-timeout", str(DRAIN), *shlex.split(flags)]
        self.process = subprocess.Popen(command)
        # Silence, not length: an answer that is not streamed is silent until it is complete.
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=httpx.Timeout(5, read=1800), limits=limits
        )
        self.url = str(self.client.base_url)
        while not self._answers("/health/ready"):
            if self.process.poll() is not None:
                raise RuntimeError(f"sconce ended with status {self.process.returncode}")
            time.sleep(0.1)

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.url + path).status_code == 200
        return False

    async def check_health(self):
        """Ray replaces a replica in which this fails."""
        if (await self.client.get("/health/live")).status_code != 200:
            raise RuntimeError("the engine has ended")

    async def __call__(self, request: Request) -> StreamingResponse:
        headers = [(name, value) for name, value in request.headers.items() if name not in OWN]
        url = httpx.URL(path=request.url.path, query=request.url.query.encode())
        passed = self.client.build_request(
            request.method, url, headers=headers, content=await request.body()
        )
        answer = await self.client.send(passed, stream=True)

        async def body():
            # A client that leaves ends this generator, and with the connection the sequence.
            try:
                async for chunk in answer.aiter_raw():
                    yield chunk
            finally:
                await answer.aclose()

        kept = {name: value for name, value in answer.headers.items() if name not in OWN}
        return StreamingResponse(body(), answer.status_code, kept)

    def __del__(self):
        # Ray has let running requests end by now.
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=DRAIN)
            self.process.kill()


def app(args: dict[str, str]):
    """What `serve run` builds, with the arguments of its command line."""
    return Sconce.bind(args.get("flags", ""))
