#!/usr/bin/env python3
"""Makes copies of a bf16 folder in the formats of other software, to serve and compare them.

    formats.py FOLDER OUT [FORMAT ...]

OUT/FORMAT gets FOLDER's files with the projections of its layers quantized: see FORMATS in
tests/fixtures/make_compressed.py, which also says what it needs. compare.py tells how long each
takes until it is ready, and the memory it takes then.
"""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "fixtures"))

from make_compressed import FORMATS  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402


def make(folder, out, name):
    quantize, quantization = FORMATS[name]
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    state = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for key in tensors.keys():
                tensor = tensors.get_tensor(key)
                if not key.endswith("proj.weight"):
                    state[key] = tensor
                    continue
                stem = key.removesuffix("weight")
                parts, _ = quantize(tensor.float())
                state.update({stem + part: value.contiguous() for part, value in parts.items()})
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    source, target = map(pathlib.Path, sys.argv[1:3])
    for name in sys.argv[3:] or FORMATS:
        make(source, target / name, name)
        print(name, flush=True)
