#!/usr/bin/env python3
"""Libraries that people point at such a server, as they come and with their defaults.

    programs.py [--binary target/debug/sconce] [NAME ...]

Starts the server itself. Needs any of `langchain-anthropic`, `langchain-openai`, `langgraph`,
`pydantic-ai-slim[openai,anthropic]`, `llama-index-llms-openai-like`,
`llama-index-embeddings-openai-like`, `smolagents[openai]`, `dspy`, `outlines`, `guidance`,
`anthropic`, `openai-agents`; what isn't installed is left out and said so. What a toy model says
does not matter: that no request is refused and that the forms are kept does.
"""

import argparse
import importlib.util
import os
import pathlib
import shlex
import sys
from importlib.metadata import version

# Price lists, telemetry and caches are no business of this check.
os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_OFFLINE": "1",
}

import agent_libraries
import typed_libraries
from recorder import Recorder
from sections import Programs
from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _version(package: str) -> str:
    names = {"pydantic-ai": "pydantic-ai-slim", "llama-index": "llama-index-core"}
    return version(names.get(package, package))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# What each is called, what must be importable for it, and its section.
SECTIONS = {
    "langchain-anthropic": ("langchain_anthropic", typed_libraries.langchain_anthropic),
    "pydantic-ai": ("pydantic_ai openai anthropic", typed_libraries.pydantic_ai),
    "llama-index": (
        "llama_index.llms.openai_like llama_index.embeddings.openai_like",
        typed_libraries.llama_index,
    ),
    "dspy": ("dspy", typed_libraries.dspy),
    "outlines": ("outlines openai", typed_libraries.outlines),
    "guidance": ("guidance openai", typed_libraries.guidance),
    "langgraph": ("langgraph.prebuilt langchain_openai", agent_libraries.langgraph),
    "smolagents": ("smolagents openai", agent_libraries.smolagents),
    "anthropic": ("anthropic", agent_libraries.anthropic_tool_runner),
    "openai-agents": ("agents", agent_libraries.openai_agents),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "debug" / "sconce"))
    parser.add_argument("--serve", default="", help="more flags of `sconce serve`")
    parser.add_argument("names", nargs="*", choices=[[], *SECTIONS])
    args = parser.parse_args()
    with (
        checks() as check, Server(args.binary, *shlex.split(args.serve)) as server,
        Recorder(server.url) as recorder,
    ):
        programs = Programs(check, recorder, server.about_model())
        for name in args.names or SECTIONS:
            modules, section = SECTIONS[name]
            missing = [one for one in modules.split() if not _is_installed(one)]
            programs.run(name, missing, section, lambda: _version(name))
        programs.print_table()
        with check("the server wrote no panic into its log"):
            assert "panicked" not in server.log_tail(), server.log_tail()
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
