// Requests to the server that this page came from, and what can go wrong with them.

import { button, h, openDialog } from "./dom.js";
import { apiKey, setApiKey } from "./prefs.js";

// Why a request was not answered. `kind` is one of: offline, key, busy, context, refused, server, cut.
export class RequestError extends Error {
  constructor(kind, message, more = {}) {
    super(message);
    this.kind = kind;
    Object.assign(this, more);
  }
}

// Fetches from this server; asks for a key and tries again where one is needed.
export async function call(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const key = apiKey();
    const headers = {};
    if (key !== null) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    let response;
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      response = await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new RequestError("offline", "The server can't be reached.");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await failure(response);
    const error = await failure(response);
    // Another request may have asked for the key meanwhile.
    if (apiKey() === key && !(await askForKey(error.message, key !== null))) throw error;
  }
}

export const callJson = async (path, options) => (await call(path, options)).json();

async function failure(response) {
  const text = await response.text().catch(() => "");
  let said = {};
  try {
    said = JSON.parse(text).error ?? {};
  } catch {
    // A proxy's page, say.
  }
  const message = said.message ?? `The server answered ${response.status} ${response.statusText}.`;
  const more = { status: response.status, code: said.code, param: said.param };
  const wait = Number(response.headers.get("retry-after"));
  if (response.status === 401) return new RequestError("key", message, more);
  if (response.status === 429 || response.status === 503) {
    return new RequestError("busy", message, { ...more, wait: wait > 0 ? wait : 5 });
  }
  if (said.code === "context_length_exceeded") return new RequestError("context", message, more);
  return new RequestError(response.status < 500 ? "refused" : "server", message, more);
}

let asking = null;

// One dialog at a time, however many requests need the key.
function askForKey(message, wasWrong) {
  asking ??= keyDialog(message, wasWrong).finally(() => {
    asking = null;
  });
  return asking;
}

function keyDialog(message, wasWrong) {
  return openDialog("This server needs an API key", (close) => {
    const input = h("input", {
      type: "password", id: "api-key", autocomplete: "off", spellcheck: "false", required: true, autofocus: true,
      "aria-describedby": "api-key-why",
    });
    const keep = h("input", { type: "checkbox", id: "api-key-keep" });
    const submit = (event) => {
      event.preventDefault();
      const key = input.value.trim();
      // Other characters can't be sent in a header.
      if (!/^[\x21-\x7e]+$/.test(key)) {
        input.setCustomValidity("A key is made of letters, digits and signs, without spaces.");
        input.reportValidity();
        return;
      }
      setApiKey(key, keep.checked);
      close(true);
    };
    return h("form", { class: "dialog-body", onsubmit: submit },
      h("p", { id: "api-key-why" }, wasWrong ? `The key was refused: ${message}.` : "Nothing is sent without it."),
      h("label", { for: "api-key" }, "API key"), input,
      h("label", { class: "check" }, keep, "Keep it in this browser; otherwise until the tab closes"),
      h("div", { class: "dialog-actions" },
        button("Not now", () => close(false)),
        h("button", { type: "submit", class: "button primary" }, "Use this key")));
  });
}

// The data of server-sent events, as they come in.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      // Every event of this server has its data in one line.
      for (const line of lines) {
        if (line.startsWith("data:")) yield line.slice(5).trim();
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Streams a chat completion: parsed chunks, in order. Ends early with an error of the kind "cut".
export async function* streamChat(body, signal) {
  const asked = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await call("/v1/chat/completions", { method: "POST", body: asked, signal });
  let isDone = false;
  try {
    for await (const data of events(response)) {
      isDone = data === "[DONE]";
      if (isDone) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new RequestError("server", chunk.error.message ?? "The server reported an error.");
      yield chunk;
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof RequestError) throw error;
  }
  if (isDone) return;
  if (signal?.aborted) throw new DOMException("stopped", "AbortError");
  throw new RequestError("cut", "The connection to the server was lost in the middle of this answer.");
}
