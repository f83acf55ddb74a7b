// Conversations: send, stream, stop, regenerate, edit, branches, history, search, export and import,
// settings. Run by `page.mjs`.

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { check, delta, longAnswer, saying, stream, Tab, until } from "./page_support.mjs";

const STORY = "Tell me a story about a lamp.";

export async function conversations({ browser, server }) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  await check("the page: an answer streams in, with its figures below", () => streams(tab));
  await check("the page: an answer is regenerated beside the old one", () => regenerates(tab));
  await check("the page: a message is edited on a branch of its own", () => edits(tab));
  await check("the page: a reload keeps the conversation and its branches", () => survivesReload(tab));
  await check("the page: an answer is stopped, and what was there stays", () => stops(tab));
  await check("the page: conversations are searched, renamed and deleted", () => searches(tab));
  await check("the page: an export is imported by another browser", () => exportsAndImports(tab, browser, server));
  await check("the page: a file that is no export is refused with the reason", () => refusesImport(tab));
  await check("the page: settings are sent, out of range ones are not", () => sendsSettings(browser, server));
  await check("the page: an answer follows the schema of the editor", () => followsSchema(browser, server));
  await check("the page: probabilities and alternatives are shown", () => showsProbabilities(browser, server));
  await check("the page: pictures and files are sent, and a refusal is told", () => attaches(browser, server));
  await check("the page: the first tab broke no policy and asked no other host", () => tab.close());
}

async function streams(tab) {
  // The server's own bytes: what the page shows must grow before the end has come.
  await tab.page.evaluate(() => {
    globalThis.seen = new Set();
    new MutationObserver(() => {
      const text = document.querySelector(".message.assistant .markdown")?.textContent;
      if (text && !document.querySelector("#stop").hidden) globalThis.seen.add(text.length);
    }).observe(document.querySelector("#thread"), { childList: true, subtree: true, characterData: true });
  });
  await tab.slowly(true);
  await tab.answerWith(() => longAnswer(60));
  await tab.send(STORY);
  await tab.answered();
  await tab.slowly(false);
  await tab.answerWith(() => null);
  assert.ok((await tab.lastAnswer()).length > 20);
  assert.ok((await tab.page.evaluate(() => globalThis.seen.size)) >= 2, "the answer came in one piece");
  const [figures] = await tab.text(".figures");
  assert.match(figures, /^sconce-demo · \d+ tokens · [\d.,]+ tokens\/s · first token after \d+\.\d\d s · \d+ of \d+ prompt tokens cached$/);
  assert.match((await tab.text("#context"))[0], /^\d+ of [\d,]+ tokens of context$/);
}

async function regenerates(tab) {
  await tab.click("Regenerate");
  await tab.answered();
  assert.deepEqual(await tab.text(".message.assistant .branches span"), ["2 / 2"]);
  await tab.click("Previous branch");
  assert.deepEqual(await tab.text(".message.assistant .branches span"), ["1 / 2"]);
}

async function edits(tab) {
  await tab.click("Edit", ".message.user");
  await tab.page.waitForSelector("textarea.edit");
  assert.equal(await tab.page.$eval("textarea.edit", (area) => area.value), STORY);
  await tab.page.$eval("textarea.edit", (area) => area.select());
  await tab.page.keyboard.type("What is 12 plus 7?");
  await tab.page.keyboard.press("Enter");
  await tab.answered();
  assert.deepEqual(await tab.text(".message.user .plain"), ["What is 12 plus 7?"]);
  assert.deepEqual(await tab.text(".message.user .branches span"), ["2 / 2"]);
  await tab.click("Previous branch", ".message.user");
  assert.deepEqual(await tab.text(".message.user .plain"), [STORY]);
  assert.deepEqual(await tab.text(".message.assistant .branches span"), ["2 / 2"]);
}

async function survivesReload(tab) {
  const answer = await tab.lastAnswer();
  await tab.page.focus("#message");
  await tab.page.keyboard.type("a draft that is not sent");
  await tab.page.reload({ waitUntil: "load" });
  await tab.ready();
  assert.deepEqual(await tab.text(".message.user .plain"), [STORY]);
  assert.equal(await tab.lastAnswer(), answer);
  assert.equal(await tab.page.$eval("#message", (area) => area.value), "a draft that is not sent");
  await tab.click("Next branch", ".message.user");
  assert.deepEqual(await tab.text(".message.user .plain"), ["What is 12 plus 7?"]);
  await tab.page.$eval("#message", (area) => area.select());
  await tab.page.keyboard.press("Backspace");
}

async function stops(tab) {
  await tab.click("New conversation");
  await tab.page.waitForSelector("body.empty");
  await tab.slowly(true);
  await tab.answerWith(() => longAnswer(400));
  await tab.send("Tell me a long story about a lamp and a ship.");
  await tab.page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.length > 0);
  await tab.page.keyboard.press("Escape");
  await tab.answered();
  await tab.slowly(false);
  const [notice] = await tab.text(".message.assistant .notice");
  assert.match(notice, /^You stopped this answer/);
  assert.ok((await tab.lastAnswer()).length > 0);
}

async function searches(tab) {
  await tab.page.type("#search", "ship");
  await until("one conversation is found", async () => (await tab.text(".entry .title")).length === 1);
  await tab.click("More for Tell me a long story about a lamp and a ship.");
  await tab.click("Rename", "dialog");
  await tab.page.waitForSelector("#new-title");
  await tab.page.$eval("#new-title", (input) => input.select());
  await tab.page.keyboard.type("Ships");
  await tab.page.keyboard.press("Enter");
  await until("the title is the new one", async () => (await tab.text("#title"))[0] === "Ships");
  await tab.click("More for Ships");
  await tab.click("Delete", "dialog");
  await tab.page.waitForSelector("dialog .danger");
  await tab.click("Delete", "dialog");
  await until("it is gone", async () => (await tab.text(".entry .title")).length === 0);
  await tab.page.$eval("#search", (input) => input.select());
  await tab.page.keyboard.press("Backspace");
  await until("the other one is listed", async () => (await tab.text(".entry .title")).join() === STORY);
}

async function exportsAndImports(tab, browser, server) {
  const folder = mkdtempSync(join(tmpdir(), "sconce-export-"));
  const session = await browser.target().createCDPSession();
  await session.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder, browserContextId: tab.context.id });
  await tab.click("Export all conversations");
  const name = await until("the file is there", () => readdirSync(folder).find((file) => file.endsWith(".json")));
  const file = join(folder, name);
  const exported = JSON.parse(readFileSync(file, "utf8"));
  assert.equal(exported.conversations.length, 1);
  const other = await (await Tab.open(browser, server.url)).ready();
  await importFile(other, file);
  await until("it is listed", async () => (await other.text(".entry .title")).join() === STORY);
  await other.page.click(".entry");
  await other.page.waitForSelector(".message.assistant");
  assert.equal(letters(await other.lastAnswer()), letters(lastAnswerOf(exported)));
  assert.deepEqual(await other.text(".message.user .branches span"), ["2 / 2"]);
  // What is there already isn't there twice.
  await importFile(other, file);
  await until("it is left out", async () => (await other.text("#composer-note"))[0] === "0 imported, 1 were here already.");
  await other.close();
}

// The end of the branch that was shown when the export was made.
const lastAnswerOf = ({ conversations: [{ leaf, messages }] }) => messages.find(({ id }) => id === leaf).text;

// Without the signs that markdown is made of.
const letters = (text) => text.replace(/[^\p{L}\p{N}]/gu, "");

async function importFile(tab, file) {
  const input = await tab.page.$("#sidebar input[type=file]");
  await input.uploadFile(file);
}

async function refusesImport(tab) {
  const folder = mkdtempSync(join(tmpdir(), "sconce-export-"));
  const cases = [
    ["not.json", "{", /not\.json was not imported\. The file is not JSON/],
    ["other.json", "{}", /no export of conversations: its "format"/],
    ["later.json", '{"format": "sconce-conversations", "version": 9}', /version is 9; this page reads version 1/],
    ["lacks.json", '{"format": "sconce-conversations", "version": 1, "conversations": [{"id": "a"}]}', /conversations\[0\] lacks/],
  ];
  for (const [name, text, reason] of cases) {
    writeFileSync(join(folder, name), text);
    await importFile(tab, join(folder, name));
    await until(`${name} is refused`, async () => reason.test((await tab.text(".banner-text")).join()));
    await tab.click("Dismiss");
  }
}

async function sendsSettings(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  let body;
  await tab.answerWith((asked) => {
    body = asked;
    return saying("Yes.");
  });
  await tab.page.click("#settings");
  await tab.page.type("#set-system", "Be brief.");
  for (const [name, value] of [["temperature", "0.3"], ["top_p", "0.9"], ["top_k", "40"], ["max_tokens", "77"], ["seed", "5"], ["min_p", "2"]]) {
    await tab.page.type(`#set-${name}`, value);
  }
  await tab.page.type("#set-stop", "END");
  await tab.page.select("#set-effort", "low");
  assert.notEqual((await tab.text("#set-min_p-fault"))[0], "");
  await tab.click("Begin new conversations like this", "dialog");
  await tab.page.keyboard.press("Escape");
  await tab.send("Hello");
  await tab.answered();
  const { messages, ...rest } = body;
  assert.deepEqual(messages, [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }]);
  assert.deepEqual(rest, {
    model: "sconce-demo", temperature: 0.3, top_p: 0.9, top_k: 40, max_tokens: 77, seed: 5, reasoning_effort: "low", stop: ["END"],
    stream: true, stream_options: { include_usage: true },
  });
  // New conversations begin with them, but with no seed.
  await tab.click("New conversation");
  await tab.page.waitForSelector("body.empty");
  await tab.send("Hello again");
  await tab.answered();
  assert.deepEqual([body.messages[0].content, body.temperature, body.seed], ["Be brief.", 0.3, undefined]);
  await tab.close();
}

async function followsSchema(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  await tab.page.click("#settings");
  await tab.page.click('input[name="format"][value="json_schema"]');
  await tab.page.waitForSelector(".schema-row");
  await tab.click("Remove age", "dialog");
  await tab.click("Add a field", "dialog");
  const types = await tab.page.$$(".schema-row select");
  await types.at(-1).select("enum");
  await tab.page.waitForSelector(".schema-inner input");
  await tab.page.keyboard.press("Escape");
  await tab.send("Ada lives in Oslo. Who is she?");
  await tab.answered();
  const [text] = await tab.text(".message.assistant figure code");
  const answer = JSON.parse(text);
  assert.deepEqual(Object.keys(answer), ["name", "field_2"]);
  assert.ok(["first", "second"].includes(answer.field_2), text);
  await tab.close();
}

async function showsProbabilities(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  await tab.page.click("#settings");
  await tab.page.click("#set-logprobs");
  await tab.page.keyboard.press("Escape");
  await tab.send("What is 12 plus 7?");
  await tab.answered();
  await tab.click("Show probabilities");
  await tab.page.focus(".heat-text");
  await tab.page.keyboard.press("ArrowRight");
  const tokens = await tab.text(".token");
  assert.ok(tokens.length > 2 && tokens.join("").length > 3, tokens);
  const [chosen] = await tab.text(".heat-details p");
  assert.match(chosen, /^Token 2 of \d+: .* with [\d.]+ % \(log-probability -?[\d.]+\)$/);
  assert.ok((await tab.text(".heat-details tr")).length >= 5);
  await tab.click("Show the answer");
  assert.equal((await tab.text(".token")).length, 0);
  await tab.close();
}

// A red square of one pixel.
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

async function attaches(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  await tab.page.evaluate((base64) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const clipboard = new DataTransfer();
    clipboard.items.add(new File([bytes], "red.png", { type: "image/png" }));
    document.querySelector("#message").dispatchEvent(new ClipboardEvent("paste", { clipboardData: clipboard, bubbles: true, cancelable: true }));
  }, PNG);
  await until("the picture is attached", async () => (await tab.text("#attachments li")).join() === "red.png");
  // The demo model takes no pictures; the server says so, and the page says what the server says.
  await tab.send("What is this?");
  await tab.page.waitForSelector(".message.assistant .problem");
  assert.match((await tab.text(".message.assistant .problem p"))[0], /image/i);
  assert.equal(await tab.page.$eval(".message.user .picture", (image) => image.naturalWidth), 1);
  let body;
  await tab.answerWith((asked) => {
    body = asked;
    return saying("I see.");
  });
  await tab.page.evaluate(() => {
    const dropped = new DataTransfer();
    dropped.items.add(new File(["let x = 1;\n"], "x.js", { type: "text/javascript" }));
    dropped.items.add(new File([new Uint8Array([0, 255, 0])], "x.bin"));
    document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
  });
  await until("one is attached", async () => (await tab.text("#attachments li")).join() === "x.js");
  assert.match((await tab.text("#composer-note"))[0], /x\.bin is neither a picture nor text/);
  await tab.send("And this?");
  await tab.answered();
  assert.deepEqual(body.messages[0].content[0].image_url.url.slice(0, 22), "data:image/png;base64,");
  assert.equal(body.messages.at(-1).content, "File x.js:\n```\nlet x = 1;\n```\n\nAnd this?");
  await tab.close();
}

export const reasoned = stream(delta({ reasoning: "First I think." }), delta({ content: "Then I speak." }), delta({}, "stop"), "[DONE]");
