from typing import Any

import numpy as np
import pytest

from lang_core import MappingWeights, PackedRows, TensorSpec
from transformer_core.checkpoints import ComposedWeights, ExpertKeys, WrappedKeys

_GATE_UP = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 6, 4)


def _composed(arrays: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], inner: Any = None) -> ComposedWeights:
    wanted = {name: TensorSpec(shape, "f32") for name, shape in shapes.items()}
    return ComposedWeights(MappingWeights(arrays), wanted, WrappedKeys(inner))


@pytest.mark.parametrize("place", ["model.language_model.", "language_model.model.", "model."])
@pytest.mark.parametrize("head", ["", "language_model."])
def test_the_decoder_is_found_wherever_files_have_it(place: str, head: str):
    arrays = {f"{place}norm.weight": np.ones(3, np.float32), f"{head}lm_head.weight": np.full((2, 3), 2.0, np.float32)}
    weights = _composed(arrays, {"model.norm.weight": (3,), "lm_head.weight": (2, 3)})
    assert list(weights.stored()) == list(arrays)
    for name, key in zip(("model.norm.weight", "lm_head.weight"), arrays, strict=True):
        np.testing.assert_array_equal(weights.read(name), arrays[key])
    assert weights.stored_key("lm_head.weight") == f"{head}lm_head.weight"


def test_recipes_of_the_decoder_read_there_too():
    layer = "layers.0.mlp.experts."
    arrays = {f"model.language_model.{layer}gate_up_proj": _GATE_UP, f"model.language_model.{layer}down_proj": _GATE_UP}
    weights = _composed(arrays, {f"model.{layer}up_proj": (2, 3, 4)}, ExpertKeys())
    assert list(weights.stored()) == [f"model.language_model.{layer}gate_up_proj"]
    np.testing.assert_array_equal(weights.read(f"model.{layer}up_proj"), _GATE_UP[:, 3:])
    assert isinstance(weights, PackedRows)
    assert weights.packed_as(f"model.{layer}up_proj") is None


def test_a_tensor_that_is_nowhere_is_missing_where_it_belongs():
    weights = _composed({}, {"model.norm.weight": (3,)})
    assert list(weights.stored()) == ["model.language_model.norm.weight"]
    assert not weights.has("model.norm.weight")
