"""Faults in updates in place with operands computed from the overwritten buffer."""

from collections.abc import Callable, Sequence
from typing import Any

from compile_hlo.emit import Builder, Emitter, SsaValue
from compile_hlo.passes import Group
from compile_hlo.quirks._fault import fault
from compile_hlo.quirks._parts import copied
from lang_core import TensorSpec, bool_

Plain = Callable[..., Any]
_XLA = "jaxlib 0.10.2"


def _overlaps(e: Builder) -> bool:
    """Returns whether the node that is written is an update that overlaps (compile_hlo/directions/_overlaps.py)."""
    if not isinstance(e, Emitter) or e.node is None:
        return False
    nodes = e.node.members if isinstance(e.node, Group) else (e.node,)
    return any(value.number in e.overlaps for node in nodes for value in node.results)


@fault(
    "dynamic_update_slice",
    targets="llvm-cpu vmvx",
    cases="update_shifted_f32 update_shifted_constant_f32 put_swapped_f32 put_all_f32",
)
def update_of_itself(plain: Plain, e: Builder, value: SsaValue, update: SsaValue, starts: Sequence[SsaValue]) -> str:
    """An update that is computed from the tensor it is written into reads elements that it has just overwritten.

    A slice of a tensor that is written into the same tensor is copied within one buffer, and a fused computation of a
    tensor, the update and its place runs in any order. If the ranges are known and overlap, the call fails. The
    update gets a buffer of its own; behind a barrier alone, it still shares that of a target that equals it.
    """
    if _overlaps(e):
        update = SsaValue(copied(e, update), update.spec)
    return plain(e, value, update, starts)


@update_of_itself.at("put_rows")
def _rows_apart(
    plain: Plain, e: Emitter, into: str, places: str, new: str, specs: tuple[TensorSpec, TensorSpec, TensorSpec]
) -> str:
    """Copies behind the reshapes: one of a barrier's result cannot be compiled into a scatter."""
    if _overlaps(e):
        places, new = e.barrier(places, specs[1]), copied(e, SsaValue(new, specs[2]))
    return plain(e, into, places, new, specs)


@fault(
    "dynamic_update_slice",
    targets="xla",
    cases="update_shifted_before_reshape_f32 update_shifted_after_reshape_f32",
    version=_XLA,
)
def update_beside_reshape(
    plain: Plain, e: Builder, value: SsaValue, update: SsaValue, starts: Sequence[SsaValue]
) -> str:
    """With a reshape before or after it, an update that is computed from its target reads overwritten elements.

    XLA moves the reshape across the update, and takes the two for different buffers when it fuses the computation of
    the update (openxla/xla#49176). Barriers are gone by then, but nothing is simplified any more: the target is chosen
    out of two that are the same, and so has a buffer of its own. IREE finds out that it is the tensor itself.
    """
    return plain(e, _chosen_again(e, value) if _overlaps(e) else value, update, starts)


@update_beside_reshape.at("put_rows")
def _rows_beside_reshape(
    plain: Plain, e: Emitter, into: str, places: str, new: str, specs: tuple[TensorSpec, TensorSpec, TensorSpec]
) -> str:
    """XLA makes an update of a slice of a scatter at one place."""
    target = _chosen_again(e, SsaValue(into, specs[0])).name if _overlaps(e) else into
    return plain(e, target, places, new, specs)


@update_beside_reshape.at("put_target")
def _target_of_partitions(plain: Callable[[Emitter, SsaValue], SsaValue], e: Emitter, x: SsaValue) -> SsaValue:
    """Forms for a partitioner are scatters too."""
    x = plain(e, x)
    return _chosen_again(e, x) if _overlaps(e) else x


def _chosen_again(e: Builder, value: SsaValue) -> SsaValue:
    """Returns a value chosen out of two that are the same."""
    always = e.barrier(e.scalar(True, bool_), TensorSpec((), bool_))
    again = e.barrier(*value)
    kind = value.kind
    return SsaValue(e.new(f"stablehlo.select {always}, {value.name}, {again} : tensor<i1>, {kind}"), value.spec)
