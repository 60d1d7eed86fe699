"""litellm: the providers openai, hosted_vllm, text-completion-openai and anthropic."""

import json
from typing import Any, Literal

import litellm
from _checks import QUESTION, TEXT, WEATHER, arguments, equal, raises, run
from pydantic import BaseModel

URL, MODEL = arguments()
litellm.telemetry = False
litellm.suppress_debug_info = True
litellm.enable_json_schema_validation = True
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
PROVIDERS = (
    {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none"},
    {"model": f"hosted_vllm/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none"},
    {"model": f"anthropic/{MODEL}", "api_base": URL, "api_key": "none"},
)


class City(BaseModel):
    name: Literal["Rome"]
    people: int


def chat() -> None:
    for provider in PROVIDERS:
        equal(litellm.completion(**provider, messages=MESSAGES).choices[0].message.content, TEXT)
    text = {"model": f"text-completion-openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none"}
    equal(litellm.text_completion(**text, prompt="Call me").choices[0].text, TEXT)
    done = litellm.responses(**PROVIDERS[0], input=QUESTION)
    equal(done.output[0].content[0].text, TEXT)


def stream() -> None:
    for provider in PROVIDERS:
        parts = litellm.completion(**provider, messages=MESSAGES, stream=True, stream_options={"include_usage": True})
        equal("".join(part.choices[0].delta.content or "" for part in parts if part.choices), TEXT)


def tools() -> None:
    for provider in PROVIDERS:
        message = litellm.completion(**provider, messages=MESSAGES, tools=TOOLS).choices[0].message
        (call,) = message.tool_calls
        equal((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Rome"}))
        messages = [*MESSAGES, message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        last = litellm.completion(**provider, messages=messages, tools=TOOLS)
        equal(last.choices[0].message.content, TEXT)


def structured() -> None:
    for provider in PROVIDERS:
        done = litellm.completion(**provider, messages=MESSAGES, response_format=City)
        equal(City.model_validate_json(done.choices[0].message.content), City(name="Rome", people=0))


def error() -> None:
    for provider in PROVIDERS:
        kind = provider["model"].split("/")[0]
        raises(
            lambda provider=provider, kind=kind: litellm.completion(
                **{**provider, "model": f"{kind}/none"}, messages=MESSAGES
            ),
            litellm.NotFoundError,
            match="model 'none' not found",
        )
        raises(
            lambda provider=provider: litellm.completion(**provider, messages=MESSAGES, temperature=-1),
            litellm.BadRequestError,
            match="temperature",
        )


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
