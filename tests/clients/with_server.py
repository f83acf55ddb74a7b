#!/usr/bin/env python3
"""Runs a command beside a server with the demo model; the server's address is its last argument.

    with_server.py --binary target/debug/sconce [--serve FLAGS] [--in FOLDER] COMMAND...
"""

import argparse
import shlex
import subprocess
import sys

from serving import Server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--serve", default="", help="more flags of `sconce serve`")
    parser.add_argument("--in", dest="folder")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with Server(options.binary, *shlex.split(options.serve)) as server:
        return subprocess.call([*options.command, server.url], cwd=options.folder)


if __name__ == "__main__":
    sys.exit(main())
