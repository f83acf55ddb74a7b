#!/usr/bin/env python3
"""Sconce beside other servers: the same workloads on the same weights, in turn, in one run.

    compare.py servers.json [--only REGEX] [--workloads decode,prefill,...] [--out results.jsonl]
    compare.py --report results.jsonl

servers.json is a list of {"name", "command": [...], "env": {...}, "ready": "/health",
"weights": FILE, "adapters": [...]}; {port} is replaced in commands. A server whose name ends in the
same words after the first dash as another's ("sconce-0.5b-bf16", "llama.cpp-0.5b-bf16") is compared
with it. The load comes from `sconce bench` (--sconce, default target/release/sconce), so every
server gets the same prompts; the memory probe before and after each server is `sconce ceiling`.

Only ratios within one run mean something: machines drift. Standard library only.
"""

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

CHAT16 = "--endpoint chat --input-len 64 --output-len 64 --num-requests 32 --concurrency 16"
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "numbers",
        "schema": {"type": "array", "items": {"type": "integer", "maximum": 999}, "minItems": 500},
    },
}
FILTERS = {"temperature": 1, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1}


def extra(body):
    return " --extra-body " + shlex.quote(json.dumps(body))


# What `sconce bench` is asked for, and the figure that counts.
WORKLOADS = {
    "decode": ("--input-len 16 --output-len 64 --num-requests 2 --concurrency 1", "decode tok/s"),
    "prefill": ("--input-len 512 --output-len 1 --num-requests 3 --concurrency 1", "prefill tok/s"),
    "c16": ("--input-len 256 --output-len 64 --num-requests 32 --concurrency 16", "output tok/s"),
    "c64": ("--input-len 256 --output-len 64 --num-requests 64 --concurrency 64", "output tok/s"),
    "prefix": (
        "--endpoint chat --shared-prefix-len 1000 --input-len 50 --output-len 16"
        " --num-requests 32 --concurrency 8",
        "requests/s",
    ),
    "c256": ("--input-len 128 --output-len 32 --num-requests 256 --concurrency 256", "output tok/s"),
    # Sixteen chats at once: as they come, held to a schema that doesn't end, and drawn with all filters.
    "free16": (CHAT16, "output tok/s"),
    "json16": (CHAT16 + " --allow-eos" + extra({"response_format": FORMAT}), "output tok/s"),
    "filters16": (CHAT16 + extra(FILTERS), "output tok/s"),
    # The same through the adapters that the entry names, in turn.
    "adapters16": (CHAT16, "output tok/s"),
    "context128": ("--input-len 128 --output-len 32 --num-requests 2 --concurrency 1", "step ms"),
    "prefill16k": ("--input-len 16000 --output-len 1 --num-requests 1 --warmup 0", "prefill tok/s"),
    "context16k": ("--input-len 16000 --output-len 32 --num-requests 1 --warmup 0", "step ms"),
    "context32k": ("--input-len 32000 --output-len 32 --num-requests 1 --warmup 0", "step ms"),
    "context4k": ("--input-len 4096 --output-len 32 --num-requests 1 --concurrency 1", "step ms"),
}


def figure(name, report):
    """The one number of a workload, and the longest gap between two tokens in seconds."""
    gap = (report.get("longest_gap_ms") or {}).get("max", 0) / 1000
    tpot = (report.get("tpot_ms") or {}).get("p50") or float("nan")
    unit = WORKLOADS[name][1]
    if unit == "decode tok/s":
        return 1000 / tpot, gap
    if unit == "prefill tok/s":
        return report["workload"]["input_len"] * 1000 / report["ttft_ms"]["p50"], gap
    if unit == "step ms":
        return tpot, gap
    if unit == "requests/s":
        return report["requests_per_s"], gap
    return report["output_tokens_per_s"], gap


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def resident_mb(pid):
    """Resident memory of a process and its children, in MB."""
    total = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                group = int(stat.read().rsplit(")", 1)[1].split()[2])
            if group == pid:
                with open(f"/proc/{entry}/statm") as statm:
                    total += int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    return round(total / 1e6)


def read_probe(sconce):
    """GB/s that all cores read from memory just now."""
    done = subprocess.run([sconce, "ceiling", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{sconce} ceiling failed: {done.stderr.strip()}")
    return round(json.loads(done.stdout)["read_gb_s"], 1)


def stop(server):
    try:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    except ProcessLookupError:
        pass


def run(entry, workloads, sconce, timeout):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    result = {"name": entry["name"], "probe_before": read_probe(sconce), "workloads": {}}
    if "weights" in entry:  # a warm page cache for everyone
        with open(entry["weights"], "rb") as weights:
            while weights.read(1 << 24):
                pass
    command = [part.replace("{port}", str(port)) for part in entry["command"]]
    log = open(f"/tmp/compare-{entry['name']}.log", "wb")
    begun = time.monotonic()
    server = subprocess.Popen(
        command,
        # Nothing is kept in the user's own store.
        env=os.environ | {"SCONCE_STORE": "memory"} | entry.get("env", {}),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        while not answers(url + entry.get("ready", "/health")):
            if server.poll() is not None or time.monotonic() - begun > timeout:
                result["error"] = f"not ready, see {log.name}"
                return result
            time.sleep(0.005)
        result["ready_s"] = round(time.monotonic() - begun, 3)
        result["resident_mb"] = resident_mb(server.pid)
        for name in workloads:
            bench = [sconce, "bench", "--url", url, "--json", "-", "--timeout", str(timeout)]
            # Of each workload its own, or the prompts of one would come from the prefix cache in the next.
            bench += ["--seed", str(list(WORKLOADS).index(name))]
            bench += shlex.split(WORKLOADS[name][0])
            if name == "adapters16":
                bench += [part for model in entry["adapters"] for part in ("--model", model)]
            done = subprocess.run(bench, capture_output=True, text=True)
            if done.returncode != 0:
                result["workloads"][name] = {"error": done.stderr.strip()[-300:]}
                continue
            report = json.loads(done.stdout)
            value, gap = figure(name, report)
            result["workloads"][name] = {
                "value": round(value, 2),
                "gap_s": round(gap, 3),
                "failed": report["requests"]["failed"] + report["requests"]["short"],
            }
            print(f"  {name}: {value:.2f} {WORKLOADS[name][1]}, longest gap {gap:.3f} s", flush=True)
        result["resident_peak_mb"] = resident_mb(server.pid)
    finally:
        stop(server)
    result["probe_after"] = read_probe(sconce)
    return result


def report(results):
    """A table for each set of weights; the first server of a set is what others are divided by."""
    sets = {}
    for result in results:
        sets.setdefault(result["name"].split("-", 1)[1], []).append(result)
    for weights, servers in sets.items():
        rows = ["ready_s", "resident_mb", *WORKLOADS]
        print(f"\n| {weights} | " + " | ".join(s["name"].split("-", 1)[0] for s in servers) + " |")
        print("|---|" + "---|" * len(servers))
        for row in rows:
            cells = []
            for server in servers:
                value = server.get(row)
                work = server["workloads"].get(row)
                if work is not None:
                    value = work.get("value", "error")
                    if row in ("c16", "c64") and "gap_s" in work:
                        value = f"{value} (gap {work['gap_s']} s)"
                cells.append("" if value is None else str(value))
            if any(cells):
                unit = WORKLOADS[row][1] if row in WORKLOADS else ""
                print(f"| {row} {unit} | " + " | ".join(cells) + " |")
        probes = [f"{s.get('probe_before')}/{s.get('probe_after')}" for s in servers]
        print("| memory read GB/s before/after | " + " | ".join(probes) + " |")


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("servers", nargs="?")
    arguments.add_argument("--only", default="", help="names that match this expression")
    arguments.add_argument("--workloads", default="decode,prefill,c16,prefix")
    arguments.add_argument("--sconce", default="target/release/sconce")
    arguments.add_argument("--timeout", type=float, default=300)
    arguments.add_argument("--out", default="results.jsonl")
    arguments.add_argument("--report", metavar="FILE", help="print the tables of a file and stop")
    options = arguments.parse_args()
    if options.report:
        with open(options.report) as lines:
            report([json.loads(line) for line in lines])
        return
    if not options.servers:
        arguments.error("servers.json is missing")
    workloads = options.workloads.split(",")
    if unknown := [name for name in workloads if name not in WORKLOADS]:
        arguments.error(f"no workload {unknown[0]}, there are {', '.join(WORKLOADS)}")
    with open(options.servers) as file:
        entries = [e for e in json.load(file) if re.search(options.only, e["name"])]
    results = []
    with open(options.out, "a") as out:
        for entry in entries:
            print(entry["name"], flush=True)
            results.append(run(entry, workloads, options.sconce, options.timeout))
            print(json.dumps(results[-1]), file=out, flush=True)
    report(results)


if __name__ == "__main__":
    main()
