"""GGUF files mean what llama.cpp takes them to mean (``tests/goldens/make_llama_cpp_goldens.py``)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext
from tapeline.text import gguf_tokenizer
from tests.goldens.cases import CASES
from tests.goldens.gguf_cases import GGUF_CASES, HYBRID_CASES, NOT_LLAMA_CPPS
from tests.goldens.gguf_files import write_gguf
from tests.goldens.gguf_further import OTHER_NAMES, other_name
from tests.goldens.golden_files import DATA, read_golden
from tests.parity._golden_models import relative_error
from transformer_core.models import DecoderLM, weights_of
from transformer_core.models.gguf import GgufModel

_CASES = {**GGUF_CASES, **HYBRID_CASES, **{name: CASES[other] for name, other in OTHER_NAMES.items()}}
_GOLDEN: dict[str, Any] = json.loads((DATA / "llama_cpp.json").read_text())
_VOCABULARIES: dict[str, Any] = json.loads((DATA / "gguf_tokenizers.json").read_text())

# Of a logarithm of a probability, by the stored dtype: llama.cpp computes some products in f16, or in bf16 as weights
# are. The wrong layout of RoPE is off by 1 and more.
_TOLERANCE = {"f32": 5e-2, "f16": 5e-2, "bf16": 0.15}


def test_every_case_has_its_golden() -> None:
    assert set(_GOLDEN["models"]) == set(_CASES) - set(NOT_LLAMA_CPPS)


@pytest.mark.parametrize("name", _GOLDEN["models"])
def test_logits_are_llama_cpps(name: str, tmp_path: Path) -> None:
    """Step by step on llama.cpp's own tokens: one call gives the logits behind all of them."""
    case, steps = _CASES[name], _GOLDEN["models"][name]
    if name in OTHER_NAMES:
        case, weights = other_name(name, case)
        write_gguf(tmp_path / "model.gguf", case, weights=weights, architecture=name)
    else:
        write_gguf(tmp_path / "model.gguf", case)
    prompt = case.prompt[0]
    ids: Any = np.array([[*prompt, *(step["token"] for step in steps[:-1])]], np.int32)
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config())
        logits = model(EagerExecutionContext(weights_of(model, file)), ids).numpy()[0, len(prompt) - 1 :]
    if name in OTHER_NAMES:  # and transformers', of the model that this one is, too
        assert relative_error(logits[:1], read_golden(OTHER_NAMES[name]).logits[0, :1]) < 2e-4
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    ours = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    assert len(ours) == len(steps)
    for row, step in zip(ours, steps, strict=True):
        for token, expected in step["top"]:
            assert abs(row[token] - expected) < _TOLERANCE[case.stored]
        assert (
            row[:-1].max() - row[step["token"]] < _TOLERANCE[case.stored]
        )  # the last is the end, which it was told not to choose


def _metadata(model: str, pre: str | None) -> dict[str, Any]:
    fields = _VOCABULARIES["vocabularies"][model]
    metadata = {"model": model, "tokens": fields["tokens"], "token_type": fields["types"], "add_bos_token": False}
    if model == "gpt2":
        metadata |= {"pre": pre} if pre else {}
        metadata["merges"] = [" ".join(pair) for pair in fields["merges"]]
    else:
        metadata["scores"] = fields["scores"]
    return {"general.architecture": "llama"} | {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}


@pytest.mark.parametrize("case", _GOLDEN["tokenizers"], ids=lambda case: f"{case['model']}-{case['pre']}")
def test_ids_are_llama_cpps(case: dict[str, Any]) -> None:
    made = gguf_tokenizer(_metadata(case["model"], case["pre"]), "some.gguf")
    assert made is not None
    for text, expected in zip(_VOCABULARIES["texts"], case["ids"], strict=True):
        assert made[0].encode(text).ids == expected, text
