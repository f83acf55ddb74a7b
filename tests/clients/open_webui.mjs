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
const MESSAGES = ["Tell me a story about a lamp.", "Tell me another one."];
const shown = { answers: [], errors: [], seconds: null };

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
page.on("pageerror", (error) => shown.errors.push(String(error)));

// Waits for the answer of that number, first its first words and then its end.
async function answered(number, asked) {
  const answer = page.locator(".chat-assistant").nth(number - 1);
  await answer.waitFor();
  await page.waitForFunction(
    (index) => document.querySelectorAll(".chat-assistant")[index]?.innerText.trim().length > 0, number - 1,
    { timeout: 60_000 },
  );
  shown.seconds ??= (Date.now() - asked) / 1000;
  // Only an answer that has ended can be made again.
  await page.getByRole("button", { name: "Regenerate" }).nth(number - 1).waitFor();
  shown.answers.push((await answer.innerText()).trim());
}

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
  for (const message of MESSAGES) {
    await input.click();
    await page.keyboard.type(message);
    const asked = Date.now();
    await page.keyboard.press("Enter");
    await answered(shown.answers.length + 1, asked);
  }
} finally {
  await page.screenshot({ path: screenshot, type: "png" });
  await browser.close();
}
console.log(JSON.stringify(shown));
