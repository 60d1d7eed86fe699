// Vercel AI SDK: the providers openai-compatible and openai, the latter on conversations and on responses.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { MODEL, QUESTION, TEXT, URL, assert, run } from "./checks.mjs";

const settings = { baseURL: `${URL}/v1`, apiKey: "none" };
const compatible = createOpenAICompatible({ ...settings, name: "tapeline", includeUsage: true, supportsStructuredOutputs: true });
const openai = createOpenAI(settings);
const models = (name = MODEL) => [compatible(name), openai.chat(name), openai.responses(name)];
const City = z.object({ name: z.literal("Rome"), people: z.number().int() });
const common = { prompt: QUESTION, maxRetries: 0 };

await run({
  async chat() {
    for (const model of models()) assert.equal((await generateText({ model, ...common })).text, TEXT);
    assert.equal((await generateText({ model: compatible.completionModel(MODEL), prompt: "Call me" })).text, TEXT);
  },

  async stream() {
    for (const model of models()) {
      const parts = [];
      const result = streamText({ model, ...common });
      for await (const part of result.textStream) parts.push(part);
      assert.equal(parts.join(""), TEXT);
      assert.ok(parts.length > 3, parts.join("|"));
      assert.equal((await result.usage).outputTokens, 6);
      assert.equal(await result.finishReason, "stop");
    }
  },

  async tools() {
    const asked = [];
    const weather = tool({
      description: "Weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => (asked.push(city), "sunny"),
    });
    for (const model of models()) {
      const call = { model, ...common, tools: { weather }, stopWhen: stepCountIs(3) };
      assert.equal((await generateText(call)).text, TEXT);
      assert.equal(await streamText(call).text, TEXT);
      const demanded = await generateText({ ...call, toolChoice: { type: "tool", toolName: "weather" }, stopWhen: stepCountIs(1) });
      assert.equal(demanded.toolCalls.length, 1);
    }
    assert.deepEqual(asked.filter((city) => city === "Rome").length, 2 * models().length);
  },

  async structured() {
    for (const model of models()) {
      const call = { model, ...common, output: Output.object({ schema: City }) };
      assert.deepEqual((await generateText(call)).output, { name: "Rome", people: 0 });
      const result = streamText(call);
      let last;
      for await (const part of result.partialOutputStream) last = part;
      assert.deepEqual(last, { name: "Rome", people: 0 });
    }
  },

  async error() {
    for (const model of models("none")) {
      const check = (error) => APICallError.isInstance(error) && error.statusCode === 404 && /not found/.test(error.message);
      await assert.rejects(generateText({ model, ...common }), check);
    }
    const wrong = generateText({ model: models()[0], ...common, temperature: -1 });
    await assert.rejects(wrong, (error) => APICallError.isInstance(error) && /temperature/.test(error.message));
  },
});
