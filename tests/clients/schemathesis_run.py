#!/usr/bin/env python3
"""Requests made from /openapi.json, right ones and wrong ones, against a server with the demo model:
no status and no body that the document doesn't tell, nothing taken that it forbids, and never 500.

    schemathesis_run.py --binary target/debug/sconce [--max-examples N] [SCHEMATHESIS OPTIONS]

Runs in an environment where schemathesis is installed.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from serving import Server

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--max-examples", default="25")
    options, others = parser.parse_known_args()
    hooks = pathlib.Path(__file__).resolve().with_name("schemathesis_hooks.py")
    # It keeps what it found last time where it runs.
    with tempfile.TemporaryDirectory() as folder, Server(options.binary) as server:
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(hooks)}
        program = pathlib.Path(sys.executable).absolute().with_name("schemathesis")
        command = [program, "run", f"{server.url}/openapi.json", "--checks", ",".join(CHECKS)]
        # The same requests every time; another seed may be given behind it.
        command += ["--seed", "1", "--max-examples", options.max_examples]
        command += ["--request-timeout", "60", *others]
        status = subprocess.call(command, env=environment, cwd=folder)
        if status != 0:
            print(server.log_tail())
        return status


if __name__ == "__main__":
    sys.exit(main())
