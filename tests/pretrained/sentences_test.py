"""all-MiniLM-L6-v2 and all-mpnet-base-v2, the real models, at their own lengths: texts that are empty and very long.

TAPELINE_MINILM and TAPELINE_MPNET are their directories: docs/encoders.md says where the models come from.
"""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import tapeline
from tests.goldens.sentences.cases import TEXTS
from tests.product._bundles import export

_MODELS = {"minilm": (32, 128, 256), "mpnet": (32, 128, 384)}


@pytest.mark.parametrize("name", _MODELS)
def test_vectors_of_texts_of_all_lengths(name: str, tmp_path: Path) -> None:
    directory = os.environ.get(f"TAPELINE_{name.upper()}", "")
    if not directory:
        pytest.skip(f"TAPELINE_{name.upper()} does not name the model's directory")
    with np.load(Path(__file__).parent / "data" / "sentences.npz", allow_pickle=False) as file:
        expected, tokens, digest = (file[f"{name}.{part}"] for part in ("vectors", "tokens", "sha256"))
    assert hashlib.sha256((Path(directory) / "model.safetensors").read_bytes()).hexdigest() == str(digest)
    bundle = export(directory, tmp_path / "bundle")
    with tapeline.load(bundle, device="local-task") as model:
        lengths = sorted(point.arguments[0].spec.shape[1] for point in model.bundle.config.entry_points)
        assert tuple(lengths) == _MODELS[name]
        vectors = model.embed([*TEXTS, "the cat on the mat " * 300])
    assert vectors.tokens.tolist() == [*tokens.tolist(), _MODELS[name][-1]]
    assert int(vectors.truncated[-1]) == 5 * 300 + 2 - _MODELS[name][-1]
    difference = np.abs(vectors[:-1] - expected).max()
    print(f"{name}: largest difference {difference:.2g}")
    assert difference < 1e-5
