"""anthropic (Python): messages, and the runner of tools."""

from typing import Any, Literal

import anthropic
from _checks import QUESTION, TEXT, WEATHER, arguments, equal, raises, run
from pydantic import BaseModel

URL, MODEL = arguments()
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
COMMON: dict[str, Any] = {"model": MODEL, "max_tokens": 200}
TOOLS: list[Any] = [{"name": "weather", "description": "Weather of a city.", "input_schema": WEATHER}]


class City(BaseModel):
    name: Literal["Rome"]
    people: int


def chat() -> None:
    done = client.messages.create(**COMMON, messages=MESSAGES, system="Be brief.")
    equal((done.content[0].text, done.stop_reason), (TEXT, "end_turn"))
    counted = client.messages.count_tokens(model=MODEL, messages=MESSAGES, system="Be brief.")
    used = done.usage.input_tokens + (done.usage.cache_read_input_tokens or 0)
    equal(counted.input_tokens, used)


def stream() -> None:
    with client.messages.stream(**COMMON, messages=MESSAGES) as events:
        equal("".join(events.text_stream), TEXT)
        equal(events.get_final_message().usage.output_tokens, 6)


def tools() -> None:
    for streamed in (False, True):
        if streamed:
            with client.messages.stream(**COMMON, messages=MESSAGES, tools=TOOLS) as events:
                first = events.get_final_message()
        else:
            first = client.messages.create(**COMMON, messages=MESSAGES, tools=TOOLS)
        (block,) = [one for one in first.content if one.type == "tool_use"]
        equal((block.name, block.input, first.stop_reason), ("weather", {"city": "Rome"}, "tool_use"))
        result = {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
        messages = [*MESSAGES, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        equal(client.messages.create(**COMMON, messages=messages, tools=TOOLS).content[0].text, TEXT)
    asked: list[str] = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Returns the weather of a city.

        Args:
            city: the city.
        """
        asked.append(city)
        return "sunny"

    runner = client.beta.messages.tool_runner(**COMMON, messages=MESSAGES, tools=[weather])
    equal((runner.until_done().content[0].text, asked), (TEXT, ["Rome"]))


def structured() -> None:
    parsed = client.messages.parse(**COMMON, messages=MESSAGES, output_format=City)
    equal(parsed.parsed_output, City(name="Rome", people=0))


def error() -> None:
    raises(
        lambda: client.messages.create(model="none", max_tokens=5, messages=MESSAGES),
        anthropic.NotFoundError,
        match="model 'none' not found",
    )
    raises(
        lambda: client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=0),
        anthropic.BadRequestError,
        match="max_tokens",
    )


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
