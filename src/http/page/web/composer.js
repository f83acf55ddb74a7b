// Where a message is written: text, pictures and files. What is not sent yet survives a reload.

import { add, announce, byId, h, icon, iconButton } from "./dom.js";
import { recall, remember } from "./prefs.js";
import { loadDraft, saveDraft } from "./store.js";

const MOST_TEXT_BYTES = 2 << 20;
// Larger pictures are scaled down, as models do themselves; servers bound the size of requests.
const MOST_PICTURE_BYTES = 3 << 20;
const MOST_PIXELS = 2048;

export class Composer {
  // hooks: send(text, attachments), stop(), editLast()
  constructor(hooks) {
    this.hooks = hooks;
    this.attachments = [];
    this.draft = "new";
    this.form = byId("composer");
    this.input = byId("message");
    this.list = byId("attachments");
    this.note = byId("composer-note");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    this.files = h("input", { type: "file", multiple: true, hidden: true, onchange: () => this.takeFiles([...this.files.files]) });
    this.form.append(this.files);
    byId("attach").addEventListener("click", () => this.files.click());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.stopButton.addEventListener("click", () => hooks.stop());
    this.input.addEventListener("input", () => this.changed());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.input.addEventListener("paste", (event) => this.onPaste(event));
    this.acceptDrops();
  }

  onKey(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (event.key === "ArrowUp" && this.input.value === "") {
      event.preventDefault();
      this.hooks.editLast();
    }
  }

  onPaste(event) {
    const files = [...event.clipboardData.files];
    if (files.length === 0) return;
    event.preventDefault();
    this.takeFiles(files);
  }

  acceptDrops() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) document.body.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.takeFiles([...event.dataTransfer.files]);
    });
  }

  async takeFiles(files) {
    this.files.value = "";
    const refused = [];
    for (const file of files) {
      try {
        this.attachments.push(await attachment(file));
      } catch (error) {
        refused.push(error.message);
      }
    }
    this.showAttachments();
    this.keepAttachments();
    this.say(refused.join(" "));
    this.changed();
  }

  showAttachments() {
    this.list.replaceChildren(...this.attachments.map((one, index) => {
      const remove = iconButton("close", `Remove ${one.name}`, () => {
        this.attachments.splice(index, 1);
        this.showAttachments();
        this.keepAttachments();
        this.changed();
        this.input.focus();
      });
      const preview = one.kind === "image" ? h("img", { src: one.data, alt: "" }) : icon("file");
      return h("li", {}, preview, h("span", {}, one.name), remove);
    }));
  }

  // A line under the text: what was refused, or what the caller says.
  say(text) {
    this.note.textContent = text;
  }

  changed() {
    this.sendButton.disabled = this.isEmpty();
    if (!remember(`draft.${this.draft}`, this.input.value || null)) this.say("The browser's storage is full: this draft is not kept.");
    this.resize();
  }

  resize() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }

  keepAttachments() {
    saveDraft(this.draft, this.attachments).catch(() => this.say("The browser's storage is full: attachments are not kept over a reload."));
  }

  isEmpty() {
    return this.input.value.trim() === "" && this.attachments.length === 0;
  }

  async send() {
    if (this.isEmpty() || this.isLive) return;
    const { attachments } = this;
    const text = this.input.value.trim();
    if (!(await this.hooks.send(text, attachments))) return;
    this.clear();
  }

  clear() {
    this.input.value = "";
    this.attachments = [];
    this.showAttachments();
    this.keepAttachments();
    this.say("");
    this.changed();
  }

  // Shows the draft of a conversation, or of the next new one.
  async open(id) {
    this.draft = id ?? "new";
    this.input.value = recall(`draft.${this.draft}`, "");
    this.attachments = await loadDraft(this.draft).catch(() => []);
    this.showAttachments();
    this.say("");
    this.changed();
  }

  setLive(isLive) {
    this.isLive = isLive;
    const hadFocus = document.activeElement === this.stopButton;
    this.sendButton.hidden = isLive;
    this.stopButton.hidden = !isLive;
    if (!isLive && hadFocus) this.input.focus();
  }
}

async function attachment(file) {
  if (file.type.startsWith("image/")) return { kind: "image", name: file.name || "picture", data: await picture(file) };
  if (file.size > MOST_TEXT_BYTES) throw new Error(`${file.name} has ${file.size} bytes; a text may have ${MOST_TEXT_BYTES}.`);
  try {
    const data = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (data.includes("\0")) throw new Error("binary");
    return { kind: "text", name: file.name, data };
  } catch {
    throw new Error(`${file.name} is neither a picture nor text in UTF-8.`);
  }
}

// A picture as a data URL.
async function picture(file) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name || "The picture"} can't be read as a picture.`);
  });
  const scale = Math.min(1, MOST_PIXELS / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && file.size <= MOST_PICTURE_BYTES && /^image\/(png|jpeg|gif|webp)$/.test(file.type)) return dataUrl(file);
  const canvas = h("canvas", { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  announce("The picture was scaled down");
  return canvas.toDataURL("image/jpeg", 0.9);
}

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("The picture can't be read."));
    reader.readAsDataURL(blob);
  });
}

// An editor in place of a message; calls back with the new text, or not at all.
export function editor(text, save, cancel) {
  const area = h("textarea", { class: "edit", "aria-label": "Edit the message", value: text, rows: Math.min(12, text.split("\n").length + 1) });
  const done = () => area.value.trim() !== "" && save(area.value.trim());
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      done();
    }
  });
  const actions = h("div", { class: "dialog-actions" },
    h("button", { type: "button", class: "button", onclick: cancel }, "Cancel"),
    h("button", { type: "button", class: "button primary", onclick: done }, "Send as a branch"));
  const form = add(h("div", { class: "editor" }), [area, actions]);
  requestAnimationFrame(() => {
    area.focus();
    area.setSelectionRange(text.length, text.length);
  });
  return form;
}
