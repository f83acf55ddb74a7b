"""The tests of operations and of whole models on a GPU, each in a process of its own: what one of them breaks
there is broken for all that share its process, and a GPU has room for several."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import time

TESTS = re.compile(
    r"cuda::(operations|on_device|counts|packed|experts|real_sizes)::"
    r"|parity::(reference|decode_graphs|invariance|compressed|lora|parts|snapshots)::"
)
# What goes through all models is shared out by their names.
EACH_MODEL = re.compile(
    r"parity::reference::f32_logprobs|parity::reference::bf16_weights"
    r"|parity::invariance::(eight_prompts|chunks_of)"
)
TOGETHER = 6  # models in a process


def listed(binary):
    """The names of the tests in a binary."""
    out = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    return [line.removesuffix(": test") for line in out.splitlines() if line.endswith(": test")]


def models():
    """The models that tests go through on a GPU, from their source."""
    source = pathlib.Path(__file__).resolve().parents[2] / "tests/parity/mod.rs"
    lists = dict(re.findall(r"const (MODELS|ON_CPU_ALONE): [^=]*= &?\[(.*?)\];", source.read_text(), re.S))
    names = {key: re.findall(r'"(\w+)"', text) for key, text in lists.items()}
    return [name for name in names["MODELS"] if name not in names["ON_CPU_ALONE"]]


def jobs(names):
    """(test, models or None): the short ones first, since they say most about what fails later."""
    wanted = [name for name in names if TESTS.match(name)]
    alone = [(name, None) for name in wanted if not EACH_MODEL.match(name)]
    all_models = models()
    parts = [all_models[at:at + TOGETHER] for at in range(0, len(all_models), TOGETHER)]
    return alone + [(name, part) for name in wanted if EACH_MODEL.match(name) for part in parts]


def reason(output):
    """The first panic in what a test printed."""
    found = re.search(r"panicked at (\S+)\n(.*)", output)
    return f"{found[1]} {found[2][:300]}" if found else output[-300:].replace("\n", " ")


def run(binary, device, limit):
    """(passed, [what failed], tests that there was no time for). A part of the models that fails is tried again,
    model by model."""
    ends = time.monotonic() + limit
    env = os.environ | {"SCONCE_TEST_DEVICE": device, "RUST_BACKTRACE": "0"}

    def one(test, some):
        left = ends - time.monotonic()
        if left < 5:
            return None
        command = [binary, "--exact", test, "--test-threads", "1"]
        own = env | ({"SCONCE_TEST_MODELS": ",".join(some)} if some else {})
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, env=own)
        except subprocess.TimeoutExpired:
            return None
        return "" if done.returncode == 0 else reason(done.stdout + done.stderr)

    def tried(job):
        test, some = job
        why = one(test, some)
        if not why or not some or len(some) == 1:
            return [(test, some, why)]
        return [(test, [name], one(test, [name])) for name in some]

    with concurrent.futures.ThreadPoolExecutor(min(14, os.cpu_count() or 1)) as pool:
        results = [result for some in pool.map(tried, jobs(listed(binary))) for result in some]
    failed = [f"{test} {' '.join(some or [])}: {why}" for test, some, why in results if why]
    untried = sum(why is None for _, _, why in results)
    return len(results) - len(failed) - untried, failed, untried
