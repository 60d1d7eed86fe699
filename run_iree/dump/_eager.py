"""Dumps of the eager context."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compile_dag import TagInfo, tags_of
from compile_hlo import record_entry_point
from lang_core import EagerExecutionContext, EagerTensor, EntryPoint, TagSelection, WeightSource
from run_iree.dump._dumper import Dumper


def tags_by_entry_point(entry_points: Sequence[EntryPoint], globs: Sequence[str]) -> dict[str, list[TagInfo]]:
    """The tags that globs choose of each entry point, found by recording it; no weight is read.

    Raises:
        InputError: a glob chooses no tag of any entry point.
    """
    selection = TagSelection(globs)
    found = {each.name: list(tags_of(record_entry_point(each, selection).nodes)) for each in entry_points}
    selection.check()
    return found


def eager_call(
    dumper: Dumper,
    entry_point: EntryPoint,
    weights: WeightSource | None,
    inputs: Mapping[str, np.ndarray[Any, Any]],
) -> dict[str, np.ndarray[Any, Any]]:
    """Runs an entry point in the eager context, and dumps the call as a session does.

    Args:
        dumper: made with ``tags_by_entry_point``.
        entry_point: what to run.
        weights: of its model.
        inputs: by argument.

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
