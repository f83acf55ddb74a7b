// Markdown inside a paragraph to DOM nodes: code, emphasis, links, breaks and formulas, after CommonMark
// (https://spec.commonmark.org) and GitHub's strikethrough and bare links. HTML is shown as text.

import { h } from "./dom.js";
import { formula } from "./math.js";

// How far the end of something is looked for; hostile text would be read again and again.
const REACH = 4000;
const DEEPEST = 8;

// Nodes of one paragraph's text.
export function inline(text, depth = 0) {
  const parser = new Inline(text, depth);
  while (parser.at < text.length) parser.step();
  parser.flush();
  return parser.finish();
}

const PUNCTUATION = /[\p{P}\p{S}]/u;
const URL_START = /https?:\/\/[^\s<>"]+/y;

// Scans the text once. `items` are nodes and runs of delimiters, which `finish` pairs.
class Inline {
  constructor(text, depth) {
    Object.assign(this, { text, depth, at: 0, plain: "", items: [] });
  }

  flush() {
    if (this.plain !== "") this.items.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  push(node, end) {
    this.flush();
    this.items.push(node);
    this.at = end;
  }

  step() {
    const { text, at } = this;
    const read = READERS[text[at]];
    if (read !== undefined && read(this)) return;
    this.plain += text[at];
    this.at += 1;
  }

  // Where `what` stands next, within reach.
  find(what, from) {
    const at = this.text.indexOf(what, from);
    return at >= 0 && at - from <= REACH ? at : -1;
  }

  finish() {
    pairDelimiters(this.items);
    return this.items.map((item) => (item instanceof Node ? item : document.createTextNode(item.mark.repeat(item.count))));
  }
}

const READERS = {
  "\\": readEscape,
  "`": readCode,
  "$": readDollar,
  "[": (parser) => readLink(parser, parser.at, false),
  "!": (parser) => parser.text[parser.at + 1] === "[" && readLink(parser, parser.at + 1, true),
  "<": readAngle,
  "h": readBareLink,
  "\n": readBreak,
  "*": readDelimiters,
  "_": readDelimiters,
  "~": readDelimiters,
  "&": readEntity,
};

const CLOSING = { "(": "\\)", "[": "\\]" };

function readEscape(parser) {
  const { text, at } = parser;
  const next = text[at + 1];
  if (next in CLOSING) {
    const end = parser.find(CLOSING[next], at + 2);
    if (end > at + 2) {
      parser.push(formula(text.slice(at + 2, end), next === "["), end + 2);
      return true;
    }
  }
  if (next === "\n") {
    parser.push(h("br"), at + 2);
    return true;
  }
  if (next === undefined || !/[!-/:-@[-`{-~]/.test(next)) return false;
  parser.plain += next;
  parser.at += 2;
  return true;
}

function readCode(parser) {
  const { text, at } = parser;
  const run = /`+/y;
  run.lastIndex = at;
  const fence = run.exec(text)[0];
  let end = at + fence.length;
  for (;;) {
    end = parser.find(fence, end);
    if (end < 0) break;
    run.lastIndex = end;
    const length = run.exec(text)[0].length;
    if (length === fence.length) {
      const code = text.slice(at + fence.length, end).replaceAll("\n", " ");
      const padded = /^ .*[^ ].* $/s.test(code) || /^ [^ ]+ $/.test(code);
      parser.push(h("code", {}, padded ? code.slice(1, -1) : code), end + fence.length);
      return true;
    }
    end += length;
  }
  parser.plain += fence;
  parser.at += fence.length;
  return true;
}

// Amounts of money are no formulas: "$5 and $10".
function readDollar(parser) {
  const { text, at } = parser;
  if (text[at + 1] === "$") {
    const end = parser.find("$$", at + 2);
    if (end <= at + 2) return false;
    parser.push(formula(text.slice(at + 2, end), true), end + 2);
    return true;
  }
  if (/[\s\d]/.test(text[at - 1] ?? " ") === false && /\w/.test(text[at - 1])) return false;
  const end = parser.find("$", at + 1);
  const inside = text.slice(at + 1, end);
  if (end < 0 || inside === "" || /^\s|\s$|\n\s*\n/.test(inside) || /[\w$]/.test(text[end + 1] ?? " ")) return false;
  parser.push(formula(inside, false), end + 1);
  return true;
}

// `[text](address "title")`. A picture becomes a link as well, unless its bytes are in the text: this
// page fetches nothing that a model names.
function readLink(parser, open, isPicture) {
  const { text, depth } = parser;
  const close = closingBracket(text, open);
  if (close < 0 || text[close + 1] !== "(" || depth >= DEEPEST) return false;
  const target = /\(\s*(?:<([^<>\n]*)>|((?:[^\s()]|\((?:[^\s()]|\([^\s()]*\))*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
  target.lastIndex = close + 1;
  const match = target.exec(text);
  if (match === null) return false;
  const address = (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
  const label = text.slice(open + 1, close);
  let node;
  if (isPicture && /^data:image\/(?:png|jpeg|gif|webp);base64,/.test(address)) {
    node = h("img", { src: address, alt: label });
  } else {
    node = link(address, isPicture ? [label || address] : inline(label, depth + 1));
  }
  parser.push(node, target.lastIndex);
  return true;
}

function closingBracket(text, open) {
  let nesting = 0;
  for (let at = open; at < text.length && at - open < REACH; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") nesting += 1;
    else if (text[at] === "]" && (nesting -= 1) === 0) return at;
  }
  return -1;
}

// Only addresses that can't run anything; others are shown as text.
function link(address, children) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return h("span", { title: address }, ...children);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function readAngle(parser) {
  const { text, at } = parser;
  const automatic = /<(https?:\/\/[^\s<>]*|mailto:[^\s<>]+)>|<br\s*\/?>/iy;
  automatic.lastIndex = at;
  const match = automatic.exec(text);
  if (match === null) return false;
  parser.push(match[1] ? link(match[1], [match[1]]) : h("br"), automatic.lastIndex);
  return true;
}

function readBareLink(parser) {
  const { text, at } = parser;
  if (at > 0 && /\w/.test(text[at - 1])) return false;
  URL_START.lastIndex = at;
  const match = URL_START.exec(text);
  if (match === null) return false;
  let address = match[0].replace(/[.,:;!?'*_~]+$/, "");
  if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
  parser.push(link(address, [address]), at + address.length);
  return true;
}

// Models break lines where they mean it: in poems, addresses, lists without marks.
function readBreak(parser) {
  parser.plain = parser.plain.replace(/ +$/, "");
  parser.push(h("br"), parser.at + 1);
  return true;
}

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", mdash: "—", ndash: "–", hellip: "…" };

function readEntity(parser) {
  const entity = /&(?:(\w{2,6})|#(\d{1,7}));/y;
  entity.lastIndex = parser.at;
  const match = entity.exec(parser.text);
  const code = Number(match?.[2]);
  const character = match?.[1] ? ENTITIES[match[1]] : code > 0 && code <= 0x10ffff && String.fromCodePoint(code);
  if (!character) return false;
  parser.plain += character;
  parser.at = entity.lastIndex;
  return true;
}

// A run of delimiters and whether it can open or close, by the characters around it.
function readDelimiters(parser) {
  const { text, at } = parser;
  const mark = text[at];
  let end = at;
  while (text[end] === mark) end += 1;
  if (mark === "~" && end - at !== 2) return false;
  const before = at === 0 ? " " : text[at - 1];
  const after = end === text.length ? " " : text[end];
  const spaceBefore = /\s/.test(before);
  const spaceAfter = /\s/.test(after);
  const left = !spaceAfter && (!PUNCTUATION.test(after) || spaceBefore || PUNCTUATION.test(before));
  const right = !spaceBefore && (!PUNCTUATION.test(before) || spaceAfter || PUNCTUATION.test(after));
  const inWord = mark === "_";
  const opens = left && (!inWord || !right || PUNCTUATION.test(before));
  const closes = right && (!inWord || !left || PUNCTUATION.test(after));
  parser.push({ mark, count: end - at, original: end - at, opens, closes }, end);
  return true;
}

// "Process emphasis" of CommonMark's appendix: every closer takes the nearest opener that fits it.
function pairDelimiters(items) {
  const bottom = {};
  let at = 0;
  while (at < items.length) {
    const closer = items[at];
    if (closer instanceof Node || !closer.closes || closer.count === 0) {
      at += 1;
      continue;
    }
    const floor = `${closer.mark}${closer.opens}${closer.original % 3}`;
    let from = at - 1;
    while (from >= (bottom[floor] ?? 0) && !fits(items[from], closer)) from -= 1;
    if (from < (bottom[floor] ?? 0)) {
      bottom[floor] = at;
      at += 1;
      continue;
    }
    const opener = items[from];
    const width = opener.count >= 2 && closer.count >= 2 ? 2 : 1;
    const tag = closer.mark === "~" ? "del" : width === 2 ? "strong" : "em";
    const inside = items.slice(from + 1, at).map((item) => (item instanceof Node ? item : item.mark.repeat(item.count)));
    items.splice(from + 1, at - from - 1, h(tag, {}, ...inside));
    opener.count -= width;
    closer.count -= width;
    at = from + 2;
    if (opener.count === 0) {
      items.splice(from, 1);
      at -= 1;
    }
    // Places above have moved down; what was found below them still holds.
    for (const key of Object.keys(bottom)) bottom[key] = Math.min(bottom[key], from);
  }
}

function fits(opener, closer) {
  if (opener instanceof Node || !opener.opens || opener.mark !== closer.mark || opener.count === 0) return false;
  const both = opener.closes || closer.opens;
  const sum = opener.original + closer.original;
  return !both || sum % 3 !== 0 || (opener.original % 3 === 0 && closer.original % 3 === 0);
}
