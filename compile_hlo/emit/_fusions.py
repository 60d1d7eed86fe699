"""Finds nodes that one helper function does at once, so that a kernel may: each dispatch between products is a wait.

What is between them must be used by nobody else; then the text has nothing twice. A tag is a use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from compile_dag import Node, Value
from compile_hlo.emit._groups import (
    CACHED_ATTENTION_QUANTIZE,
    RMS_NORM_QUANTIZE,
    SILU_QUANTIZE,
    Group,
)
from compile_hlo.emit._uses import Uses
from lang_core import BLOCK, bf16, f16, f32

_MOST_SUMS: Final = 4096  # of heads that share keys: what a kernel of attention keeps until the end
_DTYPES: Final = (f32, bf16, f16)


class _Norm(NamedTuple):
    """A call of rms_norm: what it is given, and its nodes, of which the last makes the result."""

    inputs: tuple[Value, ...]
    attributes: tuple[float, bool]
    nodes: list[Node]


def with_groups(nodes: Sequence[Node], results: Iterable[Value], leaves: Mapping[int, Node]) -> Sequence[Node]:
    """The nodes of a stretch, some of them as groups.

    Args:
        nodes: in order.
        results: of the nodes, those that are used later.
        leaves: constants and parameters of before, by ``id`` of their values.
    """
    if not any(node.op.name == "block_quantize" for node in nodes):
        return nodes
    uses = Uses(nodes, results, leaves)
    groups: dict[int, Group] = {}  # by what it ends with
    unneeded: set[int] = set()
    for group, members in _groups(nodes, uses):
        groups[id(members[-1])] = group
        unneeded.update(map(id, members))
    return uses.without([groups.get(id(node), node) for node in nodes], unneeded)


def _groups(nodes: Sequence[Node], uses: Uses) -> Iterator[tuple[Group, list[Node]]]:
    """Groups with the nodes that they stand for, in order."""
    calls = (_norm(node, uses) for node in nodes if node.op.name == "rsqrt")
    norms = {id(norm.nodes[-1].results[0]): norm for norm in calls if norm is not None}
    for node in nodes:
        if node.op.name != "block_quantize" or uses.only_user(node.inputs[0], "block_quantize") is None:
            continue
        norm = norms.get(id(node.inputs[0]))
        if norm is not None:
            members = [*norm.nodes, node]
            yield Group(RMS_NORM_QUANTIZE, norm.inputs, norm.attributes, members), members
        elif (found := _gated(node, uses) or _attended(node, uses)) is not None:
            yield found


def _norm(node: Node, uses: Uses) -> _Norm | None:
    """The call whose ``rsqrt`` this is."""
    plus = uses.maker(node.inputs[0], "add")
    mean = plus and uses.maker(plus.inputs[0], "div")
    total = mean and uses.maker(mean.inputs[0], "sum")
    square = total and uses.maker(total.inputs[0], "mul")
    if plus is None or mean is None or total is None or square is None:
        return None
    wide, eps = square.inputs[0], uses.number(plus.inputs[1])
    last = wide.spec.ndim - 1
    if wide.dtype is not f32 or square.inputs[1] is not wide or eps is None or not wide.spec.size:
        return None
    if total.attributes != ((last,), True) or uses.number(mean.inputs[1]) != wide.shape[last]:
        return None
    before = [square, total, mean, plus]
    following = ("sum", "div", "add", "rsqrt")
    scaled = uses.only_user(node.results[0], "mul")
    if scaled is None or scaled.inputs[0] is not wide:
        return None
    if any(uses.only_user(each.results[0], name) is None for each, name in zip(before, following, strict=True)):
        return None
    return _weighted(wide, eps, [*before, node, scaled], uses)


def _weighted(wide: Value, eps: float, nodes: list[Node], uses: Uses) -> _Norm | None:
    """The call with what rounds and weights, as far as they follow."""
    cast = uses.maker(wide, "cast")
    given = wide if cast is None or cast.inputs[0].dtype not in (bf16, f16) else cast.inputs[0]
    first = [] if cast is None or given is wide else [cast]
    scaled = nodes[-1].results[0]
    if given is not wide:
        rounded = uses.only_user(scaled, "cast")
        if rounded is not None and rounded.results[0].dtype is given.dtype:
            return _with_weight(given, eps, [*first, *nodes, rounded], uses)
    centred = _centred(given, eps, [*first, *nodes], uses)
    return centred or _with_weight(wide, eps, nodes, uses)


def _centred(given: Value, eps: float, nodes: list[Node], uses: Uses) -> _Norm | None:
    """The call with 1 + weight, in f32, and its rounding where there is one."""
    product = uses.only_user(nodes[-1].results[0], "mul")
    scale = None if product is None else uses.maker(_other(product, nodes[-1].results[0]), "add")
    if product is None or scale is None or uses.number(scale.inputs[1]) != 1:
        return None
    weight, cast = _source(scale.inputs[0], uses)
    if not _is_weight(weight, given) or scale.results[0].dtype is not f32:
        return None
    nodes = [*cast, scale, *nodes, product]
    if given.dtype is not f32:
        rounded = uses.only_user(product.results[0], "cast")
        if rounded is None or rounded.results[0].dtype is not given.dtype:
            return None
        nodes.append(rounded)
    return _Norm((given, weight), (eps, True), nodes)


def _with_weight(given: Value, eps: float, nodes: list[Node], uses: Uses) -> _Norm:
    """The call with the weight that its result is multiplied by, if any is."""
    normed = nodes[-1].results[0]
    product = uses.only_user(normed, "mul")
    if product is not None:
        factor = _other(product, normed)
        weight, cast = _source(factor, uses)
        if _is_weight(weight, given) and factor.dtype is normed.dtype and product.results[0].shape == given.shape:
            return _Norm((given, weight), (eps, False), [*cast, *nodes, product])
    return _Norm((given,), (eps, False), nodes)


def _source(value: Value, uses: Uses) -> tuple[Value, list[Node]]:
    """What a weight was cast from, where it was, and the cast."""
    cast = uses.maker(value, "cast")
    return (value, []) if cast is None or cast.inputs[0].dtype not in _DTYPES else (cast.inputs[0], [cast])


def _is_weight(value: Value, given: Value) -> bool:
    return value.shape == given.shape[-1:] and value.dtype in _DTYPES


def _other(product: Node, value: Value) -> Value:
    x, y = product.inputs
    return y if x is value else x


def _gated(node: Node, uses: Uses) -> tuple[Group, list[Node]] | None:
    """``block_quantize(silu(gate) * up)``."""
    product = uses.maker(node.inputs[0], "mul")
    if product is None or product.results[0].dtype not in _DTYPES:
        return None
    for active, up in (product.inputs, product.inputs[::-1]):
        found = _silu(active, uses)
        if found is None or uses.only_user(active, "mul") is None:
            continue
        gate, nodes = found
        if gate.spec == up.spec == product.results[0].spec:
            members = [*nodes, product, node]
            return Group(SILU_QUANTIZE, (gate, up), (), members), members
    return None


def _attended(node: Node, uses: Uses) -> tuple[Group, list[Node]] | None:
    """``block_quantize`` of ``cached_attention`` of one query, its heads side by side."""
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
    if any(uses.only_user(each.results[0], name) is None for each, name in before):
        return None
    members = [attention, turned, flat, node]
    return Group(CACHED_ATTENTION_QUANTIZE, attention.inputs, attention.attributes, members), members


def _silu(value: Value, uses: Uses) -> tuple[Value, list[Node]] | None:
    """What silu was called with, and its nodes."""
    rounded = uses.maker(value, "cast")
    product = uses.maker(value if rounded is None else rounded.inputs[0], "mul")
    curve = product and uses.maker(product.inputs[1], "logistic")
    if product is None or curve is None or curve.inputs[0] is not product.inputs[0]:
        return None
    if uses.only_user(curve.results[0], "mul") is None:
        return None
    wide = product.inputs[0]
    if rounded is None:
        return wide, [curve, product]
    cast = uses.maker(wide, "cast")
    if cast is None or wide.dtype is not f32 or uses.only_user(product.results[0], "cast") is None:
        return None
    return cast.inputs[0], [cast, curve, product, rounded]
