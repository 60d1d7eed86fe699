"""langchain-openai: ChatOpenAI, on conversations and on responses."""

from typing import Literal

import openai
from _checks import QUESTION, TEXT, arguments, equal, raises, run
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

URL, MODEL = arguments()


def model(name: str = MODEL, **options: object) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=f"{URL}/v1", api_key="none", max_retries=0, **options)


MODELS = (model(), model(use_responses_api=True))


class City(BaseModel):
    """A city."""

    name: Literal["Rome"]
    people: int


@tool
def weather(city: str) -> str:
    """Returns the weather of a city."""
    equal(city, "Rome")
    return "sunny"


def chat() -> None:
    for one in MODELS:
        equal(one.invoke(QUESTION).text, TEXT)
    equal(OpenAI(model=MODEL, base_url=f"{URL}/v1", api_key="none").invoke("Call me"), TEXT)


def stream() -> None:
    for one in MODELS:
        parts = [part.text for part in one.stream(QUESTION)]
        equal("".join(parts), TEXT)
        assert len(parts) > 3, parts


def tools() -> None:
    for one in MODELS:
        bound = one.bind_tools([weather])
        messages = [HumanMessage(QUESTION)]
        message = bound.invoke(messages)
        messages.append(message)
        messages += [weather.invoke(call) for call in message.tool_calls]
        equal(len(messages), 3)
        equal(bound.invoke(messages).text, TEXT)
        equal(len(one.bind_tools([weather], tool_choice="any").invoke(QUESTION).tool_calls), 1)


def structured() -> None:
    for one in MODELS:
        for method in ("json_schema", "function_calling"):
            equal(one.with_structured_output(City, method=method).invoke(QUESTION), City(name="Rome", people=0))


def error() -> None:
    raises(lambda: model("none").invoke(QUESTION), openai.NotFoundError, match="model 'none' not found")
    raises(lambda: model(temperature=-1).invoke(QUESTION), openai.BadRequestError, match="temperature")


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
