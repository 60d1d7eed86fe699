"""Support for negative tests of the ops' constraints. Only tests import this."""

from typing import Any, Final

import pytest

from lang_core import OPS, OpError, TensorSpec

_ELEMENTWISE: Final = {
    name: op
    for name, op in OPS.items()
    if op.shape_rule.__module__ == "lang_core.ops._elementwise" and name not in ("select", "cast")
}
# A test of a family, such as test_reduction_c1, stands for that constraint of each of its ops.
FAMILIES: Final = {
    "elementwise": tuple(name for name, op in _ELEMENTWISE.items() if len(op.constraints) > 1),
    "unary": tuple(name for name, op in _ELEMENTWISE.items() if len(op.constraints) == 1),
    "reduction": ("sum", "prod", "max", "min", "any", "all"),
    "arg_reduction": ("argmax", "argmin"),
    "along_axis": ("cumsum", "sort"),
}


class Returning:
    """Results of a region: enough of one for a shape rule."""

    def __init__(self, *result_specs: TensorSpec) -> None:
        self.result_specs = result_specs

    def __repr__(self) -> str:
        return "region"


def spec(text: str) -> TensorSpec:
    """Returns the spec of e.g. ``f32[2,3]``."""
    dtype, _, dims = text[:-1].partition("[")
    return TensorSpec(tuple(int(dim) for dim in dims.split(",") if dim), dtype)


def refused(label: str, specs: str, attributes: tuple[Any, ...], reason: str) -> None:
    """Checks that the op refuses the call, and that the message names op, operands, constraint and reason."""
    name = label.rpartition("_c")[0]
    operands = ", ".join(specs.split()).replace("[", "\\[")
    with pytest.raises(OpError, match=rf"^{name}\({operands}.*\): {label}: {reason}"):
        OPS[name].infer_afresh(tuple(spec(text) for text in specs.split()), attributes)
