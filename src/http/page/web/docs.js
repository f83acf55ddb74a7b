// The guide: draws the Markdown that its own address has for programs, beside a list of all pages.

import { banner, byId, h } from "./dom.js";
import { parse, render } from "./markdown.js";
import { toggleTheme } from "./prefs.js";

const INDEX = "/docs";
// Marks of tables that are written from the code, and where references lead, which their names say already.
const HIDDEN = /^(?:<!--.*-->|\[\w+\.md\]: \S+)$/;
const REFERENCE = /\[([^\]]+)\]\[(\w+\.md)\]/g;
const PAGE = /^(\w+)\.md$/;

async function read(address) {
  const response = await fetch(address, { headers: { accept: "text/markdown" } });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return parse(text.split("\n").filter((line) => !HIDDEN.test(line))).map(flow);
}

// Unlike a model's, these lines end where a file is wide enough.
const plain = (text) => text.replaceAll("\n", " ").replace(REFERENCE, "[$1]($2)");

function flow(block) {
  switch (block.kind) {
    case "paragraph":
    case "heading": return { ...block, text: plain(block.text) };
    case "quote": return { ...block, blocks: block.blocks.map(flow) };
    case "list": return { ...block, items: block.items.map((item) => ({ ...item, blocks: item.blocks.map(flow) })) };
    case "table": return { ...block, head: block.head.map(plain), rows: block.rows.map((row) => row.map(plain)) };
    default: return block;
  }
}

const address = (name) => (name === "index" ? INDEX : `${INDEX}/${name}`);

// Puts blocks into a place, with links to other pages, which the renderer shows as text: in an answer they
// would lead nowhere.
function show(place, blocks) {
  place.replaceChildren(...blocks.map(render));
  for (const text of place.querySelectorAll("span[title]")) {
    const name = PAGE.exec(text.title)?.[1];
    if (name !== undefined) text.replaceWith(h("a", { href: address(name) }, ...text.childNodes));
  }
}

// Headings can be linked to, and code and tables that scroll are told apart by screen readers.
function nameParts(place) {
  for (const [index, part] of place.querySelectorAll("[role=region]").entries()) {
    part.setAttribute("aria-label", `${part.getAttribute("aria-label")}, ${index + 1}`);
  }
  for (const heading of place.querySelectorAll("h2, h3, h4")) {
    heading.id = heading.textContent.toLowerCase().replace(/[^\w\s-]/g, "").trim().replace(/\s+/g, "-");
  }
}

// The list of pages is that of the first one, without its words.
function list(blocks) {
  const shown = blocks.filter(({ kind, level }) => kind === "list" || (kind === "heading" && level > 1));
  show(byId("pages"), shown.map((block) => (block.kind === "heading" ? { ...block, level: 1 } : block)));
  for (const item of byId("pages").querySelectorAll("li")) item.replaceChildren(...item.querySelectorAll("a"));
  const here = location.pathname.replace(/\.md$/, "");
  for (const link of byId("pages").querySelectorAll("a")) {
    if (link.getAttribute("href") === here) link.setAttribute("aria-current", "page");
  }
}

async function start() {
  byId("theme").addEventListener("click", toggleTheme);
  const wide = matchMedia("(min-width: 900px)");
  const fold = () => {
    byId("contents").open = wide.matches;
  };
  fold();
  wide.addEventListener("change", fold);
  const [index, page] = await Promise.all([read(INDEX), read(location.pathname)]);
  list(index);
  show(byId("page"), page);
  nameParts(byId("page"));
  document.title = `${byId("page").querySelector("h2").textContent} · sconce`;
  document.body.classList.add("ready");
  if (location.hash !== "") byId(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

try {
  await start();
} catch (error) {
  banner("offline", `This page can't be read: ${error.message}`);
}
