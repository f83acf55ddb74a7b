#!/usr/bin/env python3
"""What NVIDIA's assembler makes of every kernel: registers, spilled bytes, blocks that an SM holds.

    source target/cuda/env            # made by docker/cuda-toolkit.sh
    tests/cuda/ptxas.py               compares with ptxas.txt beside this file
    tests/cuda/ptxas.py --update      writes it: review what changed

The table is exact for the compiler that docker/cuda-toolkit.sh installs. Blocks are those that registers,
threads and static shared memory leave room for; dynamic shared memory is up to a launch. A kernel without
__launch_bounds__ is launched with 256 threads at most.
"""

import argparse
import concurrent.futures
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "src/kernels"
TABLE = pathlib.Path(__file__).with_name("ptxas.txt")
# Of an SM: threads, blocks, bytes of shared memory. Of each a block takes 1 KiB of the last; all have
# 65,536 registers, which warps take in units of 256. (CUDA C++ Programming Guide, compute capabilities.)
SMS = {80: (2048, 32, 164 << 10), 89: (1536, 24, 100 << 10), 90: (2048, 32, 228 << 10),
       100: (2048, 32, 228 << 10)}
REGISTERS, UNIT, RESERVED = 65536, 256, 1 << 10


def compiled(source, capability):
    """(kernel, registers, spilled bytes, static shared memory, most threads) of a source's kernels."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["nvcc", "-cubin", "-std=c++17", "-O3", f"-arch=sm_{capability}", "-Xptxas", "-v",
             "--keep", "--keep-dir", folder, "-o", f"{folder}/code.cubin", str(source)],
            capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{source} for sm_{capability}:\n{done.stderr}")
        others = [line for line in done.stderr.splitlines() if re.search(r"warning|error", line)]
        if others:
            sys.exit(f"{source} for sm_{capability}:\n" + "\n".join(others))
        ptx = next(pathlib.Path(folder).glob("*.ptx")).read_text()
    threads = dict(re.findall(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", ptx))
    pieces = re.split(r"Compiling entry function '(\w+)'", done.stderr)
    for kernel, text in zip(pieces[1::2], pieces[2::2]):
        if "layout_of_" in kernel:
            continue
        registers = int(re.search(r"Used (\d+) registers", text)[1])
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", text)))
        shared = re.search(r"(\d+) bytes smem", text)
        yield kernel, registers, spilled, int(shared[1]) if shared else 0, \
            int(threads.get(kernel, 256))


def blocks(capability, registers, shared, threads):
    """Blocks that an SM holds at once."""
    most_threads, most, memory = SMS[capability]
    warps = -(-threads // 32)
    of_a_warp = -(-registers * 32 // UNIT) * UNIT
    return min(most, most_threads // (warps * 32), REGISTERS // (of_a_warp * warps),
               memory // (shared + RESERVED))


def table():
    sources = sorted(KERNELS.rglob("*.cu"), key=lambda path: -path.stat().st_size)
    jobs = [(source, capability) for source in sources for capability in SMS]
    cells, static = {}, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda job: list(compiled(*job)), jobs)
        for (source, capability), kernels in zip(jobs, results):
            for kernel, registers, spilled, shared, threads in kernels:
                fit = blocks(capability, registers, shared, threads)
                cells[kernel, capability] = f"{registers} {spilled} {fit}"
                static[kernel] = (threads, shared)
    yield "# kernel, threads, static shared memory | registers, spilled bytes, blocks of an SM: " + \
        " | ".join(f"sm_{capability}" for capability in SMS)
    for kernel, (threads, shared) in sorted(static.items()):
        columns = " | ".join(f"{cells[kernel, capability]:<9}" for capability in SMS)
        yield f"{kernel:<32} {threads:>4} {shared:>5} | {columns}".rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true")
    ours = "".join(f"{line}\n" for line in table())
    if parser.parse_args().update:
        TABLE.write_text(ours)
        return
    recorded = TABLE.read_text()
    changes = difflib.unified_diff(recorded.splitlines(), ours.splitlines(), "recorded", "compiled",
                                   lineterm="", n=0)
    changes = list(changes)
    if changes:
        sys.exit("\n".join(changes) + f"\nif that is wanted: {sys.argv[0]} --update")
    print(f"{len(ours.splitlines()) - 1} kernels for {len(SMS)} generations are as recorded")


if __name__ == "__main__":
    main()
