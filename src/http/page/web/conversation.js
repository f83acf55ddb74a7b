// A conversation as a tree: every message knows the one before it, so editing or asking again makes a
// branch beside the old one and nothing is lost. Knows no page.
//
// message: { id, conversation, parent, role, text, created }, and
//   user:      attachments: [{ kind: "image" | "text", name, data }]
//   assistant: model, reasoning, toolCalls: [{ id, name, arguments }], finish, stats, logprobs, error, format
//   tool:      call (id of the tool call), name, images, failed

import { newId } from "./store.js";

export class Conversation {
  constructor(record, messages) {
    this.record = record;
    this.messages = new Map(messages.map((message) => [message.id, message]));
  }

  static create(model, settings, system) {
    const now = Date.now();
    return new Conversation({
      id: newId(), title: "", created: now, updated: now, model, system, settings: structuredClone(settings), leaf: null,
    }, []);
  }

  get id() {
    return this.record.id;
  }

  // From the first message to the leaf.
  path() {
    const path = [];
    let at = this.messages.get(this.record.leaf);
    while (at !== undefined) {
      path.unshift(at);
      at = this.messages.get(at.parent);
    }
    return path;
  }

  // Adds a message behind `parent` and makes it the leaf.
  append(parent, fields) {
    const message = { id: newId(), conversation: this.id, parent, created: Date.now(), text: "", ...fields };
    this.messages.set(message.id, message);
    this.record.leaf = message.id;
    this.record.updated = message.created;
    if (this.record.title === "" && message.role === "user") this.record.title = titleOf(message);
    return message;
  }

  // The message and what stands in its place on other branches, the oldest first.
  siblings(message) {
    const all = [...this.messages.values()].filter((other) => other.parent === message.parent);
    return all.sort((a, b) => a.created - b.created);
  }

  // Shows the branch of this message, down to what was said last on it.
  select(message) {
    let leaf = message;
    for (;;) {
      const children = [...this.messages.values()].filter((other) => other.parent === leaf.id);
      if (children.length === 0) break;
      leaf = children.reduce((newest, child) => (child.created >= newest.created ? child : newest));
    }
    this.record.leaf = leaf.id;
  }
}

function titleOf(message) {
  const text = message.text.trim().split("\n")[0] || message.attachments?.[0]?.name || "Conversation";
  return text.length > 60 ? `${text.slice(0, 59).trimEnd()}…` : text;
}

// Messages as the API wants them.
export function toRequest(system, path) {
  const said = path.filter((message) => !isVoid(message));
  const messages = said.flatMap((message, at) => [toRequestMessage(message), ...missingResults(message, said.slice(at + 1))]);
  return system.trim() === "" ? messages : [{ role: "system", content: system }, ...messages];
}

// An answer that failed before its first word is shown, but was never said.
function isVoid(message) {
  return message.role === "assistant" && message.text === "" && !message.toolCalls?.length;
}

// Templates want a result for each call; the user may have stopped before there was one.
function missingResults(message, later) {
  const open = (message.toolCalls ?? []).filter((call) => !later.some((other) => other.call === call.id));
  return open.map((call) => ({ role: "tool", tool_call_id: call.id, content: "The user did not run this call." }));
}

function toRequestMessage(message) {
  switch (message.role) {
    case "user":
      return { role: "user", content: userContent(message) };
    case "tool":
      return { role: "tool", tool_call_id: message.call, content: message.text };
    default: {
      const calls = (message.toolCalls ?? []).map((call) => ({
        id: call.id, type: "function", function: { name: call.name, arguments: call.arguments || "{}" },
      }));
      const content = message.text === "" && calls.length > 0 ? null : message.text;
      if (calls.length === 0) return { role: "assistant", content };
      // What led to a call is of use until the call has been answered.
      return { role: "assistant", content, ...(message.reasoning && { reasoning: message.reasoning }), tool_calls: calls };
    }
  }
}

// Files are put before the question as text; with pictures the content becomes a list of parts.
function userContent({ text, attachments = [] }) {
  const files = attachments.filter((one) => one.kind === "text");
  const pictures = attachments.filter((one) => one.kind === "image");
  const whole = [...files.map((file) => `File ${file.name}:\n${fenced(file.data)}`), text].filter(Boolean).join("\n\n");
  if (pictures.length === 0) return whole;
  const parts = pictures.map((picture) => ({ type: "image_url", image_url: { url: picture.data } }));
  return whole === "" ? parts : [...parts, { type: "text", text: whole }];
}

// A fence that is longer than any in the text.
function fenced(text) {
  const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((fence) => fence.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

const FORMAT = "sconce-conversations";

// The file that `parseExport` reads.
export function toExport(conversations) {
  return JSON.stringify({
    format: FORMAT, version: 1, exported: new Date().toISOString(),
    conversations: conversations.map(({ record, messages }) => ({ ...record, messages: [...messages.values()] })),
  }, null, 1);
}

// Conversations of an exported file; an error says what is wrong with it.
export function parseExport(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`The file is not JSON: ${error.message}`);
  }
  if (file?.format !== FORMAT) throw new Error(`The file is no export of conversations: its "format" is not "${FORMAT}".`);
  if (file.version !== 1) throw new Error(`The file's version is ${JSON.stringify(file.version)}; this page reads version 1.`);
  if (!Array.isArray(file.conversations)) throw new Error('The file has no list "conversations".');
  return file.conversations.map(checkedConversation);
}

const ROLES = ["user", "assistant", "tool"];

function checkedConversation({ messages, ...record } = {}, index) {
  const where = `conversations[${index}]`;
  if (typeof record.id !== "string" || typeof record.title !== "string" || !Array.isArray(messages)) {
    throw new Error(`${where} lacks an id, a title or messages.`);
  }
  messages.forEach((message, at) => {
    if (typeof message?.id !== "string" || typeof message.text !== "string" || !ROLES.includes(message.role)) {
      throw new Error(`${where}.messages[${at}] lacks an id, a text or a role of ${ROLES.join(", ")}.`);
    }
    for (const { kind, data } of [...(message.attachments ?? []), ...(message.images ?? [])]) {
      if (kind !== "text" && !isPicture(data)) throw new Error(`${where}.messages[${at}] has a picture that is none.`);
    }
  });
  const now = Date.now();
  const whole = { created: now, updated: now, model: "", system: "", settings: {}, leaf: null, ...record };
  return new Conversation(whole, messages.map((message) => ({ ...message, conversation: record.id })));
}

export const isPicture = (data) => typeof data === "string" && /^data:image\/[\w.+-]+;base64,[A-Za-z0-9+/=]*$/.test(data);

// The same conversation under new ids.
export function copyOf({ record, messages }) {
  const ids = new Map([...messages.keys()].map((id) => [id, newId()]));
  const own = { ...record, id: newId(), leaf: ids.get(record.leaf) ?? null };
  return new Conversation(own, [...messages.values()].map((message) => ({
    ...message, id: ids.get(message.id), parent: ids.get(message.parent) ?? null, conversation: own.id,
  })));
}

// For people and other programs: what is on the branch that is shown.
export function toMarkdown(conversation) {
  const names = { user: "You", assistant: "Assistant", tool: "Tool" };
  const parts = conversation.path().map((message) => `## ${names[message.role]}\n\n${message.text}`);
  return `# ${conversation.record.title}\n\n${parts.join("\n\n")}\n`;
}
