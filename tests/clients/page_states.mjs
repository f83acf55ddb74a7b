// Bad states: each is shown plainly, and nothing is lost. Run by `page.mjs`.

import assert from "node:assert/strict";

import { reasoned } from "./page_conversations.mjs";
import { check, delta, longAnswer, pause, refusing, saying, Server, stream, Tab, until } from "./page_support.mjs";

export async function states({ browser, binary, server }) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  await check("the page: a busy server is asked again after the wait it names", () => waits(tab));
  await check("the page: a context overflow is told with the server's words", () => overflows(tab));
  await check("the page: an empty answer and one cut by its length are told", () => isEmpty(tab));
  await check("the page: a stream that breaks off keeps its words and goes on", () => breaksOff(tab));
  await check("the page: script and HTML in an answer are text", () => runsNothing(tab));
  await check("the page: reasoning is folded", () => folds(tab));
  await check("the page: tables, code, lists and formulas are rendered", () => renders(tab));
  await check("the page: a full storage is told, and the conversation goes on", () => isFull(browser, server));
  await check("the page: an answer of 100,000 tokens streams smoothly", () => staysSmooth(browser, server));
  await check("the page: these states broke no policy", () => tab.close());
  await check("the page: a server that dies in an answer and returns", () => restarts(browser, binary));
}

const problem = (tab) => tab.page.$eval(".message.assistant:last-child .problem", (element) => element.textContent);

async function fresh(tab) {
  await tab.click("New conversation");
  await tab.page.waitForSelector("body.empty");
}

async function waits(tab) {
  let asked = 0;
  await tab.answerWith(() => {
    asked += 1;
    return asked === 1 ? refusing(429, { message: "256 sequences are waiting", code: "queue_full" }, { "retry-after": "2" }) : saying("At last.");
  });
  await tab.send("Hello");
  await tab.page.waitForSelector(".problem");
  assert.match(await problem(tab), /256 sequences are waiting.*Trying again in [12] s/);
  await tab.answered();
  assert.deepEqual([asked, await tab.lastAnswer()], [2, "At last."]);
}

async function overflows(tab) {
  const message = "This model's maximum context length is 512 tokens. However, your prompt has 900 tokens.";
  await tab.answerWith(() => refusing(400, { message, code: "context_length_exceeded" }));
  await tab.send("Too much");
  await tab.page.waitForSelector(".message.assistant:last-child .problem");
  assert.match(await problem(tab), /maximum context length is 512 tokens.*Edit the message/);
  // The next request is made of what was said, without the failure.
  let body;
  await tab.answerWith((asked) => {
    body = asked;
    return saying("Fine.");
  });
  await tab.click("Try again");
  await tab.answered();
  assert.deepEqual(body.messages.map(({ role }) => role), ["user", "assistant", "user"]);
}

async function isEmpty(tab) {
  await tab.answerWith(() => saying(""));
  await tab.send("Say nothing");
  await tab.page.waitForSelector(".message.assistant:last-child .problem");
  assert.match(await problem(tab), /The model answered nothing.*\(stop\)/);
  await tab.answerWith(() => saying("Half an", "length"));
  await tab.click("Try again");
  await tab.answered();
  assert.match(await problem(tab), /reached the limit of tokens/);
}

async function breaksOff(tab) {
  await fresh(tab);
  await tab.answerWith(() => stream(delta({ content: "The beginning" })));
  await tab.send("Hello");
  await tab.page.waitForSelector(".message.assistant:last-child .problem");
  assert.match(await problem(tab), /connection to the server was lost/);
  assert.equal(await tab.lastAnswer(), "The beginning");
  await tab.page.reload({ waitUntil: "load" });
  await tab.ready();
  assert.equal(await tab.lastAnswer(), "The beginning");
  let body;
  await tab.answerWith((asked) => {
    body = asked;
    return saying(" and the end.");
  });
  await tab.click("Continue");
  await tab.answered();
  assert.equal(await tab.lastAnswer(), "The beginning and the end.");
  assert.deepEqual([body.continue_final_message, body.messages.at(-1).content], [true, "The beginning"]);
}

const HOSTILE = [
  "<script>globalThis.ran = 1</script>",
  '<img src="https://evil.example/x.png" onerror="globalThis.ran = 2">',
  "![x](https://evil.example/pixel.png)",
  "[click](javascript:globalThis.ran=3)",
  "<iframe src=https://evil.example></iframe>",
  "```html\n<script>globalThis.ran = 4</script>\n```",
  '$\\href{javascript:globalThis.ran=5}{x}$ $\\text{<script>globalThis.ran = 6</script>}$',
  '| <svg onload="globalThis.ran=7"> | b |\n|---|---|\n| <b>x</b> | y |',
].join("\n\n");

async function runsNothing(tab) {
  await fresh(tab);
  await tab.answerWith(() => saying(HOSTILE));
  await tab.send("<script>globalThis.ran = 8</script>");
  await tab.answered();
  await pause(200);
  assert.equal(await tab.page.evaluate(() => globalThis.ran), undefined);
  const inside = await tab.page.$$eval("#thread :is(script, iframe, img, object, embed, style, link)", (all) => all.length);
  assert.equal(inside, 0);
  const links = await tab.page.$$eval("#thread a", (all) => all.map((a) => a.href));
  assert.deepEqual(links.filter((href) => !href.startsWith("https://")), []);
  assert.ok((await tab.lastAnswer()).includes("<script>globalThis.ran = 1</script>"));
}

async function folds(tab) {
  await fresh(tab);
  await tab.answerWith(() => reasoned);
  await tab.send("Why?");
  await tab.answered();
  assert.equal(await tab.lastAnswer(), "Then I speak.");
  assert.equal(await tab.page.$eval(".reasoning", (details) => details.open), false);
  await tab.click("Reasoning");
  assert.match((await tab.text(".reasoning .plain"))[0], /First I think/);
}

const RENDERED = [
  "# Title", "Text with **bold**, *slanted*, ~~struck~~ and `code`.", "1. one\n2. two\n   - inner\n3. three", "- [x] done\n- [ ] open",
  "| a | b |\n|:--|--:|\n| 1 | `x|y` |", "```python\ndef f():\n    return 1  # one\n```", "> quoted", "$$\\frac{a}{b}$$", "Costs $5 or $10, and $x^2$.",
].join("\n\n");

// [selector, what it holds], in the order of the answer.
const EXPECTED = [
  ["h2", ["Title"]], ["p > strong", ["bold"]], ["p > em", ["slanted"]], ["del", ["struck"]], ["p > code", ["code"]], ["ol > li", ["one", "twoinner", "three"]],
  ["ol ul > li", ["inner"]], ["li.task", ["done", "open"]], ["th", ["a", "b"]], ["td", ["1", "x|y"]], ["pre code", ["def f():\n    return 1  # one"]],
  [".tok-keyword", ["def", "return"]], [".tok-comment", ["# one"]], ["blockquote", ["quoted"]], ["mfrac", ["ab"]], ["msup", ["x2"]],
];

async function renders(tab) {
  await fresh(tab);
  // Whole, and then in pieces of one character: both must give the same.
  await tab.answerWith(() => saying(RENDERED));
  await tab.send("Show all");
  await tab.answered();
  for (const [selector, texts] of EXPECTED) assert.deepEqual(await tab.text(`.markdown ${selector}`), texts, selector);
  const whole = await tab.page.$eval(".markdown", (element) => element.innerHTML);
  const pieces = await tab.page.evaluate(async (text) => {
    const { AnswerView } = await import("/page/answer_view.js");
    const element = document.createElement("div");
    const view = new AnswerView(element);
    for (let end = 1; end <= text.length; end += 1) {
      view.text = text.slice(0, end);
      view.draw(false);
    }
    view.update(text, true);
    return element.innerHTML;
  }, RENDERED);
  assert.equal(pieces, whole);
}

async function isFull(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  // Browsers enforce a quota when they please; this is what they do then.
  await tab.page.evaluate(() => {
    IDBObjectStore.prototype.put = () => {
      throw new DOMException("The quota has been exceeded.", "QuotaExceededError");
    };
  });
  for (const words of ["What fits nowhere.", "Still here."]) {
    await tab.answerWith(() => saying(words));
    await tab.send("Go on");
    await tab.answered();
    assert.equal(await tab.lastAnswer(), words);
    assert.match((await tab.text(".banner-text")).join(), /storage is full.*Export it/);
  }
  assert.equal((await tab.text(".message.user")).length, 2);
  await tab.close();
}

// 100,000 tokens as chunks; what was rendered of them stays.
async function staysSmooth(browser, server) {
  const tab = await (await Tab.open(browser, server.url)).ready();
  const paragraph = "The lamp on the wall **shines** and the `ship` goes on; it is late.\n\n- one\n- two\n\n```rust\nlet x = 1;\n```\n\n";
  const pieces = paragraph.match(/[\s\S]{1,4}/g);
  const count = 100_000;
  await tab.page.evaluate((texts, total) => {
    const real = fetch;
    globalThis.fetch = (path, options) => {
      if (path !== "/v1/chat/completions") return real(path, options);
      const encoder = new TextEncoder();
      let sent = 0;
      const chunk = (content, finish) => encoder.encode(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: finish }] })}\n\n`);
      const body = new ReadableStream({
        async pull(controller) {
          await new Promise((resolve) => setTimeout(resolve));
          for (let i = 0; i < 200; i += 1) controller.enqueue(chunk(texts[sent++ % texts.length], null));
          if (sent < total) return;
          controller.enqueue(chunk("", "stop"));
          controller.enqueue(encoder.encode("data: [DONE]\n\n"));
          controller.close();
        },
      });
      return Promise.resolve(new Response(body));
    };
    const elements = (node) => 1 + (node.querySelectorAll?.("*").length ?? 0);
    globalThis.made = 0;
    new MutationObserver((records) => {
      for (const { addedNodes } of records) for (const node of addedNodes) globalThis.made += elements(node);
    }).observe(document.body, { childList: true, subtree: true });
  }, pieces, count);
  await tab.send("Go on and on");
  await tab.page.waitForSelector("#send:not([hidden])", { timeout: 120_000 });
  const expected = Array.from({ length: count }, (_, index) => pieces[index % pieces.length]).join("");
  const shown = await tab.page.$$eval(".markdown > figure", (all) => all.length);
  assert.equal(shown, expected.split("```rust").length - 1);
  // Rendering all of it again and again would make many more elements than there are.
  const [made, there] = await tab.page.evaluate(() =>
    [globalThis.made, document.querySelectorAll(".message.assistant *").length]);
  assert.ok(made < 1.5 * there, `${made} elements made, ${there} there`);
  await tab.close();
}

async function restarts(browser, binary) {
  const server = await Server.start(binary);
  try {
    const tab = await (await Tab.open(browser, server.url)).ready();
    await tab.answerWith(() => longAnswer(8000));
    await tab.send("Tell me a long story about a lamp.");
    await tab.page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.length > 0);
    await server.kill();
    await tab.page.waitForSelector(".message.assistant:last-child .problem");
    assert.ok((await tab.lastAnswer()).length > 0);
    // The draft of the next message outlives the restart, and sending it meanwhile loses nothing.
    await tab.send("Are you there?");
    await until("the page says so", async () => (await tab.text(".banner-text")).join().includes("can't be reached"));
    assert.deepEqual((await tab.text(".message.user .plain")).at(-1), "Are you there?");
    await tab.page.focus("#message");
    await tab.page.keyboard.type("a draft");
    await server.start();
    await until("the banner is gone", async () => (await tab.text(".banner-text")).length === 0);
    assert.equal(await tab.page.$eval("#message", (area) => area.value), "a draft");
    await tab.click("Try again", ".message.assistant:last-child");
    await tab.answered();
    assert.ok((await tab.lastAnswer()).length > 0);
    await tab.close();
  } finally {
    await server.kill();
  }
}
