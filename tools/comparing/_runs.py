"""Compares what two sides compute from the same inputs."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from compile_hlo.bundle import EntryPointConfig
from compile_hlo.compare import ComparedTensor, Comparison, compare_tensors, tolerance_of
from compile_hlo.dump import TensorLabel
from lang_core import TensorSpec
from tools.comparing._inputs import Arrays, example_inputs, next_state
from tools.comparing._sides import Side


def compare_runs(
    found: Side,
    reference: Side,
    calls: Sequence[EntryPointConfig],
    vocabulary: int,
    *,
    tolerance: float | None = None,
    given: Mapping[str, np.ndarray] | None = None,
) -> Comparison:
    """Runs entry points on both sides, each on what the reference left, and compares all results.

    Args:
        found: what is to be compared.
        reference: with what.
        calls: the entry points, in order.
        vocabulary: V.
        tolerance: for floats; that of the coarsest dtype among arguments and results where None.
        given: inputs by name; what is not given is made up.
    """
    if tolerance is None:
        dtypes = [each.dtype for call in calls for each in (*call.args, *call.results)]
        tolerance = tolerance_of([*dtypes, *found.dtypes, *reference.dtypes])
    tensors = tuple(_compared(found, reference, calls, vocabulary, tolerance, given or {}))
    return Comparison(found.name, reference.name, tolerance, tensors)


def _compared(
    found: Side,
    reference: Side,
    calls: Sequence[EntryPointConfig],
    vocabulary: int,
    tolerance: float,
    given: Mapping[str, np.ndarray],
) -> Iterator[ComparedTensor]:
    state: Arrays = {}
    for step, call in enumerate(calls):
        specs: dict[str, TensorSpec] = {each.name: each.spec for each in call.args}
        inputs = {**example_inputs(specs, vocabulary, state), **given}
        expected = reference.run(call.name, inputs)
        results = found.run(call.name, inputs)
        taken_over = {each.name for each in call.results if each.alias_arg is not None}
        for name, array in expected.items():
            label = TensorLabel(
                step=step,
                entry_point=call.name,
                name=name,
                direction="INOUT" if name in taken_over else "OUT",
                when="after",
            )
            yield compare_tensors(label, results[name], array, tolerance)
        state = {**state, **next_state(inputs, expected)}
