"""Faults of compilers that emission goes round: one function per fault. README.md has the table.

``compile_hlo.emit`` alone follows the StableHLO specification. A function of this room takes the place of a
point of it (``compile_hlo/emit/_overrides.py``), and says which fault it avoids, on which targets, seen in which
version of IREE, and which cases show it. An upgrade of IREE that repairs a fault deletes the function.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from compile_hlo.emit import EXACT_PRODUCTS, PARTITIONED, Overrides
from compile_hlo.quirks import _numbers, _parts, _products, _updates, _values
from compile_hlo.quirks._fault import INTERPRETER, Fault, around, overrides_of

# In the order in which those of one point are called.
FAULTS: Final[tuple[Fault, ...]] = tuple(
    value
    for module in (_numbers, _products, _parts, _values, _updates)
    for value in vars(module).values()
    if isinstance(value, Fault)
)
"""Faults of compilers, in the order in which those of one point are called."""
# Avoids every fault, for a module's text is the same for every target.
QUIRKS: Final[Overrides] = overrides_of(FAULTS)
"""Overrides that avoid every fault, for a module's text is the same for every target."""


def _with_xla_quirks(overrides: Overrides, *faults: Fault) -> Overrides:
    """Returns overrides that also avoid faults of XLA: in updates in place, sums with zeros, and those given."""
    functions = dict(overrides.functions)
    for fault in (_updates.update_beside_reshape, _values.sum_with_zero, *faults):
        for point, override in fault.overrides.items():
            inner = functions.get(point)
            functions[point] = override if inner is None else partial(around, override, inner)
    return replace(overrides, functions=functions)


XLA_QUIRKS: Final = _with_xla_quirks(EXACT_PRODUCTS, _values.long_products)
"""Overrides of modules that XLA alone compiles."""
XLA_PARTITIONED: Final = _with_xla_quirks(PARTITIONED)
"""Overrides of modules that XLA compiles and partitions."""

__all__ = [
    "FAULTS",
    "INTERPRETER",
    "QUIRKS",
    "XLA_PARTITIONED",
    "XLA_QUIRKS",
    "Fault",
    "overrides_of",
]
