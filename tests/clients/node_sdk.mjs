// The official JavaScript SDK and the Vercel AI SDK against the demo model.
//
//     node node_sdk.mjs URL
//
// Needs `openai`, `ai`, `@ai-sdk/openai-compatible` and `zod`, found from the working directory.
// What a toy model says does not matter; that all ways to ask agree, and that forms are kept, does.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { zodResponseFormat } = await load("openai/helpers/zod");
const { z } = await load("zod");
const { generateText, streamText, generateObject, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");

const url = process.argv[2];
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Ada is 36 and lives in Oslo. Who is she?" }];
const Person = z.object({ name: z.string().max(20), age: z.int().min(0).max(150), city: z.enum(["Oslo", "Rome"]) });
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    strict: true,
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Oslo", "Rome"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
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

await check("openai: a stream says what the whole answer says", async () => {
  const fields = { model, messages, max_tokens: 24, seed: 1 };
  const whole = await client.chat.completions.create(fields);
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...fields, stream: true })) {
    text += chunk.choices[0]?.delta.content ?? "";
  }
  assert.equal(text, whole.choices[0].message.content);
});

await check("openai: parse gives the schema's object", async () => {
  const answer = await client.chat.completions.parse({
    model, messages, max_tokens: 200, seed: 2, response_format: zodResponseFormat(Person, "person"),
  });
  assert.ok(Person.parse(answer.choices[0].message.parsed));
});

await check("openai: a required call, streamed by the helper", async () => {
  const stream = client.chat.completions.stream({
    model, messages, tools: [weather], tool_choice: "required", parallel_tool_calls: false, max_tokens: 200, seed: 3,
  });
  const final = await stream.finalChatCompletion();
  const [call] = final.choices[0].message.tool_calls;
  assert.ok(["Oslo", "Rome"].includes(JSON.parse(call.function.arguments).city));
});

await check("openai: errors have their class, status and code", async () => {
  await assert.rejects(
    client.chat.completions.create({ model: "nothing", messages }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
  );
});

await check("openai: an abort ends the stream and the server goes on", async () => {
  const stream = await client.chat.completions.create({ model, messages, stream: true, max_tokens: 200 });
  for await (const _ of stream) break;
  stream.controller.abort();
  const answer = await client.chat.completions.create({ model, messages, max_tokens: 3 });
  assert.ok(answer.choices[0].finish_reason);
});

const provider = createOpenAICompatible({
  name: "sconce", baseURL: `${url}/v1`, apiKey: "none", includeUsage: true, supportsStructuredOutputs: true,
});
const chat = provider(model);
const prompt = messages[0].content;

await check("ai: generateText and streamText say the same", async () => {
  const fields = { model: chat, prompt, maxOutputTokens: 24, seed: 4, maxRetries: 0 };
  const whole = await generateText(fields);
  const streamed = streamText(fields);
  let text = "";
  for await (const part of streamed.textStream) text += part;
  assert.equal(text, whole.text);
  assert.ok((await streamed.usage).outputTokens > 0);
});

await check("ai: generateObject gives the schema's object", async () => {
  const { object } = await generateObject({
    model: chat, prompt, schema: Person, maxOutputTokens: 200, seed: 5, maxRetries: 0,
  });
  assert.ok(Person.parse(object));
});

await check("ai: a required tool is called with arguments by its schema", async () => {
  const add = tool({
    description: "Adds two numbers.",
    inputSchema: z.object({ a: z.enum(["1", "2"]), b: z.enum(["3"]) }),
  });
  const { toolCalls } = await generateText({
    model: chat, prompt, tools: { add }, toolChoice: "required", maxOutputTokens: 200, seed: 6, maxRetries: 0,
  });
  assert.equal(toolCalls[0].toolName, "add");
  assert.equal(toolCalls[0].input.b, "3");
});

console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed || !passed ? 1 : 0;
