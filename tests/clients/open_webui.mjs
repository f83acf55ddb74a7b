// One conversation in Open WebUI's own page, as a newcomer has it. Run by `open_webui.py`.
//
//     node open_webui.mjs URL_OF_OPEN_WEBUI MODEL SCREENSHOT
//
// Needs `playwright-core` from the working directory, and a Chromium at $CHROMIUM or /usr/bin/chromium.
// Prints one JSON object: what the page showed.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(`${process.cwd()}/`);
const playwright = await import(pathToFileURL(require.resolve("playwright-core")).href);
const { chromium } = playwright.default ?? playwright;

const [url, model, screenshot] = process.argv.slice(2);
const QUESTION = "Tell me a story about a lamp.";

const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "chromium-")), {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  viewport: { width: 1280, height: 900 },
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});
const page = browser.pages()[0] ?? (await browser.newPage());
page.setDefaultTimeout(60_000);
const errors = [];
page.on("pageerror", (error) => errors.push(String(error)));

try {
  await page.goto(url, { waitUntil: "domcontentloaded" });
  const input = page.locator("#chat-input");
  await input.waitFor();
  // The release notes lie over a newcomer's first page.
  const release = page.getByRole("button", { name: "Okay, Let's Go!" });
  await release.waitFor();
  await release.click();
  await page.getByRole("button", { name: /Select a model|Selected model/ }).first().click();
  await page.getByRole("option", { name: model }).first().click();
  await input.click();
  await page.keyboard.type(QUESTION);
  await page.keyboard.press("Enter");
  await page.waitForTimeout(20000);
} finally {
  await page.screenshot({ path: screenshot });
  await browser.close();
}
console.log(JSON.stringify({ errors }));
