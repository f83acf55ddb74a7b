// The guide: every page is drawn, and its links lead to others. Run by `page.mjs`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { check, PHONE, require, Server, Tab } from "./page_support.mjs";

export async function docs({ browser, binary, server }) {
  for (const scheme of ["light", "dark"]) {
    await check(`the guide: axe finds nothing (${scheme})`, () => audit(browser, server, scheme));
  }
  await check("the guide: every page is drawn, whole and without marks", () => draws(browser, server));
  await check("the guide: links lead from page to page, and here from the others", () => leads(browser, server));
  await check("the guide: a phone's width shows every page", () => onPhone(browser, server));
  await check("the guide: it needs no key", () => isOpen(browser, binary));
}

const open = async (browser, server, path = "/docs", more = {}) => {
  const tab = await Tab.open(browser, server.url, { path, ...more });
  await tab.page.waitForSelector("body.ready");
  return tab;
};

const go = async (tab, path) => {
  await tab.page.goto(tab.url + path, { waitUntil: "load" });
  await tab.page.waitForSelector("body.ready");
};

const pages = (tab) => tab.page.$$eval("#pages a", (all) => all.map((link) => link.getAttribute("href")));

async function audit(browser, server, scheme) {
  const tab = await open(browser, server, "/docs", { scheme });
  for (const path of ["/docs", "/docs/flags", "/docs/coding_agents"]) {
    await go(tab, path);
    await tab.page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const { violations } = await tab.page.evaluate(() => globalThis.axe.run());
    assert.deepEqual(violations.map(({ id, nodes }) => `${path} ${id}: ${nodes.map(({ html }) => html).join("\n")}`), []);
  }
  await tab.close();
}

async function draws(browser, server) {
  const tab = await open(browser, server);
  const all = await pages(tab);
  assert.ok(all.length > 20, all.join());
  for (const path of ["/docs", ...all]) {
    await go(tab, path);
    const markdown = await (await fetch(server.url + path)).text();
    const headings = markdown.replace(/^```[\s\S]*?^```/gm, "").match(/^#+ .*$/gm).length;
    assert.equal((await tab.text("#page :is(h2, h3, h4)")).length, headings, path);
    const text = await tab.page.$eval("#page", (page) => {
      const words = page.cloneNode(true);
      for (const code of words.querySelectorAll("code")) code.remove();
      return words.textContent;
    });
    assert.doesNotMatch(text, /<!--|\.md\]|\]\[|\*\*|`/, path);
    const here = await tab.text("#pages [aria-current]");
    assert.equal(here.length, path === "/docs" ? 0 : 1, path);
  }
  await tab.close();
}

async function leads(browser, server) {
  const tab = await open(browser, server);
  const seen = new Set();
  for (const path of ["/docs", ...await pages(tab)]) {
    await go(tab, path);
    for (const link of await tab.page.$$eval('a[href^="/"]', (links) => links.map((link) => link.getAttribute("href")))) seen.add(link);
    assert.deepEqual(await tab.page.$$eval("#page span[title]", (spans) => spans.map((span) => span.title)), [], path);
  }
  for (const link of seen) assert.equal((await fetch(server.url + link, { headers: { accept: "text/html" } })).status, 200, link);
  await go(tab, "/docs");
  await tab.click("Metrics", "#page");
  await tab.page.waitForFunction(() => document.title === "Metrics · sconce" && location.pathname === "/docs/metrics");
  await go(tab, "/docs/operating#keys");
  assert.ok(await tab.page.$eval("#keys", (heading) => Math.abs(heading.getBoundingClientRect().top) < 200));
  for (const path of ["/", "/status"]) {
    await tab.page.goto(tab.url + path, { waitUntil: "load" });
    await tab.page.waitForSelector('a[href="/docs"]');
  }
  await tab.close();
}

async function onPhone(browser, server) {
  const tab = await open(browser, server, "/docs", { viewport: PHONE });
  for (const path of ["/docs", ...await pages(tab)]) {
    await go(tab, path);
    assert.equal(await tab.page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false, path);
  }
  assert.equal(await tab.page.$eval("#contents", (list) => list.open), false);
  await tab.page.click("#contents summary");
  await tab.click("API", "#pages");
  await tab.page.waitForFunction(() => location.pathname === "/docs/api");
  await tab.close();
}

async function isOpen(browser, binary) {
  const server = await Server.start(binary, "--api-key", "secret");
  try {
    const tab = await open(browser, server, "/docs/metrics");
    assert.equal((await tab.text("#page h2"))[0], "Metrics");
    await tab.close();
  } finally {
    await server.kill();
  }
}
