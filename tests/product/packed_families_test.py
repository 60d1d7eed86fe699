"""Families with packed weights on a device: what the eager context says on the same weights, verified by the export."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from generation import KnownLogits
from run_iree import available, target_of_device
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE
from tests.goldens.packed_families import FAMILIES, packed_case, packed_case_weights
from tests.goldens.samples import LONG, in_turns
from tests.product._bundles import ON_FAST_DEVICES, export, greedy
from tests.product._eager_model import EagerModel
from transformer_core.models import entry_points, load_model

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_STEPS, _CHUNK = 6, 4
# Random delta rules make roundings larger. In the eager context without packed weights, a change of the first norm's
# weights by 1e-5 moves the logits of Qwen3.5 by up to 6.6e-4, of Qwen3-Next by 9e-5, of Qwen2 by 1e-5; an integer of 16
# bits is off by up to 1.5e-5 of the greatest. Results of the export's own inputs, caches too, are up to 2.1e-3 apart.
_CARRYING = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
_TOLERANCE = 1e-3  # kernels take x in integers of 16 bits, whose last bit is a whole step now and then
_CARRIED = 3e-3
_NAMES = tuple(FAMILIES) if LONG else ("mamba2",)


@pytest.mark.parametrize(("name", "encoding"), in_turns(_NAMES, ("q8_0", "q4_0")))
def test_a_bundle_says_what_the_eager_context_says(name: str, encoding: str, tmp_path: Path) -> None:
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    case, model = packed_case(name), tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(case.config))
    safetensors.numpy.save_file(packed_case_weights(case), model / "model.safetensors")
    prompt = list(case.prompt[0][:6])
    sizes = {"sequence": _CHUNK, "max_sequence": len(prompt) + _STEPS, "entry_points": ("prefill", "decode")}
    options = {
        "quantize": encoding,
        "verify": "parse" if name in _CARRYING else "auto",
        "target": (target_of_device(_DEVICE),),
    }
    bundle = export(model, tmp_path / "bundle", **sizes, **options)
    tokens, logits = greedy(bundle, _DEVICE, prompt, _STEPS)
    tolerance = _CARRIED if name in _CARRYING else _TOLERANCE
    for token, row, expected in zip(tokens, logits, _eagerly(model, bundle, encoding, prompt, tokens), strict=True):
        assert np.abs(row - expected).max() < tolerance * np.abs(expected).max()
        assert expected[token] >= expected.max() - tolerance * np.abs(expected).max()


def _eagerly(directory: Path, bundle: Path, encoding: str, prompt: list[int], tokens: list[int]) -> list[np.ndarray]:
    """Logits after the prompt and each of the bundle's tokens in the eager context, on the bundle's weights.

    Tokens are the bundle's, for of two that are as good as alike either may be the likeliest.
    """
    model = load_model(directory, quantize=encoding)
    names, capacity = ("prefill", "decode"), len(prompt) + _STEPS
    prefill, decode = entry_points(model, names=names, batch=1, sequence=_CHUNK, max_sequence=capacity)
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        eager = EagerModel(prefill, decode, weights, model.config.vocabulary)
        predictions: list[KnownLogits] = []
        for start in range(0, len(prompt), _CHUNK):
            piece = np.zeros((1, _CHUNK), np.int32)
            given = prompt[start : start + _CHUNK]
            piece[0, : len(given)] = given
            predictions = [eager.prefill(piece, start, len(given) - 1)]
        predictions += [eager.decode(token, len(prompt) + step) for step, token in enumerate(tokens[:-1])]
        return [prediction.logits().copy() for prediction in predictions]
