// The status page. Run by `page.mjs`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { check, PHONE, require, Server, Tab, until } from "./page_support.mjs";

export async function status({ browser, binary, server }) {
  for (const scheme of ["light", "dark"]) {
    await check(`the status page: axe finds nothing (${scheme})`, () => audit(browser, server, scheme));
  }
  await check("the status page: it counts what happens, while it happens", () => counts(browser, server));
  await check("the status page: a phone's width shows everything", () => onPhone(browser, server));
  await check("the status page: it asks for a key, and waits for a server that is gone", () => waits(browser, binary));
}

const open = async (browser, server, more = {}) => {
  const tab = await Tab.open(browser, server.url, { path: "/status", ...more });
  await tab.page.waitForSelector('#state[data-state="ready"]');
  return tab;
};

const tile = (tab, label) => tab.page.$$eval(".tile", (all, wanted) => all.find((one) => one.querySelector("dt").textContent === wanted).querySelector("dd").textContent, label);

async function audit(browser, server, scheme) {
  const tab = await open(browser, server, { scheme });
  await tab.page.waitForSelector(".plot path.line");
  await tab.page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  const { violations } = await tab.page.evaluate(() => globalThis.axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join("\n")}`), []);
  await tab.close();
}

const ask = (server, headers = {}) => fetch(`${server.url}/v1/completions`, {
  method: "POST", headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify({ model: "sconce-demo", prompt: "A lamp", max_tokens: 64, ignore_eos: true }),
});

async function counts(browser, server) {
  const tab = await open(browser, server);
  const ended = Number((await tile(tab, "Answers ended")).replaceAll(",", ""));
  const answers = [ask(server), ask(server)];
  await Promise.all(answers);
  // An answer of an earlier check, which its client left, may end now, too.
  await until("both are counted", async () => Number((await tile(tab, "Answers ended")).replaceAll(",", "")) >= ended + 2);
  assert.match(await tile(tab, "First token, p50 / p95"), /^[\d.]+ m?s \/ [\d.]+ m?s$/);
  await until("a rate is drawn", () => tab.page.$eval(".plot", (plot) => {
    const path = plot.querySelector("path.line.first").getAttribute("d");
    const heights = path.match(/[ML][\d.-]+ ([\d.]+)/g).map((point) => Number(point.split(" ")[1]));
    return Math.min(...heights) < Math.max(...heights);
  }));
  assert.deepEqual((await tab.text("#models th")), ["sconce-demo"]);
  assert.ok((await tab.text("#routes code")).includes("/v1/completions"));
  await tab.close();
}

async function onPhone(browser, server) {
  const tab = await open(browser, server, { viewport: PHONE });
  assert.equal(await tab.page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await tab.close();
}

async function waits(browser, binary) {
  const server = await Server.start(binary, "--api-key", "secret");
  try {
    const tab = await Tab.open(browser, server.url, { path: "/status" });
    await tab.page.waitForSelector("#api-key");
    await tab.page.type("#api-key", "secret");
    await tab.page.keyboard.press("Enter");
    await tab.page.waitForSelector('#state[data-state="ready"]');
    await ask(server, { authorization: "Bearer secret" });
    await until("the key's request is counted", async () => (await tab.text("#keys td"))[0] === "1");
    assert.deepEqual(await tab.text("#keys th"), ["api-key-1"]);
    assert.equal((await tab.text("#keys td"))[3], "64");
    await server.kill();
    await tab.page.waitForSelector('#state[data-state="down"]');
    await server.start();
    await tab.page.waitForSelector('#state[data-state="ready"]');
    await tab.close();
  } finally {
    await server.kill();
  }
}
