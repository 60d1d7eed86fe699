"""all-MiniLM-L6-v2, the real model: tokenizer, export, a device, and sentence-transformers' own embeddings.

The model (87 MB) is not in the repository: docs/encoders.md says where it comes from. TAPELINE_MINILM is its directory.
"""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import tapeline
from tapeline.text import Tokenizer
from tests.product._bundles import export

_MODEL = os.environ.get("TAPELINE_MINILM", "")
_DEVICE = "local-task"
pytestmark = pytest.mark.skipif(not _MODEL, reason="TAPELINE_MINILM does not name the model's directory")


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parent / "data" / "minilm.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_it_is_the_model_of_the_reference(golden: dict[str, np.ndarray]) -> None:
    result = hashlib.sha256((Path(_MODEL) / "model.safetensors").read_bytes()).hexdigest()
    assert result == str(golden["model_sha256"])


def test_token_ids(golden: dict[str, np.ndarray]) -> None:
    tokenizer = Tokenizer.load(Path(_MODEL))
    for text, expected in zip(golden["texts"], golden["token_ids"], strict=True):
        ids = tokenizer.encode(str(text))
        assert ids == expected[: len(ids)].tolist()
        assert not expected[len(ids) :].any()


def test_embeddings(golden: dict[str, np.ndarray], tmp_path: Path) -> None:
    """In batches of two, the last of one sentence; the export verifies itself against the eager context."""
    bundle = export(_MODEL, tmp_path / "bundle", batch=2, sequence=64, verify="auto")
    with tapeline.load(bundle, device=_DEVICE) as model:
        result = model.embed([str(text) for text in golden["texts"]])
    expected = golden["embeddings"]
    cosines = (result * expected).sum(1) / np.linalg.norm(result, axis=1) / np.linalg.norm(expected, axis=1)
    print(f"smallest cosine {cosines.min():.8f}, largest difference {np.abs(result - expected).max():.2g}")
    assert cosines.min() >= 0.9999
    assert np.abs(result - expected).max() < 1e-5
