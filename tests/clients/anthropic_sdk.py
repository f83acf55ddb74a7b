#!/usr/bin/env python3
"""Anthropic's official Python SDK against a running `sconce serve` with its demo model.

    anthropic_sdk.py [--binary target/debug/sconce]

Starts the servers itself, on free loopback ports. Needs `anthropic`. What the demo model says does
not matter here: every check compares answers with each other or with the API's description.
"""

import argparse
import asyncio
import json
import pathlib
import sys

import anthropic

from serving import Server, checks, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTION = [{"role": "user", "content": "Tell me a story about a lamp."}]
WEATHER = {
    "name": "get_weather",
    "description": "Current weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


class Subject:
    """The server under test and a client of it."""

    def __init__(self, server: Server, **options):
        self.server = server
        options = {"api_key": "none", "max_retries": 0, "timeout": 120, **options}
        self.client = anthropic.Anthropic(base_url=server.url, **options)
        self.options = options
        self.model = server.model() if options["api_key"] == "none" else None

    def fields(self, **fields):
        extra = {"seed": 11, **fields.pop("extra_body", {})}
        # Parameters of the API that newer clients have dropped from their signatures.
        for name in [name for name in ("temperature", "top_p", "top_k") if name in fields]:
            extra[name] = fields.pop(name)
        model = {"model": self.model} if self.model else {}
        return {
            **model,
            "messages": QUESTION,
            "max_tokens": 24,
            "extra_body": extra,
            **fields,
        }

    def create(self, **fields):
        return self.client.messages.create(**self.fields(**fields))

    def stream(self, **fields):
        return self.client.messages.stream(**self.fields(**fields))

    def text(self, **fields) -> str:
        return text_of(self.create(**fields))


def text_of(message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def comparable(message):
    """Content, end and usage; ids differ from answer to answer."""
    blocks = [block.model_dump(exclude={"id", "parsed_output"}) for block in message.content]
    usage = (message.usage.output_tokens, total_input(message.usage))
    return blocks, message.stop_reason, message.stop_sequence, usage


def total_input(usage) -> int:
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def expect(error_class, call, kind: str, status: int):
    """`call` must raise exactly this class of error, in the shape of the API."""
    try:
        call()
    except anthropic.APIStatusError as error:
        assert type(error) is error_class, f"{type(error).__name__} for {error_class.__name__}"
        assert error.status_code == status, error.status_code
        assert error.body["type"] == "error", error.body
        assert error.body["error"]["type"] == kind, error.body
        assert error.body["error"]["message"], "an error without a message"
        assert error.request_id and error.body["request_id"] == error.request_id, error.body
        return error
    raise AssertionError(f"no {error_class.__name__}")


def check_messages(check, t: Subject):
    with check("messages: fields of an answer"):
        message = t.create()
        assert message.id.startswith("msg_") and message.type == "message", message
        assert message.role == "assistant" and message.model == t.model, message
        assert [block.type for block in message.content] == ["text"], message
        assert message.content[0].text and message.stop_reason in ("end_turn", "max_tokens")
        assert 0 < message.usage.output_tokens <= 24 and total_input(message.usage) > 0
        assert message._request_id, "the SDK finds the request's id"
    with check("models: as the SDK's types say"):
        (listed,) = t.client.models.list(limit=1000).data
        info = anthropic.types.ModelInfo.model_validate(listed.model_dump(warnings="error"))
        assert info.id == t.model and info.max_input_tokens > 0 and info.lifecycle == "active"
        assert info.capabilities.effort.high.supported, info
        assert t.client.models.retrieve(t.model) == listed
    with check("messages: max_tokens is reached exactly without an end token"):
        message = t.create(max_tokens=7, extra_body={"ignore_eos": True})
        assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 7), message
    with check("messages: temperature 0 is the same every time"):
        assert len({t.text(temperature=0, extra_body={"seed": seed}) for seed in range(3)}) == 1
    with check("messages: blocks are what their text is"):
        blocks = [{"type": "text", "text": QUESTION[0]["content"]}]
        assert t.text(messages=[{"role": "user", "content": blocks}]) == t.text()
    with check("messages: a system prompt as text and as blocks"):
        blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
        assert t.text(system=blocks) == t.text(system="Be brief.")
    with check("messages: the answer is what a chat completion says"):
        body = {"model": t.model, "messages": QUESTION, "max_tokens": 24, "seed": 11}
        chat = t.server.post("/v1/chat/completions", body)[1]
        assert t.text() == chat["choices"][0]["message"]["content"]
    with check("messages: cached prompt tokens are counted apart"):
        long = [{"role": "user", "content": "The lamp was lit. " * 12}]
        first, second = t.create(messages=long), t.create(messages=long)
        assert text_of(first) == text_of(second)
        assert second.usage.cache_read_input_tokens > 0, second.usage
        assert total_input(first.usage) == total_input(second.usage)
    with check("messages: a prefill is continued"):
        prefill = {"role": "assistant", "content": "Once upon a time"}
        message = t.create(messages=[*QUESTION, prefill])
        assert message.content and not text_of(message).startswith("Once upon"), message
    with check("messages: an answer goes back into the conversation"):
        first = t.create()
        talk = [
            *QUESTION,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": "And then?"},
        ]
        assert t.create(messages=talk).stop_reason

    async def asynchronous():
        async with anthropic.AsyncAnthropic(base_url=t.server.url, **t.options) as client:
            create = client.messages.create
            seeds = [create(**t.fields(extra_body={"seed": seed})) for seed in range(8)]
            return [text_of(message) for message in await asyncio.gather(*seeds)]

    with check("messages: the asynchronous client gets the same, at once"):
        alone = [t.text(extra_body={"seed": seed}) for seed in range(8)]
        assert asyncio.run(asynchronous()) == alone


def check_streams(check, t: Subject):
    with check("streams: the final message is the whole one"):
        with t.stream() as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        whole = t.create()
        assert comparable(final) == comparable(whole), (final, whole)
        assert text == text_of(whole) and final.id.startswith("msg_")
    with check("streams: raw events in the order of the API"):
        events = list(t.create(stream=True))
        kinds = [event.type for event in events]
        assert kinds[:2] == ["message_start", "content_block_start"], kinds
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
        assert set(kinds[2:-3]) == {"content_block_delta"}, kinds
        assert events[-2].usage.output_tokens == t.create().usage.output_tokens
    with check("streams: closed streams leave nothing running and no block in use"):
        streams = [
            t.create(stream=True, max_tokens=200, extra_body={"seed": seed, "ignore_eos": True})
            for seed in range(8)
        ]
        for stream in streams:
            next(iter(stream))
        for stream in streams:
            stream.close()

        def idle():
            names = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
            return not any(map(t.server.metric, [*names, "sconce:kv_blocks_in_use"]))

        wait_until(idle, 10, "the server is idle")
        assert t.text(), "the server answers after aborts"


def check_stop(check, t: Subject):
    with check("stop sequences: the answer ends before the first of them"):
        whole = t.text()
        word = whole.split()[2]
        message = t.create(stop_sequences=["\u2603", word])
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", word), message
        assert text_of(message) == whole[: whole.index(word)], (message, whole)
        with t.stream(stop_sequences=["\u2603", word]) as stream:
            assert comparable(stream.get_final_message()) == comparable(message)


def check_thinking(check, t: Subject):
    for thinking in (
        {"type": "enabled", "budget_tokens": 1024},
        {"type": "disabled"},
        {"type": "adaptive"},
    ):
        with check(f"thinking: {thinking['type']} is taken, streamed and not alike"):
            message = t.create(thinking=thinking)
            with t.stream(thinking=thinking) as stream:
                assert comparable(stream.get_final_message()) == comparable(message)
    with check("thinking: thoughts go back into the conversation"):
        blocks = [
            {"type": "thinking", "thinking": "A lamp, then.", "signature": ""},
            {"type": "text", "text": "There was a lamp."},
        ]
        talk = [
            *QUESTION,
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": "And then?"},
        ]
        assert t.create(messages=talk).stop_reason


def check_count(check, t: Subject):
    def count(**fields):
        fields = {"model": t.model, "messages": QUESTION, **fields}
        return t.client.messages.count_tokens(**fields).input_tokens

    with check("count_tokens: what usage says"):
        assert count() == total_input(t.create().usage)
        with_tools = t.create(tools=[WEATHER], system="Be brief.", max_tokens=1)
        assert count(tools=[WEATHER], system="Be brief.") == total_input(with_tools.usage)
        assert count(tools=[WEATHER]) > count()


def check_tools(check, t: Subject):
    with check("tools: a request with tools is answered, streamed and not alike"):
        whole = t.create(tools=[WEATHER], max_tokens=60)
        with t.stream(tools=[WEATHER], max_tokens=60) as stream:
            assert comparable(stream.get_final_message()) == comparable(whole)
    with check("tools: the demo model calls the function, and its result goes back"):
        uses = []
        for city in ("Oslo", "Bergen", "Lima"):
            talk = [{"role": "user", "content": f"What's the weather like in {city} today?"}]
            fields = {"messages": talk, "tools": [WEATHER], "temperature": 0, "max_tokens": 60}
            message = t.create(**fields)
            with t.stream(**fields) as stream:
                assert comparable(stream.get_final_message()) == comparable(message)
            for use in [block for block in message.content if block.type == "tool_use"]:
                assert message.stop_reason == "tool_use" and use.id.startswith("toolu_"), message
                uses.append((use.name, use.input))
                result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain, 7 degrees"}
                talk = [
                    *talk,
                    {"role": "assistant", "content": message.content},
                    {"role": "user", "content": [result]},
                ]
                assert t.create(messages=talk, tools=[WEATHER]).stop_reason
        # A toy may err, but not every time.
        assert any(use == ("get_weather", {"city": "Oslo"}) for use in uses), uses
    with check("tools: none is called with tool_choice none"):
        talk = [{"role": "user", "content": "What's the weather like in Oslo today?"}]
        fields = {"messages": talk, "tools": [WEATHER], "temperature": 0, "max_tokens": 60}
        message = t.create(tool_choice={"type": "none"}, **fields)
        assert message.stop_reason != "tool_use", message


def check_errors(check, t: Subject):
    bad_request = (anthropic.BadRequestError, "invalid_request_error", 400)

    def refused(expected, **fields):
        error_class, kind, status = expected
        return expect(error_class, lambda: t.create(**fields), kind, status)

    with check("errors: an unknown model is NotFoundError"):
        refused((anthropic.NotFoundError, "not_found_error", 404), model="no-such-model")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}
    bad = {
        "temperature": 1.5,
        "top_p": 0,
        "max_tokens": -1,
        "messages": [],
        "stop_sequences": [""],
        "tools": [{"type": "teleport", "name": "teleport"}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "maybe"},
    }
    for name, value in bad.items():
        with check(f"errors: {name}={value!r} is BadRequestError that names the field"):
            error = refused(bad_request, **{name: value})
            assert name in error.body["error"]["message"], error.body
    with check("errors: an image is BadRequestError that names the type"):
        error = refused(bad_request, messages=[{"role": "user", "content": [image]}])
        assert "messages[0].content[0]" in error.message and "image" in error.message, error
    with check("errors: a stream fails before it begins"):
        refused(bad_request, stream=True, temperature=1.5)
    with check("errors: a prompt beyond the context is BadRequestError"):
        refused(bad_request, messages=[{"role": "user", "content": "lamp " * 50000}])
    with check("errors: a body of 20 MiB is a 413"):
        try:
            t.create(system="x" * (20 << 20))
        except anthropic.APIStatusError as error:
            assert error.status_code == 413, error
            assert error.body["error"]["type"] == "request_too_large", error.body
        else:
            raise AssertionError("no error")
    with check("errors: an unknown route and a wrong method have the shape, too"):
        for method, path, status in [("POST", "/v1/messages/x", 404), ("GET", "/v1/messages", 405)]:
            found, _, body = t.server.request(method, path)
            assert (found, json.loads(body)["type"]) == (status, "error"), body
    with check("errors: none of them hurt the server"):
        assert t.text()


def check_keys(check, binary: str):
    with Server(binary, "--api-key", "secret") as server:

        def count(**options):
            subject = Subject(server, **{"api_key": "key", **options})
            models = server.request("GET", "/v1/models", headers={"x-api-key": "secret"})[2]
            model = json.loads(models)["data"][0]["id"]
            return subject.client.messages.count_tokens(model=model, messages=QUESTION)

        with check("keys: a wrong key is AuthenticationError, the right one works"):
            wrong = (anthropic.AuthenticationError, count, "authentication_error", 401)
            expect(*wrong)
            assert count(api_key="secret").input_tokens > 0
        with check("keys: a bearer token works, too"):
            assert count(api_key=None, auth_token="secret").input_tokens > 0


def check_queue(check, binary: str):
    # One runs, none waits.
    with Server(binary, "--max-num-seqs", "1", "--max-queued-requests", "0") as server:
        t = Subject(server)
        with check("queue: one request too many is RateLimitError with Retry-After"):
            long = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}
            with t.create(stream=True, **long) as stream:
                next(iter(stream))
                error = expect(anthropic.RateLimitError, t.create, "rate_limit_error", 429)
            assert int(error.response.headers["retry-after"]) >= 1, error.response.headers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    print(f"anthropic {anthropic.__version__}")
    with checks() as check:
        with Server(args.binary) as server:
            subject = Subject(server)
            for group in [
                check_messages,
                check_streams,
                check_stop,
                check_thinking,
                check_count,
                check_tools,
                check_errors,
            ]:
                with check(f"{group.__name__} came to its end"):
                    group(check, subject)
            with check("the server wrote no panic into its log"):
                assert "panicked" not in server.log_tail(), server.log_tail()
        check_keys(check, args.binary)
        check_queue(check, args.binary)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
