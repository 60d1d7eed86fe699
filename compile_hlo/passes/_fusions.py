"""Groups of nodes that one helper function does at once, so that a kernel may.

Each dispatch between products is a wait. Norms and gates are known as the composites that they were recorded as. What
lies between must be used by nobody else; then the text has nothing twice. A tag is a use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from compile_dag import Node, Value
from compile_hlo.passes._groups import (
    CACHED_ATTENTION_QUANTIZE,
    RMS_NORM_QUANTIZE,
    SILU_QUANTIZE,
    Group,
)
from compile_hlo.passes._uses import Uses
from lang_core import BLOCK, bf16, f16, f32

_MOST_SUMS: Final = 4096  # of heads that share keys: what a kernel of attention keeps until the end
_DTYPES: Final = (f32, bf16, f16)


class Fusion(NamedTuple):
    """Group, with the nodes that it stands for.

    Attributes:
        group: node to write.
        members: nodes, in order; the last one makes the group's results.
    """

    group: Group
    members: list[Node]


class _Norm(NamedTuple):
    """Call of rms_norm with what belongs to it.

    Attributes:
        inputs: x and the weight, if there is one.
        is_centred: whether the factor is 1 + weight.
        nodes: nodes, in order.
    """

    inputs: tuple[Value, ...]
    is_centred: bool
    nodes: list[Node]


def with_groups(nodes: Sequence[Node], results: Iterable[Value], leaves: Mapping[int, Node]) -> Sequence[Node]:
    """Returns the nodes of a stretch, some of them as groups. Valid stretch in, valid stretch out.

    Args:
        nodes: nodes, in order.
        results: those of their results that are used later.
        leaves: constants and parameters of earlier stretches, by the numbers of their values.
    """
    if not any(node.op.name == "block_quantize" for node in nodes):
        return nodes
    uses = Uses(nodes, results, leaves)
    groups: dict[Node, Group] = {}  # by the last member
    unneeded: set[Node] = set()
    for group, members in _fusions(nodes, uses):
        groups[members[-1]] = group
        unneeded.update(members)
    return uses.without([groups.get(node, node) for node in nodes], unneeded)


def _fusions(nodes: Sequence[Node], uses: Uses) -> Iterator[Fusion]:
    for node in nodes:
        if node.op.name == "block_quantize" and uses.only_user(node.inputs[0], "block_quantize") is not None:
            fusion = _normed(node, uses) or _gated(node, uses) or _attended(node, uses)
            if fusion is not None:
                yield fusion


def _normed(node: Node, uses: Uses) -> Fusion | None:
    """Returns the group of ``block_quantize(rms_norm(x, weight, eps))``."""
    value, rounding = node.inputs[0], uses.maker(node.inputs[0], "cast")
    whole, rounded = uses.call_of(value, "rms_norm"), False
    if whole is None and rounding is not None and uses.only_user(rounding.inputs[0], "cast") is not None:
        whole, rounded = uses.call_of(rounding.inputs[0], "rms_norm"), True
    if whole is None:
        return None
    x, weight = whole.call.inputs
    eps = float(np.float32(whole.call.attributes[0]))
    if x.dtype not in _DTYPES or not x.spec.size:
        return None
    norm = _centred(x, weight, value, uses)
    if norm is None and not rounded:
        norm = _plain(x, weight, uses)
    if norm is None:
        return None
    members = [*norm.nodes, *whole.nodes, *([rounding] if rounded and rounding is not None else []), node]
    return Fusion(Group(RMS_NORM_QUANTIZE, norm.inputs, (eps, norm.is_centred), members), members)


def _centred(x: Value, weight: Value | None, result: Value, uses: Uses) -> _Norm | None:
    """Returns what a norm in f32 with 1 + weight is given, where its result has x's dtype before a cast."""
    scale = None if weight is None else uses.maker(weight, "add")
    if scale is None or x.dtype is not f32 or scale.results[0].dtype is not f32 or uses.number(scale.inputs[1]) != 1:
        return None
    cast = uses.maker(x, "cast")
    given = x if cast is None or cast.inputs[0].dtype not in (bf16, f16) else cast.inputs[0]
    factor, source = _source(scale.inputs[0], uses)
    if not _is_weight(factor, given) or given.dtype is not result.dtype:
        return None
    return _Norm((given, factor), True, [*([] if cast is None or given is x else [cast]), *source, scale])


def _plain(x: Value, weight: Value | None, uses: Uses) -> _Norm | None:
    """Returns what a norm is given, its weight before a cast to x's dtype."""
    if weight is None:
        return _Norm((x,), False, [])
    factor, source = _source(weight, uses) if weight.dtype is x.dtype else (weight, [])
    return _Norm((x, factor), False, source) if _is_weight(factor, x) else None


def _source(value: Value, uses: Uses) -> tuple[Value, list[Node]]:
    """Returns what a weight was cast from, where it was, and the cast."""
    cast = uses.maker(value, "cast")
    return (value, []) if cast is None or cast.inputs[0].dtype not in _DTYPES else (cast.inputs[0], [cast])


def _is_weight(value: Value, given: Value) -> bool:
    return value.shape == given.shape[-1:] and value.dtype in _DTYPES


def _gated(node: Node, uses: Uses) -> Fusion | None:
    """Returns the group of ``block_quantize(silu(gate) * up)``."""
    product = uses.maker(node.inputs[0], "mul")
    if product is None or product.results[0].dtype not in _DTYPES:
        return None
    for active, up in (product.inputs, product.inputs[::-1]):
        whole = uses.call_of(active, "silu")
        if whole is None or uses.only_user(active, "mul") is None:
            continue
        (gate,) = whole.call.inputs
        if gate.spec == up.spec == product.results[0].spec:
            members = [*whole.nodes, product, node]
            return Fusion(Group(SILU_QUANTIZE, (gate, up), (), members), members)
    return None


def _attended(node: Node, uses: Uses) -> Fusion | None:
    """Returns the group of ``block_quantize`` of ``cached_attention`` of one query, its heads side by side."""
    flat = uses.maker(node.inputs[0], "reshape")
    turned = flat and uses.maker(flat.inputs[0], "transpose")
    attention = turned and uses.maker(turned.inputs[0], "cached_attention")
    if flat is None or turned is None or attention is None:
        return None
    batch, _, group, queries, size = attention.results[0].shape
    if turned.attributes != ((0, 3, 1, 2, 4),) or queries != 1 or size % BLOCK or group * size > _MOST_SUMS:
        return None
    if node.inputs[0].shape[-1] * batch != node.inputs[0].spec.size:
        return None
    before = ((attention, "transpose"), (turned, "reshape"))
    if any(uses.only_user(made.results[0], name) is None for made, name in before):
        return None
    members = [attention, turned, flat, node]
    return Fusion(Group(CACHED_ATTENTION_QUANTIZE, attention.inputs, attention.attributes, members), members)
