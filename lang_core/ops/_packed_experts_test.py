"""Products with packed weights of stacked experts: their values, and what they read."""

from typing import Any

import numpy as np
import pytest

from lang_core import ENCODINGS, Encoding
from lang_core.ops._samples_testing import OPS_NOW

_Q8_0 = ENCODINGS["q8_0"]
_RNG = np.random.default_rng(5)
_WEIGHT = _RNG.standard_normal((6, 7, 64)).astype(np.float32)
_PACKED = _Q8_0.pack(_WEIGHT)


@pytest.mark.parametrize(("given", "rows", "expert"), [(1, 1, [4, 0]), (2, 3, [5, 5, 1, 0]), (3, 2, [2, 0, 2])])
def test_each_group_is_a_product_with_its_expert(given: int, rows: int, expert: list[int]) -> None:
    x = _RNG.standard_normal((given, rows, 64)).astype(np.float32)
    actual = OPS_NOW.packed_expert_linear(x, np.array(expert, np.int32), _PACKED, _Q8_0).numpy()
    for group, number in enumerate(expert):
        wanted = OPS_NOW.packed_linear(x[group * given // len(expert)], _PACKED[number], _Q8_0).numpy()
        np.testing.assert_allclose(actual[group], wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_experts_outside_are_brought_inside() -> None:
    x = np.ones((1, 1, 64), np.float32)
    below, above = OPS_NOW.packed_expert_linear(x, np.array([-7, 99], np.int32), _PACKED, _Q8_0).numpy()
    first, last = OPS_NOW.packed_expert_linear(x, np.array([0, 5], np.int32), _PACKED, _Q8_0).numpy()
    np.testing.assert_array_equal((below, above), (first, last))


def test_activations_may_be_rounded() -> None:
    x = _RNG.standard_normal((1, 1, 64)).astype(np.float32)
    rounded, exact = (
        OPS_NOW.packed_expert_linear(x, np.array([3], np.int32), _PACKED, _Q8_0, activations=activations).numpy()[0]
        for activations in ("q8", "exact")
    )
    assert rounded.tobytes() == OPS_NOW.packed_linear(x[0], _PACKED[3], _Q8_0, activations="q8").numpy().tobytes()
    assert rounded.tobytes() != exact.tobytes()


def test_only_the_chosen_experts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked_bytes: list[int] = []
    unpacked = Encoding.unpacked

    def counted(encoding: Encoding, packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        unpacked_bytes.append(packed.nbytes)
        return unpacked(encoding, packed)

    monkeypatch.setattr(Encoding, "unpacked", counted)
    x = np.ones((3, 1, 64), np.float32)
    OPS_NOW.packed_expert_linear(x, np.array([4, 1, 4, 1, 1, 4], np.int32), _PACKED, _Q8_0)
    assert sum(unpacked_bytes) == 2 * _PACKED[0].nbytes
