"""Compares what two sides compute from the same inputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compile_hlo.directions import Signature
from lang_core import InputError, TensorSpec, WeightSource
from run_iree.dump import TensorLabel
from tapeline.cli import say
from tapeline.compare import ComparedTensor, Comparison, compare_tensors, tolerance_of
from tapeline.divergence._example_calls import Arrays, example_inputs, expected_result, next_state
from tapeline.divergence._locate import locate
from tapeline.divergence._sides import EagerSide, LoweredSide, Side

INSIDE: Final = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that both sides made."""

    step: int
    entry_point: str
    inputs: Mapping[str, np.ndarray]


def compare_runs(
    found: LoweredSide,
    reference: Side,
    entry_points: Sequence[Signature],
    vocabulary: int,
    *,
    tolerance: float | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    inside: str = "auto",
) -> Comparison:
    """Runs entry points on both sides, each on what the reference left, and compares results, and tensors inside.

    Args:
        found: what is to be compared.
        reference: with what.
        entry_points: in order.
        vocabulary: V.
        tolerance: for floats; that of the coarsest dtype among arguments and results where None.
        given: inputs by name; what is not given is made up.
        inside: look inside the first call whose results diverge (``auto``), inside every call (``always``) or never.
    """
    if tolerance is None:
        dtypes = [each.spec.dtype.name for call in entry_points for each in (*call.arguments, *call.results)]
        tolerance = tolerance_of([*dtypes, *found.dtypes, *reference.dtypes])
    tensors: list[ComparedTensor] = []
    looked = False
    for call, rows in _calls(found, reference, entry_points, vocabulary, tolerance, given or {}):
        diverges = any(row.diverges for row in rows)
        if inside == "always" or (inside == "auto" and diverges and not looked):
            looked = True
            tensors += _inside(found, reference, call, tolerance)
        tensors += rows
    return Comparison(found.name, reference.name, tolerance, tuple(tensors))


def _calls(
    found: Side,
    reference: Side,
    entry_points: Sequence[Signature],
    vocabulary: int,
    tolerance: float,
    given: Mapping[str, np.ndarray],
) -> Iterator[tuple[Call, list[ComparedTensor]]]:
    state: Arrays = {}
    for step, entry_point in enumerate(entry_points):
        specs: dict[str, TensorSpec] = {each.name: each.spec for each in entry_point.arguments}
        call = Call(step, entry_point.name, {**example_inputs(specs, vocabulary, state), **given})
        expected = reference.run(call.entry_point, call.inputs)
        results = found.run(call.entry_point, call.inputs)
        taken_over = entry_point.taken_over
        rows = []
        for name in expected:
            direction = "INOUT" if name in taken_over else "OUT"
            label = TensorLabel(step=step, entry_point=call.entry_point, name=name, direction=direction, when="after")
            rows.append(compare_tensors(label, results[name], expected_result(name, results, expected), tolerance))
        yield call, rows
        state = {**state, **next_state(call.inputs, expected)}


def _inside(found: LoweredSide, reference: Side, call: Call, tolerance: float) -> Sequence[ComparedTensor]:
    say(f"comparing the inside of {call.entry_point} ...")
    weights: WeightSource | None = reference.weights if isinstance(reference, EagerSide) else None
    try:
        runner, other = found.runner(weights), reference.inside(call.entry_point)
    except InputError as error:
        say(f"warning: {error}")
        return ()
    comparison = locate(found.point(call.entry_point), call.inputs, runner, other, tolerance, step=call.step)
    if comparison.first is None:
        say("every tensor inside agrees when it is shown")
    return comparison.tensors
