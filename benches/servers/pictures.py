#!/usr/bin/env python3
"""Pictures per second and the time to the first token behind one: any servers of OpenAI's API, in turns.

    pictures.py make OUT
    pictures.py ask NAME=URL [NAME=URL ...] [--model m] [--pictures 32] [--side 512] [--rounds 3]

`make` writes OUT: a checkpoint with random weights at the shape of SmolVLM-256M (SigLIP of 12 layers and
512 pixels, Llama of 30 layers), with its processor's files and a tokenizer that knows its tokens; needs
torch, transformers, tokenizers and pillow. `ask` asks servers that run it already, for example

    sconce serve --model OUT --served-model-name m --port 8001
    vllm serve OUT --served-model-name m --port 8002 --max-model-len 8192

Every picture is another one, so that no cache knows it: once as one client that waits for each answer of
one token, once as 8 clients. Servers take turns, and the first round warms up and isn't counted. The numbers
of prompt tokens must be equal, or the servers don't look at the same.
"""

import argparse
import base64
import concurrent.futures
import io
import json
import pathlib
import statistics
import sys
import time
import urllib.request

CLIENTS = 8
TILES = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
OWN = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *TILES]
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>' }}"
    "{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endif %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def make(out):
    import torch
    import transformers
    from tokenizers import AddedToken, Tokenizer

    import shapes

    out.mkdir(parents=True, exist_ok=True)
    shapes.train(out / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in OWN])
    tokenizer.save(str(out / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end_of_utterance>",
             "bos_token": "<|im_start|>", "pad_token": "<|im_end|>", "model_max_length": 8192}
    (out / "tokenizer_config.json").write_text(json.dumps(names))
    (out / "chat_template.jinja").write_text(TEMPLATE)
    vision = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
              "num_attention_heads": 12, "image_size": 512, "patch_size": 16}
    text = {"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
            "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
            "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 8192,
            "rope_theta": 100000.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    config = transformers.Idefics3Config(
        text_config=text, vision_config=vision, scale_factor=4, tie_word_embeddings=False,
        image_token_id=tokenizer.token_to_id("<image>"), pad_token_id=2)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.Idefics3ForConditionalGeneration(config)
    model.save_pretrained(out)
    images = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 2048}, max_image_size={"longest_edge": 512})
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(out / "tokenizer.json"), **names)
    processor = transformers.Idefics3Processor(images, fast, image_seq_len=64, chat_template=TEMPLATE)
    processor.save_pretrained(out)
    images.save_pretrained(out)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters")


def picture(index, side):
    """A PNG file that no other index gives."""
    from PIL import Image

    image = Image.linear_gradient("L").resize((side, side)).convert("RGB")
    image.putpixel((index % side, index // side % side), (255, index % 256, 0))
    data = io.BytesIO()
    image.save(data, "png")
    return base64.b64encode(data.getvalue()).decode()


def ask(url, model, data):
    """Seconds until the answer of one token, and the tokens of the prompt."""
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
             {"type": "text", "text": "What is it?"}]
    body = {"model": model, "max_tokens": 1, "temperature": 0,
            "messages": [{"role": "user", "content": parts}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    start = time.monotonic()
    with urllib.request.urlopen(request, timeout=600) as response:
        answer = json.load(response)
    return time.monotonic() - start, answer["usage"]["prompt_tokens"]


def measure(url, options, first):
    files = [picture(first + index, options.side) for index in range(2 * options.pictures)]
    alone, together = files[: options.pictures], files[options.pictures :]
    waits = [ask(url, options.model, data) for data in alone]
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        start = time.monotonic()
        answers = list(pool.map(lambda data: ask(url, options.model, data), together))
        rate = options.pictures / (time.monotonic() - start)
    tokens = {tokens for _, tokens in waits + answers}
    return {"first_token_s": statistics.median(wait for wait, _ in waits),
            "pictures_per_s": rate,
            "prompt_tokens_per_s": rate * max(tokens)}, tokens


def compare(options):
    servers = dict(server.split("=", 1) for server in options.servers)
    results = {name: [] for name in servers}
    tokens = {}
    first = int(time.time()) % 100_000 * 1000
    for turn in range(options.rounds + 1):
        for name, url in servers.items():
            first += 2 * options.pictures
            measured, tokens[name] = measure(url.rstrip("/"), options, first)
            if turn:
                results[name].append(measured)
    if len({frozenset(own) for own in tokens.values()}) > 1:
        print(f"prompts differ: {tokens}", file=sys.stderr)
        return 1
    middle = {name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
              for name, runs in results.items()}
    base = next(iter(middle.values()))
    for name, figures in middle.items():
        ratios = {key: round(base[key] / figures[key], 2) for key in figures}
        print(json.dumps({"server": name, "figures": figures, "first_in_parts_of_this": ratios}))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make").add_argument("out", type=pathlib.Path)
    asking = commands.add_parser("ask")
    asking.add_argument("servers", nargs="+", metavar="NAME=URL")
    asking.add_argument("--model", default="m")
    asking.add_argument("--pictures", type=int, default=32)
    asking.add_argument("--side", type=int, default=512)
    asking.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    return make(options.out) if options.command == "make" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
