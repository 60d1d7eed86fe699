"""instructor: answers as classes, in several of its modes."""

from typing import Literal

import instructor
import openai
from _checks import QUESTION, TEXT, arguments, equal, raises, run
from pydantic import BaseModel

URL, MODEL = arguments()
plain = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": QUESTION}]
MODES = (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT)


class City(BaseModel):
    """A city."""

    name: Literal["Rome"]
    people: int


class Weather(BaseModel):
    """Weather of a city."""

    city: Literal["Rome"]


def same(city: City) -> None:
    equal(city.model_dump(), {"name": "Rome", "people": 0})  # of a subclass that instructor makes


def chat() -> None:
    client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
    equal(
        client.chat.completions.create(model=MODEL, messages=MESSAGES, response_model=None).choices[0].message.content,
        TEXT,
    )


def stream() -> None:
    for mode in MODES[:2]:
        client = instructor.from_openai(plain, mode=mode)
        *_, last = client.create_partial(model=MODEL, messages=MESSAGES, response_model=City)
        equal((last.name, last.people), ("Rome", 0))


def tools() -> None:
    client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
    weather, done = client.create_with_completion(model=MODEL, messages=MESSAGES, response_model=Weather)
    equal(weather.city, "Rome")
    message = done.choices[0].message
    equal(message.tool_calls[0].function.name, "Weather")
    messages = [
        *MESSAGES,
        message.model_dump(),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"},
    ]
    same(client.create(model=MODEL, messages=messages, response_model=City))


def structured() -> None:
    for mode in MODES:
        client = instructor.from_openai(plain, mode=mode)
        same(client.create(model=MODEL, messages=MESSAGES, response_model=City))


def error() -> None:
    client = instructor.from_openai(plain)
    raises(
        lambda: client.create(model="none", messages=MESSAGES, response_model=City, max_retries=0),
        Exception,
        match="model 'none' not found",
    )


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
