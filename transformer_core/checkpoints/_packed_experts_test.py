"""Weights of stacked experts that are packed: rows of all experts as one matrix, a few at a time."""

import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lang_core import ENCODINGS, InputError, MappingWeights, TensorSpec, WeightSource
from transformer_core.checkpoints import ComposedWeights, PackedWeights, Recipe, Stacked

_Q8_0 = ENCODINGS["q8_0"]
_EXPERTS, _ROWS, _COLUMNS = 5, 7, 64
_ARRAYS = {
    f"{expert}.weight": np.random.default_rng(expert).standard_normal((_ROWS, _COLUMNS)).astype(np.float32)
    for expert in range(_EXPERTS)
}


def _stacked(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    del name, source
    return Stacked([*_ARRAYS], shape[1:])


def _composed(arrays: dict[str, np.ndarray]) -> ComposedWeights:
    return ComposedWeights(
        MappingWeights(arrays), {"experts": TensorSpec((_EXPERTS, _ROWS, _COLUMNS), "f32")}, _stacked
    )


@pytest.mark.parametrize(("start", "stop"), [(0, 35), (0, 0), (3, 6), (6, 15), (7, 14), (30, 35), (34, 35)])
def test_rows_of_all_experts_are_one_matrix(start: int, stop: int) -> None:
    composed = _composed(_ARRAYS)
    whole = np.stack([*_ARRAYS.values()])
    np.testing.assert_array_equal(
        composed.read_matrix_rows("experts", start, stop), whole.reshape(-1, _COLUMNS)[start:stop]
    )
    packed = PackedWeights(composed, {"experts": _Q8_0})
    wanted = _Q8_0.pack(whole)
    assert packed.spec("experts") == TensorSpec(wanted.shape, "i8")
    assert packed.read_matrix_rows("experts", start, stop).tobytes() == wanted.reshape(35, -1)[start:stop].tobytes()
    assert packed.read_rows("experts", start // 7, stop // 7).tobytes() == wanted[start // 7 : stop // 7].tobytes()


def test_an_element_that_no_block_holds_is_named() -> None:
    broken = {**_ARRAYS, "3.weight": _ARRAYS["3.weight"].copy()}
    broken["3.weight"][2, 5] = np.nan
    packed = PackedWeights(_composed(broken), {"experts": _Q8_0})
    with pytest.raises(InputError, match=r"'experts': element \[3, 2, 5\] in .* is nan, which q8_0 has no block for"):
        packed.read("experts")


def test_memory_is_some_rows_of_an_expert(tmp_path: Path) -> None:
    """An expert of 64 MiB in f32, of which some rows are asked; the weights are a hole in a file."""
    experts, rows, columns = 3, 1 << 13, 1 << 11
    with open(tmp_path / "raw", "wb") as file:
        file.truncate(experts * rows * columns * 2)
    mapped = np.memmap(tmp_path / "raw", np.uint16, "r").view(ml_dtypes.bfloat16).reshape(experts, rows, columns)
    weights = PackedWeights(MappingWeights({"w": mapped}), {"w": _Q8_0})
    tracemalloc.start()
    try:
        actual = weights.read_matrix_rows("w", rows - 1024, rows + 1024)
        peak = tracemalloc.get_traced_memory()[1] - actual.nbytes
    finally:
        tracemalloc.stop()
    assert not actual.any()
    assert peak < 12 << 20
