"""openai (Python): conversations, responses, completions."""

import json
from typing import Any, Literal

import openai
from _checks import QUESTION, TEXT, WEATHER, arguments, equal, raises, run
from pydantic import BaseModel

URL, MODEL = arguments()
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}}]
RESPONSE_TOOLS: list[Any] = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}]


class City(BaseModel):
    name: Literal["Rome"]
    people: int


def chat() -> None:
    done = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    equal((done.choices[0].message.content, done.choices[0].finish_reason), (TEXT, "stop"))
    equal(client.completions.create(model=MODEL, prompt="Call me").choices[0].text, TEXT)
    equal(client.responses.create(model=MODEL, input=QUESTION).output_text, TEXT)
    equal(client.models.retrieve(MODEL).id, MODEL)


def stream() -> None:
    parts = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(parts)
    equal("".join(part.choices[0].delta.content or "" for part in chunks if part.choices), TEXT)
    equal(chunks[-1].usage is not None and chunks[-1].usage.completion_tokens, 6)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as events:
        equal(events.get_final_completion().choices[0].message.content, TEXT)
    with client.responses.stream(model=MODEL, input=QUESTION) as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        equal("".join(deltas), TEXT)
        equal(events.get_final_response().output_text, TEXT)


def tools() -> None:
    for streamed in (False, True):
        messages = list(MESSAGES)
        if streamed:
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
        (call,) = message.tool_calls or []
        equal((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Rome"}))
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        last = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
        equal(last.choices[0].message.content, TEXT)
    demanded = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}}
    )
    equal(len(demanded.choices[0].message.tool_calls or []), 1)
    first = client.responses.create(model=MODEL, input=QUESTION, tools=RESPONSE_TOOLS)
    (item,) = first.output
    equal((item.type, item.name, json.loads(item.arguments)), ("function_call", "weather", {"city": "Rome"}))
    output: list[Any] = [{"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}]
    second = client.responses.create(model=MODEL, previous_response_id=first.id, input=output, tools=RESPONSE_TOOLS)
    equal(second.output_text, TEXT)


def structured() -> None:
    parsed = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=City)
    equal(parsed.choices[0].message.parsed, City(name="Rome", people=0))
    equal(
        client.responses.parse(model=MODEL, input=QUESTION, text_format=City).output_parsed, City(name="Rome", people=0)
    )


def error() -> None:
    raises(
        lambda: client.chat.completions.create(model="none", messages=MESSAGES),
        openai.NotFoundError,
        match="model 'none' not found",
    )
    raises(
        lambda: client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=-1),
        openai.BadRequestError,
        match="temperature",
    )
    raises(
        lambda: client.responses.create(model=MODEL, input=QUESTION, previous_response_id="resp_none"),
        openai.NotFoundError,
        match="no such response is stored",
    )


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
