#!/usr/bin/env python3
"""What a transcription costs the streams beside it.

    speech.py WORK [--sconce target/release/sconce] [--model MODEL] [--size base] [--streams 16] [--rounds 3]

Makes a Whisper of a real one's shape with random weights in the folder WORK (`--speech` takes a folder with a
real one instead), and two minutes of speech by espeak-ng. Sixteen chats stream, alone and then while files are
transcribed one after the other, in turn for several rounds; then a file is transcribed alone. Printed are the
ratios of the longest gap, of the gaps' 99th percentile and of tokens per second, and how fast sound is
transcribed, beside chats and alone. Only ratios within one run mean something. Needs transformers and torch for
the weights, and espeak-ng for the sound.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import threading
import time
import urllib.error
import urllib.request
import wave

SHAPES = {  # d_model, layers, heads
    "tiny": (384, 4, 6),
    "base": (512, 6, 8),
    "small": (768, 12, 12),
}
BOUNDARY = "sound-of-a-benchmark"


def make_weights(folder: pathlib.Path, size: str, tokenizer: pathlib.Path):
    import shutil

    import torch
    import transformers
    width, layers, heads = SHAPES[size]
    names = json.loads((tokenizer / "generation_config.json").read_text())
    # The fixture's tokenizer, whose times are those of two seconds, with windows of thirty.
    vocabulary = names["no_timestamps_token_id"] + 1502
    config = transformers.WhisperConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, decoder_start_token_id=names["decoder_start_token_id"],
        eos_token_id=names["eos_token_id"], bos_token_id=names["eos_token_id"],
        pad_token_id=names["eos_token_id"], suppress_tokens=None, begin_suppress_tokens=None)
    torch.manual_seed(1)
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)
    names.pop("alignment_heads")
    (folder / "generation_config.json").write_text(json.dumps(names))
    for name in ["tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"]:
        shutil.copy(tokenizer / name, folder / name)


def make_sound(path: pathlib.Path, seconds: int) -> bytes:
    text = "The quick brown fox jumps over the lazy dog, and nobody knows why it should. " * 60
    subprocess.run(["espeak-ng", "-w", path, text], check=True)
    with wave.open(str(path)) as file:
        frames = file.readframes(file.getframerate() * seconds)
        parameters = file.getparams()
    with wave.open(str(path), "wb") as file:
        file.setparams(parameters)
        file.writeframes(frames)
    return path.read_bytes()


class Server:
    def __init__(self, options, speech):
        self.url = f"http://127.0.0.1:{options.port}"
        command = [options.sconce, "serve", "--port", str(options.port), "--speech-model", speech,
                   "--served-speech-model-name", "whisper"]
        command += ["--model", options.model] if options.model else []
        # Nothing is kept in the user's own store.
        env = os.environ | {"SCONCE_STORE": "memory"}
        command = [str(part) for part in command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"{self.url}/v1/models", timeout=5) as answer:
                    self.model = json.load(answer)["data"][0]["id"]
                    break
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        else:
            raise SystemExit("the server is not ready")

    def close(self):
        self.process.terminate()
        self.process.wait()

    def transcribe(self, sound: bytes) -> float:
        """Seconds that it took."""
        head = "".join(
            f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n{value}'
            for name, more, value in [("model", "", "whisper\r\n"), ("file", '; filename="a.wav"', "")])
        body = head.encode() + sound + f"\r\n--{BOUNDARY}--\r\n".encode()
        request = urllib.request.Request(
            f"{self.url}/v1/audio/transcriptions", data=body,
            headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"})
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=3600) as answer:
            json.load(answer)
        return time.monotonic() - began

    def chat(self, at: int, tokens: int) -> list[float]:
        """When each part of an answer came."""
        body = {"model": self.model, "stream": True, "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
                "messages": [{"role": "user", "content": f"Tell story number {at}."}]}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data=json.dumps(body).encode(),
                                         headers={"content-type": "application/json"})
        times = []
        with urllib.request.urlopen(request, timeout=3600) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    times.append(time.monotonic())
        return times


def streams(server: Server, count: int, tokens: int) -> dict:
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        times = list(pool.map(lambda at: server.chat(at, tokens), range(count)))
    took = time.monotonic() - began
    gaps = sorted(after - before for one in times for before, after in zip(one, one[1:]))
    return {"longest": gaps[-1], "p99": gaps[int(len(gaps) * 0.99)], "rate": sum(map(len, times)) / took}


def beside(server: Server, sound: bytes, work):
    """What `work` returns while files are transcribed, and how many were."""
    stop, done = threading.Event(), []

    def transcribe():
        while not stop.is_set():
            done.append(server.transcribe(sound))

    thread = threading.Thread(target=transcribe)
    thread.start()
    time.sleep(0.5)
    result = work()
    stop.set()
    thread.join()
    return result, done


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--sconce", default="target/release/sconce")
    parser.add_argument("--model", help="what chats [default: the demo model]")
    parser.add_argument("--speech", type=pathlib.Path, help="a real Whisper")
    parser.add_argument("--size", choices=SHAPES, default="base")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--port", type=int, default=23050)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    speech = options.speech or options.work / options.size
    if not speech.exists():
        tiny = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/speech/tiny"
        make_weights(speech, options.size, tiny)
    sound = make_sound(options.work / "sound.wav", options.seconds)
    server = Server(options, speech)
    try:
        streams(server, options.streams, 16)
        alone, with_speech, took = [], [], []
        for _ in range(options.rounds):
            alone.append(streams(server, options.streams, options.tokens))
            result, done = beside(server, sound, lambda: streams(server, options.streams, options.tokens))
            with_speech.append(result)
            took += done
        undisturbed = server.transcribe(sound)
    finally:
        server.close()
    middle = lambda results, key: statistics.median(result[key] for result in results)
    for key, what in [("longest", "longest gap"), ("p99", "gap, p99"), ("rate", "tokens per second")]:
        with_, without = middle(with_speech, key), middle(alone, key)
        print(f"{what}: {with_:.4g} with a transcription, {without:.4g} without: {with_ / without:.2f}")
    print(f"sound per second: {options.seconds / undisturbed:.2f} alone, "
          f"{options.seconds / statistics.median(took):.2f} where some of it ran beside {options.streams} chats")


if __name__ == "__main__":
    main()
