"""Dumps of the eager context."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compile_dag import TagInfo, tags_of
from compile_hlo import record_entry_point
from lang_core import EagerExecutionContext, EagerTensor, EntryPoint, TagSelection, WeightSource
from run_iree.dump._dumper import Dumper


def tags_by_entry_point(entry_points: Sequence[EntryPoint], globs: Sequence[str]) -> dict[str, list[TagInfo]]:
    """Returns the tags that globs select in each entry point, by recording it; no weight is read.

    Raises:
        InputError: a glob selects no tag of any entry point.
    """
    selection = TagSelection(globs)
    tags = {point.name: list(tags_of(record_entry_point(point, selection).nodes)) for point in entry_points}
    selection.check()
    return tags


def eager_call(
    dumper: Dumper,
    entry_point: EntryPoint,
    weights: WeightSource | None,
    inputs: Mapping[str, np.ndarray[Any, Any]],
) -> dict[str, np.ndarray[Any, Any]]:
    """Runs an entry point in the eager context, and dumps the call as a session does.

    Args:
        dumper: dumper with the tags of ``tags_by_entry_point``.
        entry_point: entry point to run.
        weights: weights of its model.
        inputs: arrays by the argument's name.

    Returns:
        The results by name.
    """
    call = dumper.call(entry_point.name)

    def sink(name: str, tensor: EagerTensor) -> None:
        if name in call.tags:
            call.tag(name, tensor.numpy())

    ctx = EagerExecutionContext(weights, tag_sink=sink)
    for argument in entry_point.arguments:
        call.argument(argument.name, inputs[argument.name], donated=argument.alias_result is not None)
    tensors = [ctx.constant(inputs[argument.name]) for argument in entry_point.arguments]
    results = {name: tensor.numpy() for name, tensor in entry_point(ctx, *tensors).items()}
    aliased = {argument.alias_result for argument in entry_point.arguments}
    for name, array in results.items():
        call.result(name, array, aliased=name in aliased)
    return results
