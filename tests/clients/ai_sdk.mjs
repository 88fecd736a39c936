// Vercel's AI SDK with its OpenAI-compatible provider: node ai_sdk.mjs MODULES BASE_URL MODEL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, base, model] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/index.js`));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, streamText, generateObject, tool, stepCountIs } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const provider = createOpenAICompatible({
  name: "roost", baseURL: `${base}/v1`, includeUsage: true, supportsStructuredOutputs: true,
});
const chat = provider(model);

const plain = await generateText({ model: chat, prompt: "@@hello@@", maxRetries: 0 });
assert.equal(plain.text, "hello");
assert.equal(plain.usage.outputTokens, 5);

const stream = streamText({ model: chat, prompt: "@@hello@@", maxRetries: 0 });
let text = "";
for await (const piece of stream.textStream) text += piece;
assert.equal(text, "hello");
assert.equal(await stream.finishReason, "stop");
assert.equal((await stream.usage).outputTokens, 5);

const { object } = await generateObject({
  model: chat, prompt: "@@json@@", schema: z.object({ city: z.string(), days: z.number() }), maxRetries: 0,
});
assert.deepEqual(object, { city: "Paris", days: 3 });

// A loop with tools: the result of the call tells the engine what to say next.
const asked = [];
const agent = await generateText({
  model: chat,
  prompt: "@@calls@@",
  maxRetries: 0,
  stopWhen: stepCountIs(3),
  tools: {
    get_weather: tool({
      description: "w",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => { asked.push(city); return "@@hello@@"; },
    }),
  },
});
assert.deepEqual(asked, ["Paris", "Rome"]);
assert.equal(agent.text, "hello");

await assert.rejects(generateText({ model: provider("nope"), prompt: "x", maxRetries: 0 }), /does not exist/);
console.log("ai", require("ai/package.json").version);
