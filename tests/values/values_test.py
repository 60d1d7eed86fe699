"""Ops at special values, on the engines that need no device: results are the truth's, or a row of the differences."""

import os
from typing import Final

import pytest

from tests.values._differences import DIFFERENCES, difference_of, disagreements
from tests.values._engines import HOST_ENGINES, results_of
from tests.values._grid import FLOATS, INTEGERS, probes, wrong

# TAPELINE_LONG=1 in the environment asks for every dtype on XLA, which compiles each probe alone.
_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_DTYPES: Final = (*FLOATS, *INTEGERS)
_SAMPLED: Final = ("f32",)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("engine", HOST_ENGINES)
def test_special_values(engine: str, dtype: str) -> None:
    every = probes(dtype)
    if engine == "XLA" and not _LONG:
        every = every[:: 2 if dtype in _SAMPLED else 12]
    verdicts = [wrong(probe, arrays) for probe, arrays in zip(every, results_of(engine, every), strict=True)]
    lines = disagreements(engine, every, verdicts)
    assert not lines, "\n".join(lines)


def test_entries_are_unique() -> None:
    entries = [probe.entry for dtype in _DTYPES for probe in probes(dtype)]
    assert len(set(entries)) == len(entries)


def test_every_row_names_a_probe_on_each_of_its_engines() -> None:
    every = [probe for dtype in _DTYPES for probe in probes(dtype)]
    for row in DIFFERENCES:
        for engine in row.engines:
            assert any(difference_of(engine, probe) is row for probe in every), (engine, row)


def test_a_wrong_result_is_seen() -> None:
    add = next(probe for probe in probes("f32") if probe.name == "add")
    (truth,) = add.truth
    assert wrong(add, [truth]) is None
    assert "not" in (wrong(add, [truth + 1]) or "")
    assert wrong(add, [truth.astype("f8")]) == f"float64{list(truth.shape)}, not float32{list(truth.shape)}"
    assert wrong(add, []) == "0 results, not 1"
    assert disagreements("eager", [add], ["bad"]) == ["eager: add_f32: bad"]
    flushed = next(probe for probe in probes("f32") if probe.name == "add_subnormal")
    assert "is right: remove it" in disagreements("XLA", [flushed], [None])[0]
