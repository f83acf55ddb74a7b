#!/usr/bin/env python3
"""Speech by OpenAI's SDK, against a tiny model that transcribes, alone and beside a model that chats, and against
one that hears in chats.

    speech.py [--binary target/debug/sconce]

Starts the servers itself, on free loopback ports. Needs `openai`. The weights are random, so what is said does
not matter here: formats must agree with each other, and what is streamed with what is not.
"""

import argparse
import base64
import concurrent.futures
import pathlib
import re
import struct
import sys

import openai

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures/speech"
FILES = ["said.flac", "said.mp3", "said.ogg", "said.m4a", "said.opus", "said.webm", "said_8k.wav", "said.aiff"]


def wav(samples: int, rate=16000, channels=1, claimed=None) -> bytes:
    data = bytes(2 * samples * channels)
    size = len(data) if claimed is None else claimed
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", min(size + 36, 0xFFFFFFFF), b"WAVE", b"fmt ", 16, 1, channels,
                       rate, rate * channels * 2 & 0xFFFFFFFF, channels * 2 & 0xFFFF, 16, b"data", size) + data


class Subject:
    def __init__(self, server, model):
        self.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        self.model = model

    def hear(self, name="said.flac", **fields):
        with open(FIXTURES / name, "rb") as file:
            return self.client.audio.transcriptions.create(file=file, model=self.model, **fields)

    def refused(self, reason, file=None, **fields):
        try:
            answer = self.client.audio.transcriptions.create(
                file=("x.wav", wav(16000) if file is None else file), model=self.model, **fields)
        except openai.BadRequestError as error:
            assert reason in error.message, error.message
            return
        raise AssertionError(answer)


def check_formats(check, t: Subject):
    plain = t.hear()
    with check("transcriptions: json has the text and how long the file is"):
        assert plain.text and plain.usage.type == "duration" and plain.usage.seconds == 6, plain
    with check("transcriptions: every file format is heard"):
        for name in FILES:
            assert t.hear(name, response_format="verbose_json").duration > 0.9, name
    with check("transcriptions: text, srt and vtt"):
        assert t.hear(response_format="text").strip() == plain.text
        srt, vtt = t.hear(response_format="srt"), t.hear(response_format="vtt")
        assert re.match(r"1\n\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}\n", srt), srt
        assert vtt.startswith("WEBVTT\n\n") and srt.count("-->") == vtt.count("-->") > 2
    with check("transcriptions: verbose_json has segments and words with times"):
        verbose = t.hear(response_format="verbose_json", timestamp_granularities=["word", "segment"])
        assert verbose.text == plain.text and abs(verbose.duration - 5.37) < 0.01
        assert "".join(segment.text for segment in verbose.segments).strip() == plain.text
        for segment in verbose.segments:
            assert 0 <= segment.start <= segment.end <= verbose.duration and segment.tokens, segment
        assert all(0 <= word.start <= word.end <= verbose.duration for word in verbose.words)
    with check("transcriptions: logprobs of tokens"):
        told = t.hear(include=["logprobs"])
        assert told.text == plain.text and all(one.logprob <= 0 and one.bytes for one in told.logprobs)
    with check("transcriptions: a stream has the segments and then the text"):
        events = list(t.hear(stream=True, include=["logprobs"]))
        assert [event.type for event in events[-1:]] == ["transcript.text.done"], events
        deltas = "".join(event.delta for event in events[:-1])
        assert deltas == events[-1].text and deltas.strip() == plain.text
        assert len(events) > 3 and all(event.logprobs for event in events)
    with check("transcriptions: language, prompt, temperature and seed count"):
        german = t.hear(language="de", response_format="verbose_json")
        assert german.language == "german" and german.text == t.hear(language="German").text
        assert german.text != t.hear(language="ja").text
        assert t.hear(prompt="the quick fox").text != plain.text
        drawn = [t.hear(temperature=1, extra_body={"seed": seed}).text for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2], drawn
    with check("translations: into English"):
        with open(FIXTURES / "said.flac", "rb") as file:
            english = t.client.audio.translations.create(
                file=file, model=t.model, response_format="verbose_json")
        assert english.language == "english" and english.segments, english
    with check("several at once have the answers that they have alone"):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            texts = list(pool.map(lambda _: t.hear().text, range(6)))
        assert texts == [plain.text] * 6, texts


def check_refusals(check, t: Subject):
    with check("hostile: files that are not what they should be"):
        t.refused("the file is empty", b"")
        t.refused("no format that is read here", b"This is a text. " * 1000)
        t.refused("at least 0.1 s", wav(1))
        # Nothing records so; the reader of this format doesn't take it for one.
        t.refused("no format that is read here", wav(100, channels=200))
        t.refused("samples a second", wav(100, rate=4_000_000_000))
        t.refused("at most 60 s", wav(1000 * 61, rate=1000))
    with check("hostile: a length that is a lie changes nothing"):
        for claimed in (0xFFFFFFFF, 1 << 30):
            answer = t.client.audio.transcriptions.create(
                file=("x.wav", wav(16000, claimed=claimed)), model=t.model, response_format="verbose_json")
            assert answer.duration == 1, answer
    with check("fields that can't be served are refused by name"):
        t.refused("language", language="klingon")
        t.refused("temperature", temperature=2)
        t.refused("response_format", response_format="diarized_json")
        t.refused("timestamp_granularities", timestamp_granularities=["word"])
        t.refused("chunking_strategy", chunking_strategy={"type": "server_vad"})


def check_chats(check, server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

    def ask(name, **fields):
        data = base64.b64encode((FIXTURES / name).read_bytes()).decode()
        audio = {"type": "input_audio", "input_audio": {"data": data, "format": name.split(".")[1]}}
        content = [audio, {"type": "text", "text": "What is said?"}]
        return client.chat.completions.create(
            model=server.model(), messages=[{"role": "user", "content": content}], temperature=0, max_tokens=8, **fields)

    with check("chats: a sound is heard, and the second time it is in the cache"):
        first, second = ask("said.flac"), ask("said.flac")
        assert first.choices[0].message.content == second.choices[0].message.content, (first, second)
        # 5.37 s of 13 tokens each.
        assert first.usage.prompt_tokens > 70 and second.usage.prompt_tokens_details.cached_tokens >= 64, second
    with check("chats: every format is heard, and streams say the same"):
        for name in ["said.mp3", "said.opus", "said.webm", "said_8k.wav"]:
            answer = ask(name).choices[0].message.content
            parts = ask(name, stream=True)
            assert answer == "".join(part.choices[0].delta.content or "" for part in parts if part.choices), name
    with check("chats: what is no sound is refused by its place"):
        try:
            ask("reference.json")
            raise AssertionError("it is heard")
        except openai.BadRequestError as error:
            assert error.param == "messages[0].content[0].input_audio.format", error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=ROOT / "target/debug/sconce")
    binary = str(parser.parse_args().binary)
    with checks() as check:
        with Server(binary, "--model", str(FIXTURES / "tiny"), "--max-audio-seconds", "60") as server:
            t = Subject(server, server.model())
            check_formats(check, t)
            check_refusals(check, t)
            with check("a server that only transcribes says so to those who chat"):
                try:
                    t.client.chat.completions.create(
                        model=t.model, messages=[{"role": "user", "content": "Hi"}])
                    raise AssertionError("it chats")
                except openai.BadRequestError as error:
                    assert "only transcribes" in error.message, error
            with check("metrics count it"):
                assert server.metric("sconce:speech_requests_total") > 20
                assert server.metric("sconce:speech_audio_milliseconds_total") > 20_000
                assert server.metric("sconce:speech_files") == 0
            with check("it stops when it is told to"):
                assert server.stop() == 0
        flags = ["--speech-model", str(FIXTURES / "english"), "--served-speech-model-name", "whisper-1"]
        with Server(binary, *flags) as server:
            t = Subject(server, "whisper-1")
            with check("beside a model that chats: both answer, each under its name"):
                names = [model.id for model in t.client.models.list()]
                assert names == [server.model(), "whisper-1"], names
                assert t.hear().text
                answer = t.client.chat.completions.create(
                    model=server.model(), messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
                assert answer.choices[0].message.content
            with check("beside a model that chats: each says what the other is for"):
                for call in (lambda: t.client.chat.completions.create(
                                 model="whisper-1", messages=[{"role": "user", "content": "Hi"}]),
                             lambda: Subject(server, server.model()).hear()):
                    try:
                        call()
                        raise AssertionError("the wrong model answered")
                    except openai.BadRequestError as error:
                        assert "speech" in error.message and error.param == "model", error
        ears = FIXTURES.parent / "sounds/qwen3_asr"
        with Server(binary, "--model", str(ears), "--kv-cache-memory", "16MiB") as server:
            check_chats(check, server)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
