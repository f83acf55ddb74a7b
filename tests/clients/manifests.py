#!/usr/bin/env python3
"""The Helm chart, read by Helm, held against the schemas of the APIs, and run as far as a process can be.

    manifests.py --helm helm --node-modules target/ci-kubernetes/node_modules [--binary target/debug/sconce]
    manifests.py --helm helm --write       writes docker/kubernetes.yaml anew

Schemas of Kubernetes itself are those of `kubernetes-validate` (PyPI), those of KEDA and of the Prometheus
operator those of `cloudcoil-models-*` (PyPI), and that of the Gateway API is in `@kubernetes-models/gateway-api`
(npm). No package has those of the Gateway API Inference Extension and of LeaderWorkerSet: `--crds FOLDER` has
their definitions, and without it only what they have in common with others is checked. Fields that a schema
doesn't know are errors in all.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import jsonschema
import kubernetes_validate
import referencing
import referencing.jsonschema
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import ServiceMonitor

from serving import Server, checks, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "docker" / "chart"
PLAIN = ROOT / "docker" / "kubernetes.yaml"
HEAD = """\
# Two replicas and a Service: what docker/chart comes to with nothing set, for who has no Helm. Apply with
# `kubectl apply -f docker/kubernetes.yaml` after the image is where the cluster can pull it.
# Written by tests/clients/manifests.py --write.
"""
# What people may set together.
VARIANTS = {
    "nothing set": [],
    "keys, a claim, a GPU, a node": [
        "apiKey.secret=keys",
        "hubToken.secret=hub",
        "cache.claim=models",
        "model=org/name",
        "args={--max-num-seqs=32}",
        "resources.limits.nvidia\\.com/gpu=1",
        "nodeSelector.pool=gpu",
        "tolerations[0].key=gpu,tolerations[0].operator=Exists",
        "podLabels.team=text",
        "image.pullSecrets[0].name=registry",
        "cache.sizeLimit=40Gi",
        "disruptions.enabled=false",
    ],
    "scaled by an HPA": ["autoscaling.by=hpa", "monitor.enabled=true", "monitor.labels.release=prometheus"],
    "scaled by KEDA": ["autoscaling.by=keda", "monitor.enabled=true", "apiKey.secret=keys"],
    "behind a gateway": ["route.enabled=true", "route.hostnames={llm.example.com}"],
    "in an inference pool": [
        "inferencePool.enabled=true",
        "route.enabled=true",
        "route.gateway.namespace=gateways",
        "kvEvents.enabled=true",
    ],
    "ranks on three hosts": ["ranks.hosts=3", "ranks.perHost=2", "autoscaling.by=keda", "kvEvents.enabled=true"],
}
# Classes with what a kind may have.
MODELS = {"ScaledObject": ScaledObject, "ServiceMonitor": ServiceMonitor}
# Those have definitions only.
DEFINED = {"InferencePool", "LeaderWorkerSet"}
ROUTE = "gateway.networking.k8s.io/v1", "HTTPRoute"
# Prints the schemas that the class of the route registers, by their names.
DUMP = """
const Module = require("module"), load = Module._load, schemas = {};
const validate = { register: (id, schema) => { schemas[id] = schema }, validate: () => {} };
Module._load = (name, ...rest) => name.endsWith("models/validate") ? validate : load(name, ...rest);
const { HTTPRoute } = require(process.argv[1] + "/@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute");
new HTTPRoute({}).validate();
console.log(JSON.stringify(schemas));
"""


class Helm:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True)

    def rendered(self, *settings) -> str:
        flags = [flag for setting in settings for flag in ("--set", setting)]
        done = self.run("template", "sconce", CHART, "--namespace", "llm", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def documents(self, *settings) -> list[dict]:
        return [document for document in yaml.safe_load_all(self.rendered(*settings)) if document]


def plain(helm: Helm) -> str:
    lines = helm.rendered().replace("managed-by: Helm", "managed-by: kubectl").splitlines(keepends=True)
    return HEAD + "".join(line for line in lines if not line.startswith("# Source:"))


def closed(schema):
    """The schema without room for fields that it doesn't name, as API servers have it for strict clients."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    schema = {key: closed(value) for key, value in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type", "object") == "object"
    if named and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


class Schemas:
    """Of each kind, from wherever it is had."""

    def __init__(self, node_modules, crds):
        self.schemas, self.registry = {}, referencing.Registry()
        if node_modules:
            self._read_models(pathlib.Path(node_modules).resolve())
        for file in sorted(pathlib.Path(crds).glob("*.yaml")) if crds else []:
            for crd in yaml.safe_load_all(file.read_text()):
                self._read_definition(crd["spec"])

    def _read_definition(self, spec):
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            # An API server has a schema of its own for these.
            schema["properties"]["metadata"] = {"type": "object"}
            name = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            self.schemas[name] = schema

    def _read_models(self, node_modules):
        done = subprocess.run(["node", "-e", DUMP, node_modules], capture_output=True, text=True, check=True)
        schemas = {name: closed(schema) for name, schema in json.loads(done.stdout).items()}
        resource = referencing.jsonschema.DRAFT7.create_resource
        self.registry = self.registry.with_resources((name, resource(s)) for name, s in schemas.items())
        self.schemas[ROUTE] = schemas[".".join(ROUTE).replace("/", ".")]

    def validate(self, document) -> bool:
        """Whether there was a schema to hold it against."""
        api, kind = document["apiVersion"], document["kind"]
        if (schema := self.schemas.get((api, kind))) is not None:
            jsonschema.Draft7Validator(schema, registry=self.registry).validate(document)
        elif (model := MODELS.get(kind)) is not None:
            known = model.model_validate(document).model_dump(mode="json", by_alias=True, exclude_unset=True)
            # What the class doesn't know is lost on the way.
            assert known == document, f"{kind}: {known} of {document}"
        elif kind in DEFINED:
            return False
        else:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        return True


def pod_templates(document) -> list[dict]:
    spec = document["spec"]
    if document["kind"] == "LeaderWorkerSet":
        group = spec["leaderWorkerTemplate"]
        return [group["leaderTemplate"], group["workerTemplate"]]
    return [spec["template"]] if document["kind"] == "Deployment" else []


def check_links(documents):
    """Names, labels and ports that one document has of another."""
    by_kind = {document["kind"]: document for document in documents}
    pods = [pod for document in documents for pod in pod_templates(document)]
    labels = pods[0]["metadata"]["labels"]
    container = pods[0]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    service = by_kind["Service"]
    assert service["spec"]["selector"].items() <= labels.items()
    # Ranks that serve nobody must get no requests.
    assert not any(service["spec"]["selector"].items() <= pod["metadata"]["labels"].items() for pod in pods[1:])
    assert all(port["targetPort"] in ports for port in service["spec"]["ports"])
    for kind in ["Deployment", "PodDisruptionBudget", "InferencePool"]:
        if kind in by_kind:
            assert by_kind[kind]["spec"]["selector"]["matchLabels"].items() <= labels.items(), kind
    if pool := by_kind.get("InferencePool"):
        assert pool["spec"]["targetPorts"] == [{"number": ports["http"]}]
    if monitor := by_kind.get("ServiceMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    if route := by_kind.get("HTTPRoute"):
        backend = route["spec"]["rules"][0]["backendRefs"][0]
        target = by_kind[backend.get("kind", "Service")]
        assert backend["name"] == target["metadata"]["name"]
        assert not any(m["path"]["value"] in ("/", "/metrics") for m in route["spec"]["rules"][0]["matches"])
    for kind in ["HorizontalPodAutoscaler", "ScaledObject"]:
        if kind in by_kind:
            target = by_kind[kind]["spec"]["scaleTargetRef"]
            scaled = by_kind[target["kind"]]
            assert (target["apiVersion"], target["name"]) == (scaled["apiVersion"], scaled["metadata"]["name"])
            assert scaled["kind"] == "LeaderWorkerSet" or "replicas" not in scaled["spec"]


def check_pod(pod):
    """What any pod of ours must be."""
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    flags = dict(arg.split("=", 1) for arg in container["args"] if "=" in arg)
    drain = int(flags["--drain-delay"]) + int(flags["--drain-timeout"])
    assert spec["terminationGracePeriodSeconds"] > drain, "SIGKILL comes before the drain ends"
    assert spec["securityContext"]["runAsNonRoot"] and not spec["enableServiceLinks"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"] for volume in spec["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == volumes
    # All that is written goes to a volume.
    places = [e["value"] for e in container["env"] if e["name"] in ("HF_HOME", "XDG_STATE_HOME")]
    assert len(places) == 2 and all(place.startswith(mounts["cache"] + "/") for place in places)


def check_run(check, helm: Helm, binary: str):
    """The Deployment's command, probed and stopped as a kubelet does."""
    pod = helm.documents("drain.delay=2", "drain.timeout=20")
    pod = next(pod_templates(document)[0] for document in pod if document["kind"] == "Deployment")
    container = pod["spec"]["containers"][0]
    own = ("serve", "--host=", "--port=")
    flags = [arg for arg in container["args"] if not arg.startswith(own)]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    with contextlib.ExitStack() as stack:
        with check("a server takes the flags of the Deployment, and its probes are answered"):
            server = stack.enter_context(Server(binary, *flags))
            for name, path in probes.items():
                assert server.request("GET", path)[0] == 200, name
        with check("SIGTERM: not ready but live, still serving, ended within the grace period"):
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.request("GET", probes["readiness"])[0] == 503, 1.5, "not ready")
            assert server.request("GET", probes["liveness"])[0] == 200
            body = {"model": "any", "prompt": "Once", "max_tokens": 4}
            body["model"] = server.model()
            assert server.post("/v1/completions", body)[0] == 200, "a late request is lost"
            grace = pod["spec"]["terminationGracePeriodSeconds"]
            assert server.process.wait(timeout=grace) == 0
            assert time.monotonic() - began >= 2, "it ended before the Service could forget it"


def check_refusals(check, helm: Helm):
    refused = {
        "replicaCount=3": "replicaCount",
        "autoscaling.by=vpa": "/autoscaling/by",
        "port=70000": "/port",
        "drain.timeout=soon": "/drain/timeout",
    }
    for setting, named in refused.items():
        with check(f"--set {setting} is refused by name"):
            done = helm.run("template", "sconce", str(CHART), "--set", setting)
            assert done.returncode != 0 and named in done.stderr, done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--node-modules")
    parser.add_argument("--crds")
    parser.add_argument("--binary")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    helm = Helm(args.helm)
    if args.write:
        PLAIN.write_text(plain(helm))
        return 0
    schemas = Schemas(args.node_modules, args.crds)
    with checks() as check:
        with check("helm lint"):
            done = helm.run("lint", "--strict", str(CHART))
            assert done.returncode == 0, done.stdout + done.stderr
        with check("docker/kubernetes.yaml is the chart with nothing set"):
            assert PLAIN.read_text() == plain(helm), "run manifests.py --write"
        with check("the chart can be packed"), tempfile.TemporaryDirectory() as folder:
            done = helm.run("package", str(CHART), "--destination", folder)
            assert done.returncode == 0, done.stderr
        for name, settings in VARIANTS.items():
            documents = []
            with check(f"{name}: valid"):
                documents = helm.documents(*settings)
                for document in documents:
                    if not schemas.validate(document):
                        print(f"       {document['kind']} has no schema here (--crds)")
            with check(f"{name}: pods and what refers to them"):
                check_links(documents)
                for pod in (pod for document in documents for pod in pod_templates(document)):
                    template = {"metadata": {"name": "pod"}, "template": pod}
                    schemas.validate({"apiVersion": "v1", "kind": "PodTemplate", **template})
                    check_pod(pod)
        with check("an unknown field and a wrong type are errors"):
            for path, value in [(["spec", "replica"], 2), (["spec", "replicas"], "two")]:
                document = next(d for d in helm.documents() if d["kind"] == "Deployment")
                document[path[0]][path[1]] = value
                try:
                    schemas.validate(document)
                except (jsonschema.ValidationError, AssertionError):
                    continue
                raise AssertionError(f"{path} was taken")
            for kind in ["HTTPRoute", "ScaledObject", "ServiceMonitor"]:
                settings = ["route.enabled=true", "autoscaling.by=keda", "monitor.enabled=true"]
                document = next(d for d in helm.documents(*settings) if d["kind"] == kind)
                document["spec"]["nonsense"] = 1
                try:
                    schemas.validate(document)
                except (jsonschema.ValidationError, AssertionError):
                    continue
                raise AssertionError(f"nonsense in {kind} was taken")
        check_refusals(check, helm)
        if args.binary:
            check_run(check, helm, args.binary)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
