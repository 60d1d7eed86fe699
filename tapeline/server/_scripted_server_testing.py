"""Server of tests whose models say what a script says, and requests to it."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

from lang_core import InputError
from tapeline.running import TextArray
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model
from tapeline.text import EncodedText, Tokenizer

TEXT: Final = (
    "It was the best of times, it was the worst of times; naïve 漢字 🙂 END and then some more of the same text."
)
HELLO: Final = [{"role": "user", "content": "Hello"}]


class Lengths:
    """Embedder of texts whose vector says how long they are, up to 8 letters; its prompt ``two`` has two of them."""

    similarity = "cosine"
    tokenizer: Any = None

    def embed(
        self, texts: Any, *, prompt_name: str | None = None, truncate: bool = True, check: Any = None
    ) -> TextArray:
        """Returns a vector for each text."""
        whole = [len(text) + (2 if prompt_name == "two" else 0) for text in texts]
        if max(whole) > 8 and not truncate:
            raise InputError("a text has more tokens than the model reads")
        read = [min(count, 8) for count in whole]
        encoded = [EncodedText([0] * kept, [0] * kept, count - kept) for count, kept in zip(whole, read, strict=True)]
        return TextArray.of(np.array([[1.0, float(count), 0.0] for count in read], np.float32), encoded)

    def close(self) -> None:
        """Frees nothing."""


@pytest.fixture(scope="module", name="script")
def script_tokens(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Tokens of the script."""
    directory = tmp_path_factory.mktemp("script")
    text_model(directory, ScriptSlots([0] * 8, VOCABULARY)).close()
    return Tokenizer.load(directory).encode(TEXT) * 3


@pytest.fixture(scope="module", name="server")
def scripted_server(tmp_path_factory: pytest.TempPathFactory, script: list[int]) -> Iterator[RunningServer]:
    """A server of two models that say the script, one of them slow, and one that embeds."""
    directory = tmp_path_factory.mktemp("model")
    text = text_model(directory, ScriptSlots(script, VOCABULARY))
    slow = text_model(directory, ScriptSlots(script, VOCABULARY, slots=2, seconds=0.01), "slow", max_waiting=2)
    embedder = EmbeddingModel(name="lengths", created=2, context=16, embedder=Lengths())
    models = [ModelSource(model.name, lambda model=model: model) for model in (text, slow, embedder)]
    options = ServerOptions(port=0, max_body_bytes=100_000, header_seconds=0.5, stall_seconds=0.5)
    with running(models, options) as started:
        yield started


def chat(server: RunningServer, **fields: Any) -> Answered:
    """Asks in a conversation."""
    return server.request("/v1/chat/completions", {"model": "demo", "messages": HELLO, "temperature": 0, **fields})


def complete(server: RunningServer, **fields: Any) -> Answered:
    """Asks to go on from a text."""
    return server.request("/v1/completions", {"model": "demo", "temperature": 0, **fields})
