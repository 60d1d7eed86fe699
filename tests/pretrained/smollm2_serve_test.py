"""Conversations with SmolLM2-135M-Instruct through the server, by the official client.

TAPELINE_SMOLLM2 is the path of its file, as for smollm2_test.
"""

import concurrent.futures
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from tests.product._serving import serving

_FILE = os.environ.get("TAPELINE_SMOLLM2", "")
_LONG_PROMPT = "Tell me about the river Thames, and how long it is. " * 12
pytestmark = pytest.mark.skipif(not _FILE, reason="TAPELINE_SMOLLM2 does not name the model's file")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    flags = (f"--model={_FILE}", "--slots=4", "--max_sequence=1024", "--verify=none")
    with (
        serving(tmp_path_factory.mktemp("server"), *flags) as server,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=600) as started,
    ):
        yield started


def _said(client: openai.OpenAI, messages: list[dict[str, str]], **fields: Any) -> Any:
    sent: Any = messages
    model = client.models.list().data[0].id
    return client.chat.completions.create(model=model, messages=sent, temperature=0, **fields)


def _posted(client: openai.OpenAI, route: str, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.post(f"/../{route}", body=body, cast_to=dict)
    return answer


def _asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_the_capital_of_france(client: openai.OpenAI) -> None:
    answer = _said(client, _asked("What is the capital of France?"), max_tokens=16)
    assert "Paris" in answer.choices[0].message.content


def test_answers_at_once_are_those_of_transformers(client: openai.OpenAI) -> None:
    """At least 19 of 20; eight ask at once, and ids of the golden answers are text by the server's own tokenizer."""
    with np.load(Path(__file__).parent / "data" / "smollm2.npz", allow_pickle=False) as golden:
        prompts, tokens = [str(text) for text in golden["prompts"]], golden["token_ids"][:, :40]

    (end,) = _posted(client, "tokenize", prompt="<|im_end|>", add_special_tokens=False)["tokens"]

    def same(prompt: str, golden: Sequence[int]) -> bool:
        expected = golden[: golden.index(end)] if end in golden else golden
        answer = _said(client, _asked(prompt), max_tokens=40).choices[0].message.content
        return answer == _posted(client, "detokenize", tokens=expected)["prompt"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(same, prompts, tokens.tolist())) >= len(prompts) - 1


def test_a_conversation_goes_on_where_it_was(client: openai.OpenAI) -> None:
    messages = _asked(_LONG_PROMPT)
    first = _said(client, messages, max_tokens=32)
    answer = first.choices[0].message.content
    messages += [{"role": "assistant", "content": answer}, *_asked("And the Danube?")]
    second = _said(client, messages, max_tokens=8)
    assert second.usage.prompt_tokens_details.cached_tokens >= 0.95 * first.usage.prompt_tokens
    assert _said(client, messages, max_tokens=8).choices[0].message.content == second.choices[0].message.content
