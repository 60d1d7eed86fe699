"""Encoders that llama.cpp has and transformers has not: their embeddings are llama.cpp's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext
from tests.goldens.encoders.gguf_own_encoders import OWN, texts_of, write_own_gguf
from tests.goldens.golden_files import DATA
from transformer_core.checkpoints import audit
from transformer_core.models import load_model, stored_specs, tied_keys, unused_keys, weights_of
from transformer_core.models.gguf import GgufModel

_LLAMA_CPP: dict[str, Any] = json.loads((DATA / "llama_cpp.json").read_text())


@pytest.mark.parametrize("name", OWN)
def test_embeddings_are_llama_cpps(name: str, tmp_path: Path) -> None:
    """llama.cpp takes gelu by its tanh, and some products in f16."""
    model, texts = OWN[name], texts_of(OWN[name])
    write_own_gguf(tmp_path / "model.gguf", model)
    with GgufModel(tmp_path / "model.gguf") as file:
        file.write_description(tmp_path)
        ours: Any = load_model(tmp_path)
        report = audit(file, stored_specs(ours, file), tied=tied_keys(ours, file), ignorable=unused_keys(ours, file))
        assert set(report.used) == set(file.keys())
        ctx = EagerExecutionContext(weights_of(ours, file))
        longest = max(model.lengths)
        ids: Any = np.array([text + [0] * (longest - len(text)) for text in texts], np.int32)
        mask: Any = np.array([[1] * len(text) + [0] * (longest - len(text)) for text in texts], np.int32)
        made = ours.results(ctx, ctx.constant(ids), ctx.constant(mask))["sentence_embedding"].numpy()
    expected = np.array(_LLAMA_CPP["embeddings"][name])
    assert np.abs(made - expected).max() < 1e-2
    assert np.abs(expected - expected[::-1]).max() > 0.1  # texts that a wrong model would confuse
