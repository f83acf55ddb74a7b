#!/usr/bin/env python3
"""A long prompt sent three times, and gone on after a restart: seconds to the first token.

    resent.py [--sconce target/release/sconce] [--model MODEL] [--tokens 20000] [--kv-disk FOLDER]

Printed are the seconds, the tokens that came from the cache and whether the first token's log-probability is
that of the first sending, to the last digit. With --kv-disk the server is started anew, and then what it
knows comes from that folder: the prompt with more text behind it is sent, and the prompt again. Standard library
only.
"""

import time

from served import parser, server, text, timed


def send(url, model, prompt):
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1}
    seconds, answer = timed(f"{url}/v1/completions", body)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    logprob = answer["choices"][0]["logprobs"]["token_logprobs"][0]
    return seconds, cached, answer["usage"]["prompt_tokens"], logprob


def main():
    arguments = parser(__doc__, 18439)
    arguments.add_argument("--tokens", type=int, default=20_000)
    arguments.add_argument("--kv-disk", help="a folder that keeps blocks")
    options = arguments.parse_args()
    flags = ["--kv-disk", options.kv_disk] if options.kv_disk else []
    sent = []
    with server(options, *flags) as (url, model):
        prompt = text(url, model, options.tokens, 1)
        sent += [("sent", *send(url, model, prompt)) for _ in range(3)]
        # Blocks are written behind the answer.
        time.sleep(2 if options.kv_disk else 0)
    first = sent[0][-1]
    if options.kv_disk:
        with server(options, *flags) as (url, model):
            sent.append(("gone on after a restart", *send(url, model, f"{prompt} And then?")[:3], None))
            sent.append(("after a restart", *send(url, model, prompt)))
    for how, seconds, cached, tokens, logprob in sent:
        same = {first: ", the same log-probability", None: ""}.get(logprob, ", ANOTHER log-probability")
        print(f"{how}: {seconds:.2f} s, {cached} of {tokens} tokens cached{same}")


if __name__ == "__main__":
    main()
