// Markdown to DOM nodes: blocks. After CommonMark and GitHub's tables and task lists, without HTML and
// without indented code, which models don't mean. Lines are read once; `parse` tells where in the text
// each block begins, so that a growing answer is parsed from its last blocks on (answer_view.js).

import { CodeView } from "./code_view.js";
import { h } from "./dom.js";
import { inline } from "./inline.js";
import { formula } from "./math.js";

// Quotes and lists in each other; deeper ones are shown as text.
const DEEPEST = 12;
// A longer list is shown as several, so that a growing one is not made anew from its first item.
const LIST_ITEMS = 40;

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:(\s+)(.*))?$/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const MATH_OPEN = /^ {0,3}(\$\$|\\\[)\s*(.*)$/;
const isBlank = (line) => /^\s*$/.test(line);

// Blocks of a text: { kind, line (of the first line), ... }.
export function parse(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, end] = readBlock(lines, at, depth);
    blocks.push({ ...block, line: at });
    at = end;
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return readFence(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1].length, text: heading[2] ?? "" }, at + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  const math = MATH_OPEN.exec(line) && readMath(lines, at);
  if (math) return math;
  if (depth < DEEPEST) {
    if (QUOTE.test(line)) return readQuote(lines, at, depth);
    if (ITEM.test(line)) return readList(lines, at, depth);
  }
  if (isTable(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at);
}

function readFence(lines, at) {
  const [, indent, fence, info] = FENCE.exec(lines[at]);
  const closing = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const strip = new RegExp(`^ {0,${indent.length}}`);
  const code = lines.slice(at + 1, end).map((line) => (indent ? line.replace(strip, "") : line)).join("\n");
  const language = info.trim().split(/[\s{]/)[0].toLowerCase();
  return [{ kind: "code", language, code, open: end === lines.length }, end + 1];
}

function readMath(lines, at) {
  const [, open, first] = MATH_OPEN.exec(lines[at]);
  const close = open === "$$" ? "$$" : "\\]";
  const parts = [];
  for (let line = at; line < lines.length && line - at < 200; line += 1) {
    const text = line === at ? first : lines[line];
    const end = text.indexOf(close);
    if (end < 0) {
      parts.push(text);
      continue;
    }
    // Words behind it: a paragraph that begins with a formula.
    if (!isBlank(text.slice(end + 2))) return null;
    parts.push(text.slice(0, end));
    return [{ kind: "math", tex: parts.join("\n") }, line + 1];
  }
  return null;
}

function readQuote(lines, at, depth) {
  const inner = [];
  let end = at;
  while (end < lines.length && !isBlank(lines[end])) {
    if (!QUOTE.test(lines[end]) && startsBlock(lines, end)) break;
    inner.push(lines[end].replace(QUOTE, ""));
    end += 1;
  }
  return [{ kind: "quote", blocks: parse(inner, depth + 1) }, end];
}

function readList(lines, at, depth) {
  const [, , marker] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const sameList = (line) => {
    const item = ITEM.exec(line);
    return item !== null && !RULE.test(line) && item[2].at(-1) === marker.at(-1) && /\d/.test(item[2]) === ordered;
  };
  const list = { kind: "list", ordered, start: Number.parseInt(marker, 10), items: [], loose: false };
  let end = at;
  while (end < lines.length && list.items.length < LIST_ITEMS && sameList(lines[end])) {
    const [item, next] = readItem(lines, end);
    list.items.push({ ...taskOf(item), blocks: parse(taskOf(item).lines, depth + 1) });
    list.loose ||= item.some((line, index) => index > 0 && isBlank(line) && index < item.length - 1);
    let after = next;
    while (after < lines.length && isBlank(lines[after])) after += 1;
    if (after > next && after < lines.length && sameList(lines[after])) list.loose = true;
    end = after < lines.length && sameList(lines[after]) ? after : next;
  }
  return [list, end];
}

// The lines of an item without its indent: those that are indented as far as its text, and those that
// go on with its paragraph.
function readItem(lines, at) {
  const [, indent, marker, space = " ", text = ""] = ITEM.exec(lines[at]);
  // Models indent by two or three where the text begins later.
  const needed = Math.min(indent.length + marker.length + (space.length > 4 ? 1 : space.length), indent.length + 2);
  const strip = new RegExp(`^\\s{0,${indent.length + marker.length + Math.min(space.length, 4)}}`);
  const item = [text];
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (isBlank(line)) {
      let after = end;
      while (after < lines.length && isBlank(lines[after])) after += 1;
      if (after === lines.length || indentOf(lines[after]) < needed) break;
    } else if (indentOf(line) < needed && (isBlank(lines[end - 1]) || ITEM.test(line) || startsBlock(lines, end))) break;
    item.push(line.replace(strip, ""));
    end += 1;
  }
  return [item, end];
}

const indentOf = (line) => /^\s*/.exec(line)[0].replaceAll("\t", "    ").length;

function taskOf(item) {
  const task = /^\[([ xX])\]\s+(.*)$/.exec(item[0]);
  return task ? { checked: task[1] !== " ", lines: [task[2], ...item.slice(1)] } : { lines: item };
}

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length &&
  TABLE_RULE.test(lines[at + 1]) && lines[at + 1].includes("-") && cells(lines[at]).length === cells(lines[at + 1]).length;

function readTable(lines, at) {
  const aligns = cells(lines[at + 1]).map((cell) => (
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) end += 1;
  return [{ kind: "table", aligns, head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells) }, end];
}

// A bar in code or behind a backslash is no border.
function cells(line) {
  const found = [""];
  let inCode = false;
  const text = line.trim().replace(/^\|/, "").replace(/([^\\]|^)\|$/, "$1");
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      found[found.length - 1] += "|";
      at += 1;
      continue;
    }
    if (text[at] === "`") inCode = !inCode && text.includes("`", at + 1);
    if (text[at] === "|" && !inCode) found.push("");
    else found[found.length - 1] += text[at];
  }
  return found.map((cell) => cell.trim());
}

// Whether a line ends the paragraph before it.
function startsBlock(lines, at) {
  const line = lines[at];
  const item = ITEM.exec(line);
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isTable(lines, at) ||
    /^ {0,3}(\$\$|\\\[)/.test(line) || (item !== null && item[4] !== undefined && (/^(1[.)]|[-*+])$/.test(item[2])));
}

function readParagraph(lines, at) {
  const text = [lines[at].trim()];
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end])) {
    const underline = /^ {0,3}(=+|-{2,})\s*$/.exec(lines[end]);
    if (underline) return [{ kind: "heading", level: underline[1][0] === "=" ? 1 : 2, text: text.join("\n") }, end + 1];
    if (startsBlock(lines, end)) break;
    text.push(lines[end].trimStart());
    end += 1;
  }
  return [{ kind: "paragraph", text: text.join("\n").trimEnd() }, end];
}

// The element of a block.
export function render(block) {
  switch (block.kind) {
    case "heading": {
      // The page has the first level.
      const level = Math.min(6, block.level + 1);
      return h(`h${level}`, { class: `heading-${block.level}` }, ...inline(block.text));
    }
    case "rule": return h("hr");
    case "math": return h("div", { class: "formula" }, formula(block.tex, true));
    case "quote": return h("blockquote", {}, ...block.blocks.map(render));
    case "list": return renderList(block);
    case "table": return renderTable(block);
    case "code": {
      const view = new CodeView(block.language);
      view.update(block.code, true);
      return view.element;
    }
    default: return h("p", {}, ...inline(block.text));
  }
}

function renderList({ ordered, start, items, loose }) {
  const rows = items.map(({ blocks, checked }) => {
    const children = blocks.flatMap((block) => (
      !loose && block.kind === "paragraph" ? inline(block.text) : [render(block)]));
    if (checked === undefined) return h("li", {}, ...children);
    const box = h("input", { type: "checkbox", disabled: true, checked, "aria-label": checked ? "done" : "not done" });
    return h("li", { class: "task" }, box, ...children);
  });
  return h(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {}, ...rows);
}

function renderTable({ aligns, head, rows }) {
  const cell = (tag, text, column) => h(tag, { class: aligns[column] && `align-${aligns[column]}` }, ...inline(text ?? ""));
  const header = h("thead", {}, h("tr", {}, ...head.map((text, column) => cell("th", text, column))));
  const body = rows.map((row) => h("tr", {}, ...head.map((_, column) => cell("td", row[column], column))));
  // Wide tables scroll by themselves, by keys too.
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, header, h("tbody", {}, ...body)));
}
