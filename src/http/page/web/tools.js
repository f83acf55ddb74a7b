// Tools of MCP servers as functions that the model can call, each call with the user's consent.

import { announce, button, h, icon } from "./dom.js";
import { CodeView } from "./code_view.js";
import { McpClient } from "./mcp.js";
import { pretty } from "./message_view.js";
import { recall, remember } from "./prefs.js";
import { newId } from "./store.js";

// servers: [{ id, name, url, token, enabled, allowed: [tool], hidden: [tool] }]
const servers = recall("mcp", []);
// id -> { state: "connecting" | "ready" | "failed", client, error }
const connections = new Map();
const watchers = new Set();

const changed = () => watchers.forEach((watch) => watch());
const keep = () => remember("mcp", servers);

// Calls back whenever a server or its tools change.
export function watchServers(watch) {
  watchers.add(watch);
  return () => watchers.delete(watch);
}

export const listServers = () => servers.map((server) => ({ ...server, ...connections.get(server.id) }));

// Adds a server; an address that can't be one is an error.
export function addServer(address, token) {
  const url = new URL(address);
  if (!/^https?:$/.test(url.protocol) || url.username !== "") throw new TypeError("An address begins with http:// or https:// and holds no password.");
  if (url.hostname.startsWith("[")) throw new TypeError("Browsers can't be told to allow an address of IPv6; use a name, such as localhost.");
  const server = { id: newId(), name: url.host, url: url.href, token: token || undefined, enabled: true, allowed: [], hidden: [] };
  servers.push(server);
  keep();
  return connect(server);
}

export function removeServer(id) {
  connections.get(id)?.client?.close();
  connections.delete(id);
  servers.splice(servers.findIndex((server) => server.id === id), 1);
  keep();
  changed();
}

export function enableServer(id, isOn) {
  const server = servers.find((one) => one.id === id);
  server.enabled = isOn;
  keep();
  if (isOn) return connect(server);
  connections.get(id)?.client?.close();
  connections.delete(id);
  return changed();
}

// Adds a tool's name to one of the lists of its server, or takes it away.
export function mark(id, list, tool, isOn) {
  const server = servers.find((one) => one.id === id);
  server[list] = server[list].filter((name) => name !== tool);
  if (isOn) server[list].push(tool);
  keep();
  changed();
}

export async function connect(server) {
  connections.get(server.id)?.client?.close();
  connections.set(server.id, { state: "connecting", error: undefined });
  changed();
  let client;
  try {
    client = new McpClient(server);
    await client.connect();
    connections.set(server.id, { state: "ready", client });
    const own = servers.find((one) => one.id === server.id);
    if (own) own.name = client.info?.title ?? client.info?.name ?? own.name;
    keep();
  } catch (error) {
    client?.worker.terminate();
    connections.set(server.id, { state: "failed", error: error.message });
  }
  changed();
}

export const connectAll = () => Promise.all(servers.filter(({ enabled }) => enabled).map(connect));

// Every tool that the model may see, under the name that it gets for it.
function offered() {
  const all = listServers().filter(({ enabled, state }) => enabled && state === "ready")
    .flatMap((server) => server.client.tools.filter(({ name }) => !server.hidden.includes(name)).map((tool) => ({ server, tool })));
  const taken = new Set();
  return all.map((one) => {
    const plain = one.tool.name.replace(/[^\w-]/g, "_").slice(0, 60);
    let name = plain;
    for (let count = 2; taken.has(name); count += 1) name = `${plain}_${count}`;
    taken.add(name);
    return { ...one, name };
  });
}

export const definitions = () => offered().map(({ name, tool }) => ({
  type: "function", function: { name, description: tool.description ?? tool.title ?? "", parameters: tool.inputSchema ?? { type: "object", properties: {} } },
}));

// Runs a call, if the user wants that. What comes back is the message for the model.
export async function runTool(call, place, signal) {
  const found = offered().find(({ name }) => name === call.name);
  if (found === undefined) return { text: `There is no tool ${call.name}.`, failed: true };
  let given;
  try {
    given = JSON.parse(call.arguments || "{}");
  } catch (error) {
    return { text: `The arguments are not JSON: ${error.message}`, failed: true };
  }
  const server = servers.find((one) => one.id === found.server.id);
  if (!server.allowed.includes(found.tool.name)) {
    const consent = await askConsent(found, call, place, signal);
    if (consent === "always") mark(server.id, "allowed", found.tool.name, true);
    if (consent === "no") return { text: "The user did not allow this call.", failed: true };
    if (consent === "stopped") return { text: "The user stopped before this call.", failed: true };
  }
  try {
    return await found.server.client.callTool(found.tool.name, given, signal);
  } catch (error) {
    return { text: error.message, failed: true };
  }
}

// A card below the answer; resolves with "once", "always", "no" or "stopped".
function askConsent({ server, tool }, call, place, signal) {
  return new Promise((resolve) => {
    const done = (answer) => {
      card.remove();
      resolve(answer);
    };
    const code = new CodeView("json");
    code.update(pretty(call.arguments || "{}"), true);
    const card = h("div", { class: "consent", role: "group", "aria-label": `May ${tool.name} run?` },
      h("p", {}, icon("plug"), h("span", {}, "The model wants to run ", h("strong", {}, tool.title ?? tool.name), ` on ${server.name}.`)),
      tool.description && h("p", { class: "hint" }, tool.description), code.element,
      h("div", { class: "actions" },
        button("Run once", () => done("once"), { class: "button primary" }),
        button("Always run this tool", () => done("always")),
        button("Don't run", () => done("no"))));
    place.append(card);
    announce(`The model wants to run ${tool.name}. Your consent is needed.`);
    card.scrollIntoView({ block: "nearest" });
    signal.addEventListener("abort", () => done("stopped"), { once: true });
  });
}
