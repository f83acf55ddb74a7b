// An editor of JSON schemas: rows of fields for the common ones, and the JSON itself for all.

import { button, h, iconButton } from "./dom.js";

const TYPES = [["string", "text"], ["number", "number"], ["integer", "integer"], ["boolean", "yes or no"], ["enum", "one of"], ["object", "object"], ["array", "list of"]];
const EXAMPLE = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
// Objects and lists in each other that rows are shown for.
const DEEPEST = 4;

export class SchemaEditor {
  constructor(schema, changed) {
    this.changed = changed;
    this.current = schema ?? structuredClone(EXAMPLE);
    this.fault = h("p", { class: "fault", id: "schema-fault", role: "status" });
    this.area = h("textarea", { id: "schema-json", rows: 12, spellcheck: "false", class: "mono", "aria-label": "JSON schema", "aria-describedby": "schema-fault" });
    this.area.addEventListener("input", () => this.takeText());
    this.rows = h("div", { class: "schema-rows" });
    this.toggle = button("", () => this.show(!this.asText), { class: "button quiet-button" });
    this.element = h("div", { class: "schema" }, this.rows, this.area, this.fault, this.toggle);
    this.show(false);
  }

  schema() {
    return this.current;
  }

  // Rows, if they can say all of the schema; else its JSON.
  show(asText) {
    const fields = toFields(this.current);
    this.asText = asText || fields === null;
    this.rows.hidden = this.asText;
    this.area.hidden = !this.asText;
    this.toggle.textContent = this.asText ? "Edit as fields" : "Edit as JSON";
    this.fault.textContent = !asText && fields === null ? "This schema says more than fields can show." : "";
    this.area.value = JSON.stringify(this.current, null, 2);
    if (!this.asText) {
      this.fields = fields;
      this.drawRows();
    }
  }

  takeText() {
    let schema;
    try {
      schema = JSON.parse(this.area.value);
    } catch (error) {
      this.fault.textContent = `Not JSON, so the last valid schema stays: ${error.message}`;
      return;
    }
    if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
      this.fault.textContent = "A schema is an object; the last valid one stays.";
      return;
    }
    this.fault.textContent = "";
    this.current = schema;
    this.changed(schema);
  }

  drawRows() {
    this.rows.replaceChildren(this.fieldList(this.fields, 0));
  }

  takeRows() {
    const fault = faultOf(this.fields);
    this.fault.textContent = fault ?? "";
    if (fault !== null) return;
    this.current = fromFields(this.fields);
    this.changed(this.current);
  }

  fieldList(fields, depth) {
    const list = h("ul", { class: "schema-fields" }, ...fields.map((field) => this.fieldRow(field, fields, depth)));
    const more = button("Add a field", () => {
      fields.push({ name: `field_${fields.length + 1}`, type: "string", description: "", required: true });
      this.redraw();
    }, { class: "button quiet-button" });
    return h("div", {}, list, more);
  }

  redraw() {
    this.drawRows();
    this.takeRows();
  }

  fieldRow(field, fields, depth) {
    const name = h("input", { "aria-label": "Name of the field", value: field.name, class: "mono", oninput: () => this.set(field, "name", name.value.trim()) });
    const description = h("input", {
      "aria-label": `What ${field.name} is`, placeholder: "what it is", value: field.description, oninput: () => this.set(field, "description", description.value),
    });
    const required = h("input", { type: "checkbox", checked: field.required, onchange: () => this.set(field, "required", required.checked) });
    const remove = iconButton("trash", `Remove ${field.name}`, () => {
      fields.splice(fields.indexOf(field), 1);
      this.redraw();
    });
    return h("li", {}, h("div", { class: "schema-row" }, name, this.typeChoice(field, depth), description,
      h("label", { class: "check" }, required, "required"), remove), this.inner(field, depth));
  }

  set(field, name, value) {
    field[name] = value;
    this.takeRows();
  }

  typeChoice(field, depth, label = `Type of ${field.name}`) {
    const types = depth >= DEEPEST ? TYPES.slice(0, 5) : TYPES;
    const select = h("select", { "aria-label": label }, ...types.map(([value, text]) => h("option", { value }, text)));
    select.value = field.type;
    select.addEventListener("change", () => {
      field.type = select.value;
      if (field.type === "object") field.fields ??= [];
      if (field.type === "array") field.items ??= { type: "string", name: "item", description: "", required: true };
      if (field.type === "enum") field.choices ??= ["first", "second"];
      this.redraw();
    });
    return select;
  }

  // What a type says beside its name.
  inner(field, depth) {
    if (field.type === "enum") {
      const input = h("input", { "aria-label": `Choices of ${field.name}, with commas between them`, value: field.choices.join(", ") });
      input.addEventListener("input", () => this.set(field, "choices", input.value.split(",").map((text) => text.trim()).filter(Boolean)));
      return h("div", { class: "schema-inner" }, input);
    }
    if (field.type === "object") return h("div", { class: "schema-inner" }, this.fieldList(field.fields, depth + 1));
    if (field.type === "array") {
      return h("div", { class: "schema-inner" }, this.typeChoice(field.items, depth + 1, `Type of the items of ${field.name}`), this.inner(field.items, depth + 1));
    }
    return null;
  }
}

// What keeps fields from being a schema, or null.
export function faultOf(fields) {
  const names = fields.map(({ name }) => name);
  if (names.includes("")) return "A field needs a name.";
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) return `Two fields are called ${twice}.`;
  for (const field of fields) {
    for (let at = field; at !== undefined; at = at.type === "array" ? at.items : undefined) {
      if (at.type === "enum" && at.choices.length === 0) return `${field.name} needs choices.`;
      const inner = at.type === "object" ? faultOf(at.fields) : null;
      if (inner !== null) return inner;
    }
  }
  return null;
}

export function fromFields(fields) {
  return {
    type: "object",
    properties: Object.fromEntries(fields.map((field) => [field.name, fromField(field)])),
    required: fields.filter(({ required }) => required).map(({ name }) => name),
    additionalProperties: false,
  };
}

function fromField({ type, description, choices, fields, items }) {
  const about = description ? { description } : {};
  if (type === "enum") return { type: "string", ...about, enum: choices };
  if (type === "object") return { ...fromFields(fields), ...about };
  if (type === "array") return { type: "array", ...about, items: fromField(items) };
  return { type, ...about };
}

const OBJECT_KEYS = ["type", "properties", "required", "additionalProperties", "description"];

// Fields that say the same as a schema, or null if it says more.
export function toFields(schema, depth = 0) {
  if (schema?.type !== "object" || depth > DEEPEST || Object.keys(schema).some((key) => !OBJECT_KEYS.includes(key))) return null;
  if (schema.additionalProperties !== false) return null;
  const required = schema.required ?? [];
  const fields = Object.entries(schema.properties ?? {}).map(([name, inner]) => toField(name, inner, required.includes(name), depth));
  return fields.includes(null) || required.some((name) => !(name in (schema.properties ?? {}))) ? null : fields;
}

function toField(name, schema, required, depth) {
  const { type, description = "", enum: choices, items } = schema ?? {};
  const field = { name, type, description, required };
  const keys = Object.keys(schema ?? {}).filter((key) => !["type", "description"].includes(key));
  if (type === "object") {
    const fields = toFields(schema, depth + 1);
    return fields && { ...field, fields };
  }
  if (type === "string" && keys.join() === "enum" && choices.every((one) => typeof one === "string" && !one.includes(","))) {
    return { ...field, type: "enum", choices };
  }
  if (type === "array" && keys.join() === "items") {
    const item = toField("item", items, true, depth + 1);
    return item && { ...field, items: item };
  }
  return keys.length === 0 && TYPES.slice(0, 4).some(([known]) => known === type) ? field : null;
}
