"""Products with packed weights become products of integers: x is taken in blocks, once for all that multiply it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from compile_dag import Node, Stretch, Value
from lang_core import ACTIVATION_BITS, Op, TensorSpec, checked_choices
from lang_core.ops import OPS

_QUANTIZE: Final = OPS["block_quantize"]
LOWERED: Final[Mapping[str, Op]] = MappingProxyType(
    {"packed_linear": OPS["block_product"], "packed_expert_linear": OPS["expert_block_product"]}
)
"""Ops that are written as others, of integers, by name."""
_RESULTS: Final = 3  # of ``block_quantize``


@checked_choices
def with_integer_products(nodes: Sequence[Node], *, exact: bool = False) -> Sequence[Node]:
    """Returns the nodes with ``packed_linear`` as ``block_quantize``, once per x and stretch, and ``block_product``.

    Valid nodes in, valid nodes out. Values that lie between the two have negative numbers, made of those of the
    results, so equal stretches stay equal. Loops and branches keep their contents.

    Args:
        nodes: nodes, in order.
        exact: True keeps the products with exact activations.
    """
    if not any(node.op.name in LOWERED for node in nodes):
        return nodes
    lowered: list[Node] = []
    blocks: dict[tuple[int, int, Stretch], tuple[Value, ...]] = {}  # by the number of x and by bits
    for node in nodes:
        product = LOWERED.get(node.op.name)
        if product is None or (exact and node.attributes[-1] == "exact"):
            lowered.append(node)
            continue
        x, *others = node.inputs
        *attributes, activations = node.attributes
        key = x.number, ACTIVATION_BITS[activations], node.stretch
        if key not in blocks:
            quantize = _quantize(node, x, key[1])
            blocks[key] = quantize.results
            lowered.append(quantize)
        inputs = (*blocks[key], *others)
        lowered.append(Node(product, inputs, tuple(attributes), node.results, node.stretch))
    return lowered


def is_block_value(number: int) -> bool:
    """Returns whether a value of this number lies between the two ops."""
    return number < 0


def block_value(number: int) -> tuple[int, int]:
    """Returns which value has a negative number: the number of the product it was made for, and its place in blocks."""
    return divmod(-1 - number, _RESULTS)


def _quantize(node: Node, x: Value, bits: int) -> Node:
    """Returns the node that takes x in blocks, ahead of a product."""
    specs = _QUANTIZE.infer((x.spec,), (bits,))
    first = -1 - _RESULTS * node.results[0].number
    results = tuple(_value(node.results[0], spec, first - i) for i, spec in enumerate(specs))
    return Node(_QUANTIZE, (x,), (bits,), results, node.stretch)


def _value(product: Value, spec: TensorSpec, number: int) -> Value:
    """Returns a value that is attributed as the product is."""
    return Value(spec, product.recording, _QUANTIZE.name, product.path, product.line, number)
