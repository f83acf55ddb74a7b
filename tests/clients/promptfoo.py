#!/usr/bin/env python3
"""Evaluations by promptfoo, in the way people run them: one configuration, one command.

    promptfoo.py --in FOLDER [--binary target/debug/sconce]

`FOLDER/node_modules` has `promptfoo`, and `node` 22, which it needs, where the system has an older one
(npm's package `node` brings it). Starts the server itself. What a toy model says does not matter; that
promptfoo's providers read every answer, that its assertions hold of them, and that it counts the tokens
that this server says, does.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICKETS = ["My payouts have been failing for three days.", "How do I change my name?"]
MODEL = "sconce-demo"
TEAMS = ["billing", "account"]
QUESTIONS = [
    {"type": "predicate", "name": "urgent", "instructions": "Does the message convey urgency?"},
    {"type": "choice", "name": "team", "instructions": "Which team should handle this?",
     "choices": [{"value": team} for team in TEAMS]},
    {"type": "score", "name": "anger", "instructions": "How angry is the customer?",
     "levels": [{"label": "calm"}, {"label": "angry"}]},
]
# Of an answer of /v1/decisions, in the words of promptfoo's assertions.
SUM = "Math.abs(output.answers[1].probabilities.reduce((sum, one) => sum + one.probability, 0) - 1) < 1e-9"
SHAPE = {
    "type": "object", "required": ["model", "answers", "usage"],
    "properties": {"answers": {"type": "array", "minItems": 3, "maxItems": 3},
                   "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}},
}


def chat_provider(url: str):
    return {"id": f"openai:chat:{MODEL}", "label": "chat", "config": {
        "apiBaseUrl": f"{url}/v1", "apiKey": "none", "max_tokens": 12, "temperature": 0, "seed": 7}}


def decision_provider(url: str):
    return {"id": f"{url}/v1/decisions", "label": "decisions", "config": {
        "method": "POST", "headers": {"content-type": "application/json"},
        "body": {"model": MODEL, "input": "{{prompt}}", "questions": QUESTIONS},
        # A body whose `error` is an object confuses promptfoo, unless the status has told of it before.
        "validateStatus": "status < 300", "transformResponse": "json"}}


def embedding_provider(url: str):
    return {"id": f"openai:embedding:{MODEL}",
            "config": {"apiBaseUrl": f"{url}/v1", "apiKey": "none"}}


class Promptfoo:
    """The program, with nothing of the user's own and no telemetry."""

    def __init__(self, folder: pathlib.Path, home: str):
        own_node = folder / "node_modules/node/bin"
        self.program = folder / "node_modules/.bin/promptfoo"
        self.home = pathlib.Path(home)
        self.environment = dict(
            os.environ, PATH=f"{own_node}{os.pathsep}{os.environ['PATH']}", PROMPTFOO_CONFIG_DIR=home,
            PROMPTFOO_DISABLE_TELEMETRY="1", PROMPTFOO_DISABLE_UPDATE="1",
            PROMPTFOO_DISABLE_REMOTE_GENERATION="1", PROMPTFOO_CACHE_ENABLED="false", CI="1")

    def evaluate(self, name: str, configuration: dict):
        """The results of an evaluation, and the exit status, which says whether all of them passed."""
        config, output = self.home / f"{name}.json", self.home / f"{name}-results.json"
        config.write_text(json.dumps({"description": name, "sharing": False, **configuration}))
        ran = subprocess.run(
            [self.program, "eval", "-c", config, "-o", output, "--no-cache", "--no-table",
             "--no-progress-bar", "-j", "4"],
            env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=300)
        assert output.exists(), f"{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
        return json.loads(output.read_text())["results"]["results"], ran.returncode


def of_ticket(results, ticket):
    [one] = [result for result in results if result["vars"]["ticket"] == ticket]
    return one


def check_chat(check, promptfoo: Promptfoo, server: Server):
    with check("chat: promptfoo's outputs and counts are those of the same requests without it"):
        expected = {}
        for ticket in TICKETS:
            status, answer = server.post("/v1/chat/completions", {
                "model": MODEL, "messages": [{"role": "user", "content": f"Answer: {ticket}"}],
                "max_tokens": 12, "temperature": 0, "seed": 7})
            assert status == 200, answer
            expected[ticket] = answer
        tests = [{"vars": {"ticket": ticket}, "assert": [
            {"type": "equals", "value": expected[ticket]["choices"][0]["message"]["content"]},
            {"type": "latency", "threshold": 60000},
            {"type": "similar", "value": expected[ticket]["choices"][0]["message"]["content"],
             "threshold": 0.999, "provider": embedding_provider(server.url)},
        ]} for ticket in TICKETS]
        results, status = promptfoo.evaluate("chat", {
            "prompts": ["Answer: {{ticket}}"], "providers": [chat_provider(server.url)], "tests": tests})
        assert status == 0 and len(results) == len(TICKETS), results
        for ticket, answer in expected.items():
            result = of_ticket(results, ticket)
            assert result["success"], result["gradingResult"]
            counts, own = result["response"]["tokenUsage"], answer["usage"]
            assert counts["prompt"] == own["prompt_tokens"], (counts, own)
            assert counts["completion"] == own["completion_tokens"], (counts, own)
    with check("chat: an assertion that does not hold fails the evaluation"):
        results, status = promptfoo.evaluate("failing", {
            "prompts": ["Answer: {{ticket}}"], "providers": [chat_provider(server.url)],
            "tests": [{"vars": {"ticket": TICKETS[0]}, "assert": [
                {"type": "equals", "value": "no model says this"}]}]})
        assert status != 0 and not results[0]["success"], results
    with check("chat: an answer in a form passes promptfoo's check of the schema"):
        schema = {"type": "object", "required": ["team"], "additionalProperties": False,
                  "properties": {"team": {"enum": TEAMS}}}
        provider = chat_provider(server.url)
        provider["config"].update(max_tokens=40, response_format={
            "type": "json_schema", "json_schema": {"name": "ticket", "strict": True, "schema": schema}})
        results, status = promptfoo.evaluate("form", {
            "prompts": ["Answer: {{ticket}}"], "providers": [provider],
            "tests": [{"vars": {"ticket": ticket}, "assert": [{"type": "is-json", "value": schema}]}
                      for ticket in TICKETS]})
        assert status == 0 and all(result["success"] for result in results), results


def check_decisions(check, promptfoo: Promptfoo, server: Server):
    with check("decisions: promptfoo reads the answers of every type of question"):
        tests = [{"vars": {"ticket": ticket}, "assert": [
            {"type": "is-json", "value": SHAPE},
            {"type": "javascript", "value": SUM},
            {"type": "javascript", "value": f"{json.dumps(TEAMS)}.includes(output.answers[1].choice)"},
            {"type": "javascript",
             "value": "output.answers[0].probability >= 0 && output.answers[0].probability <= 1"},
        ]} for ticket in TICKETS]
        results, status = promptfoo.evaluate("decisions", {
            "prompts": ["{{ticket}}"], "providers": [decision_provider(server.url)], "tests": tests})
        assert status == 0 and len(results) == len(TICKETS), results
        for ticket in TICKETS:
            result = of_ticket(results, ticket)
            assert result["success"], result["gradingResult"]
            status, own = server.post("/v1/decisions", {
                "model": MODEL, "input": ticket, "questions": QUESTIONS})
            assert status == 200 and result["response"]["output"]["answers"] == own["answers"], own
    with check("decisions: a choice alone is compared as any output is"):
        provider = decision_provider(server.url)
        provider["config"]["transformResponse"] = "json.answers[1].choice"
        results, status = promptfoo.evaluate("choice", {
            "prompts": ["{{ticket}}"], "providers": [provider],
            "tests": [{"vars": {"ticket": TICKETS[0]}, "assert": [
                {"type": "regex", "value": "^(billing|account)$"}]}]})
        assert status == 0 and results[0]["success"], results
    with check("decisions: a refusal is an error that names the field"):
        provider = decision_provider(server.url)
        provider["config"]["body"] = {"model": MODEL, "input": "{{prompt}}", "questions": []}
        results, status = promptfoo.evaluate("refused", {
            "prompts": ["{{ticket}}"], "providers": [provider], "tests": [{"vars": {"ticket": "x"}}]})
        assert status != 0 and "questions" in json.dumps(results[0]), results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--in", dest="folder", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with checks() as check, tempfile.TemporaryDirectory() as home, Server(args.binary) as server:
        promptfoo = Promptfoo(args.folder.resolve(), home)
        check_chat(check, promptfoo, server)
        check_decisions(check, promptfoo, server)
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
