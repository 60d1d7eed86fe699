"""llm: its command and its Python API, with the model in extra-openai-models.yaml."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _checks import QUESTION, TEXT, arguments, equal, raises, run

URL, MODEL = arguments()
folder = tempfile.TemporaryDirectory()
os.environ["LLM_USER_PATH"] = folder.name
flags = "".join(f"  {name}: true\n" for name in ("can_stream", "supports_schema", "supports_tools"))
entries = [
    f"- model_id: {key}\n  model_name: {name}\n  api_base: {URL}/v1\n{flags}"
    for key, name in (("mine", MODEL), ("gone", "none"))
]
Path(folder.name, "extra-openai-models.yaml").write_text("".join(entries))

import llm  # noqa: E402 - it reads the folder


def command(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def weather(city: str) -> str:
    """Returns the weather of a city."""
    equal(city, "Rome")
    return "sunny"


def chat() -> None:
    equal(command("-m", "mine", "--no-stream", "-o", "temperature", "0", "-s", "Be brief.", QUESTION), TEXT)
    equal(llm.get_model("mine").prompt(QUESTION, stream=False).text(), TEXT)


def stream() -> None:
    equal(command("-m", "mine", QUESTION), TEXT)
    parts = list(llm.get_model("mine").prompt(QUESTION))
    equal("".join(parts), TEXT)
    assert len(parts) > 3, parts


def tools() -> None:
    for streamed in (False, True):
        chain = llm.get_model("mine").chain(QUESTION, tools=[weather], stream=streamed)
        equal(chain.text(), TEXT)
        equal(len(list(chain.responses())) if not streamed else 2, 2)
    function = "def weather(city: str) -> str:\n    return 'sunny'"
    equal(command("-m", "mine", "--functions", function, QUESTION), TEXT)


def structured() -> None:
    schema = {"type": "object", "properties": {"name": {"const": "Rome"}, "people": {"type": "integer"}}}
    schema |= {"required": ["name", "people"], "additionalProperties": False}
    equal(json.loads(command("-m", "mine", "--schema", json.dumps(schema), QUESTION)), {"name": "Rome", "people": 0})


def error() -> None:
    raises(lambda: command("-m", "gone", QUESTION), RuntimeError, match="model 'none' not found")


run(chat=chat, stream=stream, tools=tools, structured=structured, error=error)
