#!/usr/bin/env python3
"""Pictures by the official SDKs of OpenAI and Anthropic, against a tiny model that sees.

    pictures.py [--binary target/debug/sconce]

Starts the server itself, on a free loopback port. Needs `openai` and `anthropic`. What the model says
does not matter here: equal pictures must give equal answers whatever the protocol, and others others.
"""

import argparse
import base64
import http.server
import json
import pathlib
import struct
import sys
import threading
import urllib.request
import zlib

import anthropic
import openai

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures/pictures"
QUESTION = "What do you see?"
GREEDY = {"temperature": 0, "max_tokens": 16}
# Anthropic's SDK has no argument for the temperature any more.
BY_ANTHROPIC = {"max_tokens": 16, "extra_body": {"temperature": 0}}


def picture(index: int) -> str:
    return base64.b64encode((FIXTURES / f"{index}.png").read_bytes()).decode()


def url(index: int) -> str:
    return f"data:image/png;base64,{picture(index)}"


def png(width: int, height: int, rows: bytes) -> str:
    """A PNG file of these sizes, whatever its rows are."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) \
        + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


class Subject:
    def __init__(self, server, model):
        self.url = server.url
        self.model = model
        self.openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)

    def chat(self, *parts, **fields):
        content = [{"type": "image_url", "image_url": {"url": part}} if part.startswith(("data:", "http"))
                   else {"type": "text", "text": part} for part in parts]
        fields = {"messages": [{"role": "user", "content": content}], **GREEDY, **fields}
        return self.openai.chat.completions.create(model=self.model, **fields)

    def said(self, *parts, **fields):
        return self.chat(*parts, **fields).choices[0].message.content


def check_answers(check, t: Subject):
    with check("chat completions: the picture and its place decide the answer"):
        seen = [t.said(url(0), QUESTION), t.said(url(1), QUESTION), t.said(QUESTION, url(0)),
                t.said(QUESTION), t.said(url(0), url(1), QUESTION)]
        assert len(set(seen)) == 5, seen
        assert seen[0] == t.said(url(0), QUESTION)
    with check("chat completions: a picture seen again is a prefix that is cached"):
        text = "What else do you see in it? Tell me all of it, please."
        usage = t.chat(url(2), text).usage
        again = t.chat(url(2), text).usage
        assert again.prompt_tokens == usage.prompt_tokens > 40, usage
        assert again.prompt_tokens_details.cached_tokens >= 32, again
    with check("chat completions: streaming says the same"):
        stream = t.chat(url(1), QUESTION, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert text == t.said(url(1), QUESTION), text
    with check("messages: an image block gives the same answer"):
        block = {"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": picture(0)}}
        content = [block, {"type": "text", "text": QUESTION}]
        message = t.anthropic.messages.create(
            model=t.model, messages=[{"role": "user", "content": content}], **BY_ANTHROPIC)
        assert message.content[0].text == t.said(url(0), QUESTION), message
    with check("messages: a screenshot in a tool's result is seen"):
        def result(index):
            image = {"type": "image", "source": {
                "type": "base64", "media_type": "image/png", "data": picture(index)}}
            talk = [{"role": "user", "content": "Look."},
                    {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}]}]
            tools = [{"name": "look", "input_schema": {"type": "object"}}]
            return t.anthropic.messages.create(
                model=t.model, messages=talk, tools=tools, tool_choice={"type": "none"}, **BY_ANTHROPIC)
        seen = [result(index).content[0].text for index in (0, 1)]
        assert seen[0] != seen[1], seen
    with check("responses: an input_image gives the same answer, and is remembered"):
        content = [{"type": "input_image", "image_url": url(0), "detail": "auto"},
                   {"type": "input_text", "text": QUESTION}]
        first = t.openai.responses.create(
            model=t.model, input=[{"role": "user", "content": content}], temperature=0,
            max_output_tokens=16)
        assert first.output_text == t.said(url(0), QUESTION), first
        then = t.openai.responses.create(
            model=t.model, previous_response_id=first.id, input="And now?", temperature=0,
            max_output_tokens=16)
        assert then.usage.input_tokens > first.usage.input_tokens + 16, then.usage
    with check("responses: a picture that was uploaded is seen by its file_id"):
        file = t.openai.files.create(file=("0.png", base64.b64decode(picture(0))), purpose="vision")
        content = [{"type": "input_image", "file_id": file.id, "detail": "auto"},
                   {"type": "input_text", "text": QUESTION}]
        ask = lambda: t.openai.responses.create(
            model=t.model, input=[{"role": "user", "content": content}], temperature=0,
            max_output_tokens=16)
        assert ask().output_text == t.said(url(0), QUESTION)
        t.openai.files.delete(file.id)
        try:
            ask()
            raise AssertionError("a file that is gone")
        except openai.BadRequestError as error:
            assert error.param == "input[0].content[0].file_id", error
    with check("Ollama's chat: images give the same answer"):
        body = {"model": t.model, "stream": False, "options": {"temperature": 0, "num_predict": 16},
                "messages": [{"role": "user", "content": QUESTION, "images": [picture(0)]}]}
        request = urllib.request.Request(f"{t.url}/api/chat", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        answer = json.load(urllib.request.urlopen(request))
        assert answer["message"]["content"] == t.said(url(0), QUESTION), answer


def check_refusals(check, t: Subject):
    def refused(reason, *parts, **fields):
        try:
            answer = t.chat(*parts, QUESTION, **fields)
        except openai.BadRequestError as error:
            assert reason in error.message, error.message
            assert "messages[0].content" in error.message or reason.startswith("places"), error
            return
        raise AssertionError(answer)

    jpeg = base64.b64decode(JPEG)
    with check("hostile: what is no picture, cut or too large is refused with the reason"):
        svg = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()
        refused("no PNG, JPEG", f"data:image/svg+xml;base64,{svg}")
        refused("can't be decoded",
                f"data:image/jpeg;base64,{base64.b64encode(jpeg[:len(jpeg) // 2]).decode()}")
        refused("30000 x 1 pixels", png(30000, 1, bytes(90001)))
        refused("at most 200 times", png(2010, 10, bytes(6031) * 10))
        refused("50000 x 50000 pixels", png(50000, 50000, bytes(1 << 20)))
        refused("no base64", "data:image/png;base64,!")
    with check("hostile: URLs of hosts that are not named, and of this machine, are not called"):
        called = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                called.append(self.path)
                self.send_error(500)

        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            refused("--allowed-media-domains", f"http://example.com:{other.server_port}/a.png")
            for host in ["127.0.0.1", "localhost"]:
                refused("not public", f"http://{host}:{other.server_port}/a.png")
            other.shutdown()
        assert not called, called
    with check("more pictures than the server takes are refused"):
        try:
            t.chat(*[url(0)] * 5, QUESTION)
        except openai.BadRequestError as error:
            assert "at most 4" in error.message, error
        else:
            raise AssertionError("5 pictures were taken")
    with check("a text that looks like a picture's place is refused beside a picture"):
        refused("places for", url(0), "<|image_pad|>", extra_body={})


# A gradient of 48 x 48 pixels.
JPEG = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62r"
    "Z4C8ybqmx5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSk"
    "pKT/wAARCAAwADADASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQID"
    "AAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlq"
    "c3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3"
    "+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAECAxEEBSExBhJBUQdhcRMiMoEI"
    "FEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6goOEhYaHiImK"
    "kpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwDn"
    "/Ko8qrvlUeVQBS8qjyqu+VR5VAFLyqPKq75VHlUAXfKo8qrnlUeVQBT8qjyqueVR5VAFPyqPKq55VHlUAXfKo8qrvlUeVQBS8qjyqu+V"
    "R5VAFLyqPKq75VHlUAf/2Q=="
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target/debug/sconce"))
    options = parser.parse_args()
    flags = ["--model", str(FIXTURES / "qwen2_5_vl"), "--served-model-name", "tiny",
             "--limit-mm-per-prompt", "image=4", "--kv-cache-memory", "16MiB",
             "--allowed-media-domains", "127.0.0.1,localhost"]
    with checks() as check, Server(options.binary, *flags) as server:
        subject = Subject(server, "tiny")
        for group in [check_answers, check_refusals]:
            with check(f"{group.__name__} came to its end"):
                group(check, subject)
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
