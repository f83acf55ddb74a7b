// The list of conversations: search, rename, delete, export and import.

import { add, banner, button, byId, confirm, download, h, icon, iconButton, openDialog } from "./dom.js";
import { Conversation, copyOf, parseExport, toExport, toMarkdown } from "./conversation.js";
import * as store from "./store.js";

const DAY = 86_400_000;

export class Sidebar {
  // hooks: open(id), created(), renamed(record), deleted(id), current() -> id
  constructor(hooks) {
    this.hooks = hooks;
    this.list = byId("conversations");
    this.searchInput = byId("search");
    this.file = h("input", { type: "file", accept: ".json,application/json", hidden: true, onchange: () => this.importFile(this.file.files[0]) });
    byId("sidebar").append(this.file);
    byId("import").addEventListener("click", () => this.file.click());
    byId("export-all").addEventListener("click", () => this.exportAll());
    let timer;
    this.searchInput.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.refresh(), 120);
    });
    this.searchInput.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.searchInput.value === "") return;
      event.stopPropagation();
      this.searchInput.value = "";
      this.refresh();
    });
  }

  // Reads the list anew. What was asked last is shown, whatever is answered first.
  async refresh() {
    const words = this.searchInput.value.trim();
    const turn = (this.turn = {});
    const [all, found] = await Promise.all([store.listConversations(), words === "" ? null : store.search(words)]);
    if (turn !== this.turn) return;
    const records = found === null ? all : all.filter(({ id }) => found.has(id));
    this.list.replaceChildren(...this.groups(records, found));
    byId("no-conversations").textContent = records.length > 0 ? "" : found === null ? "No conversations yet." : "Nothing found.";
  }

  groups(records, found) {
    const midnight = new Date().setHours(0, 0, 0, 0);
    const titles = [["Today", midnight], ["Yesterday", midnight - DAY], ["Last seven days", midnight - 6 * DAY], ["Earlier", -Infinity]];
    return titles.flatMap(([title, since], index) => {
      const until = index === 0 ? Infinity : titles[index - 1][1];
      const inside = records.filter(({ updated }) => updated >= since && updated < until);
      if (inside.length === 0) return [];
      const heading = h("h2", {}, title);
      return [h("section", {}, heading, h("ul", { "aria-label": title }, ...inside.map((record) => this.entry(record, found?.get(record.id)))))];
    });
  }

  entry(record, snippet) {
    const isCurrent = record.id === this.hooks.current();
    const link = h("a", { href: `#${record.id}`, "aria-current": isCurrent && "page", class: "entry" },
      h("span", { class: "title" }, record.title || "Untitled"), snippet && h("span", { class: "snippet" }, snippet));
    const more = iconButton("more", `More for ${record.title || "Untitled"}`, () => this.menu(record), { class: "entry-more" });
    return h("li", {}, link, more);
  }

  async menu(record) {
    const chosen = await openDialog(record.title || "Untitled", (close) => {
      const entry = (name, label, value, more = {}) => h("button", { type: "button", class: "menu-item", onclick: () => close(value), ...more }, icon(name), label);
      return h("div", { class: "menu" },
        entry("edit", "Rename", "rename", { autofocus: true }),
        entry("download", "Export as JSON", "json"),
        entry("file", "Export as Markdown", "markdown"),
        entry("trash", "Delete", "delete", { class: "menu-item danger-text" }));
    }, { class: "small" });
    if (chosen === "rename") await this.rename(record);
    else if (chosen === "delete") await this.remove(record);
    else if (chosen) await this.exportOne(record, chosen);
  }

  async rename(record) {
    const title = await openDialog("Rename", (close) => {
      const input = h("input", { id: "new-title", value: record.title, maxlength: 200, autofocus: true });
      return h("form", { class: "dialog-body", onsubmit: (event) => (event.preventDefault(), close(input.value.trim())) },
        h("label", { for: "new-title" }, "Title"), input,
        h("div", { class: "dialog-actions" }, button("Cancel", () => close()), h("button", { type: "submit", class: "button primary" }, "Rename")));
    }, { class: "small" });
    if (!title) return;
    await this.hooks.renamed({ ...record, title });
    await this.refresh();
  }

  async remove(record) {
    if (!(await confirm("Delete this conversation?", `“${record.title}” and all its branches are gone for good.`, "Delete"))) return;
    await store.deleteConversation(record.id);
    await this.hooks.deleted(record.id);
    await this.refresh();
  }

  async exportOne(record, kind) {
    const conversation = new Conversation(record, await store.loadMessages(record.id));
    const name = (record.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 50);
    if (kind === "markdown") download(`${name}.md`, "text/markdown", toMarkdown(conversation));
    else download(`${name}.json`, "application/json", toExport([conversation]));
  }

  async exportAll() {
    const records = await store.listConversations();
    const whole = await Promise.all(records.map(async (record) => new Conversation(record, await store.loadMessages(record.id))));
    download("sconce-conversations.json", "application/json", toExport(whole));
  }

  // A conversation that is here already in the same state is left out; one with the same id in another
  // state is imported as a copy.
  async importFile(file) {
    this.file.value = "";
    try {
      const known = new Map((await store.listConversations()).map((record) => [record.id, record]));
      const read = parseExport(await file.text());
      const fresh = read.filter(({ record }) => known.get(record.id)?.updated !== record.updated)
        .map((one) => (known.has(one.id) ? copyOf(one) : one));
      await store.saveAll(fresh.map(({ record }) => record), fresh.flatMap(({ messages }) => [...messages.values()]));
      await this.refresh();
      const left = read.length - fresh.length;
      byId("composer-note").textContent = `${fresh.length} imported${left > 0 ? `, ${left} were here already` : ""}.`;
    } catch (error) {
      banner("import", `${file.name} was not imported. ${error.name === "QuotaExceededError" ? "The browser's storage is full." : error.message}`);
    }
  }
}

// Says that something could not be stored, once.
export function tellStorage(error, exportNow) {
  const isFull = error.name === "QuotaExceededError";
  const text = isFull
    ? "The browser's storage is full: what is new here is lost when the page closes. Export it, or delete other conversations."
    : `The browser can't store this conversation (${error.message}): it is lost when the page closes.`;
  banner("storage", text, button("Export this conversation", exportNow));
}

// For a phone, where the list lies over the page.
export function wireDrawer() {
  const sidebar = byId("sidebar");
  const open = (isOpen) => {
    document.body.classList.toggle("drawer-open", isOpen);
    byId("menu").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) sidebar.querySelector("a, button")?.focus();
    else if (sidebar.contains(document.activeElement)) byId("menu").focus();
  };
  byId("menu").addEventListener("click", () => open(!document.body.classList.contains("drawer-open")));
  byId("scrim").addEventListener("click", () => open(false));
  sidebar.addEventListener("click", (event) => event.target.closest("a") && open(false));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.body.classList.contains("drawer-open")) open(false);
  });
  return () => open(false);
}
