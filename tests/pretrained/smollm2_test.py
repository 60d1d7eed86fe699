"""SmolLM2-135M-Instruct, a real model in Q4_1: its bits stay, and it says what transformers makes of them in f32.

The file (93 MB) is not in the repository: docs/gguf.md says where it comes from. TAPELINE_SMOLLM2 is its path.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from tapeline.bundle import ARCHIVE
from tapeline.text import Chat
from tests.product._bundles import export

_FILE = os.environ.get("TAPELINE_SMOLLM2", "")
_DEVICE = "local-task"
_NEAR_TIE = 1e-3  # two logits that are nearer than this are as likely as each other
pytestmark = pytest.mark.skipif(not _FILE, reason="TAPELINE_SMOLLM2 does not name the model's file")


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parent / "data" / "smollm2.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(_FILE, tmp_path_factory.mktemp("smollm2") / "bundle", max_sequence=2304, verify="auto")


@pytest.fixture(scope="module")
def model(bundle: Path) -> Iterator[tapeline.LoadedModel]:
    with tapeline.load(bundle, device=_DEVICE) as loaded:
        yield loaded


def _asked(model: tapeline.LoadedModel, text: str) -> Sequence[int]:
    """Returns the tokens of a question in the model's chat template."""
    return Chat.of(model.bundle.path, model.tokenizer).ask(text, model.vocabulary)


def test_it_is_the_file_of_the_reference(golden: dict[str, np.ndarray]) -> None:
    assert hashlib.sha256(Path(_FILE).read_bytes()).hexdigest() == str(golden["model_sha256"])


def test_weights_stay_packed(bundle: Path) -> None:
    assert (bundle / ARCHIVE).stat().st_size <= 1.15 * Path(_FILE).stat().st_size


def test_the_capital_of_france(model: tapeline.LoadedModel) -> None:
    asked = _asked(model, "What is the capital of France?")
    assert "Paris" in model.generate(token_ids=asked, max_new_tokens=16).text


def test_prompts_are_tokenized_alike(model: tapeline.LoadedModel, golden: dict[str, np.ndarray]) -> None:
    for text, expected in zip(golden["prompts"], golden["prompt_ids"], strict=True):
        assert list(_asked(model, str(text))) == expected[expected >= 0].tolist()


def test_greedy_tokens(model: tapeline.LoadedModel, golden: dict[str, np.ndarray]) -> None:
    """At least 19 of 20 answers are the same for 200 tokens; where one parts, two tokens are as likely."""
    parted: list[tuple[str, int, float]] = []
    columns = (golden[name] for name in ("prompts", "prompt_ids", "token_ids", "margins"))
    for text, ids, expected, margins in zip(*columns, strict=True):
        options: Any = {"max_new_tokens": len(expected), "ignore_eos": True}
        made = model.generate(token_ids=ids[ids >= 0].tolist(), **options).token_ids
        assert len(made) == len(expected) == 200
        unequal = np.flatnonzero(np.array(made) != expected)
        if len(unequal):
            parted.append((str(text), int(unequal[0]), float(margins[unequal[0]])))
    print(f"{20 - len(parted)} of 20 alike; parted: {parted}")
    assert len(golden["prompts"]) == 20
    assert len(parted) <= 1
    assert all(margin < _NEAR_TIE for _, _, margin in parted)


def test_perplexity(model: tapeline.LoadedModel, golden: dict[str, np.ndarray]) -> None:
    """Scores the passages (Lincoln, Carroll, Austen, Dickens, ...) that the demo model was trained on."""
    expected = np.exp(golden["text_nll"].mean())
    result = model.score(token_ids=golden["text_ids"].tolist()).perplexity
    print(f"perplexity {result:.6f}, transformers {expected:.6f}, relative difference {result / expected - 1:.2e}")
    assert abs(result / expected - 1) <= 1e-4
