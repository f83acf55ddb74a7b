// JavaScript libraries against the demo model, as they come and with their defaults.
//
//     node node_programs.mjs URL
//
// Needs any of `ai` with `@ai-sdk/anthropic` and `@ai-sdk/openai`, `@langchain/anthropic` with
// `@langchain/core`, `@anthropic-ai/sdk`, `ollama`, and `zod`, found from the working directory; what
// isn't installed is left out and said so. What a toy model says does not matter: that no request is
// refused, and that forms are kept, does.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const url = process.argv[2];
const QUESTION = "Ada is 36 and lives in Oslo. Who is she?";

// Every library asks by fetch: what was asked, and what came back.
const asked = [];
const plainFetch = globalThis.fetch;
globalThis.fetch = async (target, options) => {
  const response = await plainFetch(target, options);
  const request = target instanceof Request ? target : { url: String(target), method: options?.method ?? "GET" };
  const exchange = {
    method: request.method, path: new URL(request.url).pathname, status: response.status,
    body: options?.body ? JSON.parse(options.body) : undefined,
  };
  if (!response.ok) exchange.answer = await response.clone().text();
  asked.push(exchange);
  return response;
};

let passed = 0;
let failed = 0;

async function check(name, run) {
  try {
    await run();
    passed += 1;
    console.log(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}

function version(name) {
  let folder = dirname(require.resolve(name));
  for (;;) {
    try {
      const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      if (about.name === name) return about.version;
    } catch {
      // A folder inside the package.
    }
    if (folder === dirname(folder)) return "?";
    folder = dirname(folder);
  }
}

// Runs one library's checks; afterwards nothing may have been refused, unless `refused` says so.
async function section(name, packages, run, refused = () => false) {
  let modules;
  try {
    modules = await Promise.all(packages.map(load));
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") throw error;
    console.log(`left out: ${name}, since ${packages.join(", ")} can't all be found`);
    return;
  }
  console.log(`  ${packages.map((one) => `${one} ${version(one)}`).join(", ")}`);
  const mark = asked.length;
  await check(`${name}: came to its end`, () => run(...modules));
  const seen = asked.slice(mark);
  await check(`${name}: something was asked, and nothing was refused`, () => {
    assert.ok(seen.length > 0);
    const bad = seen.filter((one) => one.status >= 400 && !refused(one));
    assert.equal(bad.length, 0, JSON.stringify(bad));
  });
  const counts = {};
  for (const { method, path, status } of seen) {
    const key = `${name.padEnd(24)} ${method.padEnd(7)} ${path.padEnd(28)} ${status}`;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  for (const [key, count] of Object.entries(counts)) console.log(`  ${key} ${count}`);
}

const model = (await (await plainFetch(`${url}/v1/models`)).json()).data[0].id;

async function aiSdk(name, chat, { generateText, streamText, Output, tool }, { z }) {
  const Person = z.object({
    name: z.string().max(20), age: z.number().int().min(0).max(150), city: z.enum(["Oslo", "Rome"]),
  });
  const add = tool({
    description: "Adds two numbers.",
    inputSchema: z.object({ a: z.enum(["1", "2"]), b: z.enum(["3"]) }),
    execute: ({ a, b }) => Number(a) + Number(b),
  });
  const fields = { model: chat, prompt: QUESTION, maxRetries: 0 };
  await check(`${name}: generateText as it comes`, async () => {
    const answer = await generateText(fields);
    assert.ok(answer.text.length > 0 && answer.usage.outputTokens > 0, JSON.stringify(answer.usage));
  });
  await check(`${name}: streamText as it comes`, async () => {
    const answer = streamText({ ...fields, onError: ({ error }) => { throw error; } });
    let text = "";
    for await (const part of answer.textStream) text += part;
    assert.ok(text.length > 0 && (await answer.usage).outputTokens > 0);
  });
  await check(`${name}: an object by a schema`, async () => {
    const answer = await generateText({ ...fields, output: Output.object({ schema: Person }) });
    assert.ok(Person.parse(answer.output));
  });
  for (const streamed of [false, true]) {
    await check(`${name}: a tool is called and its result goes back, stream ${streamed}`, async () => {
      const options = {
        ...fields, tools: { add },
        // A toy model is told when to call and when to answer.
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
        stopWhen: ({ steps }) => steps.length >= 2,
      };
      const answer = streamed ? streamText(options) : await generateText(options);
      if (streamed) await answer.consumeStream();
      const steps = await answer.steps;
      assert.equal(steps.length, 2);
      const [call] = steps[0].toolCalls;
      assert.deepEqual([call.toolName, call.input.b], ["add", "3"]);
      assert.ok([4, 5].includes(steps[0].toolResults[0].output));
    });
  }
}

await section("@ai-sdk/anthropic", ["@ai-sdk/anthropic", "ai", "zod"], async ({ createAnthropic }, ai, zod) => {
  const chat = createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })(model);
  await aiSdk("@ai-sdk/anthropic", chat, ai, zod);
});

await section("@ai-sdk/openai", ["@ai-sdk/openai", "ai", "zod"], async ({ createOpenAI }, ai, zod) => {
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
  await aiSdk("@ai-sdk/openai, Responses", openai(model), ai, zod);
  assert.ok(asked.at(-1).path.endsWith("/responses"), "the Responses API is the default");
  await aiSdk("@ai-sdk/openai, chat", openai.chat(model), ai, zod);
  // Older ones know no decisions.
  if (ai.experimental_decide && openai.decisionModel) {
    await check("@ai-sdk/openai: decisions of every type", async () => {
      const { answers, usage } = await ai.experimental_decide({
        model: openai.decisionModel(model), state: QUESTION, maxRetries: 0,
        questions: {
          known: { type: "boolean", instructions: "Is her name told?" },
          city: { type: "choice", instructions: "Where?", criteria: { Oslo: "In Norway", Rome: null } },
          age: { type: "score", instructions: "How old?", criteria: ["young", "old"] },
        },
      });
      assert.ok(answers.known.probability >= 0 && answers.known.probability <= 1);
      const { Oslo, Rome } = answers.city.probabilities;
      assert.ok(Math.abs(Oslo + Rome - 1) < 1e-9 && answers.city.choice === (Oslo >= Rome ? "Oslo" : "Rome"));
      assert.ok(Math.abs(answers.age.score - answers.age.probabilities[1]) < 1e-9 && usage.outputTokens === 0);
    });
  }
  await check("@ai-sdk/openai: completion and embedding models", async () => {
    const text = await ai.generateText({ model: openai.completion(model), prompt: "Once upon a time", maxRetries: 0 });
    assert.ok(text.usage.outputTokens > 0);
    const { embeddings } = await ai.embedMany({
      model: openai.embedding(model), values: ["a lamp", "the sea"], maxRetries: 0,
    });
    assert.equal(embeddings.length, 2);
  });
});

const langchain = ["@langchain/anthropic", "@langchain/core/messages", "@langchain/core/tools", "zod"];
await section("@langchain/anthropic", langchain, async ({ ChatAnthropic }, { HumanMessage, ToolMessage }, { tool }, { z }) => {
  const chat = new ChatAnthropic({ model, apiKey: "none", anthropicApiUrl: url, maxRetries: 0 });
  const add = tool(({ a, b }) => String(Number(a) + Number(b)), {
    name: "add", description: "Adds two numbers.",
    schema: z.object({ a: z.enum(["1", "2"]), b: z.enum(["3"]) }),
  });
  await check("@langchain/anthropic: an answer and its stream as they come", async () => {
    const answer = await chat.invoke(QUESTION);
    assert.ok(answer.usage_metadata.output_tokens > 0);
    let text = "";
    for await (const chunk of await chat.stream(QUESTION)) text += chunk.text;
    assert.ok(text.length > 0);
  });
  await check("@langchain/anthropic: structured output", async () => {
    const City = z.object({ city: z.enum(["Oslo", "Rome"]) });
    assert.ok(City.parse(await chat.withStructuredOutput(City).invoke(QUESTION)));
  });
  await check("@langchain/anthropic: a tool is called, and its result goes back", async () => {
    const first = await chat.bindTools([add], { tool_choice: "add" }).invoke(QUESTION);
    const [call] = first.tool_calls;
    const result = new ToolMessage({ content: await add.invoke(call.args), tool_call_id: call.id });
    const answer = await chat.bindTools([add]).invoke([new HumanMessage(QUESTION), first, result]);
    assert.ok(answer.response_metadata.stop_reason);
  });
});

// Threads that the server holds may be refused in these words; then it goes on without them.
const isThread = (one) => one.answer.includes("thread_unsupported_request");
const anthropic = ["@anthropic-ai/sdk", "@anthropic-ai/sdk/helpers/beta/zod", "zod"];
await section("@anthropic-ai/sdk", anthropic, async ({ default: Anthropic }, { betaZodTool }, { z }) => {
  const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  for (const stream of [false, true]) {
    await check(`@anthropic-ai/sdk: the tool runner calls and sends the result, stream ${stream}`, async () => {
      let called = 0;
      const add = betaZodTool({
        name: "add", description: "Adds two numbers.",
        inputSchema: z.object({ a: z.enum(["1", "2"]), b: z.enum(["3"]) }),
        run: ({ a, b }) => { called += 1; return String(Number(a) + Number(b)); },
      });
      const runner = client.beta.messages.toolRunner({
        model, max_tokens: 1024, tools: [add], max_iterations: 2, stream,
        tool_choice: { type: "any", disable_parallel_tool_use: true },
        messages: [{ role: "user", content: QUESTION }],
      });
      let turns = 0;
      for await (const turn of runner) {
        turns += 1;
        if (stream) await turn.finalMessage();
      }
      assert.equal(turns, 2);
      assert.ok(called >= 1);
    });
  }
}, isThread);

// What can't be had is refused in words.
const isPull = (one) => one.path === "/api/pull" && one.answer.includes("is not served");
await section("ollama", ["ollama"], async ({ Ollama }) => {
  const client = new Ollama({ host: url });
  const fields = { model, options: { seed: 7, num_predict: 24 } };
  const messages = [{ role: "user", content: QUESTION }];
  await check("ollama: a chat and a prompt, whole and as streams", async () => {
    const whole = await client.chat({ ...fields, messages });
    let text = "";
    for await (const part of await client.chat({ ...fields, messages, stream: true })) text += part.message.content;
    assert.equal(text, whole.message.content);
    const prompted = await client.generate({ ...fields, prompt: QUESTION });
    let response = "";
    for await (const part of await client.generate({ ...fields, prompt: QUESTION, stream: true })) response += part.response;
    assert.equal(response, prompted.response);
    assert.ok(prompted.context.length > prompted.eval_count && prompted.total_duration > 0);
  });
  await check("ollama: an object by a schema", async () => {
    const format = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"], additionalProperties: false };
    const answer = await client.chat({ ...fields, messages, format, options: { num_predict: 100 } });
    assert.ok(["Oslo", "Rome"].includes(JSON.parse(answer.message.content).city));
  });
  await check("ollama: list, show, ps and embeddings", async () => {
    assert.ok((await client.list()).models.some((one) => one.model === model));
    assert.ok((await client.show({ model })).capabilities.includes("completion"));
    assert.ok((await client.ps()).models.some((one) => one.model === model));
    const { embeddings } = await client.embed({ model, input: ["a lamp", "the sea"] });
    assert.equal(embeddings.length, 2);
  });
  await check("ollama: what is not there is told in words", async () => {
    await assert.rejects(client.pull({ model: "other" }), /\/api\/pull is not served/);
  });
}, isPull);

console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed || !passed ? 1 : 0;
