#!/usr/bin/env python3
"""The image of docker/image.sh, run by crun as Kubernetes runs it: read-only, without capabilities, bounded.

    image.py LAYOUT [--crun crun]

Needs root and a system where crun may make control groups; an image of another architecture than this machine's
needs an emulator that the kernel knows (binfmt_misc, with the flag F), and its starts take longer. The KV cache must
follow the container's bound of memory and the threads its share of CPUs, whatever the machine has; what is stored
must outlive the container on a volume; SIGTERM must let a stream end.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from serving import checks, free_port, wait_until

MIB = 1 << 20
MOST = 60 * MIB
USER = 65532


class Image:
    """An OCI layout, unpacked."""

    def __init__(self, layout: pathlib.Path, folder: pathlib.Path):
        def blob(descriptor) -> pathlib.Path:
            return layout / "blobs" / descriptor["digest"].replace(":", "/")

        index = json.loads((layout / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]).read_text())
        self.config = json.loads(blob(manifest["config"]).read_text())
        self.compressed = sum(layer["size"] for layer in manifest["layers"])
        self.root = folder / "rootfs"
        for layer in manifest["layers"]:
            with tarfile.open(blob(layer)) as archive:
                # Our own archive; older versions of Python know no filters.
                trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
                archive.extractall(self.root, **trusted)
        files = [path for path in self.root.rglob("*") if path.is_file()]
        self.size = sum(path.stat().st_size for path in files)

    def file(self, path: str) -> pathlib.Path:
        return self.root / path.lstrip("/")


class Container:
    """The image's command under bounds."""

    def __init__(self, crun, image: Image, folder: pathlib.Path, memory: int, cpus: float, flags=()):
        self.crun, self.name = [crun, "--root", str(folder / "crun")], f"sconce-{os.getpid()}-{free_port()}"
        self.bundle = folder / self.name
        self.bundle.mkdir()
        self.port = free_port()
        subprocess.run([crun, "spec"], cwd=self.bundle, check=True)
        spec = json.loads((self.bundle / "config.json").read_text())
        run = image.config["config"]
        listen = ["--host", "127.0.0.1", "--port", str(self.port)]
        command = [*run["Entrypoint"], "serve", *listen, *flags]
        none = {kind: [] for kind in ["bounding", "effective", "permitted", "inheritable", "ambient"]}
        spec["process"] |= {
            "terminal": False,
            "args": command,
            "env": [*run["Env"], "RUST_LOG=info"],
            "user": {"uid": USER, "gid": USER},
            "capabilities": none,
            "noNewPrivileges": True,
        }
        # Not every sandbox lets them be set.
        spec["process"].pop("rlimits", None)
        spec["root"] = {"path": str(image.root), "readonly": True}
        volume = folder / "volume"
        volume.mkdir(exist_ok=True)
        os.chown(volume, USER, USER)
        spec["mounts"] += [
            {"destination": "/cache", "source": str(volume), "options": ["rbind", "rw"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
        ]
        linux = spec["linux"]
        linux["resources"] = {
            "memory": {"limit": memory, "swap": memory},
            "cpu": {"quota": int(cpus * 100_000), "period": 100_000},
        }
        # Its ports are this machine's.
        linux["namespaces"] = [space for space in linux["namespaces"] if space["type"] != "network"]
        (self.bundle / "config.json").write_text(json.dumps(spec))
        self.log, self.process = open(self.bundle / "log", "w+"), None

    def __enter__(self):
        self.began = time.monotonic()
        command = [*self.crun, "run", self.name]
        self.process = subprocess.Popen(
            command, cwd=self.bundle, stdout=self.log, stderr=subprocess.STDOUT
        )
        try:
            wait_until(self._is_ready_or_dead, 60, "the container is ready")
            assert self.process.poll() is None, "the container ended"
        except AssertionError:
            print(self.text()[-3000:])
            self.__exit__()
            raise
        self.seconds = time.monotonic() - self.began
        return self

    def __exit__(self, *_):
        subprocess.run([*self.crun, "delete", "--force", self.name], capture_output=True)
        self.process.wait(timeout=30)

    def _is_ready_or_dead(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.process.poll() is not None or self.ask("GET", "/health/ready")[0] == 200
        return False

    def text(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            headers = {"content-type": "application/json"}
            connection.request(method, path, body and json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
            is_json = "json" in (response.headers["content-type"] or "")
            return response.status, json.loads(content) if is_json else content.decode()

    def inside(self, *command):
        return subprocess.run(
            [*self.crun, "exec", self.name, *command], capture_output=True, text=True
        )

    def state(self) -> dict:
        return json.loads(subprocess.check_output([*self.crun, "state", self.name]))

    def threads(self) -> list[str]:
        tasks = pathlib.Path(f"/proc/{self.state()['pid']}/task")
        return [(task / "comm").read_text().strip() for task in tasks.iterdir()]

    def blocks(self) -> int:
        """Blocks of the KV cache."""
        metrics = self.ask("GET", "/metrics")[1]
        return int(re.search(r'num_gpu_blocks="(\d+)"', metrics)[1])

    def terminate(self):
        subprocess.run([*self.crun, "kill", self.name, "TERM"], check=True)


def check_files(check, image: Image):
    with check(f"{image.size / MIB:.1f} MiB, {image.compressed / MIB:.1f} compressed"):
        assert image.size < MOST
    with check("the program is static"):
        told = subprocess.check_output(["file", "-b", image.file("/usr/local/bin/sconce")], text=True)
        assert "static" in told and "interpreter" not in told, told
    with check("the image is of the architecture that its program is for"):
        machine = int.from_bytes(image.file("/usr/local/bin/sconce").read_bytes()[18:20], "little")
        assert {62: "amd64", 183: "arm64"}[machine] == image.config["architecture"], image.config
    with check("certificates and the list of parts are there, and nothing else that runs"):
        assert b"BEGIN CERTIFICATE" in image.file("/etc/ssl/certs/ca-certificates.crt").read_bytes()
        parts = json.loads(image.file("/usr/share/sbom/sconce.cdx.json").read_text())
        names = {part["name"] for part in parts["components"]}
        assert parts["bomFormat"] == "CycloneDX" and {"candle-core", "tokio", "axum"} <= names
        programs = [p for p in image.root.rglob("*") if p.is_file() and p.stat().st_mode & 0o111]
        assert [p.name for p in programs] == ["sconce"], programs
    with check("it runs as a user of no rights, and says how to stop it and what it needs"):
        run = image.config["config"]
        assert run["User"] == f"{USER}:{USER}" and run["StopSignal"] == "SIGTERM"
        assert "/cache" in run["Volumes"] and "8000/tcp" in run["ExposedPorts"]


def check_bounds(check, start, rows):
    with check("512 MiB and one CPU: ready, and the cache fits"), start(512 * MIB, 1) as small:
        rows["ready under 512 MiB, s"] = round(small.seconds, 2)
        rows["blocks under 512 MiB"] = small.blocks()
        small_threads = small.threads()
        answer = small.ask("POST", "/v1/completions", {"model": "sconce-demo", "prompt": "Once"})
        assert answer[0] == 200, answer
        done = small.inside("/usr/local/bin/sconce", "health", "--url", f"http://127.0.0.1:{small.port}")
        assert done.returncode == 0, done.stderr
        written = small.inside("/usr/local/bin/sconce", "serve", "--store", "/store.db", "--port", "0")
        assert written.returncode != 0, "the root can be written to"
    with check("1024 MiB and two CPUs: more cache, more threads"), start(1024 * MIB, 2) as large:
        rows["blocks under 1024 MiB"] = large.blocks()
        assert rows["blocks under 1024 MiB"] > 1.5 * rows["blocks under 512 MiB"], rows
        both = [small_threads, large.threads()]
        # The thread that asks for the work is one of the team.
        teams = [1 + sum(name.startswith("kernel-") for name in threads) for threads in both]
        rows["threads"] = teams
        assert teams[0] == 1 and teams[1] == min(2, cores()), both


def cores() -> int:
    """Cores of this machine; two hardware threads of one are one."""
    folders = pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*")
    return len({(folder / "topology/thread_siblings_list").read_text() for folder in folders})


def check_life(check, start, tokens):
    with check("what is stored outlives the container on its volume"):
        with start(512 * MIB, 1) as first:
            body = {"model": "sconce-demo", "input": "Once upon a time", "max_output_tokens": 16}
            status, response = first.ask("POST", "/v1/responses", body)
            assert status == 200, response
        with start(512 * MIB, 1) as second:
            status, again = second.ask("GET", f"/v1/responses/{response['id']}")
            assert status == 200 and again["output"] == response["output"], again
    with check("SIGTERM lets a stream end, and the container ends with 0"), start(512 * MIB, 1) as one:
        body = {"model": "sconce-demo", "prompt": "Once", "max_tokens": tokens, "ignore_eos": True}
        told = []
        asking = threading.Thread(target=lambda: told.append(one.ask("POST", "/v1/completions", body)))
        asking.start()
        # An emulated server takes its time to begin; a fast one may be done before it is looked at.
        running = re.compile(r"num_requests_running\{[^}]*\} [1-9]")
        wait_until(lambda: told or running.search(one.ask("GET", "/metrics")[1]), 20, "the request runs")
        one.terminate()
        asking.join(timeout=60)
        assert told and told[0][0] == 200 and told[0][1]["usage"]["completion_tokens"] == tokens, told
        assert one.process.wait(timeout=60) == 0


def alone_with_groups():
    """Goes on in a mount namespace without the unified hierarchy beside those of version 1, which crun
    doesn't know."""
    mixed = pathlib.Path("/sys/fs/cgroup/unified")
    if mixed.is_dir() and os.environ.get("SCONCE_IMAGE_ALONE") != "1":
        os.environ["SCONCE_IMAGE_ALONE"] = "1"
        command = ["unshare", "-m", "sh", "-c", f'umount {mixed}; exec "$@"', "_"]
        os.execvp(command[0], [*command, sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layout", type=pathlib.Path)
    parser.add_argument("--crun", default="crun")
    args = parser.parse_args()
    alone_with_groups()
    rows = {}
    with tempfile.TemporaryDirectory() as folder, checks() as check:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        image = Image(args.layout, folder)
        check_files(check, image)

        def start(memory, cpus):
            return Container(args.crun, image, folder, memory, cpus)

        check_bounds(check, start, rows)
        own = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)
        # As many as an emulated server answers before it is told to end for good.
        check_life(check, start, 200 if image.config["architecture"] == own else 20)
        print(json.dumps(rows))
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
