"""Faults of compilers that emission goes round: one function per fault. README.md has the table.

``compile_hlo.emit`` alone writes what the StableHLO specification says. A function of this room takes the place of a
point of it (``compile_hlo/emit/_overrides.py``), and says which fault it avoids, on which targets, seen in which
version of IREE, and which cases show it. An upgrade of IREE that repairs a fault deletes the function.
"""

from typing import Final

from compile_hlo.emit import Overrides
from compile_hlo.quirks import _numbers, _parts, _products, _values
from compile_hlo.quirks._fault import INTERPRETER, Fault, overrides_of

# In the order in which those of one point are called.
FAULTS: Final[tuple[Fault, ...]] = tuple(
    value
    for module in (_numbers, _products, _parts, _values)
    for value in vars(module).values()
    if isinstance(value, Fault)
)
"""Faults of compilers, in the order in which those of one point are called."""
# Avoids every fault, for a module's text is the same for every target.
QUIRKS: Final[Overrides] = overrides_of(FAULTS)
"""Overrides that avoid every fault, for a module's text is the same for every target."""

__all__ = ["FAULTS", "INTERPRETER", "QUIRKS", "Fault", "overrides_of"]
