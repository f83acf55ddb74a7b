// Formulas in TeX to MathML, which browsers draw themselves. Knows the commands that answers commonly
// have (math_symbols.js); a formula with any other is shown as its source, whole.

import { h } from "./dom.js";
import { ACCENTS, ALPHABETS, FUNCTIONS, LARGE, SPACES, SYMBOLS } from "./math_symbols.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const DEEPEST = 60;

// An element for a formula: on a line of its own if `display`.
export function formula(tex, display) {
  try {
    const parser = new Parser(tex);
    const row = mrow(parser.row(() => parser.peek() === undefined));
    const math = m("math", display ? { display: "block" } : {}, row);
    math.setAttribute("aria-label", tex.trim());
    return math;
  } catch (error) {
    if (!(error instanceof Unsupported)) throw error;
    return h("code", { class: "tex", title: error.message }, tex.trim());
  }
}

class Unsupported extends Error {}

function m(tag, attributes, ...children) {
  const element = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const mrow = (nodes) => (nodes.length === 1 ? nodes[0] : m("mrow", {}, ...nodes));
const mo = (text, attributes = {}) => m("mo", attributes, text);

const TOKEN = /\s+|%[^\n]*|\\(?:[A-Za-z]+\*?|[\s\S])|\d+(?:\.\d+)?|[\s\S]/gu;

class Parser {
  constructor(tex) {
    this.tokens = tex.match(TOKEN)?.filter((token) => !/^(?:\s|%)/.test(token)) ?? [];
    // For texts, in which spaces count.
    this.spaced = tex.match(TOKEN) ?? [];
    this.at = 0;
    this.depth = 0;
  }

  peek() {
    return this.tokens[this.at];
  }

  next() {
    if (this.at >= this.tokens.length) throw new Unsupported("the formula ends too early");
    return this.tokens[this.at++];
  }

  expect(token) {
    const found = this.next();
    if (found !== token) throw new Unsupported(`${token} was expected where ${found} stands`);
  }

  // Nodes up to where `ends`.
  row(ends) {
    if ((this.depth += 1) > DEEPEST) throw new Unsupported("the formula is nested too deeply");
    const nodes = [];
    while (!ends()) {
      if (this.peek() === undefined) throw new Unsupported("the formula ends too early");
      const node = this.scripted();
      if (node !== null) nodes.push(node);
    }
    this.depth -= 1;
    return nodes;
  }

  group() {
    this.expect("{");
    const nodes = this.row(() => this.peek() === "}");
    this.next();
    return m("mrow", {}, ...nodes);
  }

  // What a command takes: a group, or one thing.
  argument() {
    if (this.peek() === "{") return this.group();
    const node = this.atom();
    return node ?? m("mrow", {});
  }

  // The text of a group, as it was written.
  textArgument() {
    const index = this.at;
    this.expect("{");
    let from = 0;
    for (let seen = -1; seen < index; from += 1) if (!/^(?:\s|%)/.test(this.spaced[from])) seen += 1;
    let nesting = 1;
    let text = "";
    for (let at = from; at < this.spaced.length; at += 1) {
      const token = this.spaced[at];
      nesting += token === "{" ? 1 : token === "}" ? -1 : 0;
      if (!/^(?:\s|%)/.test(token)) this.at += 1;
      if (nesting === 0) return text;
      text += /^\\[^A-Za-z]$/.test(token) ? token[1] : token;
    }
    throw new Unsupported("a text ends too early");
  }

  // An atom with what stands at its right above and below.
  scripted() {
    const base = this.atom();
    let above = null;
    let below = null;
    let primes = "";
    for (;;) {
      const token = this.peek();
      if (token === "'") primes += this.next() && "′";
      else if (token === "^" && above === null) above = this.next() && this.argument();
      else if (token === "_" && below === null) below = this.next() && this.argument();
      else if (token === "\\limits" || token === "\\nolimits") this.next();
      else break;
    }
    if (primes !== "") above = above === null ? mo(primes) : m("mrow", {}, mo(primes), above);
    if (above === null && below === null) return base;
    const inner = base ?? m("mrow", {});
    const stacked = inner.getAttribute("data-limits") === "yes";
    if (above === null) return m(stacked ? "munder" : "msub", {}, inner, below);
    if (below === null) return m(stacked ? "mover" : "msup", {}, inner, above);
    return m(stacked ? "munderover" : "msubsup", {}, inner, below, above);
  }

  atom() {
    const token = this.peek();
    if (token === "{") return this.group();
    if (token === "^" || token === "_" || token === "'") return m("mrow", {});
    if (token === "}" || token === "&") throw new Unsupported(`${token} stands where nothing is open`);
    this.next();
    if (token[0] === "\\") return this.command(token.slice(1));
    if (/^\d/.test(token)) return m("mn", {}, token);
    if (/^\p{L}$/u.test(token)) return m("mi", {}, token);
    if (token === "~") return m("mspace", { width: "0.33em" });
    const fence = "()[]|".includes(token) ? { stretchy: "false" } : {};
    return mo(token === "-" ? "−" : token === "*" ? "∗" : token, fence);
  }

  command(name) {
    if (name in SYMBOLS) return symbol(SYMBOLS[name]);
    if (name in LARGE) return large(LARGE[name]);
    if (name in SPACES) return m("mspace", { width: SPACES[name] });
    if (FUNCTIONS.has(name)) return functionName(name, ["lim", "max", "min", "sup", "inf", "limsup", "liminf", "det", "gcd", "Pr"].includes(name));
    if (name in ACCENTS) return this.accent(...ACCENTS[name]);
    if (name in ALPHABETS) return this.alphabet(ALPHABETS[name]);
    if (name in COMMANDS) return COMMANDS[name](this);
    throw new Unsupported(`\\${name} is not known`);
  }

  accent(mark, below, stretches) {
    const tag = below ? "munder" : "mover";
    const limits = mark === "⏞" || mark === "⏟" ? { "data-limits": "yes" } : {};
    return m(tag, { [below ? "accentunder" : "accent"]: "true", ...limits }, this.argument(), mo(mark, { stretchy: String(stretches) }));
  }

  // Letters of another alphabet are characters of their own in Unicode.
  alphabet(toLetter) {
    const node = this.argument();
    for (const leaf of node.localName === "mi" || node.localName === "mn" ? [node] : node.querySelectorAll("mi, mn")) {
      leaf.textContent = Array.from(leaf.textContent, toLetter).join("");
      if (leaf.localName === "mi") leaf.setAttribute("mathvariant", "normal");
    }
    return node;
  }

  delimiter() {
    const token = this.next();
    if (token === ".") return "";
    const named = { "\\{": "{", "\\}": "}", "\\|": "‖" };
    const text = named[token] ?? (token[0] === "\\" ? SYMBOLS[token.slice(1)]?.[1] : token);
    if (text === undefined || Array.from(text).length !== 1) throw new Unsupported(`${token} is no delimiter`);
    return text;
  }
}

function symbol([tag, text]) {
  if (tag === "mi") return m("mi", {}, text);
  return mo(text, "⟨⟩⌈⌉⌊⌋‖|{}".includes(text) ? { stretchy: "false" } : {});
}

function large([text, limits]) {
  return mo(text, limits ? { "data-limits": "yes", movablelimits: "false", largeop: "true" } : { largeop: "true" });
}

function functionName(name, limits) {
  const text = { limsup: "lim sup", liminf: "lim inf" }[name] ?? name;
  const node = m("mi", { mathvariant: "normal", ...(limits && { "data-limits": "yes" }) }, text);
  return m("mrow", limits ? { "data-limits": "yes" } : {}, node, mo("\u2061"));
}

function fraction(parser, attributes = {}) {
  const above = parser.argument();
  return m("mfrac", attributes, above, parser.argument());
}

function fenced(open, inside, close) {
  const side = (text, form) => (text === "" ? [] : [mo(text, { fence: "true", form, stretchy: "true" })]);
  return m("mrow", {}, ...side(open, "prefix"), ...inside, ...side(close, "postfix"));
}

function text(parser, more = {}) {
  return m("mtext", more, parser.textArgument().replaceAll(" ", "\u00a0"));
}

const big = (parser) => mo(parser.delimiter(), { minsize: "1.6em", maxsize: "1.6em", stretchy: "true" });

const COMMANDS = {
  frac: fraction,
  dfrac: (parser) => m("mstyle", { displaystyle: "true" }, fraction(parser)),
  tfrac: (parser) => m("mstyle", { displaystyle: "false" }, fraction(parser)),
  cfrac: (parser) => m("mstyle", { displaystyle: "true" }, fraction(parser)),
  binom: (parser) => fenced("(", [fraction(parser, { linethickness: "0" })], ")"),
  sqrt(parser) {
    if (parser.peek() !== "[") return m("msqrt", {}, parser.argument());
    parser.next();
    const degree = parser.row(() => parser.peek() === "]");
    parser.next();
    return m("mroot", {}, parser.argument(), mrow(degree));
  },
  text,
  textrm: text,
  mbox: text,
  textbf: (parser) => text(parser, { class: "bold" }),
  textit: text,
  mathrm: (parser) => (parser.peek() === "{" ? m("mi", { mathvariant: "normal" }, parser.textArgument()) : parser.argument()),
  operatorname: (parser) => m("mrow", {}, m("mi", { mathvariant: "normal" }, parser.textArgument()), mo("\u2061")),
  "operatorname*": (parser) => m("mi", { mathvariant: "normal", "data-limits": "yes" }, parser.textArgument()),
  left(parser) {
    const open = parser.delimiter();
    const inside = parser.row(() => parser.peek() === "\\right");
    parser.next();
    return fenced(open, inside, parser.delimiter());
  },
  middle: (parser) => mo(parser.delimiter(), { stretchy: "true" }),
  big, Big: big, bigg: big, Bigg: big, bigl: big, bigr: big, Bigl: big, Bigr: big, biggl: big, biggr: big,
  boxed: (parser) => m("mrow", { class: "boxed" }, parser.argument()),
  overset(parser) {
    const above = parser.argument();
    return m("mover", {}, parser.argument(), above);
  },
  underset(parser) {
    const below = parser.argument();
    return m("munder", {}, parser.argument(), below);
  },
  stackrel: (parser) => COMMANDS.overset(parser),
  pmod: (parser) => m("mrow", {}, m("mspace", { width: "0.5em" }), mo("("), m("mi", { mathvariant: "normal" }, "mod"), m("mspace", { width: "0.3em" }), parser.argument(), mo(")")),
  bmod: () => m("mrow", {}, m("mspace", { width: "0.2em" }), m("mi", { mathvariant: "normal" }, "mod"), m("mspace", { width: "0.2em" })),
  not(parser) {
    const node = parser.argument();
    node.textContent += "\u0338";
    return node;
  },
  displaystyle: () => null,
  textstyle: () => null,
  nonumber: () => null,
  tag: (parser) => m("mrow", {}, m("mspace", { width: "2em" }), m("mtext", {}, `(${parser.textArgument()})`)),
  label: (parser) => parser.textArgument() && null,
  begin: environment,
};

const FENCES = {
  matrix: ["", ""], smallmatrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"],
  Vmatrix: ["‖", "‖"], cases: ["{", ""], array: ["", ""], aligned: ["", ""], align: ["", ""], "align*": ["", ""], split: ["", ""],
  gathered: ["", ""], gather: ["", ""], "gather*": ["", ""], equation: ["", ""], "equation*": ["", ""], alignat: ["", ""],
};

function environment(parser) {
  const name = parser.textArgument();
  if (!(name in FENCES)) throw new Unsupported(`the environment ${name} is not known`);
  const columns = name === "array" ? parser.textArgument().replace(/[^lcr]/g, "") : "";
  const rows = [[]];
  const ends = () => ["&", "\\\\", "\\end"].includes(parser.peek());
  for (;;) {
    const content = parser.row(ends);
    rows.at(-1).push(m("mtd", { class: alignment(name, columns, rows.at(-1).length) }, ...content));
    const token = parser.next();
    if (token === "\\end") break;
    if (token === "\\\\") rows.push([]);
  }
  if (parser.textArgument() !== name) throw new Unsupported(`${name} ends with another environment`);
  if (rows.at(-1).length === 1 && rows.at(-1)[0].childNodes.length === 0) rows.pop();
  const isDisplay = /^(align|split|gather|equation)/.test(name);
  const table = m("mtable", isDisplay ? { displaystyle: "true" } : {}, ...rows.map((cells) => m("mtr", {}, ...cells)));
  return fenced(FENCES[name][0], [table], FENCES[name][1]);
}

function alignment(name, columns, column) {
  const side = { l: "left", c: "center", r: "right" }[columns[column]];
  if (side) return `mtd-${side}`;
  if (name === "cases") return "mtd-left";
  return /^(align|split)/.test(name) ? `mtd-${column % 2 === 0 ? "right" : "left"} mtd-tight` : "mtd-center";
}
