#!/usr/bin/env python3
"""What has to be shown on a machine with an NVIDIA GPU, in one run of a few minutes.

    run.py [--binary target/release/sconce] [--test-binary PATH] [--peers peers.json] [--only REGEX]
    run.py --tiny                      tiny models on the CPU: shows that the script works
    run.py --report results.jsonl      the table of the last run in a file

Facts of the machine, its ceilings, then right answers, then speed, then other servers. Models are
written here with random weights at real shapes. Each part has a time limit and the run has a
budget: what no longer fits is reported as left out. Status 1: a check of answers failed. Standard
library only; the ceilings come from torch if it is there, from `sconce ceiling` if not.
"""

import argparse
import json
import mmap
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True  # a checkout stays as it is
import device_tests
import models
from figures import (
    HEADLINE, TOO_GOOD, cells, checked, headline, judged, print_report, row, shape, table, troubles,
)
from serving import Failed, Server, agreed, ask_all, bench, distance

# Flags of `sconce bench` for each workload, and the seconds that it may take.
WORKLOADS = {
    "decode": ("--input-len 16 --output-len 128 --num-requests 4 --concurrency 1 --warmup 1", 45),
    "prefill": ("--input-len 2048 --output-len 1 --num-requests 8 --concurrency 1 --warmup 2", 45),
    "c64": ("--input-len 512 --output-len 128 --num-requests 128 --concurrency 64 --warmup 64", 60),
    "c256": (
        "--input-len 512 --output-len 128 --num-requests 512 --concurrency 256 --warmup 256", 90,
    ),
}
TINY_WORKLOADS = {
    "decode": ("--input-len 16 --output-len 16 --num-requests 2 --concurrency 1 --warmup 1", 20),
    "prefill": ("--input-len 64 --output-len 1 --num-requests 2 --concurrency 1 --warmup 1", 20),
    "c64": ("--input-len 16 --output-len 8 --num-requests 8 --concurrency 4 --warmup 2", 20),
    "c256": ("--input-len 16 --output-len 8 --num-requests 16 --concurrency 8 --warmup 2", 20),
}
MEASURED = {"0.6b": ["decode"], "8b": ["decode", "prefill", "c64", "c256"]}
# The seconds without which a part, or the server of a model, is not begun.
CHECKS = {"facts": 2, "ceilings": 10, "alone-and-together": 20, "beside-cpu": 15, "parity": 20}
START_NEEDS = {"0.6b": 20, "8b": 60}
RESERVE = 5  # seconds kept for stopping servers and for the table
PROMPT_LENGTHS = [3, 8, 16, 31, 32, 33, 48, 64, 65, 100, 127, 128, 200, 256, 300, 400]
TOLERANCE = 0.1  # of a logprob, where bf16 sums may come in another order
CPU_PROMPTS, CPU_TOKENS = 4, 16

TORCH = """
import json, torch
device = torch.device("DEVICE")
def seconds(work, times):
    best = 1e9
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(); [work() for _ in range(10)]; end.record(); torch.cuda.synchronize(device)
        best = min(best, start.elapsed_time(end) / 1e4)
    return best
with torch.cuda.device(device):
    a = torch.zeros(1 << 30, dtype=torch.uint8, device=device); b = torch.empty_like(a)
    x, y = (torch.randn(8192, 8192, device=device).bfloat16() for _ in range(2))
    copy, product = seconds(lambda: b.copy_(a), 6), seconds(lambda: x @ y, 6)
print(json.dumps({"copy_gb_per_s": 2 * a.numel() / copy / 1e9,
                  "bf16_tflop_per_s": 2 * 8192 ** 3 / product / 1e12}))
"""


class LeftOut(Exception):
    """Why something was not tried."""


def output_of(command, limit):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except FileNotFoundError:
        raise Failed(f"there is no {command[0]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        raise Failed(f"{shlex.join(command[:2])}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


class Run:
    """One run: its budget, its models, and what it has found so far."""

    def __init__(self, options, out):
        self.options, self.out = options, out
        self.sconce = str(pathlib.Path(options.binary).resolve())
        self.ends = time.monotonic() + 60 * options.minutes - RESERVE
        self.name = time.strftime("%Y-%m-%dT%H:%M:%S")
        self.configs = models.configs(options.tiny)
        self.workloads = TINY_WORKLOADS if options.tiny else WORKLOADS
        self.peers = load_peers(options.peers, self.configs)
        self.rows, self.failed, self.pending = [], False, self.planned()
        self.ceiling, self.ours, self.alone = {}, {}, None
        self.numbers, self.written, self.places = None, {}, []
        self.help = None

    def planned(self):
        names = list(CHECKS)
        names += [f"{model}-{one}" for model, work in MEASURED.items() for one in work]
        names += [f"{p['name']}-{one}" for p in self.peers for one in MEASURED[p["model"]]]
        return [name for name in names if re.search(self.options.only, name)]

    def left(self):
        return self.ends - time.monotonic()

    def part(self, name, needs, limit, work, *, check=False):
        """Does one part within its limit; `work` takes the seconds it has and gives rows and
        details. A check that fails makes the run fail."""
        if name not in self.pending:
            return
        began, result, left = time.monotonic(), {"part": name}, self.left()
        print(f"{name} ...", flush=True)
        try:
            if left < needs:
                raise LeftOut(f"{max(0, left):.0f} s of the budget are left, {needs} are needed")
            rows, details = work(min(limit, left))
            result |= {"rows": rows, "details": details}
        except LeftOut as reason:
            result |= {"left_out": str(reason), "rows": [row(name, verdict=f"left out: {reason}")]}
        except Exception as error:  # whatever it is, the other parts are still to be done
            text = str(error) if isinstance(error, Failed) else repr(error)
            verdict = f"{'FAILED' if check else 'error'}: {text.splitlines()[0]}"
            result |= {"error": text, "rows": [row(name, verdict=verdict)]}
            print(f"  {text}", flush=True)
        self.pending.remove(name)
        self.keep(result, began)

    def keep(self, result, began):
        """Writes a result down at once, so that a run cut off still shows it."""
        result = {"run": self.name, "seconds": round(time.monotonic() - began, 1)} | result
        print(json.dumps(result), file=self.out, flush=True)
        for one in result["rows"]:
            self.failed |= one["verdict"].startswith("FAILED")
            print("  " + " | ".join(cells(one)), flush=True)
        print(f"  {result['seconds']} s, {max(0, self.left()):.0f} s left", flush=True)
        self.rows += result["rows"]

    # The machine.

    def facts(self, limit):
        binary = pathlib.Path(self.sconce)
        if not binary.is_file():
            raise Failed(f"there is no {binary}")
        details = {"tiny": self.options.tiny, "device": self.options.device}
        rows = []
        try:
            fields = ("name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,"
                      "clocks.max.sm,clocks.max.mem,power.limit")
            command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
            index = self.options.device.partition(":")[2] or "0"
            values = output_of([*command, "-i", index], limit).splitlines()[0].split(", ")
            gpu = details["gpu"] = dict(zip(fields.split(","), values))
            rows.append(row("GPU", f"{gpu['name']}, driver {gpu['driver_version']}, "
                            f"{gpu['memory.total']}, clocks up to {gpu['clocks.max.sm']} and "
                            f"{gpu['clocks.max.mem']}"))
            rows.append(row("GPU memory in use before", gpu["memory.used"]))
        except Failed as error:
            rows.append(row("GPU", verdict=f"left out: {error}"))
        try:
            details["version"] = output_of([self.sconce, "--version"], limit).strip()
            rows.append(row("version", details["version"]))
        except Failed as error:
            rows.append(row("version", verdict=f"error: {error}"))
        details["bytes"] = binary.stat().st_size
        megabytes = round(details["bytes"] / 1e6, 1)
        rows.append(judged("size of the program, MB", megabytes, "< 60", megabytes < 60))
        return rows, details

    def ceilings(self, limit):
        device = self.options.device
        if device.startswith("cuda"):
            source, figures = self.torch_ceilings(device, limit)
            if figures is None:
                source, figures = self.own_ceilings(device, limit, source)
        else:
            cpu = json.loads(output_of([self.sconce, "ceiling", "--json"], limit))
            source = "sconce ceiling, reads only"
            figures = {"copy_gb_per_s": cpu["read_gb_s"],
                       "bf16_tflop_per_s": cpu["bf16_gflop_s"] / 1000}
        self.ceiling = figures
        return [
            row(f"copy bandwidth, GB/s ({source})", round(figures["copy_gb_per_s"], 1)),
            row(f"bf16 products, TFLOP/s ({source})", round(figures["bf16_tflop_per_s"], 2)),
        ], figures | {"source": source}

    def torch_ceilings(self, device, limit):
        script = TORCH.replace("DEVICE", device if ":" in device else device + ":0")
        try:
            out = output_of([sys.executable, "-c", script], limit)
            return "torch", json.loads(out.splitlines()[-1])
        except (Failed, ValueError, IndexError) as error:
            return str(error).splitlines()[-1], None

    def own_ceilings(self, device, limit, why):
        if "--device" not in output_of([self.sconce, "ceiling", "--help"], limit):
            raise LeftOut(f"no torch ({why}), and `sconce ceiling` here has no --device")
        out = output_of([self.sconce, "ceiling", "--device", device, "--json"], limit)
        figures = json.loads(out)
        return "sconce ceiling", {"copy_gb_per_s": figures["copy_gb_s"],
                                  "bf16_tflop_per_s": figures["bf16_gflop_s"] / 1000}

    # Models and servers.

    def weights(self, model, kind):
        """The folder or the GGUF file of a model, written on first use."""
        if (model, kind) in self.written:
            return self.written[model, kind]
        began, config = time.monotonic(), self.configs[model]
        size = models.total_bytes(config)
        place, found = self.place_for(model, kind, size)
        if not found:
            if self.numbers is None:
                self.numbers = models.Numbers(self.options.tiny)
            print(f"  writing {place}, {size / 1e9:.1f} GB", flush=True)
            self.numbers.ends = self.ends
            try:
                write = models.write_folder if kind == "folder" else models.write_gguf
                write(place, config, self.numbers)
            except OSError as error:
                raise LeftOut(f"{place} can't be written: {error}") from None
        self.written[model, kind] = place
        verb = "found" if found else "written"
        what = f"{model} {kind} of {size / 1e9:.1f} GB in {place.parent}: {verb}, s"
        seconds = round(time.monotonic() - began, 1)
        self.keep({"part": f"{model}-{kind}", "rows": [row(what, seconds)]}, began)
        return place

    def place_for(self, model, kind, size):
        """Where a model goes, and whether it is there already."""
        name = f"{model}{'-tiny' if self.options.tiny else ''}"
        name += ".gguf" if kind == "gguf" else ""
        kept = self.options.models and pathlib.Path(self.options.models).resolve()
        if kept and kind == "folder" and (kept / name / "config.json").is_file():
            there = json.loads((kept / name / "config.json").read_text())
            if there | self.configs[model] == there:
                return kept / name, True
        reasons = []
        usual = [pathlib.Path(place) for place in ("/dev/shm", tempfile.gettempdir())]
        if kept:
            kept.mkdir(parents=True, exist_ok=True)
        for base in [kept] if kept else [place for place in usual if place.is_dir()]:
            free = shutil.disk_usage(base).free
            if free > size * 1.02 + (64 << 20):
                if kept:
                    return base / name, False
                folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-models-", dir=base))
                self.places.append(folder)
                return folder / name, False
            reasons.append(f"{base} has {free / 1e9:.1f}")
        raise LeftOut(f"{size / 1e9:.1f} GB are needed for {name}, {', '.join(reasons)}")

    def clean(self):
        for place in self.places:
            shutil.rmtree(place, ignore_errors=True)

    def knows(self, flag):
        """Whether `sconce serve` has a flag."""
        if self.help is None:
            self.help = output_of([self.sconce, "serve", "--help"], 20)
        return re.search(rf"^\s+{flag}\b", self.help, re.MULTILINE) is not None

    def own_server(self, name, model, ends, device=None, extra=()):
        """`ends` is the moment by which it has to be ready, its weights written too."""
        folder = self.weights(model, "folder")
        command = [self.sconce, "serve", "--model", str(folder), "--port", "{port}",
                   "--device", device or self.options.device]
        command += [*shlex.split(self.options.serve_flags), *extra]
        return Server(name, command, max(1, ends - time.monotonic()))

    # Right answers.

    def prompts(self):
        """Ids of fillers, which stand behind bytes, words and special tokens."""
        draw, vocab = random.Random(2), self.configs["0.6b"]["vocab_size"]
        return [[draw.randrange(600, vocab) for _ in range(n)] for n in PROMPT_LENGTHS]

    def alone_and_together(self, limit):
        """No prefix cache, so that the second round computes its prompts too."""
        exact, count = self.knows("--deterministic"), 16 if self.options.tiny else 64
        extra = ["--no-prefix-cache"] + ["--deterministic"] * exact
        prompts, ends = self.prompts(), time.monotonic() + limit
        with self.own_server("correct", "0.6b", ends, extra=extra) as server:
            took = [time.monotonic()]
            alone = ask_all(server, prompts, count, ends - time.monotonic(), False)
            took.append(time.monotonic())
            together = ask_all(server, prompts, count, ends - time.monotonic(), True)
            took.append(time.monotonic())
        self.alone = alone
        if len({answer["text"] for answer in alone}) < 2:
            raise Failed(f"{len(prompts)} different prompts have one and the same answer")
        pairs = list(zip(alone, together))
        texts = sum(a["text"] == b["text"] and a["tokens"] == b["tokens"] for a, b in pairs)
        same = sum(a == b for a, b in pairs)
        largest = max(distance(a, b) for a, b in pairs)
        details = {
            "deterministic": exact, "prompts": len(pairs), "equal_texts": texts,
            "equal_to_the_bit": same, "largest_distance": largest,
            "agreed_tokens": [agreed(a, b) for a, b in pairs],
            "alone_s": round(took[1] - took[0], 2), "together_s": round(took[2] - took[1], 2),
        }
        how = "--deterministic" if exact else "no --deterministic here"
        bits = f"{same} of {len(pairs)}"
        return [
            row(f"equal texts alone and together ({how})", f"{texts} of {len(pairs)}"),
            checked("texts and logprobs equal to the bit", bits, "all", same == len(pairs))
            if exact else row("texts and logprobs equal to the bit", bits),
            checked("largest distance of logprobs there", round(largest, 6), f"<= {TOLERANCE}",
                    largest <= TOLERANCE),
        ], details

    def beside_cpu(self, limit):
        if self.alone is None:
            raise LeftOut("there are no answers of the GPU to compare with")
        prompts, ends = self.prompts()[:CPU_PROMPTS], time.monotonic() + limit
        with self.own_server("cpu", "0.6b", ends, "cpu", ["--no-prefix-cache"]) as server:
            answers = ask_all(server, prompts, CPU_TOKENS, ends - time.monotonic(), True)
        pairs = list(zip(self.alone, answers))
        largest = max(distance(a, b) for a, b in pairs)
        alike = [agreed(a, b) for a, b in pairs]
        figure = f"largest distance of logprobs to those of the CPU, {CPU_PROMPTS} prompts"
        ok = largest <= TOLERANCE
        return [checked(figure, round(largest, 6), f"<= {TOLERANCE}", ok)], {
            "largest_distance": largest, "agreed_tokens": alike}

    def parity(self, limit):
        path = self.options.test_binary
        if not path:
            raise LeftOut("no --test-binary")
        if not contains(path, b"SCONCE_TEST_DEVICE"):
            raise LeftOut(f"{path} knows no SCONCE_TEST_DEVICE, it would test the CPU")
        passed, failed, untried = device_tests.run(
            str(pathlib.Path(path).resolve()), self.options.device, limit - 2)
        if passed == 0 and not failed:
            if untried:
                raise LeftOut(f"the tests ran past {limit:.0f} s")
            raise Failed(f"{path} has none of the tests")
        rows = [checked("tests of operations and models passed", passed, "all", not failed)]
        rows += [row(one.split(": ")[0], verdict="FAILED") for one in failed]
        if untried:
            rows.append(row(f"{untried} tests", verdict=f"left out: {limit:.0f} s are over"))
        return rows, {"failed": failed, "untried": untried}

    # Speed.

    def speed(self, model):
        """All workloads of one model on one server."""
        names = [one for one in MEASURED[model] if f"{model}-{one}" in self.pending]
        if not names:
            return
        limit = min(150, self.left())
        try:
            if limit < START_NEEDS[model]:
                raise LeftOut(f"{max(0, limit):.0f} s of the budget are left, a start of {model} "
                              f"and its figures need {START_NEEDS[model]}")
            with self.own_server(model, model, time.monotonic() + limit) as server:
                self.started(model, server)
                for one in names:
                    self.part(f"{model}-{one}", 5, self.workloads[one][1],
                              lambda seconds: self.own_figures(server, model, one, seconds))
        except Exception as reason:
            self.all_end(names, model, reason)

    def started(self, name, server):
        rows = [row(f"{name}: ready, s", round(server.seconds, 2))]
        began = time.monotonic() - server.seconds
        self.keep({"part": f"{name}-start", "rows": rows}, began)

    def all_end(self, names, prefix, reason):
        """What a server that did not start leaves of its parts."""
        def again(_):
            raise reason
        for one in names:
            self.part(f"{prefix}-{one}", float("-inf"), 0, again)
            if isinstance(reason, Failed):  # the log is shown once
                reason = Failed(str(reason).splitlines()[0])

    def measure(self, server, workload, limit, more=()):
        flags = [*self.workloads[workload][0].split(), "--seed", str(zlib.crc32(workload.encode()))]
        report = bench(self.sconce, server, [*flags, *more], limit)
        requests = report["requests"]
        if requests["completed"] == 0:
            raise server.failure(f"no request was answered: {report['errors'] or requests}")
        return report, headline(workload, report), troubles(requests)

    def own_figures(self, server, model, workload, limit):
        report, value, trouble = self.measure(server, workload, limit)
        self.ours[model, workload] = value
        rows = [row(f"{model}: {HEADLINE[workload]}, {shape(report)}", round(value, 1),
                    verdict=trouble)]
        if workload == "decode":
            rows += self.decode_rows(model, 1000 / value)
        elif workload == "prefill":
            rows += self.prefill_rows(model, value)
        else:
            for key, words in (("ttft_ms", "to the first token"), ("itl_ms", "between chunks")):
                if report[key]:
                    text = " / ".join(f"{report[key][p]:.1f}" for p in ("p50", "p90", "p99"))
                    rows.append(row(f"{model}: ms {words}, p50 / p90 / p99, {shape(report)}", text))
        return rows, report

    def decode_rows(self, model, milliseconds):
        size = models.step_bytes(self.configs[model])
        rows = [row(f"{model}: ms per token", round(milliseconds, 3))]
        if not self.ceiling:
            return [*rows, row(f"{model}: share of the bandwidth", verdict="left out: no ceiling")]
        floor = size / self.ceiling["copy_gb_per_s"] / 1e6
        if model == "0.6b":
            times = milliseconds / floor
            rows.append(row(f"{model}: ms per token that the bandwidth allows", round(floor, 3)))
            return [*rows, judged(f"{model}: times that floor", round(times, 2), "<= 1.5",
                                  times <= 1.5, times >= 1 / TOO_GOOD)]
        share = floor / milliseconds
        return [*rows, judged(f"{model}: share of the copy bandwidth in decode", round(share, 3),
                              ">= 0.8", share >= 0.8, share <= TOO_GOOD)]

    def prefill_rows(self, model, rate):
        figure = f"{model}: share of the bf16 rate in prefill"
        if not self.ceiling:
            return [row(figure, verdict="left out: no ceiling")]
        done = 2 * models.layer_parameters(self.configs[model]) * rate
        share = done / self.ceiling["bf16_tflop_per_s"] / 1e12
        return [judged(figure, round(share, 3), ">= 0.6", share >= 0.6, share <= TOO_GOOD)]

    # Other servers.

    def peer(self, entry):
        model, name = entry["model"], entry["name"]
        names = [one for one in MEASURED[model] if f"{name}-{one}" in self.pending]
        if not names:
            return
        limit = min(150, self.left())
        try:
            if shutil.which(entry["command"][0]) is None:
                raise LeftOut(f"absent: there is no {entry['command'][0]}")
            if limit < START_NEEDS[model]:
                raise LeftOut(f"{max(0, limit):.0f} s of the budget are left, {START_NEEDS[model]} "
                              "are needed")
            command = [self.filled(part, model) for part in entry["command"]]
            more = [self.filled(part, model) for part in entry.get("bench", [])]
            ready, env = entry.get("ready", "/health"), entry.get("env", {})
            with Server(name, command, min(150, self.left()), env, ready) as server:
                self.started(name, server)
                for one in names:
                    self.part(f"{name}-{one}", 5, self.workloads[one][1],
                              lambda seconds: self.peer_rows(server, entry, one, more, seconds))
        except Exception as reason:
            self.all_end(names, name, reason)

    def filled(self, part, model):
        for kind in ("folder", "gguf"):
            if "{" + kind + "}" in part:
                part = part.replace("{" + kind + "}", str(self.weights(model, kind)))
        return part

    def peer_rows(self, server, entry, workload, more, limit):
        report, value, trouble = self.measure(server, workload, limit, more)
        rows = [row(f"{entry['name']}: {HEADLINE[workload]}, {shape(report)}", round(value, 1),
                    verdict=trouble)]
        ours = self.ours.get((entry["model"], workload))
        figure = f"sconce / {entry['name']}: {HEADLINE[workload]}, {shape(report)}"
        if ours is None:
            return [*rows, row(figure, verdict="left out: no figure of ours")], report
        return [*rows, row(figure, round(ours / value, 2))], report

    def all(self):
        self.part("facts", CHECKS["facts"], 30, self.facts)
        self.part("ceilings", CHECKS["ceilings"], 60, self.ceilings)
        checks = {"alone-and-together": (self.alone_and_together, 120),
                  "beside-cpu": (self.beside_cpu, 60), "parity": (self.parity, 90)}
        for name, (work, limit) in checks.items():
            self.part(name, CHECKS[name], limit, work, check=True)
        for model in MEASURED:
            self.speed(model)
        for entry in self.peers:
            self.peer(entry)


def contains(path, text):
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(text) >= 0
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from None


def load_peers(path, configs):
    """Entries of peers.json with the model that each name says behind its first dash."""
    if not path:
        return []
    with open(path) as file:
        entries = json.load(file)
    for entry in entries:
        entry["model"] = entry["name"].partition("-")[2]
        if entry["model"] not in configs:
            sys.exit(f"{path}: {entry['name']} does not end in one of -{', -'.join(configs)}")
    return entries


def parse():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = arguments.add_argument
    add("--binary", default="target/release/sconce")
    add("--test-binary", metavar="PATH", help="the tests that cargo compiled from tests/main.rs")
    add("--out", default="results.jsonl", help="results are appended, one line each")
    add("--minutes", type=float, default=8, help="for everything")
    add("--device", help="cuda:0, or cpu with --tiny")
    add("--peers", metavar="FILE", help="other servers to compare with, see README.md")
    add("--only", default="", metavar="REGEX", help="parts whose name matches")
    add("--models", metavar="FOLDER", help="where models are written and kept "
        "[default: /dev/shm or the temporary folder, removed at the end]")
    add("--serve-flags", default="--max-num-seqs 256 --max-num-batched-tokens 2048",
        help="flags of every `sconce serve` here [default: %(default)s]")
    add("--tiny", action="store_true", help="tiny models: shows that the script works")
    add("--report", metavar="FILE", help="print the table of the last run in a file and stop")
    options = arguments.parse_args()
    options.device = options.device or ("cpu" if options.tiny else "cuda:0")
    return options


def cut_off(number, _frame):
    sys.exit(128 + number)


def main():
    options = parse()
    if options.report:
        print_report(options.report)
        return 0
    signal.signal(signal.SIGTERM, cut_off)
    signal.signal(signal.SIGHUP, cut_off)
    began = time.monotonic()
    with open(options.out, "a") as out:
        run = Run(options, out)
        try:
            run.all()
        finally:
            run.clean()
            missing = [row(name, verdict="left out: the run was cut off") for name in run.pending]
            if not options.peers:
                missing.append(row("other servers", verdict="left out: no --peers"))
            run.keep({"part": "end", "rows": missing}, began)
            if options.tiny:
                print("\nTiny models: this shows that the script works. No figure means anything.")
            if options.only:
                print(f"\nOnly parts that match {options.only!r} were asked for.")
            table(run.rows)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
