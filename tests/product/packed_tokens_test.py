"""A device says, token by token, what the eager context says on the same packed weights: many of them, not one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from generation import StopRule
from generation.engine._sequence_testing import steps_of
from lang_core import Activations, as_dtype
from run_iree import available, target_of_device
from run_iree._device_testing import sharing
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE
from tapeline.demo import write_demo_checkpoint
from tests.product._bundles import ON_FAST_DEVICES, export, greedy
from tests.product._eager_model import EagerModel
from transformer_core.checkpoints import LlamaSizes, write_random_llama
from transformer_core.models import entry_points, load_model

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_STEPS, _CHUNK = 64, 8
_CAPACITY = 10 + _STEPS
# The model knows it by heart. Of other texts it has tokens that are as likely as each other, and rounding decides:
# docs/numerics.md.
_PROMPT = "A layer has two parts."
_CASES = [("q4_0", "f32"), ("q8_0", "f32")]
# 16 bits on one device only: kernels take and give f32.
if _DEVICE == "local-task":
    _CASES += [("q8_0", "f16"), ("q4_0", "bf16")]


@contextmanager
def _eager(directory: Path, archive: Path, dtype: str, encoding: str) -> Iterator[EagerModel]:
    """The eager model on the bundle's own weights."""
    model = load_model(directory, dtype, quantize=encoding)
    sizes: Any = {"batch": 1, "sequence": _CHUNK, "max_sequence": _CAPACITY}
    prefill, decode = entry_points(model, names=("prefill", "decode"), **sizes)
    with ArchiveWeights(archive) as weights:
        yield EagerModel(prefill, decode, weights, model.config.vocabulary)


@pytest.mark.parametrize(("encoding", "dtype"), _CASES)
def test_tokens_are_the_eager_contexts(encoding: str, dtype: str, tmp_path: Path) -> None:
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    write_demo_checkpoint(tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    prompt = [0, *tokenizer.encode(_PROMPT, add_special_tokens=False).ids]
    sizes: dict[str, Any] = {"sequence": _CHUNK, "max_sequence": _CAPACITY, "dtype": dtype, "quantize": encoding}
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(target_of_device(_DEVICE),), **sizes)
    generated = {device: greedy(bundle, device, prompt, _STEPS) for device in sharing(_DEVICE)}
    with _eager(tmp_path / "model", bundle / ARCHIVE, dtype, encoding) as model:
        steps = steps_of(model, prompt, StopRule(frozenset(), _STEPS))
    expected = np.stack([step.logits for step in steps])
    first, second = np.sort(expected)[:, :-3:-1].T
    for device, (tokens, logits) in generated.items():
        assert tokens == [step.token_id for step in steps], device
        assert len(set(tokens)) > _STEPS // 3, "it repeats itself: any device would"
        difference = np.abs(logits - expected).max(-1)
        # Another token was never near: so it is not by luck that they are the same.
        assert (first - second).min() > 2 * difference.max() > 0, (device, (first - second).min(), difference.max())


@pytest.mark.skipif(_DEVICE != "local-task", reason="each device's products are held to the eager context's elsewhere")
@pytest.mark.parametrize(("activations", "above", "below"), [("exact", 0.0, 1e-6), ("q8", 1e-6, 1e-2)])
def test_22_layers_say_what_their_weights_say(
    activations: Activations, above: float, below: float, tmp_path: Path
) -> None:
    """NMSE of logits to f32 arithmetic on the same packed weights; with 8 bits it is as large as it was."""
    write_random_llama(tmp_path / "model", LlamaSizes(22, 128, 320, 4, 2, 256), as_dtype("f32"))
    sizes: dict[str, Any] = {"sequence": _CHUNK, "max_sequence": _CAPACITY, "quantize": "q4_0"}
    bundle = export(tmp_path / "model", tmp_path / "bundle", activations=activations, **sizes)
    prompt = [7 * place % 251 for place in range(19)]
    tokens, logits = greedy(bundle, _DEVICE, prompt, 6)
    with _eager(tmp_path / "model", bundle / ARCHIVE, "f32", "q4_0") as model:
        steps = steps_of(model, prompt, StopRule(frozenset(), 6))
    chosen = [step.token_id for step in steps]
    alike = [place for place in range(6) if tokens[:place] == chosen[:place]]
    wanted = np.stack([steps[place].logits for place in alike]).astype(np.float64)
    error = ((logits[alike] - wanted) ** 2).sum() / (wanted**2).sum()
    assert above < error <= below
    assert activations == "q8" or len(alike) == 6
