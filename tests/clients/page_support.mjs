// What the checks of the pages share: a server as a child process, a browser that notes every fault,
// and counted checks. Imported by `page.mjs`.

import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// Packages are found from the working directory.
export const require = createRequire(`${process.cwd()}/`);
const puppeteer = (await import(pathToFileURL(require.resolve("puppeteer-core")).href)).default;

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844, isMobile: true, hasTouch: true };
// Only what never comes takes so long: slow machines are no fault of the page.
export const PATIENCE = 90_000;

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export async function until(what, condition, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${patience / 1000} s`);
    await pause(50);
  }
}

export function freePort() {
  return new Promise((resolve) => {
    const listener = createServer().listen(0, "127.0.0.1", () => {
      const { port } = listener.address();
      listener.close(() => resolve(port));
    });
  });
}

// `sconce serve` with the demo model.
export class Server {
  constructor(binary, port, ...flags) {
    Object.assign(this, { binary, port, flags, url: `http://127.0.0.1:${port}`, log: "" });
  }

  static async start(binary, ...flags) {
    const server = new Server(binary, await freePort(), ...flags);
    await server.start();
    return server;
  }

  async start() {
    const own = Object.entries(process.env).filter(([name]) => !name.startsWith("SCONCE_"));
    // What the checks store is not the user's.
    const env = { ...Object.fromEntries(own), SCONCE_STORE: "memory" };
    this.process = spawn(this.binary, ["serve", "--port", String(this.port), ...this.flags], { env });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.on("data", (data) => {
        this.log += data;
      });
    }
    // `fetch` of Node 20 may wait for ever for a connection that ends without an answer, as one may while a server
    // starts.
    const health = () => fetch(`${this.url}/health`, { signal: AbortSignal.timeout(2000) });
    await until("the server is ready", () => health().then(({ ok }) => ok, () => false), 120_000);
  }

  // As a power cut would end it.
  kill() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    return ended;
  }
}

export const launch = () => puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  userDataDir: mkdtempSync(join(tmpdir(), "chromium-")),
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
  ],
});

// One tab with a storage of its own, and what went wrong in it.
export class Tab {
  static async open(browser, url, { viewport = DESKTOP, scheme = "light", path = "/" } = {}) {
    const context = await browser.createBrowserContext();
    const tab = new Tab();
    Object.assign(tab, { context, url, page: await context.newPage(), faults: [], hosts: new Set(), allowed: [] });
    await tab.watch();
    await tab.page.setViewport(viewport);
    await tab.page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await tab.page.goto(url + path, { waitUntil: "load" });
    return tab;
  }

  async watch() {
    const { page } = this;
    page.setDefaultTimeout(PATIENCE);
    page.on("pageerror", (error) => this.faults.push(`error: ${error.stack ?? error}`));
    // A refused or failed request is noted by the browser as well; the checks make those on purpose.
    page.on("console", (message) => {
      const text = message.text();
      if (message.type() === "error" && !text.startsWith("Failed to load resource")) this.faults.push(`console: ${text}`);
    });
    page.on("request", (request) => {
      const { protocol, host } = new URL(request.url());
      if (protocol.startsWith("http")) this.hosts.add(host);
    });
    page.on("dialog", (dialog) => {
      this.faults.push(`a dialog of a script: ${dialog.message()}`);
      dialog.dismiss();
    });
    await page.evaluateOnNewDocument(() => {
      globalThis.violations = [];
      document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
        globalThis.violations.push(`${effectiveDirective} ${blockedURI}`);
      });
    });
  }

  async ready() {
    await this.page.waitForSelector("body.ready");
    await this.page.waitForFunction(() => document.querySelector("#model").value !== "");
    return this;
  }

  // Answers requests for chat completions in the server's place, by `answer(body)`, or changes what the
  // server is asked. Other requests are not touched: puppeteer's own interception loses some of workers'.
  async answerWith(answer) {
    if (this.answer === undefined) {
      this.session = await this.page.createCDPSession();
      this.session.on("Fetch.requestPaused", (paused) => this.intercept(paused));
      await this.session.send("Fetch.enable", { patterns: [{ urlPattern: "*/v1/chat/completions" }] });
    }
    this.answer = answer;
  }

  async intercept({ requestId, request }) {
    const given = this.answer(JSON.parse(request.postData));
    if (!given || given.more) {
      const changed = JSON.stringify({ ...JSON.parse(request.postData), ...given?.more });
      return this.session.send("Fetch.continueRequest", { requestId, postData: Buffer.from(changed).toString("base64") });
    }
    const { status, contentType, body, headers = {} } = given;
    const all = Object.entries({ "content-type": contentType, ...headers });
    return this.session.send("Fetch.fulfillRequest", {
      requestId, responseCode: status, responseHeaders: all.map(([name, value]) => ({ name, value })),
      body: Buffer.from(body).toString("base64"),
    });
  }

  // The demo model says two thousand tokens a second; this lets a few dozen of them through.
  slowly(isOn) {
    return this.page.emulateNetworkConditions(isOn ? { download: 20_000, upload: 1e6, latency: 0 } : null);
  }

  // Types a message and sends it with Enter.
  async send(text) {
    // A dialog gives the focus back as it closes.
    await this.page.waitForFunction(() => document.querySelector("dialog") === null);
    await this.page.focus("#message");
    await this.page.keyboard.type(text);
    await this.page.keyboard.press("Enter");
  }

  // Waits for the end of what is being answered.
  async answered() {
    await this.page.waitForSelector("#send:not([hidden])");
    try {
      await this.page.waitForSelector(".message.assistant:last-child .foot .tools");
    } catch (error) {
      // What was there instead.
      throw new Error(await this.page.evaluate(() => `${document.body.innerText}\n${JSON.stringify(document.querySelector("#message").value)}`), { cause: error });
    }
  }

  text(selector) {
    return this.page.$$eval(selector, (all) => all.map((element) => element.textContent));
  }

  async lastAnswer() {
    return (await this.text(".message.assistant .markdown")).at(-1);
  }

  // Clicks the last button with this accessible name, inside of `scope`, as soon as it is there.
  async click(name, scope = "body") {
    await until(`a button ${name} in ${scope}`, () => this.page.evaluate((wanted, inside) => {
      const all = [...document.querySelectorAll(`:is(${inside}) :is(button, summary, a)`)];
      const found = all.findLast((one) => (one.getAttribute("aria-label") ?? one.textContent).trim() === wanted && one.getClientRects().length > 0);
      found?.click();
      return found !== undefined;
    }, name, scope));
  }

  // Nothing was loaded from elsewhere but from the hosts that a check named, no policy was broken and no script failed.
  async clean() {
    this.faults.push(...(await this.page.evaluate(() => globalThis.violations)).map((one) => `policy: ${one}`));
    const elsewhere = [...this.hosts].filter((host) => host !== new URL(this.url).host && !this.allowed.includes(host));
    if (elsewhere.length > 0) this.faults.push(`requests to ${elsewhere.join(", ")}`);
    if (this.faults.length > 0) throw new Error(this.faults.join("\n"));
  }

  async close() {
    await this.clean();
    await this.context.close();
  }
}

// A stream of chunks as the server sends them; the whole of it at once.
export function stream(...chunks) {
  const body = chunks.map((chunk) => `data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`).join("");
  return { status: 200, contentType: "text/event-stream", body };
}

export const delta = (fields, finish = null, more = {}) => ({ choices: [{ index: 0, delta: fields, finish_reason: finish, ...more }] });

export const saying = (text, finish = "stop") => stream(delta({ role: "assistant" }), delta({ content: text }), delta({}, finish), "[DONE]");

export const refusing = (status, error, headers = {}) => ({
  status, headers, contentType: "application/json", body: JSON.stringify({ error: { type: "x", param: null, code: null, ...error } }),
});

// The server's own answer, made so long that there is time to do something while it comes.
export const longAnswer = (tokens) => ({ more: { ignore_eos: true, max_tokens: tokens } });

export const checks = { passed: 0, failed: 0 };

export async function check(name, run) {
  const began = Date.now();
  const seconds = () => `${((Date.now() - began) / 1000).toFixed(1)} s`;
  try {
    await run();
    checks.passed += 1;
    console.log(`ok     ${name} (${seconds()})`);
  } catch (error) {
    checks.failed += 1;
    console.log(`FAILED ${name} (${seconds()})\n${error.stack}`);
  }
}
