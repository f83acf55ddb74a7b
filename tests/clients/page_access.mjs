// Who can use the pages: keys only, small screens, screen readers, servers with API keys. Run by `page.mjs`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { check, PHONE, require, saying, Server, Tab, until } from "./page_support.mjs";

export async function access({ browser, binary, server }) {
  await check("the page: a conversation by keys alone", () => byKeys(browser, server));
  await check("the page: a phone's width shows everything", () => onPhone(browser, server));
  for (const scheme of ["light", "dark"]) {
    await check(`the page: axe finds nothing (${scheme})`, () => audit(browser, server, scheme));
  }
  await check("the page: a server with keys is asked with the one that the user gives", () => asksForKey(browser, binary));
  await check("the page: what programs get from / is as it was", () => servesPrograms(server));
}

async function byKeys(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  const { keyboard } = tab.page;
  const press = async (...keys) => {
    for (const key of keys.slice(0, -1)) await keyboard.down(key);
    await keyboard.press(keys.at(-1));
    for (const key of keys.slice(0, -1).reverse()) await keyboard.up(key);
  };
  const focused = () => tab.page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute("aria-label") || document.activeElement.className);
  assert.equal(await focused(), "message");
  await keyboard.type("What is 12 plus 7?");
  await keyboard.press("Enter");
  await tab.answered();
  await keyboard.press("ArrowUp");
  await tab.page.waitForSelector("textarea.edit:focus");
  await keyboard.press("Escape");
  assert.equal(await focused(), "message");
  await press("Control", ",");
  await tab.page.waitForSelector("#set-system:focus");
  await keyboard.press("Escape");
  await until("the focus is back", async () => (await focused()) === "message");
  await press("Control", "k");
  await tab.page.waitForSelector("#search:focus");
  await press("Control", "Shift", "O");
  await tab.page.waitForSelector("body.empty");
  assert.equal(await focused(), "message");
  // Everything is reached by Tab, and has a name.
  const reached = new Set();
  for (let step = 0; step < 25; step += 1) {
    await keyboard.press("Tab");
    reached.add(await focused());
  }
  for (const name of ["new", "search", "import", "export-all", "model", "settings", "theme", "attach", "message"]) assert.ok(reached.has(name), `${name} is not reached: ${[...reached]}`);
  await tab.close();
}

async function onPhone(browser, server) {
  const tab = await (await Tab.open(browser, server.url, { viewport: PHONE })).ready();
  await tab.answerWith(() => saying("A table:\n\n| a | b | c |\n|---|---|---|\n| a long cell that does not break | another long cell here | and one more |\n\n```\n" + "x".repeat(200) + "\n```"));
  await tab.send("Show");
  await tab.answered();
  const overflows = await tab.page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.querySelector("#scroller").scrollWidth > document.querySelector("#scroller").clientWidth);
  assert.equal(overflows, false, "the page is wider than the phone");
  const small = await tab.page.$$eval("button, select", (all) => all.filter((one) => one.getClientRects().length > 0 && !one.closest("#sidebar, figure"))
    .map((one) => [one.getAttribute("aria-label") ?? one.id, one.getBoundingClientRect()]).filter(([, { width, height }]) => width < 36 || height < 36).map(([name]) => name));
  assert.deepEqual(small, []);
  await tab.click("Conversations");
  await tab.page.waitForFunction(() => document.querySelector("#sidebar").getBoundingClientRect().left === 0);
  await tab.page.click(".entry");
  await tab.page.waitForFunction(() => document.querySelector("#sidebar").getBoundingClientRect().right <= 0);
  await tab.close();
}

// What axe-core finds wrong, of everything that it knows.
async function violations(tab) {
  await tab.page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  const { violations: found } = await tab.page.evaluate(() => globalThis.axe.run());
  return found.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html}\n${failureSummary}`).join("\n")}`);
}

const EVERYTHING = [
  "# Title", "Text with a [link](https://example.com) and `code`.", "| a | b |\n|---|---|\n| 1 | 2 |", "```python\ndef f(x: Name) -> int:\n    return x + 1  # \"one\"\n```",
  "> quoted", "$$\\frac{a}{b}$$", "- [x] done",
].join("\n\n");

async function audit(browser, server, scheme) {
  const tab = await (await Tab.open(browser, server.url, { scheme })).ready();
  assert.deepEqual(await violations(tab), [], "empty");
  await tab.page.click("#settings");
  await tab.page.click('input[name="format"][value="json_schema"]');
  assert.deepEqual(await violations(tab), [], "settings");
  await tab.page.click('input[name="format"][value="text"]');
  await tab.page.click("#set-logprobs");
  await tab.page.keyboard.press("Escape");
  await tab.send("What is 12 plus 7?");
  await tab.answered();
  await tab.click("Show probabilities");
  assert.deepEqual(await violations(tab), [], "probabilities");
  await tab.answerWith(() => saying(EVERYTHING, "length"));
  await tab.send("All of it");
  await tab.answered();
  assert.deepEqual(await violations(tab), [], "an answer");
  await tab.close();
}

async function asksForKey(browser, binary) {
  const server = await Server.start(binary, "--api-key", "secret");
  try {
    const tab = await Tab.open(browser, server.url);
    await tab.page.waitForSelector("#api-key");
    await tab.page.type("#api-key", "wrong");
    await tab.page.keyboard.press("Enter");
    await tab.page.waitForFunction(() => document.querySelector("#api-key-why")?.textContent.includes("refused"));
    await tab.page.type("#api-key", "secret");
    await tab.page.keyboard.press("Enter");
    await tab.ready();
    await tab.send("What is 12 plus 7?");
    await tab.answered();
    assert.ok((await tab.lastAnswer()).length > 0);
    // Of this tab, unless the user wants more.
    assert.deepEqual(await tab.page.evaluate(() => [sessionStorage.getItem("sconce.key"), localStorage.getItem("sconce.key")]), ["secret", null]);
    await tab.close();
    const plain = await fetch(server.url);
    assert.equal(plain.status, 401);
  } finally {
    await server.kill();
  }
}

async function servesPrograms(server) {
  const about = await (await fetch(server.url)).json();
  assert.equal(about.server, "sconce");
  const page = await fetch(server.url, { headers: { accept: "text/html,*/*;q=0.8" } });
  assert.match(page.headers.get("content-type"), /^text\/html/);
  const etag = page.headers.get("etag");
  const again = await fetch(server.url, { headers: { accept: "text/html", "if-none-match": etag } });
  assert.equal(again.status, 304);
}
