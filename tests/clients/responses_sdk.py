#!/usr/bin/env python3
"""The Responses API through the official Python SDK, against `sconce serve` with its demo model.

    responses_sdk.py [--binary target/debug/sconce]

Starts the servers itself, on free loopback ports. Needs `openai`, this major or the one before. What
the demo model says does not matter here: every check compares answers with each other, with the SDK's
own models, or with the API's description.
"""

import argparse
import asyncio
import json
import pathlib
import sys
from typing import Literal

import openai
import pydantic
from openai.types import responses as types

from serving import Server, checks, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTION = "Tell me a story about a lamp."
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
    "strict": False,
}
# Keys of ours, and keys that OpenAI's specification has and a version of the SDK doesn't.
EXTRA = {
    "seed", "stop_reason", "timings", "store", "presence_penalty", "frequency_penalty", "name",
    "completed_at", "cache_write_tokens",
}


class Subject:
    """The server under test and a client of it."""

    def __init__(self, server: Server):
        self.server = server
        self.client = openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
        )
        self.model = self.client.models.list().data[0].id

    def fields(self, **fields) -> dict:
        fields = {"model": self.model, "input": QUESTION, "max_output_tokens": 24, **fields}
        fields["extra_body"] = {"seed": 11, **fields.get("extra_body", {})}
        return fields

    def respond(self, **fields):
        return self.client.responses.create(**self.fields(**fields))

    def raw(self, **fields) -> dict:
        status, body = self.server.post("/v1/responses", self.body(**fields))
        assert status == 200, body
        return body

    def body(self, **fields) -> dict:
        fields = self.fields(**fields)
        return {**fields.pop("extra_body"), **fields}


def strictly(model, value, path="$"):
    """Validates `value` against a model of the SDK; no key may be one that the model lacks."""
    parsed = pydantic.TypeAdapter(model).validate_python(value)
    assert_no_extra(parsed, path)
    return parsed


def assert_no_extra(value, path):
    if isinstance(value, pydantic.BaseModel):
        extra = set(value.model_extra or {}) - EXTRA
        assert not extra, f"{path}: {type(value).__name__} has no {extra}"
        for name in type(value).model_fields:
            assert_no_extra(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, element in enumerate(value):
            assert_no_extra(element, f"{path}[{index}]")


def expect(error_class, call, **attributes):
    """`call` must raise exactly this class of error, with these attributes."""
    try:
        call()
    except openai.APIError as error:
        assert type(error) is error_class, f"{type(error).__name__} for {error_class.__name__}"
        for name, value in attributes.items():
            assert getattr(error, name) == value, f"{name}: {getattr(error, name)!r}"
        assert {"message", "type", "param", "code"} <= set(error.body), error.body
        return error
    raise AssertionError(f"no {error_class.__name__}")


def texts(output) -> list:
    """What the items say, without their ids."""
    said = []
    for item in output:
        if item.type == "function_call":
            said.append((item.name, item.arguments))
        else:
            said.append((item.type, "".join(part.text for part in item.content)))
    return said


def folded(events) -> list:
    """As `texts`, of what the deltas of a stream add up to; checks numbers and order on the way."""
    items, open_item = [], None
    for number, event in enumerate(events):
        assert event.sequence_number == number, (event.sequence_number, number)
        if event.type == "response.output_item.added":
            assert open_item is None and event.output_index == len(items), event
            open_item = event.item.id
            items.append([getattr(event.item, "name", event.item.type), ""])
        elif event.type == "response.output_item.done":
            assert event.item.id == open_item, event
            open_item = None
        elif event.type.endswith(".delta"):
            assert event.item_id == open_item and event.output_index == len(items) - 1
            items[-1][1] += event.delta
    assert open_item is None, "an item that never ends"
    return [tuple(item) for item in items]


def check_shapes(check, t: Subject):
    with check("create: the SDK's model takes the response, no key missing, none unknown"):
        raw = t.raw(metadata={"a": "b"}, tools=[WEATHER], instructions="Be brief.")
        response = strictly(types.Response, raw)
        assert response.id.startswith("resp_") and response.object == "response"
        assert response.status in ("completed", "incomplete") and response.error is None
        assert response.metadata == {"a": "b"} and response.instructions == "Be brief."
        usage = response.usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert 0 < usage.output_tokens <= 24 and response.tools[0].name == "get_weather"
    with check("create: max_output_tokens makes it incomplete"):
        response = t.respond(max_output_tokens=5, extra_body={"ignore_eos": True})
        assert response.status == "incomplete" and response.usage.output_tokens == 5
        assert response.incomplete_details.reason == "max_output_tokens"
    with check("create: the text is that of the same chat"):
        chat = t.client.chat.completions.create(
            model=t.model, messages=[{"role": "user", "content": QUESTION}], max_tokens=24, seed=11
        )
        assert t.respond().output_text.strip() == chat.choices[0].message.content.strip()
    with check("create: a list of messages is the string of one"):
        parts = [{"type": "input_text", "text": QUESTION}]
        for content in (QUESTION, parts):
            messages = [{"role": "user", "content": content}]
            assert t.respond(input=messages).output_text == t.respond().output_text
    with check("create: logprobs, one a token of the text"):
        raw = t.raw(include=["message.output_text.logprobs"], top_logprobs=2)
        part = strictly(types.Response, raw).output[0].content[0]
        assert "".join(entry.token for entry in part.logprobs) == part.text
        assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)
    with check("input_tokens: what the response then reports"):
        count = t.client.responses.input_tokens.count(model=t.model, input=QUESTION)
        assert count.object == "response.input_tokens"
        assert count.input_tokens == t.respond().usage.input_tokens


def check_streams(check, t: Subject):
    with check("stream: every event is as its model says"):
        body = {**t.body(tools=[WEATHER], max_output_tokens=60), "stream": True}
        _, headers, raw = t.server.request(
            "POST", "/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        assert headers["content-type"].startswith("text/event-stream")
        frames = [frame for frame in raw.decode().split("\n\n") if frame.startswith("event: ")]
        for frame in frames:
            name, data = frame.split("\n")
            event = strictly(types.ResponseStreamEvent, json.loads(data.removeprefix("data: ")))
            assert name == f"event: {event.type}", frame
        assert "[DONE]" not in raw.decode()
    with check("stream: deltas add up to the answer that is not streamed"):
        for seed in range(4):
            fields = {"extra_body": {"seed": seed}, "max_output_tokens": 40}
            events = list(t.respond(stream=True, **fields))
            whole = t.respond(**fields)
            assert folded(events) == texts(whole.output), seed
            assert texts(events[-1].response.output) == texts(whole.output)
            assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
    with check("stream: the order of events"):
        kinds = [event.type for event in t.respond(stream=True)]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert kinds[-1] in ("response.completed", "response.incomplete")
        assert kinds[-4:-1] == [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ]
    with check("stream: the SDK's own accumulator agrees"):
        # It takes nothing but a completed response for its end.
        fields = t.fields(extra_body={"stop": ["a"]}, max_output_tokens=200)
        with t.client.responses.stream(**fields) as stream:
            deltas = [event for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        assert final.status == "completed"
        said = "".join(delta.delta for delta in deltas)
        assert final.output_text == said == t.client.responses.create(**fields).output_text
        if deltas:
            assert deltas[-1].snapshot == said

    async def asynchronous():
        base_url = str(t.client.base_url)
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            stream = await client.responses.create(**t.fields(), stream=True)
            return folded([event async for event in stream])

    with check("stream: the asynchronous client gets the same"):
        assert asyncio.run(asynchronous()) == texts(t.respond().output)


def check_tools(check, t: Subject):
    with check("tools: streamed and not alike"):
        fields = {"tools": [WEATHER], "max_output_tokens": 60}
        assert folded(t.respond(stream=True, **fields)) == texts(t.respond(**fields).output)
    with check("tools: the demo model calls, and the result goes back"):
        called = []
        for city in ("Oslo", "Bergen", "Lima"):
            question = f"What's the weather like in {city} today?"
            fields = {"tools": [WEATHER], "temperature": 0, "max_output_tokens": 60}
            first = t.respond(input=question, store=True, **fields)
            calls = [item for item in first.output if item.type == "function_call"]
            called += [(call.name, json.loads(call.arguments)) for call in calls]
            outputs = [
                {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
                for call in calls
            ]
            if not calls:
                continue
            # By the items themselves, and by the id of the response they came with.
            own = [{"role": "user", "content": question}]
            own += [item.model_dump(exclude_none=True) for item in first.output]
            by_items = t.respond(input=own + outputs, **fields)
            by_id = t.respond(input=outputs, previous_response_id=first.id, **fields)
            assert texts(by_items.output) == texts(by_id.output)
            assert by_items.usage.input_tokens == by_id.usage.input_tokens
        # A toy may err, but not every time.
        assert any(call == ("get_weather", {"city": "Oslo"}) for call in called), called


class Lamp(pydantic.BaseModel):
    lit: bool
    color: Literal["red", "green"]


def check_grammars(check, t: Subject):
    with check("text.format: a schema is kept, and the SDK parses it"):
        fields = t.fields(max_output_tokens=120)
        response = t.client.responses.parse(text_format=Lamp, **fields)
        assert response.status == "completed" and isinstance(response.output_parsed, Lamp)
        with t.client.responses.stream(text_format=Lamp, **fields) as stream:
            final = stream.get_final_response()
        assert final.output_parsed == response.output_parsed
    with check("tool_choice: required and named ones call"):
        for choice in ("required", {"type": "function", "name": "get_weather"}):
            raw = t.raw(tools=[WEATHER], tool_choice=choice, max_output_tokens=120)
            response = strictly(types.Response, raw)
            calls = [item for item in response.output if item.type == "function_call"]
            assert calls and calls[0].name == "get_weather", response


def check_store(check, t: Subject):
    with check("store: retrieve gives what create gave, delete ends it"):
        response = t.respond(store=True)
        assert t.client.responses.retrieve(response.id) == response
        items = list(t.client.responses.input_items.list(response.id))
        assert [(item.role, item.content[0].text) for item in items] == [("user", QUESTION)]
        t.client.responses.delete(response.id)
        for call in (
            lambda: t.client.responses.retrieve(response.id),
            lambda: t.client.responses.delete(response.id),
            lambda: t.client.responses.input_items.list(response.id),
            lambda: t.respond(previous_response_id=response.id),
        ):
            expect(openai.NotFoundError, call, status_code=404)
    with check("store: nothing is kept if the request says so"):
        response = t.respond(store=False)
        expect(openai.NotFoundError, lambda: t.client.responses.retrieve(response.id))
    with check("store: a streamed response is kept with its end"):
        *_, last = t.respond(stream=True, store=True)
        assert t.client.responses.retrieve(last.response.id) == last.response
    with check("store: input items are as their models say, and come in pages"):
        first = t.respond(store=True)
        second = t.respond(store=True, previous_response_id=first.id, input="And then?")
        _, _, raw = t.server.request("GET", f"/v1/responses/{second.id}/input_items?order=asc")
        page = strictly(types.ResponseItemList, json.loads(raw))
        assert [item.role for item in page.data] == ["user", "assistant", "user"]
        pages = t.client.responses.input_items.list(second.id, order="asc", limit=1)
        assert [item.id for item in pages] == [item.id for item in page.data]
    with check("compact: a summary stands in place of a conversation"):
        first = t.respond(store=True)
        compacted = t.client.responses.compact(
            model=t.model, previous_response_id=first.id, extra_body={"max_output_tokens": 24}
        )
        assert compacted.object == "response.compaction" and compacted.usage.output_tokens > 0
        question, summary = compacted.output
        assert question.content[0].text == QUESTION
        strictly(types.ResponseCompactionItem, json.loads(summary.to_json()))
        items = [{"role": "user", "content": QUESTION}, summary.to_dict()]
        assert t.respond(input=[*items, {"role": "user", "content": "And?"}]).output
    with check("store: a finished response can't be cancelled"):
        response = t.respond(store=True)
        expect(openai.BadRequestError, lambda: t.client.responses.cancel(response.id))


def check_errors(check, t: Subject):
    with check("errors: an unknown model is NotFoundError"):
        expect(openai.NotFoundError, lambda: t.respond(model="none"), code="model_not_found")
    bad = {
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
        "tools": [{"type": "teleport"}],
        "truncation": "auto",
        "temperature": 2.5,
        "max_output_tokens": 0,
        "top_logprobs": 99,
        "metadata": {str(index): "x" for index in range(17)},
    }
    for name, value in bad.items():
        with check(f"errors: {name} is BadRequestError that names the field"):
            error = expect(openai.BadRequestError, lambda f={name: value}: t.respond(**f))
            assert error.param.startswith(name), error.param
    with check("errors: none of them hurt the server"):
        assert t.respond().output


def check_aborts(check, t: Subject):
    with check("abort: closed streams leave nothing running and nothing kept"):
        fields = {"max_output_tokens": 200, "extra_body": {"ignore_eos": True}}
        streams = [t.respond(stream=True, store=True, **fields) for _ in range(4)]
        ids = [next(iter(stream)).response.id for stream in streams]
        for stream in streams:
            stream.close()

        def idle():
            names = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
            return not any(map(t.server.metric, [*names, "sconce:kv_blocks_in_use"]))

        wait_until(idle, 10, "the server is idle")
        for id in ids:
            expect(openai.NotFoundError, lambda id=id: t.client.responses.retrieve(id))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    print(f"openai {openai.__version__}")
    with checks() as check:
        with Server(args.binary) as server:
            subject = Subject(server)
            for group in [
                check_shapes,
                check_streams,
                check_tools,
                check_grammars,
                check_store,
                check_errors,
                check_aborts,
            ]:
                with check(f"{group.__name__} came to its end"):
                    group(check, subject)
            with check("the server wrote no panic into its log"):
                assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
