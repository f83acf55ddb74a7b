#!/usr/bin/env python3
"""GGUF files of models that see, beside llama.cpp's own program for them: the same answers, token for token.

    mtmd.py --llama-cpp SOURCES --mtmd llama-mtmd-cli [--binary target/debug/sconce] [MODEL ...]

SOURCES is a source tree of llama.cpp, whose converter makes two f32 files of each tiny checkpoint under
tests/fixtures/pictures; `llama-mtmd-cli` is built of it (`cmake --build BUILD --target llama-mtmd-cli`). Both
programs are asked the same questions about the same picture, greedily. The picture has the size that the model
looks at, so that no resize is compared, only what is made of the pixels. Files of Qwen2.5-VL don't say how large
the tower's windows are, so that a tiny one can't be compared. Needs torch, safetensors and Pillow.
"""

import argparse
import base64
import io
import json
import logging
import pathlib
import subprocess
import sys
import tempfile

from serving import Server, checks

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
# Width and height of the picture that needs no resize.
MODELS = {"qwen2_vl": (48, 24), "qwen3_vl": (48, 24)}
QUESTIONS = ["What do you see?", "Name three colours.", "?"]
TOKENS = 16


def picture(size) -> bytes:
    """Waves of three colours."""
    import numpy
    from PIL import Image
    width, height = size
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [128 + 100 * numpy.sin(x / a) * numpy.cos(y / b) for a, b in [(3, 5), (7, 2), (4, 9)]]
    file = io.BytesIO()
    Image.fromarray(numpy.stack(waves, -1).astype(numpy.uint8)).save(file, "PNG")
    return file.getvalue()


def ours(server, image: bytes, question: str) -> str:
    url = "data:image/png;base64," + base64.b64encode(image).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "temperature": 0,
            "max_tokens": TOKENS, "skip_special_tokens": False}
    status, _, answer = server.request(
        "POST", "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    assert status == 200, answer
    return json.loads(answer)["choices"][0]["message"]["content"]


def theirs(program, files, image: pathlib.Path, question: str) -> str:
    command = [program, "-m", files[0], "--mmproj", files[1], "--image", image, "-p", question, "-n", str(TOKENS),
               "--temp", "0", "--jinja", "-fa", "off", "-t", "1", "--no-warmup", "-c", "512", "-lv", "3"]
    # A thread of its own writes the answer, and the program may end before it: whole ones end with empty lines.
    for _ in range(20):
        run = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr[-2000:]
        if run.stdout.endswith("\n\n"):
            return run.stdout
    raise AssertionError(f"never a whole answer: {run.stdout!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", required=True)
    parser.add_argument("--mtmd", required=True)
    parser.add_argument("--binary", default="target/debug/sconce")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    options = parser.parse_args()
    sys.path.insert(0, str(FIXTURES))
    # The generator of fixtures takes the source tree from the command line.
    sys.argv[1:] = [options.llama_cpp]
    import make_gguf_pictures
    logging.disable(logging.WARNING)
    with checks() as check, tempfile.TemporaryDirectory() as temporary:
        for name in options.models:
            folder = pathlib.Path(temporary) / f"{name}-files"
            folder.mkdir()
            kind = make_gguf_pictures.gguf.LlamaFileType.ALL_F32
            files = [file.rename(folder / file.name)
                     for file in make_gguf_pictures.converted(name, temporary, kind)]
            image = folder / "picture.png"
            image.write_bytes(picture(MODELS[name]))
            flags = ["--model", str(files[0]), "--mmproj", str(files[1]), "--served-model-name", "tiny"]
            with Server(options.binary, *flags) as server:
                for question in QUESTIONS:
                    with check(f"{name}: {question}"):
                        own = ours(server, image.read_bytes(), question)
                        other = theirs(options.mtmd, files, image, question)
                        assert own and own.strip() == other.strip(), (own, other)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
