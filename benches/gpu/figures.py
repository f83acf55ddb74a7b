"""Rows of the table, and what a report of `sconce bench` comes to."""

import json
import sys

from serving import Failed

# The one number of each workload; more is better.
HEADLINE = {"decode": "decode tok/s", "prefill": "prefill tok/s", "c64": "output tok/s",
            "c256": "output tok/s"}
TOO_GOOD = 1.1  # times a measured ceiling: then one of the two is measured wrong


def row(figure, value=None, target=None, verdict=""):
    """A line of the table."""
    return {"figure": figure, "value": value, "target": target, "verdict": verdict}


def judged(figure, value, target, good, possible=True):
    """A target of speed; what is not possible is told from what is good."""
    verdict = "pass" if good else "miss"
    return row(figure, value, target, verdict if possible else "above the ceiling: not believed")


def checked(figure, value, target, good):
    """A check of answers."""
    return row(figure, value, target, "pass" if good else "FAILED")


def headline(workload, report):
    if workload == "decode":
        if not report["tpot_ms"]:
            raise Failed("no stream had two chunks")
        return 1000 / report["tpot_ms"]["p50"]
    if workload == "prefill":
        return report["workload"]["input_len"] * 1000 / report["ttft_ms"]["p50"]
    return report["output_tokens_per_s"]


def shape(report):
    work = report["workload"]
    streams = work["concurrency"]
    return (f"{work['input_len']} in, {work['output_len']} out, "
            f"{streams} {'stream' if streams == 1 else 'streams'}")


def troubles(requests):
    """What makes a figure not comparable, in words."""
    names = {"failed": "failed", "cut_by_time": "cut by time", "short": "short"}
    found = [f"{requests[key]} {words}" for key, words in names.items() if requests.get(key)]
    return f"of {requests['sent']} requests {', '.join(found)}" if found else ""


def cells(one):
    return ["" if one[key] is None else str(one[key])
            for key in ("figure", "value", "target", "verdict")]


def table(rows):
    print("\n| figure | value | target | |\n|---|---|---|---|")
    for one in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells(one)) + " |")
    sys.stdout.flush()


def print_report(path):
    with open(path) as lines:
        results = [json.loads(line) for line in lines]
    if not results:
        sys.exit(f"{path} is empty")
    table([one for r in results if r["run"] == results[-1]["run"] for one in r["rows"]])
