"""JSONL of training: texts and conversations, tokenized."""

import json
from pathlib import Path
from random import Random

from tapeline.demo import write_demo_checkpoint
from tapeline.finetuning._documents_testing import Documents
from tapeline.text import Tokenizer
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
)
_READERS: list[Documents] = []


def _documents() -> Documents:
    if not _READERS:
        directory = Path.cwd() / "model"
        directory.mkdir(exist_ok=True)
        write_demo_checkpoint(directory)
        (directory / "chat_template.jinja").write_text(_TEMPLATE)
        _READERS.append(Documents(Tokenizer.load(directory), directory, 512, 1))
    return _READERS[0]


def _seeds() -> list[bytes]:
    lines = [json.dumps(line) for line in ({"text": "It was the best of times."}, _CHAT)]
    return ["\n".join(lines).encode(), lines[0].encode(), lines[1].encode()]


def _mutate(data: bytes, draw: Random) -> bytes:
    lines = data.split(b"\n")
    place = draw.randrange(len(lines))
    lines[place] = mutate_json(lines[place], draw, ("user", "assistant", "system", "tool", _CHAT), ("text", "messages"))
    return b"\n".join(lines)


def _run(data: bytes) -> bool:
    for document in _documents().read(written("data.jsonl", data)):
        if document.ids.ndim != 1 or document.ids.shape != document.learned.shape:
            raise AssertionError(f"ids {document.ids.shape}, learned {document.learned.shape}")
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
