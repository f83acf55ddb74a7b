// A client of the Model Context Protocol over its streamable HTTP transport
// (https://modelcontextprotocol.io/specification/2025-06-18/basic/transports): lists a server's tools and
// calls them. The requests are made by a worker that may reach that server and nothing else
// (mcp_worker.js), as this page itself may reach only the server that it came from.

const PROTOCOL = "2025-06-18";
const CALL_SECONDS = 120;
const MOST_PAGES = 50;

// The only scripts that a page under this policy may start from an address.
const policy = globalThis.trustedTypes?.createPolicy("sconce-worker", {
  createScriptURL(url) {
    if (!url.startsWith("/page/mcp_worker.js?origin=")) throw new TypeError(`not a worker of this page: ${url}`);
    return url;
  },
}) ?? { createScriptURL: (url) => url };

export class McpClient {
  // server: { name, url, token }
  constructor(server) {
    this.url = server.url;
    this.token = server.token;
    this.tools = [];
    this.nextId = 1;
    this.pending = new Map();
    const origin = new URL(server.url).origin;
    this.worker = new Worker(policy.createScriptURL(`/page/mcp_worker.js?origin=${encodeURIComponent(origin)}`), { type: "module" });
    this.worker.onmessage = ({ data }) => this.received(data);
    this.worker.onerror = () => this.failAll("The worker that talks to the server can't be started.");
  }

  // Greets the server and asks for its tools.
  async connect() {
    const hello = await this.request("initialize", {
      protocolVersion: PROTOCOL, capabilities: {}, clientInfo: { name: "sconce-page", version: "1" },
    });
    this.info = hello.serverInfo;
    this.worker.postMessage({ protocol: hello.protocolVersion });
    await this.post({ jsonrpc: "2.0", method: "notifications/initialized" });
    if (hello.capabilities?.tools) this.tools = await this.listTools();
    return this;
  }

  async listTools() {
    const tools = [];
    let cursor;
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const result = await this.request("tools/list", cursor === undefined ? {} : { cursor });
      tools.push(...result.tools);
      cursor = result.nextCursor;
      if (cursor === undefined) break;
    }
    return tools;
  }

  // What a tool gives back, as text for the model and pictures for the user.
  async callTool(name, given, signal) {
    const result = await this.request("tools/call", { name, arguments: given }, signal);
    const parts = result.content ?? [];
    const texts = parts.map((part) => textOf(part)).filter(Boolean);
    if (texts.length === 0 && result.structuredContent) texts.push(JSON.stringify(result.structuredContent));
    const images = parts.filter(({ type }) => type === "image").map(({ mimeType, data }) => ({ kind: "image", data: `data:${mimeType};base64,${data}` }));
    return { text: texts.join("\n") || "(nothing)", images, failed: result.isError === true };
  }

  close() {
    this.worker.postMessage({ close: true });
    this.failAll("The connection was closed.");
    // The worker still says goodbye to the server.
    setTimeout(() => this.worker.terminate(), 2000);
  }

  // A request; its result, or an error with the server's words.
  async request(method, params, signal) {
    const id = this.nextId++;
    const answer = new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
    const timer = setTimeout(() => this.fail(id, `The MCP server did not answer within ${CALL_SECONDS} s.`), CALL_SECONDS * 1000);
    const stop = () => {
      this.worker.postMessage({ post: { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } } });
      this.fail(id, "The call was stopped.");
    };
    signal?.addEventListener("abort", stop, { once: true });
    this.post({ jsonrpc: "2.0", id, method, params }).catch((error) => this.fail(id, error.message));
    try {
      return await answer;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }

  // Hands a message to the worker; resolves when the server has taken it.
  post(message) {
    const ticket = `post-${this.nextId++}`;
    return new Promise((resolve, reject) => {
      this.pending.set(ticket, { resolve, reject });
      this.worker.postMessage({ post: message, ticket, url: this.url, token: this.token });
    });
  }

  settle(id, how, value) {
    const waiting = this.pending.get(id);
    this.pending.delete(id);
    waiting?.[how](value);
  }

  fail(id, message) {
    this.settle(id, "reject", new Error(message));
  }

  failAll(message) {
    for (const id of [...this.pending.keys()]) this.fail(id, message);
  }

  received({ ticket, error, message }) {
    if (ticket !== undefined) return error === undefined ? this.settle(ticket, "resolve") : this.fail(ticket, error);
    if (message.method !== undefined && message.id !== undefined) return this.answerServer(message);
    if (message.method === "notifications/tools/list_changed") return this.refreshTools();
    if (message.error) return this.fail(message.id, `${message.error.message} (code ${message.error.code})`);
    return message.id !== undefined && this.settle(message.id, "resolve", message.result);
  }

  // Servers may ask clients as well; of what they can ask, there is only the ping here.
  answerServer({ id, method }) {
    const answer = method === "ping" ? { result: {} } : { error: { code: -32601, message: `${method} is not supported` } };
    this.post({ jsonrpc: "2.0", id, ...answer }).catch(() => {});
  }

  async refreshTools() {
    this.tools = await this.listTools().catch(() => this.tools);
  }
}

function textOf(part) {
  switch (part.type) {
    case "text": return part.text;
    case "resource": return part.resource.text ?? `[${part.resource.uri}, ${part.resource.mimeType ?? "bytes"}]`;
    case "resource_link": return `[${part.name ?? part.title ?? "resource"}: ${part.uri}]`;
    default: return `[${part.type}, ${part.mimeType ?? "unknown type"}]`;
  }
}
