// An answer as it grows: markdown, rendered again from its last block on. Blocks that are followed by
// another one can't change any more and stay, so the work of each frame doesn't grow with the answer.

import { CodeView } from "./code_view.js";
import { parse, render } from "./markdown.js";

// Rendering may take this share of the time at most: one part work, three parts rest.
const REST = 3;

export class AnswerView {
  constructor(element) {
    this.element = element;
    this.text = "";
    // Blocks that begin before this place in the text are final.
    this.frozen = 0;
    this.tail = [];
    this.openCode = null;
    this.timer = null;
    this.cost = 0;
    this.isDone = false;
  }

  // Shows the whole text so far, soon; at once if the answer has ended.
  update(text, done) {
    // An answer that had ended goes on: its last block may go on as well.
    if (this.isDone && text !== this.text) this.reset();
    this.text = text;
    this.isDone ||= done;
    if (done) {
      clearTimeout(this.timer);
      this.timer = null;
      this.draw(true);
    } else {
      this.timer ??= setTimeout(() => requestAnimationFrame(() => {
        this.timer = null;
        this.draw(false);
      }), this.cost * REST);
    }
  }

  reset() {
    this.element.replaceChildren();
    this.frozen = 0;
    this.tail = [];
    this.openCode = null;
    this.isDone = false;
  }

  draw(done) {
    const began = performance.now();
    const rest = this.text.slice(this.frozen);
    if (this.openCode === null || !this.growCode(rest, done)) this.drawBlocks(rest, done);
    this.cost = performance.now() - began;
    this.element.dispatchEvent(new CustomEvent("drawn", { bubbles: true }));
  }

  drawBlocks(rest, done) {
    const lines = rest.split("\n");
    const blocks = parse(lines);
    // The last line may go on: what begins there doesn't end the block before yet.
    let final = blocks.length;
    if (!done) {
      final = Math.max(0, blocks.length - 1);
      while (final > 0 && blocks[final].line >= lines.length - 1) final -= 1;
    }
    for (const node of this.tail) node.remove();
    const begun = this.openCode;
    this.openCode = null;
    blocks.slice(0, final).forEach((block, index) => this.element.append(index === 0 ? finished(block, begun) : render(block)));
    this.tail = blocks.slice(final).map((block, _, open) => (open.length === 1 ? this.renderOpen(block) : render(block)));
    this.element.append(...this.tail);
    if (final < blocks.length) {
      const before = lines.slice(0, blocks[final].line).join("\n");
      this.frozen += before.length + (blocks[final].line > 0 ? 1 : 0);
    } else {
      this.frozen = this.text.length;
    }
  }

  // A block of code that is still being written keeps its element.
  renderOpen(block) {
    if (block.kind !== "code" || !block.open) return render(block);
    const view = new CodeView(block.language);
    view.update(block.code);
    this.openCode = { view, language: block.language };
    return view.element;
  }

  // Whether the rest is that block alone still.
  growCode(rest, done) {
    const { view, language } = this.openCode;
    const begin = rest.indexOf("\n") + 1;
    const fence = /^\s*(`{3,}|~{3,})/.exec(rest);
    const closed = fence === null || rest.includes(`\n${fence[1]}`, begin - 1);
    if (!closed && !done && begin > 0 && !/^ /.test(rest) && language === view.language) {
      // A line that may become the closing fence is shown with the next one.
      const lastLine = rest.lastIndexOf("\n") + 1;
      const code = /^[`~]+$/.test(rest.slice(lastLine)) ? rest.slice(begin, lastLine) : rest.slice(begin);
      view.update(code);
      return true;
    }
    return false;
  }
}

// The element of a block; one of code that grew keeps what it has.
function finished(block, begun) {
  if (begun === null || block.kind !== "code" || block.language !== begun.language) return render(block);
  begun.view.update(block.code, true);
  return begun.view.element;
}
