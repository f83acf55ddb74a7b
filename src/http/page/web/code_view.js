// A block of code: its language, a copy button, and highlighted text that grows at its end.

import { copy, h, iconButton } from "./dom.js";
import { tokenize } from "./highlight.js";

export class CodeView {
  constructor(language) {
    this.language = language;
    this.text = "";
    // Up to here the nodes are final.
    this.settled = 0;
    this.code = h("code", {});
    this.tail = [];
    const copyButton = iconButton("copy", "Copy code", () => copy(this.text, copyButton));
    this.element = h("figure", { class: "code" },
      h("figcaption", {}, h("span", {}, language || "text"), copyButton),
      h("pre", { tabindex: "0", role: "region", "aria-label": language ? `Code in ${language}` : "Code" }, this.code));
  }

  // Shows the whole text so far. Tokens of lines that have ended stay as they are.
  update(text, done = false) {
    if (text.slice(0, this.settled) !== this.text.slice(0, this.settled)) {
      this.code.replaceChildren();
      this.tail = [];
      this.settled = 0;
    }
    this.text = text;
    for (const node of this.tail) node.remove();
    const tokens = tokenize(text.slice(this.settled), this.language);
    const lineStart = done ? text.length : text.lastIndexOf("\n") + 1;
    let at = this.settled;
    const settled = [];
    const tail = [];
    for (const [index, [kind, piece]] of tokens.entries()) {
      const node = kind === null ? document.createTextNode(piece) : h("span", { class: `tok-${kind}` }, piece);
      at += piece.length;
      // The last token may go on, as an open comment does.
      const isFinal = done || (tail.length === 0 && at <= lineStart && index < tokens.length - 1);
      (isFinal ? settled : tail).push(node);
      if (isFinal) this.settled = at;
    }
    this.tail = tail;
    this.code.append(...settled, ...tail);
  }
}
