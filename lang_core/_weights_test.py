"""Sources of weights in memory, and what every wrapper of one must keep."""

import doctest
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import CachedWeights, CheckpointError, MappingWeights, TensorSpec, WeightSource, _mapping_weights

_DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_)


class Counting(MappingWeights):
    """Remembers what was read, and says that a tensor whose name begins with ``packed`` is."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__(arrays, "model.gguf")
        self.reads: list[str] = []

    def encoding(self, key: str) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().encoding(key)
        return "q8_0" if key.startswith("packed") else None

    def read(self, key: str) -> np.ndarray:
        self.reads.append(key)
        return super().read(key)


@st.composite
def _arrays(draw: st.DrawFn) -> dict[str, np.ndarray]:
    names = draw(st.lists(st.sampled_from(["a", "b.weight", "packed.c", "packed.d"]), unique=True, min_size=1))
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        values = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
        arrays[name] = values.astype(draw(st.sampled_from(_DTYPES)))
    return arrays


def same(actual: WeightSource, expected: WeightSource) -> Iterator[str]:
    """Checks everything but the data; yields the keys."""
    assert isinstance(actual, WeightSource)
    assert list(actual.keys()) == list(expected.keys())
    for key in expected.keys():  # noqa: SIM118
        assert actual.has(key)
        assert not actual.has(f"{key}.other")
        assert actual.spec(key) == expected.spec(key)
        assert actual.encoding(key) == expected.encoding(key)
        assert actual.origin(key) == expected.origin(key)
        yield key


@settings(max_examples=150, deadline=None)
@given(_arrays(), st.integers(0, 300), st.data())
def test_a_cache_gives_what_its_source_gives(arrays: dict[str, np.ndarray], budget: int, data: st.DataObject) -> None:
    source = Counting(arrays)
    cached = CachedWeights(source, budget)
    for key in [*same(cached, source), *arrays]:
        count = arrays[key].shape[0] if arrays[key].ndim else 1
        start = data.draw(st.integers(0, count))
        stop = data.draw(st.integers(start, count))
        for array in (cached.read(key), cached.read_rows(key, 0, count)):
            assert array.dtype == arrays[key].dtype
            np.testing.assert_array_equal(array, arrays[key])
        rows = cached.read_rows(key, start, stop)
        np.testing.assert_array_equal(rows, MappingWeights(arrays).read_rows(key, start, stop))
        with pytest.raises(CheckpointError, match=rf"model\.gguf: rows 0 to {count + 1} of tensor '{key}' asked, it "):
            cached.read_rows(key, 0, count + 1)
    assert sum(array.nbytes for array in cached._kept.values()) <= budget


def test_what_is_kept_first_is_read_once() -> None:
    arrays = {key: np.full(8, i, np.float32) for i, key in enumerate("abc")}
    source = Counting(arrays)
    cached = CachedWeights(source, budget_bytes=70)
    for _ in range(3):
        for key in arrays:
            assert cached.read(key).tolist() == arrays[key].tolist()
    assert source.reads == ["a", "b", "c", "c", "c"]
    assert cached.read("a") is cached.read("a")
    cached.read_rows("b", 2, 5)
    assert source.reads[5:] == []


def test_too_large_a_tensor_leaves_room_for_smaller_ones() -> None:
    source = Counting({"large": np.zeros(100, np.float32), "small": np.zeros(10, np.float32)})
    cached = CachedWeights(source, budget_bytes=50)
    for _ in range(2):
        cached.read("large")
        cached.read("small")
    assert source.reads == ["large", "small", "large"]


def test_nobody_writes_into_what_is_shared() -> None:
    arrays = {"w": np.zeros((2, 3), np.float32)}
    for source in (MappingWeights(arrays), CachedWeights(MappingWeights(arrays), 1000)):
        with pytest.raises(ValueError, match="read-only"):
            source.read("w")[0, 0] = 1
        with pytest.raises(ValueError, match="read-only"):
            source.read_rows("w", 0, 1)[0, 0] = 1
    arrays["w"][1, 2] = 5  # the owner may
    assert MappingWeights(arrays).read("w")[1, 2] == 5


def test_an_absent_key_is_named_with_near_ones() -> None:
    source = MappingWeights({"norm.weight": np.ones(3, np.float32)}, "here")
    for ask in (source.spec, source.encoding, source.read, source.origin, CachedWeights(source, 9).read):
        with pytest.raises(CheckpointError, match=r"here: no tensor 'norm.weigth'; did you mean 'norm\.weight'"):
            ask("norm.weigth")


def test_a_scalar_is_its_own_only_row() -> None:
    source = MappingWeights({"s": np.array(3, np.int32)})
    assert source.spec("s") == TensorSpec((), "i32")
    assert source.read_rows("s", 0, 1) == 3
    assert source.read_rows("s", 1, 1).shape == (0,)


def test_doctest() -> None:
    assert doctest.testmod(_mapping_weights) == (0, 2)
