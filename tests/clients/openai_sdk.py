#!/usr/bin/env python3
"""The official Python SDK against a running `sconce serve` with its demo model.

    openai_sdk.py [--binary target/debug/sconce]

Starts the servers itself, on free loopback ports. Needs `openai`. What the demo model says does not
matter here: every check compares answers with each other or with the API's description.
"""

import argparse
import asyncio
import concurrent.futures
import json
import pathlib
import sys
import threading
import time

import openai

from serving import Server, checks, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTION = [{"role": "user", "content": "Tell me a story about a lamp."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Subject:
    """The server under test and a client of it."""

    def __init__(self, server: Server, api_key: str = "none"):
        self.server = server
        self.client = openai.OpenAI(
            base_url=f"{server.url}/v1", api_key=api_key, max_retries=0, timeout=120
        )
        self.model = self.client.models.list().data[0].id

    def chat(self, **fields):
        fields = {"model": self.model, "messages": QUESTION, "max_tokens": 24, "seed": 11, **fields}
        return self.client.chat.completions.create(**fields)

    def complete(self, **fields):
        fields = {"model": self.model, "prompt": "Once upon", "max_tokens": 24, "seed": 11, **fields}
        return self.client.completions.create(**fields)

    def text(self, **fields) -> str:
        return self.chat(**fields).choices[0].message.content


def joined(stream) -> dict[int, str]:
    """Concatenated content of each choice; checks the order of chunks on the way."""
    texts, finished, ids = {}, {}, set()
    for chunk in stream:
        ids.add((chunk.id, chunk.created, chunk.model))
        assert chunk.object == "chat.completion.chunk", chunk.object
        for choice in chunk.choices:
            assert choice.index not in finished, "a delta after finish_reason"
            if choice.index not in texts:
                assert choice.delta.role == "assistant", f"first delta: {choice.delta}"
                texts[choice.index] = ""
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                finished[choice.index] = choice.finish_reason
    assert len(ids) == 1, f"chunks of one answer differ in id, created or model: {ids}"
    assert set(finished) == set(texts), f"finish reasons {finished} of choices {set(texts)}"
    return texts


def expect(error_class, call, **attributes):
    """`call` must raise exactly this class of error, with these attributes."""
    try:
        call()
    except openai.APIError as error:
        assert type(error) is error_class, f"{type(error).__name__} for {error_class.__name__}"
        for name, value in attributes.items():
            assert getattr(error, name) == value, f"{name}: {getattr(error, name)!r}"
        if error.body is not None:
            assert {"message", "type", "param", "code"} <= set(error.body), error.body
            assert error.body["message"], "an error without a message"
        return error
    raise AssertionError(f"no {error_class.__name__}")


def check_models(check, t: Subject):
    with check("models: list, retrieve, NotFoundError"):
        entry = t.client.models.retrieve(t.model)
        assert (entry.id, entry.object) == (t.model, "model")
        expect(openai.NotFoundError, lambda: t.client.models.retrieve("no-such"), status_code=404)


def check_chat(check, t: Subject):
    with check("chat: fields of an answer"):
        answer = t.chat()
        assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
        assert abs(answer.created - time.time()) < 60 and answer.model == t.model
        [choice] = answer.choices
        assert choice.index == 0 and choice.message.role == "assistant"
        assert choice.message.content and choice.finish_reason in ("stop", "length")
        raw = t.server.post("/v1/chat/completions", {"model": t.model, "messages": QUESTION})[1]
        assert {"content", "refusal"} <= set(raw["choices"][0]["message"]), raw
        usage = answer.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert 0 < usage.completion_tokens <= 24 and usage.prompt_tokens > 0
    with check("chat: max_tokens is reached exactly without an end token"):
        answer = t.chat(max_tokens=7, extra_body={"ignore_eos": True})
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 7
    with check("chat: temperature 0 is the same every time"):
        assert len({t.text(temperature=0, seed=seed) for seed in range(3)}) == 1
    with check("chat: content parts and developer messages"):
        parts = [{"type": "text", "text": QUESTION[0]["content"]}]
        assert t.text(messages=[{"role": "user", "content": parts}]) == t.text()
        assert t.text(messages=[{"role": "developer", "content": "Be brief."}, *QUESTION])
    with check("chat: n=2 gives two choices and counts both"):
        answer = t.chat(n=2, extra_body={"ignore_eos": True})
        assert [choice.index for choice in answer.choices] == [0, 1]
        first, second = (choice.message.content for choice in answer.choices)
        assert first != second, "both choices are equal at temperature 1"
        assert answer.usage.completion_tokens == 48


def check_streams(check, t: Subject):
    with check("stream: deltas concatenate to the answer that is not streamed"):
        for seed in range(5):
            fields = {"seed": seed, "max_tokens": 40}
            streamed = joined(t.chat(stream=True, **fields))
            assert streamed == {0: t.text(**fields)}, seed
    with check("stream: n=2 concatenates to both choices"):
        whole = t.chat(n=2)
        texts = {choice.index: choice.message.content for choice in whole.choices}
        assert joined(t.chat(n=2, stream=True)) == texts
    with check("stream: usage in one last chunk when asked for, and never else"):
        chunks = list(t.chat(stream=True, stream_options={"include_usage": True}))
        assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
        assert all(chunk.usage is None and chunk.choices for chunk in chunks[:-1])
        whole = t.chat().usage
        assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (
            whole.prompt_tokens,
            whole.completion_tokens,
        )
        assert all(chunk.usage is None for chunk in t.chat(stream=True))
    with check("stream: the SDK's own accumulator agrees"):
        fields = {"model": t.model, "messages": QUESTION, "max_tokens": 24, "seed": 11}
        with t.client.chat.completions.stream(**fields) as stream:
            assert sum(1 for _ in stream) > 0
            final = stream.current_completion_snapshot
        assert final.choices[0].message.content == t.text()
    with check("stream: headers and frames on the wire"):
        body = {"model": t.model, "messages": QUESTION, "max_tokens": 3, "stream": True}
        headers = {"content-type": "application/json", "x-request-id": "my-request"}
        status, headers, raw = t.server.request(
            "POST", "/v1/chat/completions", json.dumps(body).encode(), headers
        )
        assert status == 200 and headers["content-type"].startswith("text/event-stream")
        assert headers["x-request-id"] == "my-request" and headers["x-accel-buffering"] == "no"
        frames = [frame for frame in raw.decode().split("\n\n") if frame]
        assert frames[-1] == "data: [DONE]", frames[-1]
        assert all(frame.startswith(("data: {", ": ")) for frame in frames[:-1]), frames


def check_stop(check, t: Subject):
    whole = t.text(max_tokens=40, extra_body={"ignore_eos": True})
    stops = [whole[i : i + length] for i in range(3, len(whole) - 6, 5) for length in (1, 3, 6)]
    with check(f"stop: {len(stops)} stop strings are cut from the answer, streamed or not"):
        for stop in stops:
            fields = {"max_tokens": 40, "stop": [stop], "extra_body": {"ignore_eos": True}}
            expected = whole[: whole.index(stop)]
            choice = t.chat(**fields).choices[0]
            assert choice.message.content == expected, (stop, choice.message.content, whole)
            assert choice.finish_reason == "stop", (stop, choice.finish_reason)
            assert joined(t.chat(stream=True, **fields)) == {0: expected}, (stop, whole)


def check_logprobs(check, t: Subject):
    fields = {"logprobs": True, "top_logprobs": 3}
    with check("logprobs: one entry a token, bytes of the text, best first"):
        answer = t.chat(**fields, extra_body={"ignore_eos": True})
        entries = answer.choices[0].logprobs.content
        assert len(entries) == answer.usage.completion_tokens
        for entry in entries:
            assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
            best = [other.logprob for other in entry.top_logprobs]
            assert best == sorted(best, reverse=True)
            assert entry.logprob <= best[0] + 1e-6
        spelled = b"".join(bytes(entry.bytes or []) for entry in entries)
        content = answer.choices[0].message.content
        assert spelled.decode(errors="ignore").startswith(content.rstrip("\ufffd")), content
    with check("logprobs: greedy takes the likeliest token"):
        for entry in t.chat(temperature=0, **fields).choices[0].logprobs.content:
            assert entry.token == entry.top_logprobs[0].token
    with check("logprobs: a stream has the same ones"):
        streamed = []
        for chunk in t.chat(stream=True, **fields):
            for choice in chunk.choices:
                streamed += choice.logprobs.content if choice.logprobs else []
        assert streamed == t.chat(**fields).choices[0].logprobs.content
    with check("logprobs: top_logprobs alone is refused"):
        expect(openai.BadRequestError, lambda: t.chat(top_logprobs=2), param="top_logprobs")


def check_completions(check, t: Subject):
    with check("completions: token ids give what their text gives"):
        ids = t.server.post("/tokenize", {"prompt": "Once upon"})[1]["tokens"]
        from_ids, from_text = t.complete(prompt=ids), t.complete()
        assert from_ids.choices[0].text == from_text.choices[0].text
        assert from_ids.usage.prompt_tokens == len(ids) == from_text.usage.prompt_tokens
        back = t.server.post("/detokenize", {"tokens": ids})[1]["prompt"]
        assert "Once upon" in back, back
    with check("completions: a list of prompts gives choices in its order"):
        answer = t.complete(prompt=["Once upon", "The lamp"], temperature=0)
        single = [t.complete(prompt=text, temperature=0) for text in ("Once upon", "The lamp")]
        assert [c.index for c in answer.choices] == [0, 1]
        assert [c.text for c in answer.choices] == [c.choices[0].text for c in single]
    with check("completions: a stream concatenates to the whole"):
        text = "".join(c.text for chunk in t.complete(stream=True) for c in chunk.choices)
        assert text == t.complete().choices[0].text
    with check("completions: echo puts the prompt before the answer"):
        assert t.complete(echo=True).choices[0].text == "Once upon" + t.complete().choices[0].text
    with check("completions: logprobs, one a token, with offsets into the text"):
        answer = t.complete(logprobs=2, max_tokens=5, extra_body={"ignore_eos": True})
        [choice] = answer.choices
        logprobs = choice.logprobs
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == 5
        assert all(value <= 0 for value in logprobs.token_logprobs)
        assert all(2 <= len(top) <= 3 for top in logprobs.top_logprobs)
        first, *offsets = logprobs.text_offset
        for token, start, end in zip(logprobs.tokens, logprobs.text_offset, offsets):
            assert choice.text[start - first : end - first] == token, (token, logprobs)


def check_determinism(check, t: Subject):
    seeds = range(100, 116)
    alone = [t.text(seed=seed) for seed in seeds]
    with check("seeds: the same seed gives the same answer, another seed another one"):
        assert [t.text(seed=seed) for seed in seeds] == alone
        assert len(set(alone)) > len(alone) // 2, "seeds change nothing"
    with check("seeds: 16 requests at once get what each gets alone"):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = list(pool.map(lambda seed: t.text(seed=seed), seeds))
        assert together == alone
    with check("seeds: an answer is the same after its prompt was cached"):
        long = [{"role": "user", "content": "The lamp was lit. " * 12}]
        first = t.chat(messages=long)
        second = t.chat(messages=long)
        assert second.choices[0].message.content == first.choices[0].message.content
        assert second.usage.prompt_tokens_details.cached_tokens > 0, second.usage

    async def asynchronous():
        async with openai.AsyncOpenAI(
            base_url=t.client.base_url, api_key="none", max_retries=0
        ) as client:
            requests = [
                client.chat.completions.create(
                    model=t.model, messages=QUESTION, max_tokens=24, seed=seed
                )
                for seed in seeds
            ]
            return [a.choices[0].message.content for a in await asyncio.gather(*requests)]

    with check("seeds: the asynchronous client gets the same"):
        assert asyncio.run(asynchronous()) == alone


def check_errors(check, t: Subject):
    with check("errors: an unknown model is NotFoundError"):
        expect(
            openai.NotFoundError,
            lambda: t.chat(model="no-such-model"),
            status_code=404,
            code="model_not_found",
        )
    bad = {
        "temperature": 2.5,
        "top_p": 0,
        "n": 0,
        "max_tokens": -1,
        "presence_penalty": 3,
        "logit_bias": {"x": 1},
        "messages": [],
        "stop": [""],
        "top_logprobs": 99,
        "seed": "abc",
    }
    for name, value in bad.items():
        with check(f"errors: {name}={value!r} is BadRequestError that names the field"):
            fields = {name: value, **({"logprobs": True} if name == "top_logprobs" else {})}
            error = expect(openai.BadRequestError, lambda f=fields: t.chat(**f), status_code=400)
            assert error.type == "invalid_request_error", error.type
            # An element of a list may be named more exactly: stop[0].
            assert error.param and error.param.startswith(name), error.param
    with check("errors: a prompt beyond the context is BadRequestError with both numbers"):
        limit = json.loads(t.server.request("GET", "/v1/models")[2])["data"][0]["max_model_len"]
        long = [5] * (limit + 1)
        error = expect(openai.BadRequestError, lambda: t.complete(prompt=long), status_code=400)
        assert str(limit) in error.message and str(limit + 1) in error.message, error.message
    with check("errors: a body that is no JSON is BadRequestError"):
        call = lambda: t.client.post(  # noqa: E731
            "/chat/completions",
            cast_to=object,
            content=b"{broken",
            options={"headers": {"content-type": "application/json"}},
        )
        expect(openai.BadRequestError, call, status_code=400)
    raw = [
        ("an unknown route", "GET", "/v1/nothing", b"", {}, 404),
        ("a wrong method", "PUT", "/v1/chat/completions", b"", {}, 405),
        ("no content type", "POST", "/v1/completions", b"{}", {}, 415),
        ("a list as body", "POST", "/v1/completions", b"[]", JSON, 400),
        ("no body", "POST", "/v1/completions", b"", JSON, 400),
        ("no model", "POST", "/v1/chat/completions", b'{"messages":[]}', JSON, 400),
    ]
    for name, method, path, body, headers, expected in raw:
        with check(f"errors: {name} is {expected} with an error object"):
            status, _, answer = t.server.request(method, path, body, headers)
            assert status == expected, status
            error = json.loads(answer)["error"]
            assert set(error) == {"message", "type", "param", "code"}, error
            assert error["type"] == "invalid_request_error" and error["message"], error
    with check("errors: a body of 20 MiB is 413 with an error object"):
        large = "x" * (20 << 20)
        expect(openai.APIStatusError, lambda: t.complete(prompt=large), status_code=413)
    with check("errors: none of them hurt the server"):
        assert t.text()


JSON = {"content-type": "application/json"}


def check_tools(check, t: Subject):
    with check("tools: a request with tools is answered, streamed and not alike"):
        whole = t.chat(tools=[WEATHER], max_tokens=60).choices[0]
        for call in whole.message.tool_calls or []:
            assert call.type == "function" and call.id and json.loads(call.function.arguments)
        expected = "tool_calls" if whole.message.tool_calls else ("stop", "length")
        assert whole.finish_reason in expected, whole.finish_reason
        text, calls = "", {}
        for chunk in t.chat(tools=[WEATHER], max_tokens=60, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or []:
                    name, arguments = calls.get(call.index, ("", ""))
                    name += call.function.name or ""
                    calls[call.index] = (name, arguments + (call.function.arguments or ""))
        assert text == (whole.message.content or "")
        assert list(calls.values()) == [
            (call.function.name, call.function.arguments) for call in whole.message.tool_calls or []
        ]
    with check("tools: the demo model calls the function that is offered"):
        calls = []
        for city in ("Oslo", "Bergen", "Lima"):
            talk = [{"role": "user", "content": f"What's the weather like in {city} today?"}]
            choice = t.chat(messages=talk, tools=[WEATHER], temperature=0, max_tokens=60).choices[0]
            for call in choice.message.tool_calls or []:
                assert choice.finish_reason == "tool_calls", choice
                calls.append((call.function.name, json.loads(call.function.arguments)))
        # A toy may err, but not every time.
        assert any(call == ("get_weather", {"city": "Oslo"}) for call in calls), calls
    with check("tools: a call and its result go back into the conversation"):
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Bergen"}'},
        }
        talk = [
            *QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain, 7 degrees"},
        ]
        answer = t.chat(messages=talk, tools=[WEATHER])
        assert answer.choices[0].finish_reason
        rendered = t.server.post(
            "/v1/chat/completions/render",
            {"model": t.model, "messages": talk, "tools": [WEATHER]},
        )[1]
        prompt = json.dumps(rendered, ensure_ascii=False)
        assert "Bergen" in prompt and "rain, 7 degrees" in prompt and "get_weather" in prompt


def check_aborts(check, t: Subject):
    with check("abort: closed streams leave nothing running and no block in use"):
        streams = [
            t.chat(stream=True, n=2, max_tokens=200, seed=seed, extra_body={"ignore_eos": True})
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


def check_keys(check, binary: str):
    with Server(binary, "--api-key", "secret") as server:
        with check("keys: a wrong key is AuthenticationError, the right one works"):
            wrong = openai.OpenAI(base_url=f"{server.url}/v1", api_key="guess", max_retries=0)
            expect(openai.AuthenticationError, wrong.models.list, status_code=401)
            right = Subject(server, api_key="secret")
            assert right.text()
        with check("keys: health needs none, metrics do"):
            assert server.request("GET", "/health/ready")[0] == 200
            assert server.request("GET", "/metrics")[0] == 401


def check_queue(check, binary: str):
    # One runs, none waits.
    with Server(binary, "--max-num-seqs", "1", "--max-queued-requests", "0") as server:
        t = Subject(server)
        long = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}

        def refused_while_busy():
            with t.chat(stream=True, **long) as stream:
                next(iter(stream))
                return expect(openai.RateLimitError, t.chat, status_code=429)

        with check("queue: one request too many is RateLimitError with Retry-After"):
            error = refused_while_busy()
            assert int(error.response.headers["retry-after"]) >= 1, error.response.headers
            assert error.type == "rate_limit_error", error.type
        with check("queue: the SDK's retries get through once there is room"):
            # The stream before was left in the middle; its place is free once the server noticed.
            running = "vllm:num_requests_running"
            wait_until(lambda: server.metric(running) == 0, 30, "the queue is empty")
            patient = t.client.with_options(max_retries=5)
            with t.chat(stream=True, **long) as stream:
                next(iter(stream))
                closing = threading.Timer(0.3, stream.close)
                closing.start()
                answer = patient.chat.completions.create(
                    model=t.model, messages=QUESTION, max_tokens=3
                )
                closing.join()
            assert answer.choices[0].finish_reason


def check_shutdown(check, binary: str):
    with Server(binary) as server:
        t = Subject(server)
        with check("shutdown: SIGTERM lets a running stream end and the server leave with 0"):
            long = {"max_tokens": 200, "seed": 3, "extra_body": {"ignore_eos": True}}
            stream = t.chat(stream=True, **long)
            first = next(iter(stream))
            ending = threading.Thread(target=server.stop)
            ending.start()
            chunks = [first, *stream]
            ending.join()
            assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
            assert server.process.returncode == 0, server.process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    args = parser.parse_args()
    print(f"openai {openai.__version__}")
    with checks() as check:
        with Server(args.binary) as server:
            subject = Subject(server)
            for group in [
                check_models,
                check_chat,
                check_streams,
                check_stop,
                check_logprobs,
                check_completions,
                check_determinism,
                check_errors,
                check_tools,
                check_aborts,
            ]:
                with check(f"{group.__name__} came to its end"):
                    group(check, subject)
            with check("the server wrote no panic into its log"):
                assert "panicked" not in server.log_tail(), server.log_tail()
        check_keys(check, args.binary)
        check_queue(check, args.binary)
        check_shutdown(check, args.binary)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
