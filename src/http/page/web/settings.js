// The settings of a conversation: system prompt, sampling, form of the answer, probabilities, tools.

import { add, button, byId, h, openDialog } from "./dom.js";
import { recall, remember } from "./prefs.js";
import { SchemaEditor } from "./schema_editor.js";
import { toolPanel } from "./tool_panel.js";

// Names as the API has them, with the ranges that it takes.
const NUMBERS = [
  ["temperature", "Temperature", "0 takes the likeliest token", { min: 0, max: 2, step: "any" }],
  ["top_p", "Top-p", "share of probability that is kept", { min: 0.000001, max: 1, step: "any" }],
  ["top_k", "Top-k", "how many tokens are kept; 0 for all", { min: 0, step: 1 }],
  ["min_p", "Min-p", "relative to the likeliest token", { min: 0, max: 1, step: "any" }],
  ["frequency_penalty", "Frequency penalty", "per repetition", { min: -2, max: 2, step: "any" }],
  ["presence_penalty", "Presence penalty", "once for each token", { min: -2, max: 2, step: "any" }],
  ["repetition_penalty", "Repetition penalty", "1 is off", { min: 0.01, step: "any" }],
  ["max_tokens", "Longest answer", "in tokens", { min: 1, step: 1 }],
  ["seed", "Seed", "the same one gives the same answer", { step: 1 }],
];
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const MOST_STOPS = 16;

// What new conversations begin with.
export const defaults = () => recall("defaults", { system: "", settings: {} });

// Shows the settings of a record; `changed` is called after every change that is in range.
export function openSettings(record, changed) {
  const { settings } = record;
  return openDialog("Settings of this conversation", () => h("div", { class: "dialog-body" },
    systemField(record, changed),
    section("Sampling", "Empty fields leave it to the server.", h("div", { class: "grid" }, ...NUMBERS.map((row) => numberField(settings, row, changed)),
      effortField(settings, changed)), stopField(settings, changed)),
    formatSection(settings, changed),
    section("Probabilities", null, check("logprobs", "Ask for the probability of each token, and five alternatives", settings.logprobs, (isOn) => {
      settings.logprobs = isOn || undefined;
      changed();
    })),
    toolPanel(),
    h("div", { class: "dialog-actions" }, defaultsButton(record))), { class: "drawer" });
}

function section(title, text, ...children) {
  return h("section", { class: "settings-section" }, h("h3", {}, title), text && h("p", { class: "hint" }, text), ...children);
}

function check(id, label, checked, onchange) {
  const box = h("input", { type: "checkbox", id: `set-${id}`, checked: Boolean(checked), onchange: () => onchange(box.checked) });
  return h("label", { class: "check" }, box, label);
}

function systemField(record, changed) {
  const area = h("textarea", { id: "set-system", rows: 4, value: record.system, autofocus: true, placeholder: "You are a helpful assistant." });
  area.addEventListener("input", () => {
    record.system = area.value;
    changed();
  });
  return h("section", { class: "settings-section" }, h("label", { for: "set-system", class: "section-label" }, "System prompt"), area);
}

// A value out of range is told and not taken.
function numberField(settings, [name, label, hint, range], changed) {
  const id = `set-${name}`;
  const fault = h("span", { class: "fault", id: `${id}-fault` });
  const input = h("input", {
    type: "number", id, value: settings[name] ?? "", inputmode: "decimal", placeholder: "default", "aria-describedby": `${id}-fault ${id}-hint`, ...range,
  });
  input.addEventListener("input", () => {
    fault.textContent = input.validity.valid ? "" : input.validationMessage;
    input.setAttribute("aria-invalid", String(!input.validity.valid));
    if (!input.validity.valid) return;
    settings[name] = input.value === "" ? undefined : Number(input.value);
    changed();
  });
  return h("div", { class: "field" }, h("label", { for: id }, label), input, h("span", { class: "hint", id: `${id}-hint` }, hint), fault);
}

function effortField(settings, changed) {
  const select = h("select", { id: "set-effort" }, h("option", { value: "" }, "default"), ...EFFORTS.map((effort) => h("option", { value: effort }, effort)));
  select.value = settings.reasoning_effort ?? "";
  select.addEventListener("change", () => {
    settings.reasoning_effort = select.value || undefined;
    changed();
  });
  return h("div", { class: "field" }, h("label", { for: "set-effort" }, "Reasoning effort"), select, h("span", { class: "hint" }, "for models that reason"));
}

function stopField(settings, changed) {
  const fault = h("span", { class: "fault", id: "set-stop-fault" });
  const area = h("textarea", { id: "set-stop", rows: 2, value: (settings.stop ?? []).join("\n"), "aria-describedby": "set-stop-fault" });
  area.addEventListener("input", () => {
    const texts = area.value.split("\n").filter((text) => text !== "");
    const isValid = texts.length <= MOST_STOPS;
    fault.textContent = isValid ? "" : `There are ${texts.length}; ${MOST_STOPS} are possible.`;
    if (!isValid) return;
    settings.stop = texts.length > 0 ? texts : undefined;
    changed();
  });
  return h("div", { class: "field" }, h("label", { for: "set-stop" }, "Texts that end the answer, one a line"), area, fault);
}

const FORMATS = [["text", "Text"], ["json_object", "JSON, any object"], ["json_schema", "JSON that follows a schema"]];

function formatSection(settings, changed) {
  const editor = new SchemaEditor(settings.schema, (schema) => {
    settings.schema = schema;
    changed();
  });
  const choose = (format) => {
    settings.format = format === "text" ? undefined : format;
    if (format === "json_schema") settings.schema ??= editor.schema();
    editor.element.hidden = format !== "json_schema";
    changed();
  };
  const current = settings.format ?? "text";
  editor.element.hidden = current !== "json_schema";
  const radios = FORMATS.map(([value, label]) => {
    const radio = h("input", { type: "radio", name: "format", value, checked: value === current, onchange: () => choose(value) });
    return h("label", { class: "check" }, radio, label);
  });
  return h("section", { class: "settings-section" },
    h("fieldset", {}, h("legend", {}, "Form of the answer"), ...radios), editor.element);
}

function defaultsButton(record) {
  const control = button("Begin new conversations like this", () => {
    const { seed: _, ...settings } = record.settings;
    const isKept = remember("defaults", { system: record.system, settings });
    control.textContent = isKept ? "New conversations begin like this" : "The browser's storage is full";
  });
  return control;
}

// A word for the header on what differs from the usual.
export function summary({ system, settings }) {
  const parts = [];
  if (system.trim() !== "") parts.push("system prompt");
  if (settings.format) parts.push("JSON");
  if (settings.logprobs) parts.push("probabilities");
  const changedNumbers = NUMBERS.filter(([name]) => settings[name] !== undefined).map(([, label]) => label.toLowerCase());
  return [...parts, ...changedNumbers].join(", ");
}

export function showSummary(record) {
  const text = summary(record);
  const control = byId("settings");
  control.classList.toggle("marked", text !== "");
  control.title = text === "" ? "Settings" : `Settings: ${text}`;
  control.setAttribute("aria-label", control.title);
}

const KEYS = [
  ["Enter", "Send"], ["Shift + Enter", "New line"], ["Escape", "Stop the answer"], ["Arrow up, in an empty field", "Edit your last message"],
  ["Ctrl + Shift + O", "New conversation"], ["Ctrl + K", "Search conversations"], ["Ctrl + ,", "Settings"], ["/", "Go to the message field"], ["?", "This list"],
];

export function openKeys() {
  return openDialog("Keys", () => add(h("dl", { class: "keys" }), KEYS.map(([keys, what]) => h("div", {}, h("dt", {}, keys), h("dd", {}, what)))), { class: "small" });
}
