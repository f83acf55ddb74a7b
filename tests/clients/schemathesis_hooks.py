"""Keeps generated requests short; see schemathesis_run.py.

What is generated wrong stays wrong: only values of the right type are changed, and only fields are
added that need not be there.
"""

import schemathesis

MOST_TOKENS = 4
MOST_CHOICES = 3
LENGTHS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}


OLLAMA = ("/api/chat", "/api/generate")


def _short_for_ollama(body: dict) -> dict:
    options = body.get("options", {})
    if isinstance(options, dict):
        most = options.get("num_predict", -1)
        if _is_integer(most) and (most > MOST_TOKENS or most in (-1, -2)):
            options = {**options, "num_predict": MOST_TOKENS}
        body = {**body, "options": options}
    return body


def _is_integer(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@schemathesis.hook
def map_body(context, body):
    if context.operation.path in OLLAMA and isinstance(body, dict):
        return _short_for_ollama(body)
    length = LENGTHS.get(context.operation.path)
    if length is None or not isinstance(body, dict):
        return body
    for name in (length, "max_completion_tokens", "n_predict"):
        if _is_integer(body.get(name)) and body[name] > MOST_TOKENS:
            body[name] = MOST_TOKENS
    if body.get("n_predict") == -1:
        # No bound.
        body["n_predict"] = MOST_TOKENS
    if context.operation.path != "/v1/messages":
        body.setdefault(length, MOST_TOKENS)
    for name in ("n", "n_cmpl", "best_of"):
        if _is_integer(body.get(name)) and MOST_CHOICES < body[name] <= 128:
            body[name] = MOST_CHOICES
    if context.operation.path == "/v1/responses":
        # So that there is something to ask for later.
        body.setdefault("store", True)
    return body
