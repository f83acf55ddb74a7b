#!/usr/bin/env python3
"""What is stored, through the official clients, against `sconce serve` with its demo model.

    store.py [--binary target/debug/sconce] [--kills 6] [--lines 300] [SECTION...]

Starts the servers itself, on free loopback ports, and PostgreSQL where Debian's `postgresql` is
installed. Needs `openai`, `anthropic` and `openai-agents`. Servers are ended by SIGKILL at random
moments: what was told as stored has to be there afterwards, once and whole.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import glob
import json
import os
import pathlib
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import anthropic
import openai

from postgres import Postgres
from serving import Server, free_port, wait_until

ENDED = ("completed", "failed", "expired", "cancelled")


def openai_client(server, key="none"):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=120)


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"nothing refused it: {kind}")


def chat_line(number, text="Tell me a story.", **fields):
    body = {
        "model": "sconce-demo", "max_tokens": 6, "seed": number,
        "messages": [{"role": "user", "content": f"{text} {number}"}], **fields,
    }
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions",
            "body": body}


def upload(client, lines):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return client.files.create(file=("lines.jsonl", text.encode()), purpose="batch")


def submit(client, lines, endpoint="/v1/chat/completions", **fields):
    file = upload(client, lines)
    return client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields
    )


def ended(client, batch, seconds=240):
    wait_until(lambda: client.batches.retrieve(batch.id).status in ENDED, seconds, "the batch ends")
    return client.batches.retrieve(batch.id)


def answers(client, file_id):
    if file_id is None:
        return []
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def files(server):
    client = openai_client(server)
    data = os.urandom(3 << 20)
    file = client.files.create(file=("some.bin", data), purpose="user_data")
    assert (file.bytes, file.filename, file.status) == (len(data), "some.bin", "processed"), file
    assert client.files.content(file.id).content == data
    other = client.files.create(
        file=("b.jsonl", b"{}"), purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert other.expires_at - other.created_at in (3600, 3601), other
    assert [found.id for found in client.files.list(purpose="batch")][0] == other.id
    assert {file.id, other.id} <= {found.id for found in client.files.list(limit=1)}
    assert client.files.delete(file.id).deleted
    refused(openai.NotFoundError, lambda: client.files.retrieve(file.id))
    refused(openai.NotFoundError, lambda: client.files.content(file.id))
    error = refused(
        openai.BadRequestError, lambda: client.files.create(file=("x", b"x"), purpose="nothing")
    )
    assert "purpose" in str(error)
    client.files.delete(other.id)


def batches(server):
    client = openai_client(server)
    lines = [chat_line(number) for number in range(12)]
    lines[3]["body"]["temperature"] = 9
    batch = submit(client, lines, metadata={"night": "1"})
    assert (batch.status, batch.metadata) == ("in_progress", {"night": "1"}), batch
    batch = ended(client, batch)
    counts = batch.request_counts
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 12, 11, 1)
    good, bad = answers(client, batch.output_file_id), answers(client, batch.error_file_id)
    assert [line["custom_id"] for line in good] == [f"line-{n}" for n in range(12) if n != 3]
    alone = client.chat.completions.create(**lines[5]["body"])
    body = next(line for line in good if line["custom_id"] == "line-5")["response"]["body"]
    assert body["choices"][0]["message"]["content"] == alone.choices[0].message.content
    assert [line["custom_id"] for line in bad] == ["line-3"]
    assert bad[0]["response"]["status_code"] == 400
    assert "temperature" in bad[0]["response"]["body"]["error"]["message"]
    assert batch.id in [found.id for found in client.batches.list()]


def other_endpoints(server):
    client = openai_client(server)
    bodies = {
        "/v1/completions": {"prompt": "Once", "max_tokens": 4},
        "/v1/responses": {"input": "Once", "max_output_tokens": 4},
        "/v1/embeddings": {"input": "Once"},
    }
    for endpoint, body in bodies.items():
        line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": body}
        batch = ended(client, submit(client, [line], endpoint))
        [answer] = answers(client, batch.output_file_id)
        assert answer["response"]["status_code"] == 200, answer


def bad_batches(server):
    client = openai_client(server)
    lines = [
        "this is no JSON", chat_line(1), chat_line(1), chat_line(2, stream=True),
        {**chat_line(3), "url": "/v1/embeddings"}, {**chat_line(4), "method": "GET"},
        chat_line(5, model="gpt-none"), {"custom_id": "x", "method": "POST"},
        {**chat_line(6), "custom_id": ""},
    ]
    batch = submit(client, lines)
    assert (batch.status, batch.request_counts.total) == ("failed", 0), batch
    told = [(error.line, error.code) for error in batch.errors.data]
    assert told == [
        (1, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "unsupported_value"),
        (5, "mismatched_endpoint"), (6, "invalid_method"), (7, "model_not_found"),
        (8, "mismatched_endpoint"), (9, "missing_required_parameter"),
    ], told
    empty = submit(client, [" "])
    assert (empty.status, empty.errors.data[0].code) == ("failed", "empty_file")
    create = client.batches.create
    fields = {"input_file_id": "file-x", "completion_window": "24h"}
    refused(openai.NotFoundError, lambda: create(endpoint="/v1/chat/completions", **fields))
    error = refused(openai.BadRequestError, lambda: create(endpoint="/v1/moderations", **fields))
    assert "/v1/moderations" in str(error)


def cancelled_batches(server):
    client = openai_client(server)
    batch = submit(client, [chat_line(number, max_tokens=200) for number in range(200)])
    wait_until(lambda: client.batches.retrieve(batch.id).request_counts.completed > 0, 120, "a line")
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(client, batch)
    assert batch.status == "cancelled", batch
    good, bad = answers(client, batch.output_file_id), answers(client, batch.error_file_id)
    names = [line["custom_id"] for line in good + bad]
    assert len(good) >= 1 and len(names) == len(set(names)) == 200, (len(good), len(bad))
    assert {line["error"]["code"] for line in bad} == {"batch_cancelled"}


def message_batches(server):
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    params = {"model": "sconce-demo", "max_tokens": 6}
    said = [{"role": "user", "content": "Tell me a story."}]
    requests = [
        {"custom_id": f"m-{n}", "params": {**params, "messages": said}} for n in range(5)
    ]
    requests[2]["params"] = {**params, "messages": []}
    batch = client.messages.batches.create(requests=requests)
    assert batch.processing_status == "in_progress" and batch.request_counts.processing == 5
    error = refused(anthropic.BadRequestError, lambda: client.messages.batches.delete(batch.id))
    assert "has not ended" in str(error)
    def status():
        return client.messages.batches.retrieve(batch.id).processing_status
    wait_until(lambda: status() == "ended", 120, "the batch ends")
    results = list(client.messages.batches.results(batch.id))
    assert [result.custom_id for result in results] == [f"m-{n}" for n in range(5)]
    kinds = [result.result.type for result in results]
    assert kinds == ["succeeded", "succeeded", "errored", "succeeded", "succeeded"], kinds
    assert results[0].result.message.content[0].type == "text"
    assert results[2].result.error.error.type == "invalid_request_error"
    counts = client.messages.batches.retrieve(batch.id).request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (4, 1, 0), counts
    assert batch.id in [found.id for found in client.messages.batches.list(limit=1)]
    twice = [requests[0], requests[0]]
    error = refused(
        anthropic.BadRequestError, lambda: client.messages.batches.create(requests=twice)
    )
    assert "requests[1].custom_id" in str(error)
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    refused(anthropic.NotFoundError, lambda: client.messages.batches.retrieve(batch.id))


def conversations(server):
    client = openai_client(server)
    said = {"type": "message", "role": "user", "content": "Remember the lamp."}
    conversation = client.conversations.create(items=[said], metadata={"a": "b"})
    fields = {"model": "sconce-demo", "max_output_tokens": 5, "extra_body": {"seed": 1}}
    first = client.responses.create(input="One", conversation=conversation.id, **fields)
    assert first.conversation.id == conversation.id
    client.responses.create(input="Two", conversation={"id": conversation.id}, **fields)
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    roles = [item.role for item in items]
    assert roles == ["user", "user", "assistant", "user", "assistant"], roles
    flat = [{"role": i.role, "content": i.content[0].text} for i in items[:3]]
    again = client.responses.create(input=flat + [{"role": "user", "content": "Two"}], **fields)
    assert again.output_text == items[-1].content[0].text
    one = client.conversations.items.retrieve(items[0].id, conversation_id=conversation.id)
    assert one.content[0].text == "Remember the lamp."
    client.conversations.items.delete(items[0].id, conversation_id=conversation.id)
    assert len(list(client.conversations.items.list(conversation.id))) == 4
    updated = client.conversations.update(conversation.id, metadata={"c": "d"})
    assert updated.metadata == {"c": "d"}
    assert client.conversations.delete(conversation.id).deleted
    refused(openai.NotFoundError, lambda: client.conversations.retrieve(conversation.id))
    refused(
        openai.NotFoundError,
        lambda: client.responses.create(input="x", conversation=conversation.id, **fields),
    )


def stored_chats(server):
    client = openai_client(server)
    fields = {
        "model": "sconce-demo", "max_tokens": 5, "store": True, "metadata": {"kind": "test"},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "One"}]}],
    }
    chat = client.chat.completions.create(**fields)
    chunks = list(client.chat.completions.create(stream=True, seed=3, **fields))
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    found = client.chat.completions.retrieve(chat.id)
    assert found.choices == chat.choices and found.metadata == {"kind": "test"}
    streamed = client.chat.completions.retrieve(chunks[0].id)
    assert streamed.choices[0].message.content == said
    listed = client.chat.completions.list(metadata={"kind": "test"}, limit=1)
    assert [one.id for one in listed] == [chat.id, chunks[0].id]
    assert not list(client.chat.completions.list(metadata={"kind": "none"}))
    [message] = client.chat.completions.messages.list(chat.id)
    assert (message.role, message.content_parts[0].text) == ("user", "One"), message
    changed = client.chat.completions.update(chat.id, metadata={"kind": "other"})
    assert changed.metadata == {"kind": "other"}
    assert client.chat.completions.delete(chat.id).deleted
    refused(openai.NotFoundError, lambda: client.chat.completions.retrieve(chat.id))
    fields["store"] = False
    unkept = client.chat.completions.create(**fields)
    refused(openai.NotFoundError, lambda: client.chat.completions.retrieve(unkept.id))


def agents_session(server):
    import agents

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)

    async def talk():
        model = agents.OpenAIResponsesModel("sconce-demo", client)
        agent = agents.Agent(name="a", model=model)
        session = agents.OpenAIConversationsSession(openai_client=client)
        for turn in ["One.", "Two."]:
            await agents.Runner.run(agent, turn, session=session)
        items = await session.get_items()
        assert [item["role"] for item in items] == ["user", "assistant"] * 2, items
        popped = await session.pop_item()
        assert popped["role"] == "assistant" and len(await session.get_items()) == 3
        await session.clear_session()

    asyncio.run(talk())


def background(server):
    client = openai_client(server)
    fields = {"model": "sconce-demo", "input": "Tell me a long story.", "background": True}
    response = client.responses.create(max_output_tokens=20, **fields)
    assert response.status == "queued" and response.background, response
    def status(id):
        return client.responses.retrieve(id).status
    wait_until(lambda: status(response.id) in ("completed", "incomplete"), 60, "the response ends")
    assert client.responses.retrieve(response.id).output_text
    stream = client.responses.create(max_output_tokens=30, stream=True, **fields)
    events = []
    for event in stream:
        events.append(event)
        if len(events) == 5:
            break
    stream.close()
    id, last = events[0].response.id, events[-1].sequence_number
    assert [event.sequence_number for event in events] == [0, 1, 2, 3, 4]
    rest = list(client.responses.retrieve(id, stream=True, starting_after=last))
    assert rest[0].sequence_number == last + 1
    assert rest[-1].type in ("response.completed", "response.incomplete"), rest[-1]
    told = "".join(e.delta for e in events + rest if e.type == "response.output_text.delta")
    assert told == client.responses.retrieve(id).output_text
    whole = list(client.responses.retrieve(id, stream=True))
    assert [e.sequence_number for e in whole] == list(range(len(events) + len(rest)))
    running = client.responses.create(max_output_tokens=4000, extra_body={"ignore_eos": True}, **fields)
    wait_until(lambda: status(running.id) == "in_progress", 60, "the response runs")
    assert client.responses.cancel(running.id).status == "cancelled"
    time.sleep(0.3)
    assert status(running.id) == "cancelled"
    assert client.responses.cancel(running.id).status == "cancelled"
    plain = client.responses.create(model="sconce-demo", input="x", max_output_tokens=3)
    refused(openai.BadRequestError, lambda: client.responses.cancel(plain.id))


def owners(binary, store):
    with Server(binary, "--store", store, "--api-key", "one", "--api-key", "two") as server:
        one, two = openai_client(server, "one"), openai_client(server, "two")
        response = one.responses.create(model="sconce-demo", input="x", max_output_tokens=3)
        file = upload(one, [chat_line(1)])
        conversation = one.conversations.create()
        batch = submit(one, [chat_line(1)])
        for call in [
            lambda: two.responses.retrieve(response.id),
            lambda: two.responses.delete(response.id),
            lambda: two.responses.create(
                model="sconce-demo", input="x", previous_response_id=response.id
            ),
            lambda: two.files.content(file.id),
            lambda: two.files.delete(file.id),
            lambda: two.conversations.items.list(conversation.id),
            lambda: two.batches.retrieve(batch.id),
            lambda: two.batches.cancel(batch.id),
        ]:
            refused(openai.NotFoundError, call)
        assert not list(two.files.list()) and not list(two.batches.list())
        assert one.responses.retrieve(response.id).id == response.id
        assert ended(one, batch).status == "completed"


class Killed:
    """A server that is killed and started again."""

    def __init__(self, server):
        self.server = server

    def kill(self):
        self.server.process.kill()
        self.server.process.wait()
        self.server.start()


def kills(binary, store, count, lines):
    """SIGKILL at random moments in the middle of stored responses and of a batch."""
    draw = random.Random(7)
    with Server(binary, "--store", store) as server:
        killed, client = Killed(server), openai_client(server)
        work = [chat_line(number, max_tokens=32) for number in range(lines)]
        batch, done = submit(client, work), 0
        told, stop = [], threading.Event()

        def respond():
            while not stop.is_set():
                fields = {"previous_response_id": told[-1].id} if told and len(told) % 8 else {}
                with contextlib.suppress(openai.APIConnectionError, openai.InternalServerError):
                    response = client.responses.create(
                        model="sconce-demo", input="Hi", max_output_tokens=4, **fields
                    )
                    told.append(response)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            responding = pool.submit(respond)
            for _ in range(count):
                time.sleep(draw.uniform(0.05, 1.5))
                killed.kill()
                if client.batches.retrieve(batch.id).status in ENDED:
                    whole(client, batch, lines)
                    batch, done = submit(client, work), done + 1
            stop.set()
            responding.result()
        whole(client, ended(client, batch, 600), lines)
        for response in told:
            found = client.responses.retrieve(response.id)
            assert found.output_text == response.output_text and found.status == response.status
        print(f"    {count} kills, {done + 1} batches of {lines} lines, {len(told)} responses: "
              "0 lost, 0 twice, 0 half")


def whole(client, batch, lines):
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed" and batch.request_counts.completed == lines, batch
    names = [line["custom_id"] for line in answers(client, batch.output_file_id)]
    assert names == [f"line-{number}" for number in range(lines)], "lost, twice or out of order"


def restarts(binary, store):
    with Server(binary, "--store", store) as server:
        client = openai_client(server)
        fields = {"model": "sconce-demo", "max_output_tokens": 8}
        first = client.responses.create(input="The lamp is green.", **fields)
        assert server.stop() == 0
        server.start()
        second = client.responses.create(input="And?", previous_response_id=first.id, **fields)
        items = list(client.responses.input_items.list(second.id, order="asc"))
        assert [item.role for item in items] == ["user", "assistant", "user"]
        client.responses.delete(first.id)
        third = client.responses.create(input="So?", previous_response_id=second.id, **fields)
        assert len(list(client.responses.input_items.list(third.id))) == 5
        refused(openai.NotFoundError, lambda: client.responses.retrieve(first.id))


def encrypted(binary, folder):
    """What is stored under a key is nowhere in the file, and not there without the key."""
    store, key = str(pathlib.Path(folder, "locked.db")), pathlib.Path(folder, "key")
    key.write_text(os.urandom(32).hex() + "\n")
    said = "The treasure is under the old oak."
    with Server(binary, "--store", store, "--store-key-file", str(key)) as server:
        client = openai_client(server)
        response = client.responses.create(model="sconce-demo", input=said, max_output_tokens=3)
        line = chat_line(1, said, max_tokens=3)
        assert ended(client, submit(client, [line])).status == "completed"
        server.stop()
        for path in glob.glob(f"{store}*"):
            assert b"treasure" not in pathlib.Path(path).read_bytes(), path
        server.start()
        assert client.responses.input_items.list(response.id).data[0].content[0].text == said
        server.log.seek(0)
        assert "treasure" not in server.log.read()
    with Server(binary, "--store", store) as server:
        client = openai_client(server)
        error = refused(
            openai.InternalServerError, lambda: client.responses.retrieve(response.id)
        )
        assert "--store-key-file" in str(error), error


def full_disk(binary, folder):
    mounted = pathlib.Path(folder, "small")
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "none", str(mounted)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        print("    left out: no file system can be mounted here")
        return
    try:
        with Server(binary, "--store", str(mounted / "store.db")) as server:
            client = openai_client(server)
            data = os.urandom(4 << 20)
            error = refused(
                openai.InternalServerError,
                lambda: client.files.create(file=("big", data), purpose="user_data"),
            )
            assert error.status_code == 503 and "full" in str(error), error
            assert not list(client.files.list())
            chat = client.chat.completions.create(
                model="sconce-demo", max_tokens=3, messages=[{"role": "user", "content": "x"}]
            )
            assert chat.choices[0].message.content is not None
            small = client.files.create(file=("small", b"x" * 1000), purpose="user_data")
            assert client.files.content(small.id).content == b"x" * 1000
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def database(binary, postgres):
    """Two servers of one database: turns of a conversation on either, a server and the database lost."""
    flags = ("--store", postgres.url)
    with Server(binary, *flags) as left, Server(binary, *flags) as right:
        clients = [openai_client(left), openai_client(right)]
        fields = {"model": "sconce-demo", "max_output_tokens": 4}
        for turn in range(6):
            first = clients[turn % 2].responses.create(input="One", **fields)
            second = clients[(turn + 1) % 2].responses.create(
                input="Two", previous_response_id=first.id, **fields
            )
            assert second.previous_response_id == first.id
        batch = submit(clients[0], [chat_line(number, max_tokens=24) for number in range(400)])
        time.sleep(1)
        left.process.kill()
        done = clients[1].batches.retrieve(batch.id)
        batch = ended(clients[1], batch)
        names = [line["custom_id"] for line in answers(clients[1], batch.output_file_id)]
        assert names == [f"line-{number}" for number in range(400)], names
        print(f"    {done.request_counts.completed} of 400 lines were done when a server was killed")
        postgres.stop()
        client = clients[1]
        error = refused(
            openai.InternalServerError, lambda: client.responses.retrieve(second.id)
        )
        assert error.status_code == 503 and "not available" in str(error), error
        error = refused(
            openai.InternalServerError,
            lambda: client.responses.create(input="x", store=True, **fields),
        )
        assert error.status_code == 503, error
        plain = client.responses.create(input="x", **fields)
        assert plain.output_text is not None and plain.to_dict()["store"] is False
        chat = client.chat.completions.create(
            model="sconce-demo", max_tokens=3, messages=[{"role": "user", "content": "x"}]
        )
        assert chat.choices
        postgres.start()
        wait_until(lambda: comes_back(client, second.id), 30, "the store is back")
        stopped_under_load(client, postgres)


def stopped_under_load(client, postgres):
    """The database goes and comes back, twice, while eight clients store: what is told holds."""
    kept, refusals, faults, ended = [], [], [], threading.Event()

    def store():
        while not ended.is_set():
            try:
                response = client.responses.create(
                    model="sconce-demo", input="x", max_output_tokens=3, store=True
                )
                if response.to_dict()["store"]:
                    kept.append(response.id)
            except openai.InternalServerError as error:
                (refusals if error.status_code == 503 else faults).append(error)
            except Exception as error:  # noqa: BLE001: any other one is a fault
                faults.append(error)

    threads = [threading.Thread(target=store) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        before = len(kept)
        wait_until(lambda: len(kept) > before + 20, 60, "responses are stored")
        count = len(refusals)
        postgres.stop()
        wait_until(lambda: len(refusals) > count, 60, "a request is refused")
        postgres.start()
    before = len(kept)
    wait_until(lambda: len(kept) > before + 20, 60, "responses are stored again")
    ended.set()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]
    lost = [id for id in kept if client.responses.retrieve(id).id != id]
    assert not lost
    print(f"    {len(kept)} stored and all there, {len(refusals)} refused with 503")


def over_tls(binary, postgres, folder):
    """An encrypted way to the database, to who it says it is and nobody else."""
    if not shutil.which("openssl"):
        print("    left out: openssl is not installed")
        return
    key, certificate = postgres.data / "server.key", postgres.data / "server.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext",
         "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )
    os.chmod(key, 0o600)
    if postgres.user:
        owner = pwd.getpwnam(postgres.user)
        for path in (key, certificate):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    roots = pathlib.Path(folder, "roots.pem")
    roots.write_text(certificate.read_text())
    settings = postgres.data / "postgresql.conf"
    settings.write_text(settings.read_text() + "\nssl = on\n")
    rules = postgres.data / "pg_hba.conf"
    rules.write_text("hostssl all all 127.0.0.1/32 trust\n")
    postgres.stop()
    postgres.start()
    named = postgres.url.replace("127.0.0.1", "localhost")
    ways = {
        f"{named}?sslmode=verify-full&sslrootcert={roots}": None,
        f"{named}?sslmode=require&sslrootcert={roots}": None,
        # Only the system's roots, which this is none of; another name; not encrypted.
        f"{named}?sslmode=verify-full": "certificate",
        f"{postgres.url}?sslmode=verify-full&sslrootcert={roots}": "certificate",
        named: "no encryption",
    }
    for way, refusal in ways.items():
        with Server(binary, "--store", way) as server:
            client = openai_client(server)
            call = lambda: client.responses.create(
                model="sconce-demo", input="x", max_output_tokens=3, store=True
            )
            if refusal is None:
                id = call().id
                assert client.responses.retrieve(id).id == id
            else:
                error = refused(openai.InternalServerError, call)
                assert error.status_code == 503 and refusal in str(error), (way, error)


def balanced(binary, postgres, folder):
    """Conversations of two turns behind HAProxy, while one of two servers is killed."""
    flags, proxy_port = ("--store", postgres.url), free_port()
    with Server(binary, *flags) as left, Server(binary, *flags) as right:
        config = pathlib.Path(folder, "haproxy.cfg")
        config.write_text(f"""
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    option redispatch 3
    retries 3
    retry-on conn-failure
listen all
    bind 127.0.0.1:{proxy_port}
    balance roundrobin
    option httpchk GET /health/ready
    default-server check inter 200ms fall 1 rise 1
    server left 127.0.0.1:{left.port}
    server right 127.0.0.1:{right.port}
""")
        proxy = subprocess.Popen(["haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL)
        try:
            client = openai.OpenAI(
                base_url=f"http://127.0.0.1:{proxy_port}/v1", api_key="none", max_retries=0
            )
            wait_until(lambda: reaches(client), 20, "the proxy serves")
            began, lost = [0], []

            def talk(number):
                began[0] += 1
                fields = {"model": "sconce-demo", "max_output_tokens": 8}
                try:
                    first = client.responses.create(input=f"One {number}", **fields)
                except openai.APIError as error:
                    return lost.append(error)
                try:
                    client.responses.create(
                        input="Two", previous_response_id=first.id, **fields
                    )
                except openai.NotFoundError:
                    raise
                except openai.APIError as error:
                    lost.append(error)

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                talks = [pool.submit(talk, number) for number in range(200)]
                wait_until(lambda: began[0] > 80, 60, "conversations")
                left.process.kill()
                for one in talks:
                    one.result()
            assert len(lost) <= 4, lost
            print(f"    200 conversations, a server killed: {len(lost)} open requests lost")
        finally:
            proxy.kill()
            proxy.wait()


def reaches(client):
    try:
        return bool(client.models.list().data)
    except openai.APIError:
        return False


def comes_back(client, id):
    try:
        return client.responses.retrieve(id).id == id
    except openai.InternalServerError:
        return False


def bad_places(binary, folder):
    foreign = pathlib.Path(folder, "letter.txt")
    foreign.write_text("Dear friend, " * 100)
    for place, said in [(str(foreign), "is not a store"), ("postgres://a:b:c:d", "not understood")]:
        command = [binary, "serve", "--port", str(free_port()), "--store", place]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ran.returncode != 0 and said in ran.stderr, ran.stderr
    assert foreign.read_text().startswith("Dear friend")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/debug/sconce")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("sections", nargs="*")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    chosen = lambda check: not options.sections or check.__name__ in options.sections
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = lambda name: str(pathlib.Path(folder, name))
        jobs = []
        with_server = [
            files, batches, other_endpoints, bad_batches, cancelled_batches, message_batches,
            conversations, stored_chats, agents_session, background,
        ]
        with_server = [check for check in with_server if chosen(check)]
        with contextlib.ExitStack() as stack:
            if with_server:
                server = stack.enter_context(Server(binary, "--store", store("main.db")))
                jobs += [(check.__name__, lambda check=check: check(server)) for check in with_server]
            alone = [
                (owners, lambda: owners(binary, store("owners.db"))),
                (restarts, lambda: restarts(binary, store("restarts.db"))),
                (kills, lambda: kills(binary, store("kills.db"), options.kills, options.lines)),
                (encrypted, lambda: encrypted(binary, folder)),
                (full_disk, lambda: full_disk(binary, folder)),
                (bad_places, lambda: bad_places(binary, folder)),
            ]
            jobs += [(check.__name__, call) for check, call in alone if chosen(check)]
            if chosen(database):
                jobs.append(("database", lambda: with_database(binary, folder)))
            failed = 0
            for name, call in jobs:
                began = time.monotonic()
                try:
                    call()
                    print(f"ok   {name} ({time.monotonic() - began:.1f} s)")
                except Exception as error:  # each check is told
                    failed += 1
                    import traceback
                    traceback.print_exc()
                    print(f"FAIL {name}: {error!r}")
    print(f"{len(jobs) - failed} of {len(jobs)} checks passed")
    return 1 if failed else 0


def with_database(binary, folder):
    place = pathlib.Path(folder, "postgres")
    place.mkdir()
    postgres = Postgres(place)
    if postgres.programs is None:
        print("    left out: PostgreSQL is not installed")
        return
    postgres.init()
    try:
        if shutil.which("haproxy"):
            balanced(binary, postgres, folder)
        else:
            print("    left out: HAProxy is not installed")
        database(binary, postgres)
        over_tls(binary, postgres, folder)
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
