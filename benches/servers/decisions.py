#!/usr/bin/env python3
"""What many questions about one long input cost, against reading the input once.

    decisions.py [--sconce target/release/sconce] [--model MODEL] [--tokens 8000] [--questions 200]

A prompt of so many tokens is completed by one token, and another one of the same length is asked about by
/v1/decisions, each time with nothing cached, in turn. Printed are the seconds of both, their ratio, and how
many tokens the questions have besides the input. Only ratios within one run mean something. Standard library
only.
"""

import statistics

from served import length, parser, server, text, timed


def main():
    arguments = parser(__doc__, 18438)
    arguments.add_argument("--tokens", type=int, default=8000)
    arguments.add_argument("--questions", type=int, default=200)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    ratios = []
    with server(options) as (url, model):
        for at in range(options.rounds):
            plain, asked = (text(url, model, options.tokens, 2 * at + one) for one in (0, 1))
            once, _ = timed(f"{url}/v1/completions", {"model": model, "prompt": plain, "max_tokens": 1})
            questions = [
                {"type": "predicate", "name": f"q{number}", "instructions": f"Is it {number}?"}
                for number in range(options.questions)
            ]
            body = {"model": model, "input": asked, "questions": questions}
            many, answer = timed(f"{url}/v1/decisions", body)
            shared = length(url, model, asked)
            own = answer["usage"]["input_tokens"] - shared
            ratios.append(many / once)
            print(f"once {once:.2f} s, {options.questions} questions {many:.2f} s: {ratios[-1]:.2f}; "
                  f"{own} tokens besides {shared}", flush=True)
    print(f"median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
