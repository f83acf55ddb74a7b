#!/usr/bin/env python3
"""Decisions by clients of other projects: OpenAI's SDK, LangChain's and Ollama's System One.

    decisions.py [--binary target/debug/sconce]

Starts the server itself. Needs `openai`, `langchain-openai` and `ollama`. What a toy model decides
does not matter; that the numbers are the softmax of completions' logprobs does.
"""

import argparse
import asyncio
import math
import pathlib
import sys
import threading

import ollama
import openai
from langchain_openai.decisions import Choice, OpenAIDecisions, Predicate, Score

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICKET = "Help! My payouts have been failing for three days."
QUESTIONS = [
    {"type": "predicate", "name": "urgent", "instructions": "Does the message convey urgency?"},
    {
        "type": "choice",
        "name": "team",
        "instructions": "Which team should handle this?",
        "choices": [
            {"value": "billing", "description": "Payments, payouts, refunds"},
            {"value": "technical", "description": "Bugs and outages"},
            {"value": True},
        ],
    },
    {
        "type": "score",
        "name": "frustration",
        "instructions": "How frustrated is the customer?",
        "levels": [{"label": "calm"}, {"label": "frustrated"}, {"label": "angry"}],
    },
]


def check_openai(check, server: Server, model: str):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

    def create(**fields):
        return client.decisions.create(**{"model": model, "input": TICKET, "questions": QUESTIONS, **fields})

    with check("openai: every type of question, by name and in order"):
        decision = create()
        urgent, team, frustration = decision.answers
        assert [answer.name for answer in decision.answers] == ["urgent", "team", "frustration"]
        assert 0 <= urgent.probability <= 1 and team.choice in ("billing", "technical", True)
        assert math.isclose(sum(one.probability for one in team.probabilities), 1)
        best = max(one.probability for one in team.probabilities)
        assert math.isclose(team.confidence, (3 * best - 1) / 2)
        mean = sum(one.value * one.probability for one in frustration.probabilities)
        assert math.isclose(frustration.score, mean)
        assert decision.usage.output_tokens == 0 and decision.usage.input_tokens > 0
    with check("openai: the probabilities are the softmax of completions' logprobs"):
        asked = "\n".join([
            "Answer with the number of one of the levels only.",
            "Question: How frustrated is the customer?", "0: calm", "1: frustrated", "2: angry",
        ])
        body = {"model": model, "enable_thinking": False,
                "messages": [{"role": "user", "content": f"{TICKET}\n\n{asked}"}]}
        _, rendered = server.post("/v1/chat/completions/render", body)
        labels = [
            server.post("/tokenize", {"prompt": level, "add_special_tokens": False})[1]["tokens"]
            for level in "012"
        ]
        labels = [label for [label] in labels]
        completion = client.completions.create(
            model=model, prompt=rendered["token_ids"], max_tokens=1, temperature=0, logprobs=0,
            extra_body={"logprob_token_ids": labels, "return_tokens_as_token_ids": True},
        )
        told = completion.choices[0].logprobs.top_logprobs[0]
        weights = [math.exp(told[f"token_id:{label}"]) for label in labels]
        for weight, one in zip(weights, frustration.probabilities):
            assert math.isclose(weight / sum(weights), one.probability, rel_tol=1e-9)
    with check("openai: a conversation with JSON, and instructions in parts"):
        said = [
            {"role": "developer", "content": "Be strict."},
            {"role": "user", "content": [{"type": "input_json", "data": {"ticket": TICKET}}]},
        ]
        parts = [{"type": "input_text", "text": "Is it urgent?"}]
        answers = create(input=said, questions=[{"type": "predicate", "instructions": parts}]).answers
        assert answers[0].name is None and answers[0].type == "predicate"
    with check("openai: the input is found again, and counted once"):
        story = "Once upon a time in a quiet village there lived a fox. " * 10
        many = [{"type": "predicate", "instructions": f"Is it number {at}?"} for at in range(30)]
        first, again = create(input=story, questions=many), create(input=story, questions=many)
        assert first.answers == again.answers
        assert again.usage.input_tokens == first.usage.input_tokens
        one = create(input=story, questions=many[:1]).usage.input_tokens
        assert first.usage.input_tokens < one + 30 * 60, first.usage
        assert again.usage.input_tokens_details.cached_tokens >= 32, again.usage
    with check("openai: the same beside sixteen streams"):
        alone = create().answers
        streams = [
            threading.Thread(target=lambda seed=seed: list(client.completions.create(
                model=model, prompt="Once", max_tokens=100, seed=seed, stream=True,
            )))
            for seed in range(16)
        ]
        for stream in streams:
            stream.start()
        assert all(create().answers == alone for _ in range(3))
        for stream in streams:
            stream.join()
    with check("openai: bounds are told"):
        try:
            create(questions=[{"type": "score", "instructions": "x", "levels": [{"label": "one"}]}])
        except openai.BadRequestError as error:
            assert error.param == "questions[0].levels" and "2 to 10" in error.message, error
        else:
            raise AssertionError("one level was taken")


def check_langchain(check, server: Server, model: str):
    decisions = OpenAIDecisions(model=model, base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    request = {
        "input": TICKET,
        "questions": {
            "team": Choice(instructions="Which team?", choices={"billing": "Payments", "other": None}),
            "urgent": Predicate(instructions="Is it urgent?"),
            "anger": Score(instructions="How angry?", levels=["Calm", "Angry"]),
        },
    }
    with check("langchain-openai: typed answers, and the same asynchronously"):
        response = decisions.invoke(request)
        assert response.choices["team"].choice in ("billing", "other")
        assert 0 <= response.predicates["urgent"].probability <= 1
        assert response.scores["anger"].legend == {0: "Calm", 1: "Angry"}
        assert asyncio.run(decisions.ainvoke(request)).answers == response.answers


def check_system_one(check, server: Server, model: str):
    client = ollama.Client(server.url)
    with check("ollama: System One, by the client's own types"):
        response = client.systemone(
            model=model, state={"ticket": TICKET}, keep_alive="5m",
            questions={
                "urgent": {"type": "noul", "instructions": "Is it urgent?"},
                "team": {"type": "choice", "instructions": "Which team?",
                         "criteria": {"billing": "Payments", "technical": "Bugs"}},
                "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "angry"]},
            },
        )
        assert list(response.answers) == ["urgent", "team", "anger"]
        team = response.answers["team"]
        assert math.isclose(sum(team.probabilities.values()), 1)
        assert team.choice == max(team.probabilities, key=team.probabilities.get)
        assert math.isclose(response.answers["anger"].score, response.answers["anger"].probabilities["1"])
        assert response.usage.output_tokens == 3 and response.usage.input_tokens > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    with checks() as check, Server(args.binary) as server:
        model = server.model()
        check_openai(check, server, model)
        check_langchain(check, server, model)
        check_system_one(check, server, model)
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
