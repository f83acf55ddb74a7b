#!/usr/bin/env python3
"""The cases of the Open Responses compliance suite, judged by the types made from that specification.

    open_responses.py [--binary target/debug/sconce]

Needs `openresponses-types`. A tiny model with random weights that sees answers the case with a picture,
the demo model all others.
"""

import argparse
import base64
import enum
import http.client
import inspect
import json
import pathlib
import sys

from openresponses_types import types

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "tests/fixtures/pictures"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city, e.g. Zurich"}},
        "required": ["location"],
    },
}


def streaming_events() -> dict:
    """The type of each kind of event."""
    events = {}
    for name, model in inspect.getmembers(types, inspect.isclass):
        if name.endswith("StreamingEvent"):
            kind = model.model_fields["type"].annotation
            assert issubclass(kind, enum.Enum), name
            events.update({member.value: model for member in kind})
    return events


EVENTS = streaming_events()


def said(role: str, text: str) -> dict:
    return {"type": "message", "role": role, "content": text}


class Subject:
    def __init__(self, server: Server):
        self.server = server
        self.model = server.model()

    def body(self, items, **fields) -> dict:
        return {"model": self.model, "input": items, "max_output_tokens": 32, **fields}

    def respond(self, items, **fields) -> types.ResponseResource:
        """The response, which must be as the specification says and have an output."""
        status, answer = self.server.post("/v1/responses", self.body(items, **fields))
        assert status == 200, answer
        response = types.ResponseResource.model_validate(answer)
        assert response.object.value == "response" and response.output, answer
        assert response.status in ("completed", "incomplete"), answer
        return response

    def stream(self, items, **fields) -> list:
        """All events, each of which must be as the specification says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        body = json.dumps(self.body(items, stream=True, **fields))
        connection.request("POST", "/v1/responses", body, {"content-type": "application/json"})
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        return [EVENTS[event["type"]].model_validate(event) for event in data]


def check_texts(check, t: Subject):
    with check("basic text response"):
        t.respond([said("user", "Say hello in exactly 3 words.")])
    with check("streaming response"):
        events = t.stream([said("user", "Count from 1 to 5.")])
        kinds = [event.type.value for event in events]
        assert kinds[0] == "response.created" and kinds[1] == "response.in_progress", kinds
        assert kinds[-1] in ("response.completed", "response.incomplete"), kinds
        assert "response.output_text.delta" in kinds, kinds
        assert [event.sequence_number for event in events] == list(range(len(events)))
        deltas = "".join(e.delta for e in events if e.type.value == "response.output_text.delta")
        assert events[-1].response.output[-1].content[0].text == deltas
    with check("system prompt"):
        t.respond([said("system", "You are a pirate."), said("user", "Say hello.")])
        t.respond([said("user", "Say hello.")], instructions="You are a pirate.")
    with check("multi-turn conversation"):
        turns = [said("user", "My name is Alice."), said("assistant", "Hello Alice!")]
        t.respond([*turns, said("user", "What is my name?")])
        first = t.respond([said("user", "My name is Alice.")], store=True)
        again = t.respond([said("user", "And now?")], previous_response_id=first.id)
        assert again.previous_response_id == first.id
    with check("compaction"):
        first = t.respond([said("user", "My name is Alice.")], store=True)
        asked = {"model": t.model, "previous_response_id": first.id, "max_output_tokens": 32}
        status, compacted = t.server.post("/v1/responses/compact", asked)
        assert status == 200, compacted
        assert compacted["object"] == "response.compaction", compacted
        types.CompactionBody.model_validate(compacted["output"][-1])
        t.respond([*compacted["output"], said("user", "Go on.")])


def check_tools(check, t: Subject):
    with check("tool calling"):
        ask = [said("user", "What's the weather like in San Francisco?")]
        response = t.respond(ask, tools=[WEATHER], tool_choice="required", max_output_tokens=200)
        (call,) = (item.root if hasattr(item, "root") else item for item in response.output)
        assert call.type == "function_call" and call.name == "get_weather", call
        assert isinstance(json.loads(call.arguments)["location"], str)
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        items = [*ask, json.loads(call.model_dump_json()), output]
        t.respond(items, tools=[WEATHER])
    with check("tool calling, streamed"):
        ask = [said("user", "What's the weather like in San Francisco?")]
        events = t.stream(ask, tools=[WEATHER], tool_choice="required", max_output_tokens=200)
        kinds = {event.type.value for event in events}
        assert "response.function_call_arguments.done" in kinds, kinds


def check_picture(check, t: Subject):
    with check("image input"):
        data = base64.b64encode((PICTURES / "0.png").read_bytes()).decode()
        parts = [
            {"type": "input_text", "text": "What do you see in this image?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        ]
        t.respond([{"type": "message", "role": "user", "content": parts}])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    with checks() as check:
        with Server(args.binary) as server:
            for group in (check_texts, check_tools):
                group(check, Subject(server))
        with Server(args.binary, "--model", str(PICTURES / "qwen2_vl"),
                    "--kv-cache-memory", "16MiB") as server:
            check_picture(check, Subject(server))
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
