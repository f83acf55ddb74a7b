// The part of the settings in which MCP servers are added, and their tools allowed or hidden.

import { h, icon, iconButton } from "./dom.js";
import { addServer, connect, enableServer, listServers, mark, removeServer, watchServers } from "./tools.js";

const STATES = { connecting: "connecting…", ready: "connected", failed: "not connected" };

export function toolPanel() {
  const list = h("div", { class: "servers" });
  const draw = () => {
    // The panel is gone when its dialog is.
    if (drawn && !list.isConnected) return stop();
    drawn = true;
    return list.replaceChildren(...listServers().map(serverCard));
  };
  let drawn = false;
  const stop = watchServers(draw);
  list.replaceChildren(...listServers().map(serverCard));
  queueMicrotask(() => {
    drawn = true;
  });
  return h("section", { class: "settings-section" }, h("h3", {}, "Tools from MCP servers"),
    h("p", { class: "hint" }, "The model can call the tools of a server that speaks streamable HTTP and allows this page's origin. You are asked before each call."),
    list, addForm());
}

function addForm() {
  const url = h("input", { id: "mcp-url", type: "url", placeholder: "http://127.0.0.1:3001/mcp", required: true });
  const token = h("input", { id: "mcp-token", type: "password", autocomplete: "off", placeholder: "if it needs one" });
  const fault = h("span", { class: "fault", role: "status" });
  const submit = (event) => {
    event.preventDefault();
    try {
      fault.textContent = "";
      addServer(url.value.trim(), token.value.trim());
      url.value = "";
      token.value = "";
    } catch (error) {
      fault.textContent = error.message;
    }
  };
  return h("form", { class: "grid", onsubmit: submit },
    h("div", { class: "field" }, h("label", { for: "mcp-url" }, "Address"), url, fault),
    h("div", { class: "field" }, h("label", { for: "mcp-token" }, "Bearer token"), token),
    h("div", {}, h("button", { type: "submit", class: "button" }, "Add server")));
}

function serverCard(server) {
  const isOn = h("input", { type: "checkbox", checked: server.enabled, onchange: () => enableServer(server.id, isOn.checked), "aria-label": `Use ${server.name}` });
  const state = server.enabled ? STATES[server.state] ?? "" : "off";
  const head = h("div", { class: "server-head" }, isOn, h("div", {}, h("strong", {}, server.name), h("span", { class: "hint" }, `${server.url} · ${state}`)),
    server.state === "failed" && iconButton("refresh", `Connect to ${server.name} again`, () => connect(server)),
    iconButton("trash", `Remove ${server.name}`, () => removeServer(server.id)));
  const fault = server.error && h("p", { class: "fault", role: "alert" }, icon("warning"), server.error);
  const tools = server.client?.tools ?? [];
  return h("div", { class: "server", "data-state": server.state }, head, fault,
    tools.length > 0 && h("details", {}, h("summary", {}, `${tools.length} tools`), h("ul", {}, ...tools.map((tool) => toolRow(server, tool)))));
}

function toolRow(server, tool) {
  const box = (label, isOn, change) => {
    const input = h("input", { type: "checkbox", checked: isOn, onchange: () => change(input.checked) });
    return h("label", { class: "check" }, input, label);
  };
  return h("li", {}, h("div", {}, h("code", {}, tool.name), h("span", { class: "hint" }, tool.description ?? "")),
    h("div", { class: "tool-boxes" },
      box("offer", !server.hidden.includes(tool.name), (isOn) => mark(server.id, "hidden", tool.name, !isOn)),
      box("run without asking", server.allowed.includes(tool.name), (isOn) => mark(server.id, "allowed", tool.name, isOn))));
}
