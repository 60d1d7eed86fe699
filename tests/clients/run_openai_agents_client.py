"""openai-agents: agents with tools and handoffs, on conversations and on responses."""

import asyncio
from typing import Any, Literal

import openai
from _checks import QUESTION, TEXT, arguments, equal, raises, run
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel

URL, MODEL = arguments()
set_tracing_disabled(True)
asked: list[str] = []


class City(BaseModel):
    name: Literal["Rome"]
    people: int


@function_tool
def weather(city: str) -> str:
    """Returns the weather of a city."""
    asked.append(city)
    return "sunny"


def models(name: str = MODEL) -> tuple[Any, ...]:
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    return (
        OpenAIChatCompletionsModel(model=name, openai_client=client),
        OpenAIResponsesModel(model=name, openai_client=client),
    )


def agent(model: Any, **options: Any) -> Agent:
    return Agent(name="helper", instructions="Be brief.", model=model, **options)


def chat() -> None:
    for model in models():
        equal(Runner.run_sync(agent(model), QUESTION).final_output, TEXT)


def stream() -> None:
    async def texts(index: int) -> str:
        result = Runner.run_streamed(agent(models()[index]), QUESTION)
        events = [event async for event in result.stream_events() if event.type == "raw_response_event"]
        return "".join(one.data.delta for one in events if one.data.type == "response.output_text.delta")

    for index in range(2):
        equal(asyncio.run(texts(index)), TEXT)


def tools() -> None:
    for model in models():
        asked.clear()
        equal((Runner.run_sync(agent(model, tools=[weather]), QUESTION).final_output, asked), (TEXT, ["Rome"]))
    demanded = ModelSettings(tool_choice="required")
    for model in models():
        asked.clear()
        equal(Runner.run_sync(agent(model, tools=[weather], model_settings=demanded), QUESTION).final_output, TEXT)
        equal(len(asked), 1)


def structured() -> None:
    for model in models():
        done = Runner.run_sync(agent(model, output_type=City), QUESTION)
        equal(done.final_output, City(name="Rome", people=0))


def error() -> None:
    for model in models("none"):
        raises(
            lambda model=model: Runner.run_sync(agent(model), QUESTION),
            openai.NotFoundError,
            match="model 'none' not found",
        )


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
