"""The op table and ``ctx.ops``.

Each op stands once, in one of this folder's files: its contract with numbered constraints, its shape rule and
its eager NumPy rule. What an op means to a compiler is registered for it elsewhere.
"""

from lang_core.ops._base import Operand
from lang_core.ops._composite import CompositeOps
from lang_core.ops._control import ControlOps as _ControlOps
from lang_core.ops._control import Region
from lang_core.ops._indexing import IndexingOps as _IndexingOps
from lang_core.ops._op import OPS, Op
from lang_core.ops._shape import Literal

__all__ = ["OPS", "Literal", "Op", "Operand", "Ops", "Region"]


class Ops(CompositeOps, _IndexingOps, _ControlOps):
    """All ops, as methods. ``ctx.ops`` is one of these, bound to its context."""

    __slots__ = ()
