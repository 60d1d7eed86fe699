"""Which values are arithmetic on numbers of fewer bytes.

IREE 3.13 recomputes such a value inside of the product that it is the right operand of, and on Vulkan, at sizes that do
not tile, the numbers are then wrong: ``x @ (cast(w, "f32") * scale)`` for w of f16, bf16, i8 or u8, or of f32 in f64. A
conversion alone is right, and so are conversions of what was moved; a function such as exp in between ends it.
"""

from typing import Final

from compile_dag import Node, Value
from lang_core import DType, bool_

# Of what a conversion gives, these make no more than a conversion.
_RENAMES: Final = frozenset(("broadcast", "cast", "reshape", "transpose"))
# Their results are computed before the product, whatever their operands are.
_ENDS: Final = frozenset(
    "all any argmax argmin cond conv cos dot_general dynamic_update_slice erf exp expm1 iota log log1p logistic max "
    "min pow prod put rsqrt scatter sin sort sqrt sum tanh while".split()
)


class WidenedValues:
    """Follows values node by node; what nobody has told it of is taken for computed."""

    def __init__(self) -> None:
        # By id: whether there was more than a conversion.
        self._found: dict[int, bool] = {}

    def follow(self, node: Node) -> None:
        """Takes the next node."""
        result, found = node.results[0], self._found
        dtype = result.spec.dtype
        if not found and all(value.spec.dtype is dtype for value in node.inputs):
            return  # the usual case, and this is asked of every node
        if dtype.itemsize <= 2 or node.op.name in _ENDS:
            return
        known = [found[id(value)] for value in node.inputs if id(value) in found]
        if known or any(_widens(value.spec.dtype, dtype) for value in node.inputs):
            found[id(result)] = any(known) or node.op.name not in _RENAMES

    def has(self, value: Value) -> bool:
        """Whether a value is arithmetic on a conversion."""
        return self._found.get(id(value), False)

    def forget(self, value: Value) -> None:
        """A value is not used any more."""
        self._found.pop(id(value), None)


def _widens(source: DType, target: DType) -> bool:
    return source is not bool_ and source.itemsize < target.itemsize
