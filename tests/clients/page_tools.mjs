// Tools of a real MCP server, called by the page with the user's consent. Run by `page.mjs`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { dirname, join } from "node:path";

import { check, delta, freePort, require, saying, stream, Tab, until } from "./page_support.mjs";

const PACKAGE = "@modelcontextprotocol/server-everything";

export async function tools({ browser, server }) {
  const port = await freePort();
  const program = join(dirname(require.resolve(`${PACKAGE}/package.json`)), "dist", "index.js");
  const everything = spawn(process.execPath, [program, "streamableHttp"], { env: { ...process.env, PORT: String(port) } });
  let said = "";
  for (const stream of [everything.stdout, everything.stderr]) {
    stream.on("data", (data) => {
      said += data;
    });
  }
  const url = `http://127.0.0.1:${port}/mcp`;
  const answers = () => fetch(url, { signal: AbortSignal.timeout(2000) }).then(() => true, () => false);
  try {
    await until("the MCP server listens", answers).catch((cause) => {
      throw new Error(`it said: ${said}`, { cause });
    });
    const tab = await (await Tab.open(browser, server.url)).ready();
    tab.allowed.push(new URL(url).host);
    await check("the page: tools of an MCP server are listed", () => connects(tab, url));
    await check("the page: a call runs with consent, and its result goes back", () => runs(tab));
    await check("the page: a call is denied, and the model is told", () => denies(tab));
    await check("the page: a tool that is always allowed is not asked for", () => allowsAlways(tab));
    await check("the page: a server that allows no other origin is told plainly", () => tellsOrigins(tab));
    await check("the page: tools broke no policy", () => tab.close());
  } finally {
    everything.kill("SIGKILL");
  }
}

async function connects(tab, url) {
  await tab.page.click("#settings");
  await tab.page.type("#mcp-url", url);
  await tab.click("Add server", "dialog");
  await tab.page.waitForSelector('.server[data-state="ready"]');
  assert.ok((await tab.text(".server code")).includes("echo"));
  await tab.page.keyboard.press("Escape");
}

// The first answer calls the tool, the second is what the model makes of its result.
function calling(bodies) {
  return (body) => {
    bodies.push(body);
    if (body.messages.at(-1).role === "tool") return saying("It was said.");
    const call = { index: 0, id: "call_1", type: "function", function: { name: "echo", arguments: "" } };
    const piece = (text) => delta({ tool_calls: [{ index: 0, function: { arguments: text } }] });
    return stream(delta({ tool_calls: [call] }), piece('{"mess'), piece('age": "from the page"}'), delta({}, "tool_calls"), "[DONE]");
  };
}

async function runs(tab) {
  const bodies = [];
  await tab.answerWith(calling(bodies));
  await tab.send("Say it");
  await tab.page.waitForSelector(".consent");
  assert.match((await tab.text(".consent p"))[0], /wants to run/);
  assert.equal(bodies.length, 1, "nothing runs before the consent");
  await tab.click("Run once", ".consent");
  await until("the answer is there", async () => (await tab.lastAnswer()) === "It was said.");
  const [first, second] = bodies;
  assert.equal(first.tools.find((tool) => tool.function.name === "echo").type, "function");
  const [, assistant, result] = second.messages;
  assert.deepEqual(assistant.tool_calls, [{ id: "call_1", type: "function", function: { name: "echo", arguments: '{"message": "from the page"}' } }]);
  assert.equal(result.tool_call_id, "call_1");
  assert.match(result.content, /from the page/);
  await tab.answered();
}

async function denies(tab) {
  const bodies = [];
  await tab.answerWith(calling(bodies));
  await tab.send("Again");
  await tab.page.waitForSelector(".consent");
  await tab.click("Don't run", ".consent");
  await until("the model was told", () => bodies.length === 2);
  assert.equal(bodies[1].messages.at(-1).content, "The user did not allow this call.");
  await tab.answered();
}

async function allowsAlways(tab) {
  const bodies = [];
  await tab.answerWith(calling(bodies));
  await tab.send("Always");
  await tab.page.waitForSelector(".consent");
  await tab.click("Always run this tool", ".consent");
  await until("it ran", () => bodies.length === 2);
  await tab.answered();
  await tab.send("Once more");
  await until("it ran without a question", () => bodies.length === 4);
  await tab.answered();
  assert.match(bodies[3].messages.at(-1).content, /from the page/);
}

async function tellsOrigins(tab) {
  const closed = createServer((_, response) => response.end("{}")).listen(0, "127.0.0.1");
  await until("it listens", () => closed.listening);
  tab.allowed.push(`127.0.0.1:${closed.address().port}`);
  await tab.page.click("#settings");
  await tab.page.type("#mcp-url", `http://127.0.0.1:${closed.address().port}/mcp`);
  await tab.click("Add server", "dialog");
  await tab.page.waitForSelector('.server[data-state="failed"] .fault');
  assert.match((await tab.text(".server .fault"))[0], /does not allow pages from http:\/\/127\.0\.0\.1:\d+ \(CORS\)/);
  await tab.page.keyboard.press("Escape");
  closed.close();
}
