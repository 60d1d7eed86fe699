"""Comparison of two sides that run the same entry points on the same inputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compile_hlo.directions import Signature
from lang_core import Encoding, InputError, TensorSpec, WeightSource
from runtime.dump import TensorLabel
from tapeline.cli import say
from tapeline.compare import ComparedTensor, Comparison, compare_tensors, tolerance_of
from tapeline.divergence._example_calls import Arrays, example_inputs, expected_result, next_state
from tapeline.divergence._locate import locate
from tapeline.divergence._sides import EagerSide, LoweredSide, Side

INSIDE: Final = ("auto", "always", "never")
"""Calls whose inner tensors are compared: the first that diverges, all, none."""


_ONE_STEP: Final = 1.02  # of integers that two sides round apart, and what the scale may differ


@dataclass(frozen=True, slots=True)
class Call:
    """Call that both sides make."""

    step: int
    entry_point: str
    inputs: Mapping[str, np.ndarray]


def compare_runs(
    actual: LoweredSide,
    reference: Side,
    entry_points: Sequence[Signature],
    vocabulary: int,
    *,
    tolerance: float | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    inside: str = "auto",
    kv_cache: Encoding | None = None,
) -> Comparison:
    """Runs entry points on both sides, each from the reference's earlier results, and compares results and inside.

    Args:
        actual: side to compare.
        reference: side to compare with.
        entry_points: signatures, in the order of the calls.
        vocabulary: vocabulary size V.
        tolerance: tolerance for floats; that of the coarsest dtype among arguments and results if None.
        given: inputs by name, of their arguments' shapes; example inputs for the others.
        inside: calls with inner tensors to compare: the first that diverges (``auto``), ``always`` or ``never``.
        kv_cache: encoding of quantized caches, which are compared as the numbers that they stand for, within a step of
            their integers; None without.
    """
    if tolerance is None:
        dtypes = [tensor.spec.dtype.name for call in entry_points for tensor in (*call.arguments, *call.results)]
        tolerance = tolerance_of([*dtypes, *actual.dtypes, *reference.dtypes])
    tensors: list[ComparedTensor] = []
    looked = False
    for call, rows in _calls(actual, reference, entry_points, vocabulary, tolerance, given or {}, kv_cache):
        diverges = any(row.diverges for row in rows)
        if inside == "always" or (inside == "auto" and diverges and not looked):
            looked = True
            tensors += _inside(actual, reference, call, tolerance)
        tensors += rows
    return Comparison(actual.name, reference.name, tolerance, tuple(tensors))


def _calls(
    actual: Side,
    reference: Side,
    entry_points: Sequence[Signature],
    vocabulary: int,
    tolerance: float,
    given: Mapping[str, np.ndarray],
    kv_cache: Encoding | None,
) -> Iterator[tuple[Call, list[ComparedTensor]]]:
    state: Arrays = {}
    for step, entry_point in enumerate(entry_points):
        specs: dict[str, TensorSpec] = {argument.name: argument.spec for argument in entry_point.arguments}
        call = Call(step, entry_point.name, {**example_inputs(specs, vocabulary, state), **given})
        expected = reference.run(call.entry_point, call.inputs)
        results = actual.run(call.entry_point, call.inputs)
        taken_over = entry_point.taken_over
        rows = []
        for name in expected:
            direction = "INOUT" if name in taken_over else "OUT"
            label = TensorLabel(step=step, entry_point=call.entry_point, name=name, direction=direction, when="after")
            mine, theirs, within = results[name], expected_result(name, results, expected), tolerance
            if kv_cache is not None and name.endswith("_cache"):
                mine, theirs = (kv_cache.unpacked(x) if x.dtype == np.int8 else x for x in (mine, theirs))
                within = max(tolerance, _ONE_STEP * 2.0 ** (1 - kv_cache.bits))
            rows.append(compare_tensors(label, mine, theirs, within))
        yield call, rows
        state = {**state, **next_state(call.inputs, expected)}


def _inside(actual: LoweredSide, reference: Side, call: Call, tolerance: float) -> Sequence[ComparedTensor]:
    say(f"comparing the inside of {call.entry_point} ...")
    weights: WeightSource | None = reference.weights if isinstance(reference, EagerSide) else None
    try:
        runner, other = actual.runner(weights), reference.inside(call.entry_point)
    except InputError as error:
        say(f"warning: {error}")
        return ()
    comparison = locate(actual.point(call.entry_point), call.inputs, runner, other, tolerance, step=call.step)
    if comparison.first is None:
        say("all inner tensors agree when the module returns them")
    return comparison.tensors
