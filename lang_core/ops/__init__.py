"""The op table and ``ctx.ops``.

Each op stands once, in one of this folder's files: its contract with numbered constraints, its shape rule and
its eager NumPy rule. Rules for compilers are registered elsewhere.

Semantics
---------

Shapes of elementwise ops broadcast by NumPy's rules: they align at the right, and a dimension of 1 stretches.
Dtypes of elementwise ops promote as ``numpy.result_type`` says. A Python number beside a tensor is weak, as in
NEP 50: it takes the tensor's dtype if its kind fits in, so ``f16 + 2.5`` is f16. All other ops take their
operands as they are and promote nothing. Integers wrap. Floating results follow IEEE 754; nothing warns.

Where these ops differ from NumPy, on purpose:

- Pairs whose common dtype is not in the table (i8 with u8, bf16 with f16, bf16 with i32) are refused: cast one.
- bf16 is a floating dtype like the others: ``bf16 + 2.5`` is bf16, while NumPy with ml_dtypes gives f64.
- ``div``, ``pow`` and the functions of one number take floating dtypes only; nothing turns an integer into f64.
- Arithmetic, order and sums refuse bool; ``logical_*`` refuse everything else. Cast first.
- Reductions and ``cumsum`` keep the operand's dtype: sums of i8 wrap in i8. f16 and bf16 are accumulated in f32
  and rounded once; so are their functions and composites computed.
- ``argmax``, ``argmin`` and the indices of ``sort`` and ``top_k`` are i32.
- Run-time positions are never counted from the end. ``take``, ``gather``, ``put`` and the starts of ``dynamic_slice``
  and ``dynamic_update_slice`` are clamped into range; ``scatter`` drops updates outside.
- Python floats become f32 and ints i32 without a tensor beside them.
- Unspecified: integer ``rem`` by 0, shifts by a negative number or by more bits than there are, casts of floats to
  integers that cannot represent them, which of 0.0 and -0.0 is the larger, which of several updates of one
  element wins in a ``put`` or a ``scatter`` that sets, and whether a NaN or infinity of a ``conv``'s kernel meets its
  padding.
- Subnormal numbers are kept here; a device may flush them to 0.
"""

from functools import cache as _cache
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Final as _Final

from lang_core._errors import UnknownNameError as _UnknownNameError
from lang_core._errors import near_names as _near_names
from lang_core.ops._arguments import checks_arguments as _checks_arguments
from lang_core.ops._base import Interpreter as _Interpreter
from lang_core.ops._base import Operand
from lang_core.ops._causal_conv import CausalConvOps as _CausalConvOps
from lang_core.ops._control import Region
from lang_core.ops._gated_delta import GatedDeltaOps as _GatedDeltaOps
from lang_core.ops._op import OPS, Literal, Op, define_op, require
from lang_core.ops._packed import LARGEST_INTEGER, LEAST_MAGNITUDE, PLANE_BASE
from lang_core.ops._packed_cache import CACHE_ENCODINGS
from lang_core.ops._packed_cache import PackedCacheOps as _PackedCacheOps
from lang_core.ops._packed_experts import PackedExpertOps as _PackedExpertOps
from lang_core.ops._reduce import LONG_SUM

__all__ = [
    "CACHE_ENCODINGS",
    "LARGEST_INTEGER",
    "LEAST_MAGNITUDE",
    "LONG_SUM",
    "OPS",
    "PLANE_BASE",
    "Literal",
    "Op",
    "Operand",
    "Ops",
    "Region",
    "define_op",
    "require",
]


class _PlainOps(_GatedDeltaOps, _CausalConvOps, _PackedExpertOps, _PackedCacheOps):
    """All ops, without checks of the types of their arguments."""

    __slots__ = ()


@_checks_arguments
class Ops(_PlainOps):
    """All ops, as methods. ``ctx.ops`` is one of these, bound to its context.

    An argument of a wrong type is an OpError.
    """

    __slots__ = ("_plain",)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        _checks_arguments(cls, tuple(vars(cls)))

    def __init__(self, ctx: _Interpreter) -> None:
        super().__init__(ctx)
        self._plain: _PlainOps = _PlainOps(ctx) if type(self) is Ops else self  # a subclass may override methods

    if not _TYPE_CHECKING:  # a type checker that saw this would take every name for an op

        def __getattr__(self, name: str) -> object:
            raise _unknown_op(type(self), name)


def _unknown_op(kind: type[Ops], name: str) -> AttributeError:
    """Returns the error of an op that is looked up and does not exist."""
    if name.startswith("_"):
        return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    known = _names_of_ops(kind)
    hint = _near_names(name, known)
    if name in OPS:
        return _UnknownNameError(
            f"ctx.ops.{name}: not a method of ctx.ops; call ctx.apply(op, inputs, attributes) with OPS[{name!r}]"
        )
    alias = _ALIASES.get(name)
    if alias is not None:
        hint = f"; use {alias}"
    return _UnknownNameError(f"ctx.ops.{name}: no op of this name{hint}; docs/ops.md lists all {len(known)}")


@_cache
def _names_of_ops(kind: type[Ops]) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if not name.startswith("_"))


# Names that other libraries have for ops, with the calls in their place.
_ALIASES: _Final = {
    "matmul": "linear(x, weight) for x @ weight.T, or dot_general",
    "dot": "linear(x, weight) for x @ weight.T, or dot_general",
    "einsum": "dot_general, with transpose and reshape",
    "where": "select(pred, on_true, on_false)",
    "sigmoid": "logistic",
    "multiply": "mul",
    "divide": "div",
    "subtract": "sub",
    "neg": "negate",
    "clip": "clamp",
    "cat": "concat",
    "concatenate": "concat",
    "stack": "reshape and concat",
    "squeeze": "reshape",
    "unsqueeze": "reshape",
    "expand_dims": "reshape",
    "expand": "broadcast",
    "broadcast_to": "broadcast",
    "permute": "transpose",
    "arange": "iota",
    "astype": "cast",
    "square": "mul(x, x)",
    "scan": "fori_loop or while_loop",
    "var": "mean of the squared distances from the mean; layer_norm normalizes by it",
}
