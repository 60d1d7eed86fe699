// openai (npm): conversations, responses, completions.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { MODEL, QUESTION, TEXT, URL, assert, run } from "./checks.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "none", maxRetries: 0 });
const model = MODEL;
const messages = [{ role: "user", content: QUESTION }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "weather", parameters, strict: true } }];
const City = z.object({ name: z.literal("Rome"), people: z.number().int() });

await run({
  async chat() {
    const done = await client.chat.completions.create({ model, messages });
    assert.equal(done.choices[0].message.content, TEXT);
    assert.equal((await client.responses.create({ model, input: QUESTION })).output_text, TEXT);
    assert.equal((await client.completions.create({ model, prompt: "Call me" })).choices[0].text, TEXT);
  },

  async stream() {
    let text = "";
    const parts = await client.chat.completions.create({ model, messages, stream: true });
    for await (const part of parts) text += part.choices[0]?.delta.content ?? "";
    assert.equal(text, TEXT);
    const helper = client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } });
    assert.equal(await helper.finalContent(), TEXT);
    assert.equal((await helper.totalUsage()).completion_tokens, 6);
    const response = client.responses.stream({ model, input: QUESTION });
    let deltas = "";
    for await (const event of response) if (event.type === "response.output_text.delta") deltas += event.delta;
    assert.equal(deltas, TEXT);
    assert.equal((await response.finalResponse()).output_text, TEXT);
  },

  async tools() {
    const asked = [];
    const weather = {
      type: "function",
      function: {
        name: "weather",
        description: "Weather of a city.",
        parameters,
        parse: JSON.parse,
        function: ({ city }) => (asked.push(city), "sunny"),
      },
    };
    for (const stream of [false, true]) {
      const runner = client.chat.completions.runTools({ model, messages, tools: [weather], stream });
      assert.equal(await runner.finalContent(), TEXT);
    }
    assert.deepEqual(asked, ["Rome", "Rome"]);
    const named = { type: "function", function: { name: "weather" } };
    const done = await client.chat.completions.create({ model, messages, tools, tool_choice: named });
    assert.equal(done.choices[0].message.tool_calls.length, 1);
    const responseTools = [{ type: "function", name: "weather", parameters, strict: true }];
    const first = await client.responses.create({ model, input: QUESTION, tools: responseTools });
    assert.deepEqual(JSON.parse(first.output[0].arguments), { city: "Rome" });
    const output = [{ type: "function_call_output", call_id: first.output[0].call_id, output: "sunny" }];
    const more = { model, previous_response_id: first.id, input: output, tools: responseTools };
    assert.equal((await client.responses.create(more)).output_text, TEXT);
  },

  async structured() {
    const expected = { name: "Rome", people: 0 };
    const chat = { model, messages, response_format: zodResponseFormat(City, "city") };
    assert.deepEqual((await client.chat.completions.parse(chat)).choices[0].message.parsed, expected);
    const response = { model, input: QUESTION, text: { format: zodTextFormat(City, "city") } };
    assert.deepEqual((await client.responses.parse(response)).output_parsed, expected);
  },

  async error() {
    const unknown = client.chat.completions.create({ model: "none", messages });
    await assert.rejects(unknown, (error) => error instanceof OpenAI.NotFoundError && /'none' not found/.test(error.message));
    const wrong = client.chat.completions.create({ model, messages, temperature: -1 });
    await assert.rejects(wrong, (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
  },
});
