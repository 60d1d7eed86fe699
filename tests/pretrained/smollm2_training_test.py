"""A LoRA adapter of SmolLM2-135M-Instruct on this repository's passages: it goes on after a kill, exports, and helps.

The file (93 MB) is not in the repository: docs/gguf.md says where it comes from. TAPELINE_SMOLLM2 is its path.
TAPELINE_TRAIN_STEPS is the number of steps, 12 where it is not set; docs/training.md has the 200.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import tapeline
from tests.product._bundles import export

_FILE = os.environ.get("TAPELINE_SMOLLM2", "")
_STEPS = int(os.environ.get("TAPELINE_TRAIN_STEPS", "12"))
_TEXT = Path(__file__).parents[2] / "tools" / "demo" / "passages.txt"
pytestmark = pytest.mark.skipif(not _FILE, reason="TAPELINE_SMOLLM2 does not name the model's file")


def _perplexity(bundle: Path) -> float:
    with tapeline.load(bundle) as model:
        return model.score(_TEXT.read_text(encoding="utf-8")).perplexity


def test_the_perplexity_falls(tmp_path: Path) -> None:
    trained = tapeline.train(
        _FILE, _TEXT, tmp_path / "adapter", lora=8, steps=_STEPS, batch=4, sequence=128, save_every=10, progress=print
    )
    adapter = [str(trained.path)]
    options = {"max_sequence": 2304, "quantize": "none", "verify": "none"}
    before = _perplexity(export(_FILE, tmp_path / "before", **options))
    after = _perplexity(export(_FILE, tmp_path / "after", adapter=adapter, **options))
    print(f"perplexity {before:.3f} -> {after:.3f}, loss {trained.losses[0]:.3f} -> {trained.losses[-1]:.3f}")
    assert after < before
    assert np.mean(trained.losses[-4:]) < np.mean(trained.losses[:4])
