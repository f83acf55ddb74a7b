// Gets an answer: asks the server, fills the message as the stream comes in, runs the tools that the
// model calls, and asks again with their results. Knows no page: whoever calls it is told of changes.

import { RequestError, streamChat } from "./api.js";
import { toRequest } from "./conversation.js";
import { saveMessage } from "./store.js";

// An answer that grows is stored this often, in milliseconds.
const SAVE_EVERY = 1500;
// A busy server is asked again so many times.
const PATIENCE = 5;
// A model that calls tools for ever is stopped.
const MOST_ROUNDS = 25;

// Fields of a request that a conversation's settings hold as they are.
const PLAIN = [
  "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "max_tokens",
  "seed", "reasoning_effort",
];
const TOP_LOGPROBS = 5;

// The body of a request for what comes after `path`.
export function requestBody({ model, system, settings }, path, tools) {
  const body = { model, messages: toRequest(system, path) };
  for (const name of PLAIN) if (settings[name] !== undefined) body[name] = settings[name];
  if (settings.stop?.length) body.stop = settings.stop;
  if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: TOP_LOGPROBS });
  if (settings.format === "json_object") body.response_format = { type: "json_object" };
  if (settings.format === "json_schema") {
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: settings.schema, strict: true } };
  }
  if (tools.length > 0) body.tools = tools;
  return body;
}

// Answers what stands at the end of the conversation's path.
//
// watcher: changed(message), added(message), saved(error or null), waiting(message, seconds),
//          tools() -> definitions, runTool(message, call, signal) -> { text, images, failed }
export async function answer(conversation, signal, watcher) {
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const path = conversation.path();
    const tools = watcher.tools();
    const body = requestBody(conversation.record, path, tools);
    const message = conversation.append(path.at(-1)?.id ?? null, newAnswer(conversation.record));
    watcher.added(message);
    await fill(message, body, signal, watcher);
    if (!(await runTools(conversation, message, signal, watcher))) return;
  }
}

// Goes on with an answer that was cut off, in the same message.
export async function goOn(conversation, message, signal, watcher) {
  const body = {
    ...requestBody(conversation.record, conversation.path(), watcher.tools()),
    continue_final_message: true, add_generation_prompt: false,
  };
  message.error = undefined;
  message.finish = null;
  await fill(message, body, signal, watcher);
  if (await runTools(conversation, message, signal, watcher)) await answer(conversation, signal, watcher);
}

const newAnswer = ({ model, settings }) => ({
  role: "assistant", model, reasoning: "", toolCalls: [], finish: null, logprobs: settings.logprobs ? [] : undefined,
  format: settings.format,
});

// Whether there were calls, and all of them have results now.
async function runTools(conversation, message, signal, watcher) {
  const calls = message.toolCalls ?? [];
  if (message.error || message.finish === "stopped" || calls.length === 0) return false;
  for (const call of calls) {
    const result = await watcher.runTool(message, call, signal);
    const parent = conversation.path().at(-1).id;
    const added = conversation.append(parent, { role: "tool", call: call.id, name: call.name, ...result });
    watcher.added(added);
    watcher.saved(await stored(added));
    if (signal.aborted) return false;
  }
  return true;
}

async function stored(message) {
  try {
    await saveMessage(message);
    return null;
  } catch (error) {
    return error;
  }
}

// Streams one answer into its message; whatever goes wrong is written there too.
async function fill(message, body, signal, watcher) {
  let saved = performance.now();
  let saving = null;
  const meter = new Meter();
  const changed = () => {
    watcher.changed(message);
    if (performance.now() - saved < SAVE_EVERY || saving !== null) return;
    saved = performance.now();
    saving = stored(message).then((error) => {
      saving = null;
      watcher.saved(error);
    });
  };
  try {
    await withPatience(message, body, signal, watcher, (chunk) => {
      take(message, chunk, meter);
      changed();
    });
    if (message.finish === null) throw new RequestError("cut", "The answer ended without a reason.");
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.error = { kind: error.kind ?? "server", message: error.message };
  }
  message.stats = meter.stats();
  await saving;
  watcher.changed(message);
  watcher.saved(await stored(message));
}

// Waits as long as a busy server says, and asks again.
async function withPatience(message, body, signal, watcher, onChunk) {
  for (let tries = 1; ; tries += 1) {
    try {
      for await (const chunk of streamChat(body, signal)) onChunk(chunk);
      return;
    } catch (error) {
      if (error.kind !== "busy" || tries > PATIENCE) throw error;
      message.error = { kind: "busy", message: error.message };
      for (let left = error.wait; left > 0; left -= 1) {
        watcher.waiting(message, left);
        await pause(1000, signal);
      }
      message.error = undefined;
      watcher.changed(message);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    }, { once: true });
  });
}

// Adds what a chunk says.
function take(message, chunk, meter) {
  meter.saw(chunk);
  const choice = chunk.choices?.[0];
  if (choice === undefined) return;
  const { delta = {} } = choice;
  const reasoning = delta.reasoning ?? delta.reasoning_content;
  if (delta.content || reasoning || delta.tool_calls?.length) meter.token();
  if (reasoning) message.reasoning += reasoning;
  if (delta.content) message.text += delta.content;
  for (const piece of delta.tool_calls ?? []) {
    const call = (message.toolCalls[piece.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= piece.id ?? "";
    call.name ||= piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }
  for (const { token, logprob, top_logprobs: top = [] } of choice.logprobs?.content ?? []) {
    message.logprobs?.push([token, logprob, top.map((other) => [other.token, other.logprob])]);
  }
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

// Times as this page saw them, and what the server says of tokens.
class Meter {
  constructor() {
    this.began = performance.now();
    this.usage = null;
    this.timings = null;
    this.first = null;
    this.last = null;
  }

  token() {
    this.last = performance.now();
    this.first ??= this.last;
  }

  saw({ usage, timings }) {
    this.usage = usage ?? this.usage;
    this.timings = timings ?? this.timings;
  }

  stats() {
    const { usage, timings } = this;
    const seconds = (this.last - this.first) / 1000;
    const tokens = usage?.completion_tokens;
    const measured = tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : undefined;
    return {
      firstToken: this.first === null ? undefined : this.first - this.began,
      rate: timings?.tokens_per_second || measured,
      tokens,
      prompt: usage?.prompt_tokens,
      cached: usage?.prompt_tokens_details?.cached_tokens,
      reasoning: usage?.completion_tokens_details?.reasoning_tokens,
    };
  }
}
