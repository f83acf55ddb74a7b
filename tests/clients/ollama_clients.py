#!/usr/bin/env python3
"""Ollama's official Python client and LangChain's ChatOllama against a running server.

    ollama_clients.py [--binary target/debug/sconce]     the demo model
    ollama_clients.py --scripted URL                     a model that reasons, calls `add`, then answers

Starts the server itself, but for a scripted one. Needs `ollama`, `langchain-ollama`, `pydantic`.
What a toy model says does not matter; that forms are kept, and that both ways to ask agree, does.
"""

import argparse
import asyncio
import json
import pathlib
import sys
import warnings

import ollama
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM

from asked import QUESTION, Person, add
from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
MESSAGES = [{"role": "user", "content": QUESTION}]
OPTIONS = {"seed": 7, "num_predict": 24, "temperature": 0.8, "repeat_penalty": 1.1}


def refused(run, status: int, words: str):
    """Checks that the client raises its own error, with words in it."""
    try:
        run()
    except ollama.ResponseError as error:
        assert error.status_code == status and words in error.error, error
    else:
        raise AssertionError("nothing was raised")


def check_texts(check, client: ollama.Client, model: str):
    fields = dict(model=model, options=OPTIONS)
    with check("chat: the stream amounts to the whole answer"):
        whole = client.chat(messages=MESSAGES, **fields)
        parts = list(client.chat(messages=MESSAGES, stream=True, **fields))
        assert "".join(part.message.content for part in parts) == whole.message.content
        assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1].eval_count == whole.eval_count and whole.prompt_eval_count > 0
        assert whole.total_duration > 0 and whole.done_reason in ("stop", "length"), whole
    with check("generate: the stream amounts to the whole answer"):
        whole = client.generate(prompt=QUESTION, system="Be brief.", **fields)
        parts = list(client.generate(prompt=QUESTION, system="Be brief.", stream=True, **fields))
        assert "".join(part.response for part in parts) == whole.response
        assert parts[-1].context == whole.context
    with check("generate: an answer is gone on from"):
        more = client.generate(prompt="And then?", context=whole.context, **fields)
        assert more.context[: len(whole.context)] == list(whole.context)
        assert more.prompt_eval_count > len(whole.context)
    with check("generate: a raw prompt is what completions continue"):
        raw = client.generate(prompt="Once upon a time", raw=True, **fields)
        assert raw.context is None and raw.response
    with check("options: num_predict and stop end the answer"):
        short = client.chat(model, MESSAGES, options={**OPTIONS, "num_predict": 3})
        assert (short.eval_count, short.done_reason) == (3, "length")
        text = client.generate(prompt="Once", raw=True, **fields).response
        stop = text[4:8]
        cut = client.generate(model, "Once", raw=True, options={**OPTIONS, "stop": [stop]})
        assert stop not in cut.response and cut.done_reason == "stop", (text, cut)
    with check("logprobs: one entry for each token, each with its alternatives"):
        answer = client.chat(messages=MESSAGES, logprobs=True, top_logprobs=3, **fields)
        assert len(answer.logprobs) == answer.eval_count
        assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in answer.logprobs)
    with check("format: json, and a schema"):
        options = {**OPTIONS, "num_predict": 200}
        anything = client.chat(model, MESSAGES, format="json", options=options)
        assert anything.message.content.lstrip().startswith("{")
        schema = Person.model_json_schema()
        person = client.chat(model, MESSAGES, format=schema, options=options)
        Person.model_validate_json(person.message.content)
        person = client.generate(model, QUESTION, format=schema, options=options)
        Person.model_validate_json(person.response)


def check_rest(check, client: ollama.Client, url: str, model: str):
    with check("list, show, ps: the model is there"):
        assert model in [entry.model for entry in client.list().models]
        shown = client.show(model)
        assert "completion" in shown.capabilities and shown.template
        family = shown.modelinfo["general.architecture"]
        [process] = [entry for entry in client.ps().models if entry.model == model]
        assert process.context_length == shown.modelinfo[f"{family}.context_length"]
    with check("embed and embeddings: a text and several"):
        several = client.embed(model, ["a lamp", "the sea"])
        assert len(several.embeddings) == 2 and several.prompt_eval_count > 0
        one = client.embed(model, "the sea").embeddings[0]
        assert one == several.embeddings[1] and abs(sum(x * x for x in one) - 1) < 1e-5
        assert len(client.embed(model, "the sea", dimensions=8).embeddings[0]) == 8
        assert len(client.embeddings(model, "the sea").embedding) == len(one)
    with check("a request without a question is told that the model is loaded"):
        assert client.generate(model).done_reason == "load"
        assert client.chat(model, []).done_reason == "load"
    with check("errors are told in words"):
        refused(lambda: client.chat("nothing", MESSAGES), 404, "does not exist")
        refused(lambda: client.chat(model, MESSAGES, options={"top_p": 7}), 400, "top_p")
        wrong = {"type": 3}
        refused(lambda: list(client.chat(model, MESSAGES, stream=True, format=wrong)), 400, "format")
        refused(lambda: client.pull("nothing"), 400, "/api/pull is not served")
        refused(lambda: client.delete("nothing"), 400, "/api/delete is not served")
        picture = [{"role": "user", "content": "What?", "images": [b"GIF89a"]}]
        refused(lambda: client.chat(model, picture), 400, "images[0]")
    with check("the asynchronous client: a stream"):

        async def run() -> str:
            async with ollama.AsyncClient(url) as other:
                stream = await other.chat(model, MESSAGES, stream=True, options=OPTIONS)
                return "".join([part.message.content async for part in stream])

        assert asyncio.run(run()) == client.chat(model, MESSAGES, options=OPTIONS).message.content


def check_langchain(check, url: str, model: str):
    fields = dict(model=model, base_url=url, seed=7, num_predict=200, num_ctx=256, keep_alive="5m")
    chat = ChatOllama(**fields, validate_model_on_init=True)
    with check("ChatOllama: an answer, and its stream"):
        answer = chat.invoke(QUESTION)
        assert answer.usage_metadata["output_tokens"] > 0
        text = "".join(part.text for part in chat.stream(QUESTION))
        assert text == answer.text and answer.response_metadata["done_reason"], answer
    with check("ChatOllama: an object by a schema"):
        assert isinstance(chat.with_structured_output(Person).invoke(QUESTION), Person)
        described = chat.with_structured_output(Person.model_json_schema()).invoke(QUESTION)
        Person.model_validate(described)
    with check("ChatOllama: JSON"):
        assert isinstance(json.loads(ChatOllama(**fields, format="json").invoke(QUESTION).text), dict)
    with check("ChatOllama: logprobs"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = ChatOllama(**{**fields, "num_predict": 5}, top_logprobs=2).invoke(QUESTION)
        assert len(answer.response_metadata["logprobs"]) == 5, answer.response_metadata
    with check("ChatOllama: asynchronous batches"):
        answers = asyncio.run(chat.abatch([QUESTION, "Who?"]))
        assert len(answers) == 2 and answers[0].text == chat.invoke(QUESTION).text
    with check("OllamaLLM: a prompt"):
        assert OllamaLLM(**fields).invoke("Once upon a time")
    with check("OllamaEmbeddings: documents and a query"):
        embeddings = OllamaEmbeddings(model=model, base_url=url)
        documents = embeddings.embed_documents(["a lamp", "the sea"])
        assert embeddings.embed_query("the sea") == documents[1]


def check_scripted(check, url: str):
    """Each conversation asks twice: the model first calls, then answers."""
    client = ollama.Client(url)
    model = client.list().models[0].model
    for stream in [False, True]:
        with check(f"ollama: reasoning, a call, and an answer to its result, stream {stream}"):
            messages = list(MESSAGES)
            fields = dict(model=model, tools=[add], think=True, stream=stream)
            said = _message(client.chat(messages=messages, **fields), stream)
            assert said["thinking"] == "a plan", said
            [call] = said["tool_calls"]
            assert (call.function.name, call.function.arguments) == ("add", {"a": 1, "b": 4})
            messages += [said, {"role": "tool", "tool_name": "add", "content": "5"}]
            assert _message(client.chat(messages=messages, **fields), stream)["content"] == "Five."
    with check("ChatOllama: the same"):
        adds = tool(add)
        chat = ChatOllama(model=model, base_url=url, reasoning=True).bind_tools([adds])
        first = chat.invoke(QUESTION)
        assert first.additional_kwargs["reasoning_content"] == "a plan", first
        [call] = first.tool_calls
        result = ToolMessage(str(adds.invoke(call["args"])), tool_call_id=call["id"])
        last = chat.invoke([HumanMessage(QUESTION), first, result])
        assert last.text == "Five.", last


def _message(answer, stream: bool) -> dict:
    """The message of an answer, put together if it came in parts."""
    whole = {"role": "assistant", "content": "", "thinking": "", "tool_calls": []}
    for part in answer if stream else [answer]:
        whole["content"] += part.message.content or ""
        whole["thinking"] += part.message.thinking or ""
        whole["tool_calls"] += part.message.tool_calls or []
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--scripted", metavar="URL")
    args = parser.parse_args()
    with checks() as check:
        if args.scripted:
            check_scripted(check, args.scripted)
            return check.exit_status()
        with Server(args.binary) as server:
            client, model = ollama.Client(server.url), server.model()
            check_texts(check, client, model)
            check_rest(check, client, server.url, model)
            check_langchain(check, server.url, model)
            with check("the server wrote no panic into its log"):
                assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
