#!/usr/bin/env python3
"""Frameworks that speak the API through layers of their own, against the demo model.

    frameworks.py [--binary target/debug/sconce]

Starts the server itself. Needs `openai`, `litellm`, `langchain-openai`, `instructor`, `pydantic`.
What a toy model says does not matter; that it keeps the form that was asked for does.
"""

import argparse
import json
import os
import pathlib
import sys
from typing import Literal

# Price lists and telemetry are no business of this check.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import instructor
import litellm
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from asked import QUESTION, Person
from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
MESSAGES = [{"role": "user", "content": QUESTION}]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@tool
def add(a: Literal[1, 2, 3], b: Literal[4, 5]) -> int:
    """Adds two numbers."""
    return a + b


def check_openai(check, server: Server, model: str):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with check("openai: parse gives the model's object"):
        answer = client.chat.completions.parse(
            model=model, messages=MESSAGES, response_format=Person, max_tokens=200, seed=1
        )
        assert isinstance(answer.choices[0].message.parsed, Person), answer
    with check("openai: a streamed parse ends with the object that the deltas spell"):
        with client.chat.completions.stream(
            model=model, messages=MESSAGES, response_format=Person, max_tokens=200, seed=2
        ) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        assert final.choices[0].message.parsed == Person.model_validate_json(text)
    with check("openai: a required call has arguments by its schema"):
        answer = client.chat.completions.create(
            model=model, messages=MESSAGES, tools=[WEATHER], tool_choice="required",
            parallel_tool_calls=False, max_tokens=200, seed=3,
        )
        (call,) = answer.choices[0].message.tool_calls
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome"), call
    with check("openai: streamed fragments of a named call join to its arguments"):
        choice = {"type": "function", "function": {"name": "get_weather"}}
        fields = dict(
            model=model, messages=MESSAGES, tools=[WEATHER], tool_choice=choice,
            parallel_tool_calls=False, max_tokens=200, seed=4,
        )
        whole = client.chat.completions.create(**fields).choices[0].message.tool_calls[0]
        name, arguments = "", ""
        for chunk in client.chat.completions.create(**fields, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        assert (name, arguments) == (whole.function.name, whole.function.arguments)
    with check("openai: a schema that can't be enforced is a 400 that names the keyword"):
        schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
        asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        try:
            client.chat.completions.create(model=model, messages=MESSAGES, response_format=asked)
        except openai.BadRequestError as error:
            assert "uniqueItems" in error.body["message"], error.body
        else:
            raise AssertionError("no error")


def check_litellm(check, server: Server, model: str):
    fields = dict(
        model=f"openai/{model}", api_base=f"{server.url}/v1", api_key="none", messages=MESSAGES,
        max_tokens=100, seed=5,
    )
    with check("litellm: an answer, and its stream says the same"):
        whole = litellm.completion(**fields).choices[0].message.content
        deltas = [
            chunk.choices[0].delta.content or "" for chunk in litellm.completion(**fields, stream=True)
        ]
        assert "".join(deltas) == whole and len(deltas) > 1
    with check("litellm: a response format by a class"):
        answer = litellm.completion(**fields, response_format=Person)
        Person.model_validate_json(answer.choices[0].message.content)
    with check("litellm: a required tool call"):
        answer = litellm.completion(
            **fields, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False
        )
        arguments = answer.choices[0].message.tool_calls[0].function.arguments
        assert json.loads(arguments)["city"] in ("Oslo", "Rome")
    with check("litellm: errors keep their class"):
        try:
            litellm.completion(**{**fields, "model": "openai/nothing"})
        except litellm.NotFoundError:
            pass
        else:
            raise AssertionError("no error")


def check_langchain(check, server: Server, model: str):
    chat = ChatOpenAI(
        model=model, base_url=f"{server.url}/v1", api_key="none", max_tokens=200, seed=6, max_retries=0
    )
    with check("langchain: invoke and stream say the same"):
        whole = chat.invoke(QUESTION)
        assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == whole.content
        assert whole.usage_metadata["output_tokens"] > 0
    for method in ["json_schema", "function_calling"]:
        with check(f"langchain: structured output by {method}"):
            person = chat.with_structured_output(Person, method=method).invoke(QUESTION)
            assert isinstance(person, Person), person
    with check("langchain: a tool is called, and its result goes back"):
        bound = chat.bind_tools([add], tool_choice="add", parallel_tool_calls=False)
        asked = bound.invoke(QUESTION)
        (call,) = asked.tool_calls
        result = ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"])
        answer = chat.bind_tools([add]).invoke([HumanMessage(QUESTION), asked, result])
        assert answer.response_metadata["finish_reason"], answer


def check_instructor(check, server: Server, model: str):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    for mode in [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA]:
        with check(f"instructor: {mode.name} gives the class's object at the first try"):
            person = instructor.from_openai(client, mode=mode).chat.completions.create(
                model=model, messages=MESSAGES, response_model=Person, max_retries=0,
                max_tokens=200, seed=7,
            )
            assert isinstance(person, Person), person


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    with checks() as check, Server(args.binary) as server:
        model = server.model()
        for group in [check_openai, check_litellm, check_langchain, check_instructor]:
            with check(f"{group.__name__} came to its end"):
                group(check, server, model)
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
