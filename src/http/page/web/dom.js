// Making elements. Text goes in as text nodes only, so nothing that a model says can become markup.

const SVG = "http://www.w3.org/2000/svg";

// Paths of icons in a square of 24, drawn as lines.
const ICONS = {
  back: "M15 5l-7 7 7 7",
  branch: "M6 4v10a4 4 0 0 0 4 4h8M14 14l4 4-4 4M6 8h6a4 4 0 0 0 4-4V3",
  chart: "M4 19h16M7 15v-4M12 15V6M17 15v-7",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v11H9zM5 15V4h10",
  down: "M12 5v14M6 13l6 6 6-6",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20l1-4L16.5 4.5l3 3L8 19zM14 7l3 3",
  file: "M7 3h7l4 4v14H7zM14 3v5h4",
  forward: "M9 5l7 7-7 7",
  gear: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4.5v5M6 14.5v5",
  heat: "M4 18h4v-4H4zM10 18h4V9h-4zM16 18h4V5h-4z",
  keyboard: "M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M8 15h8",
  lamp: "M8 3h8l3 8H5zM12 11v7M8 21h8M12 18v3",
  menu: "M4 7h16M4 12h16M4 17h16",
  moon: "M19.5 14A8 8 0 1 1 10 4.5 6.5 6.5 0 0 0 19.5 14z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  paperclip: "M19 11l-7.5 7.5a4.6 4.6 0 0 1-6.5-6.5L13 4a3 3 0 0 1 4.3 4.3L9.5 16a1.5 1.5 0 0 1-2-2L14 7.5",
  play: "M7 5l12 7-12 7z",
  plus: "M12 5v14M5 12h14",
  plug: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  refresh: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  search: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14zM16 16l4.5 4.5",
  send: "M12 20V5M5.5 11.5L12 5l6.5 6.5",
  stop: "M7 7h10v10H7z",
  sun: "M12 16a4 4 0 1 1 0-8 4 4 0 0 1 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
};

// `h("button", { class: "x", onclick: f, "aria-label": "y" }, ...children)`; children that are null
// or false are left out, strings become text.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function icon(name) {
  const path = svg("path", { d: ICONS[name] });
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, path);
}

// A button that shows an icon alone; its name is for screen readers and as a tooltip.
export function iconButton(name, label, onclick, more = {}) {
  const { class: extra = "", ...attributes } = more;
  return h("button", {
    type: "button", class: `icon-button ${extra}`.trim(), "aria-label": label, title: label, onclick, ...attributes,
  }, icon(name));
}

export function button(label, onclick, more = {}) {
  return h("button", { type: "button", onclick, class: "button", ...more }, label);
}

export const byId = (id) => document.getElementById(id);

// Puts text on the clipboard and shows for a moment on the button that it is there. Without a secure
// context there is no clipboard API, but a selection can still be copied.
export async function copy(text, control) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "hidden-visually", value: text, "aria-hidden": "true" });
    (control.closest("dialog") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    control.focus();
  }
  const old = [...control.childNodes];
  control.replaceChildren(icon("check"));
  announce("Copied");
  setTimeout(() => control.replaceChildren(...old), 1200);
}

// Says something to screen readers.
export function announce(text) {
  const region = byId("announcements");
  if (region) region.textContent = text;
}

let dialogs = 0;

// A dialog that is shown at once and gone when it closes. `build` gets a function that closes it;
// the promise resolves with what that was given, or undefined after Escape.
export function openDialog(title, build, more = {}) {
  return new Promise((resolve) => {
    let result;
    const heading = h("h2", { id: `dialog-title-${(dialogs += 1)}` }, title);
    const dialog = h("dialog", { class: more.class, "aria-labelledby": heading.id });
    const close = (value) => {
      result = value;
      dialog.close();
    };
    const closeButton = iconButton("close", "Close", () => close(undefined));
    const body = build(close);
    add(dialog, [h("header", { class: "dialog-head" }, heading, closeButton), body]);
    dialog.addEventListener("close", () => {
      dialog.remove();
      placeCaret(document.activeElement);
      resolve(result);
    });
    // A click beside a dialog closes it, unless it asks something that needs an answer.
    dialog.addEventListener("mousedown", (event) => {
      if (event.target === dialog && !more.insistent) close(undefined);
    });
    document.body.append(dialog);
    dialog.showModal();
    (dialog.querySelector("[autofocus]") ?? closeButton).focus();
  });
}

// A field that gets the focus back from a dialog has no caret in Chromium if the dialog is taken away
// before the next frame: what is typed then goes nowhere.
function placeCaret(field) {
  // Null where a field has no text, undefined where there is no field.
  if (typeof field?.selectionStart === "number") field.setSelectionRange(field.selectionStart, field.selectionEnd);
}

// Asks before something that can't be undone.
export function confirm(title, text, action) {
  return openDialog(title, (close) => h("div", { class: "dialog-body" },
    h("p", {}, text),
    h("div", { class: "dialog-actions" },
      button("Cancel", () => close(false)),
      button(action, () => close(true), { class: "button danger", autofocus: true }))));
}

// Hands a file to the user.
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// A message at the top of the page, one of each kind; it stays until it is taken away or closed.
export function banner(kind, text, ...actions) {
  closeBanner(kind);
  const close = iconButton("close", "Dismiss", () => closeBanner(kind));
  byId("banners").append(h("div", { class: "banner", role: "alert", "data-kind": kind },
    icon("warning"), h("span", { class: "banner-text" }, text), actions, close));
}

export function closeBanner(kind) {
  byId("banners").querySelector(`[data-kind="${kind}"]`)?.remove();
}
