"""States of some rows of the caches: taken out before a run, put back after it."""

from collections.abc import Mapping, Sequence

from lang_core import ExecutionContext, Tensor
from transformer_core.flow._memory import Slot
from transformer_core.layers._cache import Cache, row_put, row_taken


def states_taken(
    ctx: ExecutionContext, slots: Sequence[Slot], caches: Mapping[str, Cache], row: Tensor
) -> dict[str, Cache]:
    """Returns the states of the rows of a call, by module path.

    Args:
        ctx: context that computes.
        slots: slots of the model.
        caches: their caches and states, of all rows.
        row: i32 of rank 0 or [B], the rows.
    """
    return {
        slot.path: slot.layout.make(*[row_taken(ctx, whole, row) for whole in caches[slot.path].tensors])
        for slot in slots
        if slot.recurrent
    }


def states_put(
    ctx: ExecutionContext,
    slots: Sequence[Slot],
    wholes: Mapping[str, Cache],
    caches: Mapping[str, Cache],
    row: Tensor,
) -> dict[str, Cache]:
    """Returns the states of all rows, with those of the rows of a call replaced; arguments as of ``states_taken``."""
    puts: dict[str, Cache] = {}
    for slot in slots:
        if slot.recurrent:
            pairs = zip(wholes[slot.path].tensors, caches[slot.path].tensors, strict=True)
            puts[slot.path] = slot.layout.make(*[row_put(ctx, whole, new, row) for whole, new in pairs])
    return puts
