"""The op table: ops, and the check of their contracts."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lang_core._choices import checked_choices
from lang_core._dtypes import as_dtype
from lang_core._errors import GraphError, OpError
from lang_core._spec import TensorSpec

Specs = tuple[TensorSpec, ...]
_WRONG_TYPE: Final = (TypeError, AttributeError, IndexError, KeyError, ValueError, OverflowError, ZeroDivisionError)
Array = np.ndarray[Any, Any]

# Results of shape rules are remembered per op; models repeat a few hundred combinations.
_MEMO_LIMIT: Final = 4096


class Literal:
    """The value of a constant: a read-only array, compared by identity (no deep hashing of values)."""

    __slots__ = ("array", "spec")

    def __init__(self, array: Array) -> None:
        array.flags.writeable = False
        self.array = array
        self.spec = TensorSpec(array.shape, as_dtype(array.dtype))

    def __repr__(self) -> str:
        return repr(self.array.tolist()) if self.array.size <= 8 else f"<{self.array.size} values>"


class ContractViolation(Exception):
    """A constraint of an op does not hold. Only Op.infer sees it: it adds the op and the operands."""


def require(condition: object, label: str, reason: str) -> None:
    """Checks one constraint; ``label`` is ``<op>_c<number>``, as in the op's documentation.

    Raises:
        ContractViolation: the condition is false.
    """
    if not condition:
        raise ContractViolation(f"{label}: {reason}")


@checked_choices
class Op:
    """One row of the op table.

    Attributes:
        name: unique.
        attributes: names of the compile-time values, in the order in which the rules take them.
        constraints: constraint number i+1 is ``constraints[i]``.
        summary: description of the computation.
        shape_rule: ``(*specs, *attributes) -> results' specs``; raises ContractViolation.
        eager_rule: ``(*arrays, *attributes) -> array or tuple of arrays``.
        only_moves: True if ``eager_rule`` copies elements and computes none, so that NumPy has nothing to warn of.
    """

    __slots__ = ("_memo", "attributes", "constraints", "eager_rule", "name", "only_moves", "shape_rule", "summary")

    def __init__(
        self,
        name: str,
        *,
        summary: str,
        shape_rule: Callable[..., Specs],
        eager_rule: Callable[..., Any],
        attributes: tuple[str, ...] = (),
        constraints: tuple[str, ...] = (),
        only_moves: bool = False,
    ) -> None:
        self.name: Final = name
        self.summary: Final = summary
        self.attributes: Final = attributes
        self.constraints: Final = constraints
        self.shape_rule: Final = shape_rule
        self.eager_rule: Final = eager_rule
        self.only_moves: Final = only_moves
        self._memo: Final[dict[Any, Specs]] = {}

    def infer(self, specs: Specs, attributes: tuple[Any, ...]) -> Specs:
        """Checks the contract and returns the results' specs.

        Raises:
            OpError: a constraint does not hold; the message names it and the operands.
        """
        key = specs, attributes
        try:
            known = self._memo.get(key)
        except TypeError:  # an attribute that has no hash, such as a list
            return self.infer_afresh(specs, attributes)
        if known is None:
            known = self.infer_afresh(specs, attributes)
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            self._memo[key] = known
        return known

    def infer_afresh(self, specs: Specs, attributes: tuple[Any, ...]) -> Specs:
        """Does the same as ``infer`` for attributes that must not be remembered, such as regions.

        Raises:
            OpError: a constraint is broken; it names the call.
        """
        try:
            return self.shape_rule(*specs, *attributes)
        except ContractViolation as error:
            raise OpError(f"{self.call_text(specs, attributes)}: {error}") from None
        except _WRONG_TYPE as error:  # of an attribute that the rule cannot compare or count with
            named = ", ".join(self.attributes)
            text = f"{self.name}({', '.join(map(repr, (*specs, *attributes)))})"
            raise OpError(f"{text}: operands or attributes ({named}) of a wrong type or number: {error}") from error

    def call_text(self, specs: Specs, attributes: tuple[Any, ...]) -> str:
        """Returns the call as a person reads it, e.g. ``reshape(f32[2,3], shape=(6,))``."""
        named = [f"{name}={value!r}" for name, value in zip(self.attributes, attributes, strict=True)]
        return f"{self.name}({', '.join([*map(repr, specs), *named])})"

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: Final[dict[str, Op]] = {}
"""Op table: every op by its name."""


def define_op(name: str, **rules: Any) -> Op:
    """Adds an op to the table; other packages may add theirs, under names that begin with their own.

    Args:
        name: unique.
        **rules: the further arguments of ``Op``.

    Raises:
        GraphError: the name is taken.

    >>> from lang_core import EagerExecutionContext, define_op
    >>> twice = define_op(
    ...     "acme.twice", summary="2 x", shape_rule=lambda x: (x,), eager_rule=lambda x: x + x
    ... )
    >>> EagerExecutionContext().apply(twice, (np.arange(3, dtype=np.float32),))[0].numpy().tolist()
    [0.0, 2.0, 4.0]
    """
    if name in OPS:
        raise GraphError(f"the op {name!r} is in the table already: declare each op once")
    op = OPS[name] = Op(name, **rules)
    return op


def positive_axis(axis: int, ndim: int) -> int:
    """Counts a negative axis from the end; one out of range is left for the op's contract to refuse."""
    return axis + ndim if -ndim <= axis < 0 else axis


def require_axis(axis: int, ndim: int, label: str) -> None:
    """Checks that a tensor of ``ndim`` dimensions has this axis."""
    require(0 <= axis < ndim, label, f"axis {axis} is outside a tensor of {ndim} dimensions")


def require_axes(axes: tuple[int, ...], ndim: int, label: str) -> None:
    """Checks that a tensor of ``ndim`` dimensions has these axes, and that none is named twice."""
    for axis in axes:
        require_axis(axis, ndim, label)
    require(len(set(axes)) == len(axes), label, f"axes {axes} name one axis twice")


def broadcast_shapes(shapes: tuple[tuple[int, ...], ...], label: str) -> tuple[int, ...]:
    """Broadcasts shapes as NumPy does: they align at the right, and a dimension of 1 stretches."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ContractViolation(f"{label}: shapes {text} do not broadcast") from None
