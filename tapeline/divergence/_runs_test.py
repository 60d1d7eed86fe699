"""Two sides of a small model are run on the same inputs and compared."""

import doctest
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import Argument, EntryPoint, InputError, MappingWeights, Module, Parameter, TensorSpec, WeightSource
from tapeline.bundle import MARK, Bundle, KernelConfig
from tapeline.compare import Comparison
from tapeline.divergence import (
    EagerSide,
    InterpreterRunner,
    Runner,
    check_alike,
    compare_runs,
    example_inputs,
    next_state,
)
from tapeline.divergence import _example_calls as example_calls

_SPEC = TensorSpec((2, 3), "f32")
_X, _STATE = LoweredArgument("x", _SPEC), LoweredArgument("state", _SPEC, alias_result="state", in_place=True)
_SIGNATURE = Signature("decode", (_X, _STATE), (LoweredResult("y", _SPEC), LoweredResult("state", _SPEC)))


class _Model(Module):
    def __init__(self) -> None:
        self.weight = Parameter((3,))

    def forward(self, ctx: Any, x: Any, state: Any) -> dict[str, Any]:
        with ctx.block("layers.0"):
            x = ctx.tag(ctx.ops.tanh(ctx.ops.mul(x, ctx.parameter(self.weight))), "layers.0.output")
        return {"y": x, "state": ctx.ops.add(state, x)}


def _point() -> EntryPoint:
    return EntryPoint("decode", _Model(), (Argument("x", _SPEC), Argument("state", _SPEC, alias_result="state")))


def _weights(last: float = -2.0) -> MappingWeights:
    return MappingWeights({"weight": np.array([0.5, 1.5, last], np.float32)})


class _InterpretedSide(EagerSide):
    """The model in the eager context, and its inner tensors by StableHLO's interpreter."""

    def __init__(self, weights: WeightSource | None) -> None:
        super().__init__([_point()], weights or _weights(), "the tested side")
        self._own = weights

    def point(self, entry_point: str) -> EntryPoint:
        assert entry_point == "decode"
        return _point()

    def runner(self, weights: WeightSource | None = None) -> Runner:
        own = self._own or weights
        if own is None:
            raise InputError("no weights here")
        return InterpreterRunner(own)


def _compared(weights: WeightSource | None, calls: Sequence[Signature] = (_SIGNATURE,), **options: Any) -> Comparison:
    reference = EagerSide([_point()], _weights(), "the reference")
    given = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    return compare_runs(_InterpretedSide(weights), reference, calls, 0, given=given, **options)


def _states(comparison: Comparison) -> list[tuple[int, str, str]]:
    return [(tensor.label.step, tensor.label.name, tensor.state) for tensor in comparison.tensors]


def test_equal_sides_agree_and_nothing_inside_is_compared() -> None:
    comparison = _compared(None)
    assert _states(comparison) == [(0, "y", "agrees"), (0, "state", "agrees")]
    assert [tensor.label.direction for tensor in comparison.tensors] == ["OUT", "INOUT"]
    assert comparison.tolerance == 1e-4


def test_the_first_call_that_diverges_is_compared_inside() -> None:
    comparison = _compared(_weights(2.0), (_SIGNATURE, _SIGNATURE))
    states = _states(comparison)
    assert states[-4:] == [(step, name, "differs") for step in (0, 1) for name in ("y", "state")]
    inside = comparison.tensors[:-4]
    assert inside
    assert {(tensor.label.step, tensor.label.when) for tensor in inside} == {(0, "during")}
    assert comparison.first is not None
    assert comparison.first.label.name == "parameter"


@pytest.mark.parametrize(("inside", "steps"), [("always", {0, 1}), ("never", set())])
def test_how_often_to_look_inside_is_the_callers_choice(inside: str, steps: set[int]) -> None:
    comparison = _compared(_weights(), (_SIGNATURE, _SIGNATURE), inside=inside)
    assert {tensor.label.step for tensor in comparison.tensors if tensor.label.when == "during"} == steps
    assert comparison.first is None


def test_each_call_starts_from_what_the_reference_left() -> None:
    comparison = _compared(_weights(2.0), (_SIGNATURE, _SIGNATURE), inside="never", tolerance=1e9)
    assert comparison.first is None
    errors = [tensor.figures.max_abs for tensor in comparison.tensors if tensor.figures]
    assert errors[1] == errors[3], "the error of a state does not add up over calls"


def test_example_inputs_fill_every_kind_of_argument() -> None:
    specs = {
        "token_ids": TensorSpec((2, 4), "i32"),
        "position": TensorSpec((2,), "i32"),
        "last": TensorSpec((2,), "i32"),
        "attention_mask": TensorSpec((2, 4), "i32"),
        "token_type_ids": TensorSpec((2, 4), "i32"),
        "pixel_values": TensorSpec((2, 3), "f32"),
        "layers.0.k_cache": TensorSpec((2, 1, 8, 2), "f32"),
    }
    inputs = example_inputs(specs, 100, {})
    assert {name: (array.shape, array.dtype) for name, array in inputs.items()} == {
        name: (spec.shape, spec.dtype.numpy) for name, spec in specs.items()
    }
    assert inputs["token_ids"].max() < 100
    assert inputs["last"].tolist() == [3, 2]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    state = next_state(inputs, {"layers.0.k_cache": np.ones((2, 1, 8, 2), np.float32)})
    assert state["next_position"].tolist() == [4, 3]
    following = example_inputs(specs, 100, state)
    assert following["position"].tolist() == [4, 3]
    assert following["layers.0.k_cache"].all()
    late = example_inputs(specs, 100, {"next_position": np.array([7, 7])})
    assert late["position"].tolist() == [4, 4], "the tokens fit into the caches"


def _bundle(directory: Path, *entry_points: Signature) -> Bundle:
    directory.mkdir()
    KernelConfig(list(entry_points)).write(directory / MARK)
    return Bundle(directory)


def test_bundles_of_other_tensors_are_refused(tmp_path: Path) -> None:
    results = tuple(replace(result, spec=TensorSpec((2, 3), "bf16")) for result in _SIGNATURE.results)
    half = replace(_SIGNATURE, results=results)
    wide = replace(_SIGNATURE, arguments=(replace(_X, spec=TensorSpec((2, 4), "f32")), _STATE))
    bundle = _bundle(tmp_path / "a", _SIGNATURE)
    check_alike(bundle, _bundle(tmp_path / "b", half))
    with pytest.raises(InputError, match=r"argument 'x': float\[2, 3\] in .*a, float\[2, 4\] in .*c: export both"):
        check_alike(bundle, _bundle(tmp_path / "c", wide))
    with pytest.raises(InputError, match=r"has the entry points decode; .*d has prefill: export both with the same"):
        check_alike(bundle, _bundle(tmp_path / "d", replace(_SIGNATURE, name="prefill")))


def test_examples() -> None:
    results = doctest.testmod(example_calls)
    assert results.attempted
    assert not results.failed
