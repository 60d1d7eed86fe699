"""pydantic-ai: agents, on conversations and on responses."""

import asyncio
from typing import Literal

from _checks import QUESTION, TEXT, arguments, equal, raises, run
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

URL, MODEL = arguments()
provider = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
MODELS = (OpenAIChatModel(MODEL, provider=provider), OpenAIResponsesModel(MODEL, provider=provider))


class City(BaseModel):
    name: Literal["Rome"]
    people: int


def weather(city: str) -> str:
    """Returns the weather of a city."""
    equal(city, "Rome")
    return "sunny"


def chat() -> None:
    for model in MODELS:
        equal(Agent(model, instructions="Be brief.").run_sync(QUESTION).output, TEXT)


def stream() -> None:
    async def texts(model: OpenAIChatModel | OpenAIResponsesModel) -> list[str]:
        async with Agent(model).run_stream(QUESTION) as result:
            return [part async for part in result.stream_text(delta=True, debounce_by=None)]

    for model in MODELS:
        parts = asyncio.run(texts(model))
        equal("".join(parts), TEXT)
        assert len(parts) > 3, parts


def tools() -> None:
    for model in MODELS:
        done = Agent(model, tools=[weather]).run_sync(QUESTION)
        equal(done.output, TEXT)
        equal(done.usage.tool_calls, 1)


def structured() -> None:
    for model in MODELS:
        for form in (ToolOutput(City), NativeOutput(City)):
            equal(Agent(model, output_type=form).run_sync(QUESTION).output, City(name="Rome", people=0))


def error() -> None:
    model = OpenAIChatModel("none", provider=provider)
    raises(lambda: Agent(model).run_sync(QUESTION), ModelHTTPError, match="model 'none' not found")
    settings = {"temperature": -1.0}
    raises(lambda: Agent(MODELS[0]).run_sync(QUESTION, model_settings=settings), ModelHTTPError, match="temperature")


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
