"""Two dumps laid side by side."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lang_core import InputError
from runtime.dump import Dump, DumpLimits, DumpWriter, TensorLabel, read_dump
from tapeline.compare import PACKED, PACKED_Q8, Comparison, block_of, compare_dumps, compare_tensors, tolerance_of

_LAYERS = 3
_TAGS = ("self_attn.q", "output")
Change = Callable[[str, int, np.ndarray], np.ndarray | None]


def _names() -> list[str]:
    return ["embed.output", *(f"model.layers.{i}.{tag}" for i in range(_LAYERS) for tag in _TAGS)]


def _dump(
    directory: Path,
    change: Change = lambda name, step, array: array,
    *,
    limits: DumpLimits | None = None,
    extra: Sequence[str] = (),
    known: bool = True,
) -> Dump:
    """Two calls: an argument, tags, results. ``change`` gives other elements, or None for no tensor."""
    with DumpWriter(directory, level=2, source={"context": "eager"}, tags=["*"], limits=limits) as writer:
        for step, entry_point in enumerate(("prefill", "decode")):
            random = np.random.default_rng(step)
            rows = [("cache", "INOUT", "before"), *((name, "TAG", "during") for name in _names())]
            rows += [("logits", "OUT", "after"), ("layers.0.cache", "INOUT", "after"), ("next_id", "OUT", "after")]
            rows += [(name, "TAG", "during") for name in extra]
            for name, direction, when in rows:
                array = random.standard_normal((2, 5)).astype(np.float32)
                if name == "next_id":
                    array = np.array([[step, 7]], np.int32)
                array = change(name, step, array)
                if array is None:
                    continue
                tag = direction == "TAG"
                label = TensorLabel(
                    step=step,
                    entry_point=entry_point,
                    name=name,
                    direction=direction,  # pyright: ignore[reportArgumentType]
                    when=when,  # pyright: ignore[reportArgumentType]
                    iteration=0 if tag else None,
                    module_path=name.rpartition(".")[0] if tag else None,
                    op="dot_general" if tag and known else None,
                    line="model.py:12" if tag and known else None,
                )
                writer.add(label, array, payload=True)
    return read_dump(directory)


def _first(comparison: Comparison) -> tuple[int, str]:
    assert comparison.first is not None
    return comparison.first.label.step, comparison.first.label.name


def test_equal_dumps_agree(tmp_path: Path) -> None:
    comparison = compare_dumps(_dump(tmp_path / "a"), _dump(tmp_path / "b"))
    assert comparison.count("agrees") == len(comparison.tensors) == 2 * (len(_names()) + 4)
    assert (comparison.first, comparison.divergence(), comparison.tolerance) == (None, "", 1e-4)
    assert json.loads(json.dumps(comparison.as_json()))["first_divergence"] is None


def test_the_first_divergence_is_named(tmp_path: Path) -> None:
    def broken(name: str, step: int, array: np.ndarray) -> np.ndarray:
        late = name.startswith(("model.layers.1.output", "model.layers.2", "logits"))
        return array + np.float32(0.25) if late and step == 1 else array

    comparison = compare_dumps(_dump(tmp_path / "a", broken, known=False), _dump(tmp_path / "b"))
    assert _first(comparison) == (1, "model.layers.1.output")
    assert comparison.count("differs") == 4
    assert comparison.last_agreeing is not None
    said = comparison.divergence()
    for part in (
        "first divergence: op dot_general, block model.layers.1, module model.layers.1, model.py:12",
        "tensor 'model.layers.1.output' (TAG of decode, step 1): max abs 0.25, max rel ",
        "(1e-04 is allowed), cosine ",
        "the last tensor before it that agrees is 'model.layers.1.self_attn.q'",
    ):
        assert part in said
    fields = comparison.as_json()
    assert fields["counts"] == {"agrees": 18, "differs": 4, "unlike": 0, "missing": 0, "extra": 0}
    assert fields["first_divergence"]["block"] == "model.layers.1"
    assert fields["first_divergence"]["figures"]["max_abs"] == pytest.approx(0.25)


def test_results_of_blocks_count_before_those_of_the_model(tmp_path: Path) -> None:
    def broken(name: str, step: int, array: np.ndarray) -> np.ndarray:
        return array * 2 if name in ("logits", "layers.0.cache") else array

    assert _first(compare_dumps(_dump(tmp_path / "a", broken), _dump(tmp_path / "b"))) == (0, "layers.0.cache")


def test_rounding_is_allowed_to_floats_alone(tmp_path: Path) -> None:
    near = _dump(tmp_path / "a", lambda name, step, array: array + (array * 1e-6).astype(array.dtype))
    reference = _dump(tmp_path / "b")
    assert compare_dumps(near, reference).first is None
    assert _first(compare_dumps(near, reference, tolerance=1e-8)) == (0, "cache")
    other = _dump(tmp_path / "c", lambda name, step, array: array + (name == "next_id") if step else array)
    assert _first(compare_dumps(other, reference, tolerance=10.0)) == (1, "next_id")


def test_what_one_side_lacks_is_listed(tmp_path: Path) -> None:
    less = _dump(tmp_path / "a", lambda name, step, array: None if name == "embed.output" else array, extra=["more"])
    comparison = compare_dumps(less, _dump(tmp_path / "b"))
    states = {(tensor.label.step, tensor.label.name): tensor for tensor in comparison.tensors}
    for step in (0, 1):
        missing, extra = states[step, "embed.output"], states[step, "more"]
        assert (missing.state, missing.actual, missing.reference) == ("missing", None, "f32[2,5]")
        assert (extra.state, extra.actual, extra.reference) == ("extra", "f32[2,5]", None)
    assert comparison.count("missing", "extra") == 4
    # The generator draws for what is left out too, so nothing else is different.
    assert [tensor.label.name for tensor in comparison.tensors if tensor.diverges] == []


def test_other_shapes_and_kinds_are_unlike_and_other_floats_are_not(tmp_path: Path) -> None:
    def changed(name: str, step: int, array: np.ndarray) -> np.ndarray:
        if name == "model.layers.0.output":
            return array[:1]
        return array.astype(np.int32) if name == "model.layers.1.output" else array

    reference = _dump(tmp_path / "b")
    comparison = compare_dumps(_dump(tmp_path / "a", changed), reference)
    assert comparison.count("unlike") == 4
    assert "f32[1,5], the reference is f32[2,5]" in comparison.divergence()
    coarse = _dump(tmp_path / "c", lambda name, step, a: a.astype(ml_dtypes.bfloat16) if a.dtype == np.float32 else a)
    rounded = compare_dumps(coarse, reference)
    assert (rounded.first, rounded.tolerance) == (None, 3e-2)


def test_without_elements_the_figures_are_compared(tmp_path: Path) -> None:
    nothing = DumpLimits(total_bytes=0)
    reference = _dump(tmp_path / "b", limits=nothing)
    same = compare_dumps(_dump(tmp_path / "a"), reference)
    assert same.first is None
    assert all(tensor.figures_only for tensor in same.tensors)
    assert json.loads(json.dumps(same.as_json()))["tensors"][0]["figures"]["cosine"] is None
    large = _dump(tmp_path / "c", lambda name, step, array: array * 2 if name == "model.layers.2.output" else array)
    other = compare_dumps(large, reference)
    assert _first(other) == (0, "model.layers.2.output")
    assert "of the least, largest and mean value max abs " in other.divergence()
    nan = _dump(tmp_path / "d", lambda name, step, a: np.where(a == a[0, 0], np.nan, a) if name == "logits" else a)
    assert "other elements are finite" in compare_dumps(nan, reference).divergence()


def test_dumps_of_other_calls_are_refused(tmp_path: Path) -> None:
    reference = _dump(tmp_path / "b")
    nothing = _dump(tmp_path / "a", lambda *_: None, extra=["x"])
    with pytest.raises(InputError, match=r"are mismatched dumps: they have no tensor in common \(0 and 22 tensors\)"):
        compare_dumps(nothing, reference)


def test_damaged_dumps_are_refused(tmp_path: Path) -> None:
    whole, reference = _dump(tmp_path / "a"), _dump(tmp_path / "b")
    record = whole.records[3]
    assert record.file is not None
    (whole.directory / record.file).unlink()
    with pytest.raises(InputError, match=r"record 3 .* its payload .* is missing: the dump is damaged; dump again"):
        compare_dumps(whole, reference)


@pytest.mark.parametrize(
    ("dtypes", "tolerance"),
    [
        (["f32", "i32"], 1e-4),
        (["f32", "bf16"], 3e-2),
        (["f16"], 1e-2),
        (["i32", "bool"], 0.0),
        ([PACKED, "f32", "i32"], 1e-3),
        ([PACKED_Q8, "f32", "i32"], 3e-2),
    ],
)
def test_the_coarsest_dtype_decides(dtypes: list[str], tolerance: float) -> None:
    assert tolerance_of(dtypes) == tolerance


def test_blocks_end_at_the_first_number() -> None:
    names: dict[str, Any] = {"model.layers.12.mlp.experts.3": "model.layers.12", "layers.0.cache": "layers.0", "a": ""}
    assert {name: block_of(name) for name in names} == names


def test_arrays() -> None:
    label = TensorLabel(step=0, entry_point="f", name="y", direction="OUT", when="after")
    one = np.ones((2, 3), np.float32)
    assert compare_tensors(label, one, one, 0.0).state == "agrees"
    assert compare_tensors(label, one * 2, one, 1e-4).state == "differs"
    assert compare_tensors(label, one[:1], one, 1e-4).state == "unlike"
