#!/usr/bin/env python3
"""Spans of requests, read by OpenTelemetry's own protobuf types, exemplars by Prometheus' own reader, and log
lines as JSON.

    traces.py [--binary target/debug/sconce]

Needs `opentelemetry-proto` and `prometheus-client`.
"""

import argparse
import http.server
import json
import pathlib
import sys
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from serving import Server, checks, wait_until

SECRET = "a-text-that-nobody-should-read"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.ThreadingHTTPServer):
    """Takes spans over OTLP with HTTP and protobuf."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans, self.services = [], set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def named(self, name: str, trace: str | None = None) -> list:
        return [span for span in self.spans
                if span.name == name and trace in (None, span.trace_id.hex())]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces", self.path
        assert self.headers["content-type"] == "application/x-protobuf", self.headers
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            facts = attributes(resource.resource)
            self.server.services.add(facts["service.name"])
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def attributes(of) -> dict:
    kind = lambda value: getattr(value, value.WhichOneof("value"))
    return {one.key: kind(one.value) for one in of.attributes}


def log(server: Server) -> list[dict]:
    server.log.seek(0)
    lines = [line for line in server.log.read().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def ask(server: Server, path: str, body: dict, **headers):
    return server.request(
        "POST", path, json.dumps(body).encode(),
        {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()},
    )


def spans(binary: str):
    collector = Collector()
    flags = ["--otlp-endpoint", f"http://127.0.0.1:{collector.server_port}", "--log-format", "json"]
    with Server(binary, *flags) as server:
        body = {"model": "sconce-demo", "prompt": SECRET, "max_tokens": 7, "ignore_eos": True}
        context = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        status, headers, answer = ask(server, "/v1/completions", body, **context)
        assert status == 200, answer
        assert headers["traceresponse"].startswith(f"00-{TRACE}-"), headers["traceresponse"]
        place = headers["traceresponse"].split("-")[2]
        chat = {"model": "sconce-demo", "max_tokens": 3, "stream": True,
                "messages": [{"role": "user", "content": "x"}]}
        status, headers, _ = ask(server, "/v1/chat/completions", chat)
        own = headers["traceresponse"].split("-")[1]
        assert status == 200 and own != TRACE
        assert ask(server, "/v1/completions", body, traceparent=f"00-{TRACE[::-1]}-{PARENT}-00")[0] == 200
        assert ask(server, "/v1/completions", body | {"max_tokens": -1})[0] == 400
        assert server.stop() == 0
    root = collector.named("POST /v1/completions", TRACE)
    assert len(root) == 1, [span.name for span in collector.spans]
    root = root[0]
    assert (root.parent_span_id.hex(), root.span_id.hex()) == (PARENT, place)
    assert root.kind == root.SPAN_KIND_SERVER
    facts = attributes(root)
    assert facts["http.response.status_code"] == 200 and facts["http.route"] == "/v1/completions"
    parts = {name: collector.named(name, TRACE) for name in ["queue", "render", "prefill", "decode"]}
    assert all(len(found) == 1 for found in parts.values()), parts
    for name, (part,) in parts.items():
        assert part.parent_span_id == root.span_id, name
        assert root.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano
        assert part.end_time_unix_nano <= root.end_time_unix_nano, name
    order = [parts[name][0] for name in ["render", "queue", "prefill", "decode"]]
    starts = [part.start_time_unix_nano for part in order]
    assert starts == sorted(starts), starts
    usage = json.loads(answer)["usage"]
    assert attributes(order[2])["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert attributes(order[3])["gen_ai.usage.output_tokens"] == 7
    stream = collector.named("decode", own)
    assert len(stream) == 1 and attributes(stream[0])["gen_ai.usage.output_tokens"] == 3
    assert not collector.named("decode", TRACE[::-1]), "whoever asked does not sample it"
    assert collector.services == {"sconce"}
    assert SECRET.encode() not in b"".join(span.SerializeToString() for span in collector.spans)


def exemplars(binary: str):
    """Buckets of times lead to traces that the collector has, in a text that OpenMetrics' strict reader takes."""
    collector = Collector()
    with Server(binary, "--otlp-endpoint", f"http://127.0.0.1:{collector.server_port}") as server:
        body = {"model": "sconce-demo", "prompt": "x", "max_tokens": 3, "ignore_eos": True}
        for sampled in ["00", "01"]:
            trace = TRACE if sampled == "01" else TRACE[::-1]
            assert ask(server, "/v1/completions", body, traceparent=f"00-{trace}-{PARENT}-{sampled}")[0] == 200
        # As Prometheus asks.
        accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        status, headers, text = server.request("GET", "/metrics", headers={"accept": accept})
        assert status == 200 and headers["content-type"].startswith("application/openmetrics-text"), headers
        families = {family.name: family for family in openmetrics(text.decode())}
        for name in ["time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time"]:
            samples = families[f"vllm:{name}_seconds"].samples
            told = [sample.exemplar for sample in samples if sample.exemplar]
            assert [one.labels for one in told] == [{"trace_id": TRACE}], (name, told)
            bounds = [float(sample.labels["le"]) for sample in samples if sample.exemplar]
            assert 0 <= told[0].value <= bounds[0] and float(told[0].timestamp) > 1.7e9, told
        assert families["vllm:prompt_tokens"].type == "counter"
        status, headers, text = server.request("GET", "/metrics")
        assert status == 200 and headers["content-type"].startswith("text/plain"), headers
        plain = {family.name for family in prometheus(text.decode())}
        assert plain == set(families), plain ^ set(families)
        assert server.stop() == 0
    assert collector.named("POST /v1/completions", TRACE)


def lines(binary: str):
    flags = ["--log-format", "json", "--slow-request-ms", "1", "--api-key", "k"]
    with Server(binary, *flags) as server:
        body = {"model": "sconce-demo", "prompt": SECRET, "max_tokens": 5, "ignore_eos": True}
        key = {"authorization": "Bearer k"}
        status, headers, _ = ask(server, "/v1/completions", body, x_request_id="own-id", **key)
        assert status == 200 and headers["x-request-id"] == "own-id"
        assert headers["traceresponse"] is None
        slow = lambda: [line for line in log(server) if line["fields"]["message"] == "a slow request"]
        wait_until(slow, 30, "a slow request is told")
        told = slow()[0]
        assert told["span"]["request_id"] == "own-id", told
        fields = told["fields"]
        assert (fields["key"], fields["model"], fields["output_tokens"]) == ("api-key-1", "sconce-demo", 5)
        assert told["level"] == "WARN" and fields["prompt_tokens"] > 3
        assert SECRET not in json.dumps(log(server))
    with Server(binary, "--log-format", "json", "--log-requests") as server:
        assert ask(server, "/v1/completions", body, x_request_id="mine")[0] == 200
        wait_until(lambda: SECRET in json.dumps(log(server)), 30, "bodies are told where asked for")
        told = [line for line in log(server) if line["fields"]["message"] == "a request"]
        assert told[0]["span"]["request_id"] == "mine" and told[0]["fields"]["left_out_bytes"] == 0


def nobody_listens(binary: str):
    with Server(binary, "--otlp-endpoint", "http://127.0.0.1:9") as server:
        body = {"model": "sconce-demo", "prompt": "x", "max_tokens": 2}
        assert [ask(server, "/v1/completions", body)[0] for _ in range(5)] == [200] * 5
        assert server.stop() == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/sconce")
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    with checks() as check:
        for work in [spans, exemplars, lines, nobody_listens]:
            with check(work.__name__):
                work(binary)
        return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
