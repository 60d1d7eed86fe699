"""Gradient rules: their form, and the tables that hold them."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from compile_dag._node import Value
from lang_core import ExecutionContext, GraphError, Ops, Tensor, checked_choices

# The gradient of one input; it is asked for only if something needs it. None: there is none, or it is zero.
Thunk = Callable[[], Tensor | None] | None
Rule = Callable[..., Sequence[Thunk]]

RULES: Final[dict[str, Rule]] = {}
"""Gradient rule of each op, by its name."""
COMPOSITE_RULES: Final[dict[str, Rule]] = {}
"""Gradient rule of each composite that has one of its own, by its name."""
NOT_DIFFERENTIABLE: Final[dict[str, str]] = {}
"""Ops through which no gradient flows, with the reason."""
# Those of them that a gradient may not meet: it would not be 0, but is not known.
REFUSED: Final[set[str]] = set()


@checked_choices
class ForwardCall:
    """Op, or call of a composite, that is differentiated now, as a rule sees it.

    Attributes:
        ctx: context that records or computes the gradient.
        ops: ops of the context.
        name: name of the op or composite.
        inputs: operands in ``ctx``; of a composite as it was called, None if one was left out.
        results: results of the op in ``ctx``, of the shapes of its shape rule.
        attributes: attributes in the order of the op's.
        wanted: flag per input: True if its gradient is needed.
        values: operands as recorded, by which regions identify captured values.
        where: module path and source line, for messages.
        constants: arrays of operands that are constants, by the number of the recorded value.
    """

    __slots__ = ("attributes", "constants", "ctx", "inputs", "name", "results", "values", "wanted", "where")

    def __init__(
        self,
        ctx: ExecutionContext,
        name: str,
        inputs: tuple[Any, ...],
        results: tuple[Tensor, ...],
        attributes: tuple[Any, ...],
        wanted: tuple[bool, ...],
        values: tuple[Value, ...],
        where: str,
        constants: dict[int, Any],
    ) -> None:
        self.ctx = ctx
        self.name = name
        self.inputs = inputs
        self.results = results
        self.attributes = attributes
        self.wanted = wanted
        self.values = values
        self.where = where
        self.constants = constants

    @property
    def ops(self) -> Ops:
        """Ops of the context."""
        return self.ctx.ops

    def wide(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Returns the tensors in their shapes, f16 and bf16 as f32: rules compute in f32 and round the result once."""
        return tuple(self.ops.cast(tensor, tensor.dtype.accumulation) for tensor in tensors)

    def zeros_like(self, tensor: Tensor) -> Tensor:
        """Returns zeros of a tensor's shape and dtype."""
        return self.ops.zeros(tensor.shape, tensor.dtype)


def gradient_of(*names: str) -> Callable[[Rule], Rule]:
    """Registers the gradient rule of ops.

    A rule is ``rule(forward, *cotangents)``, with one cotangent per result: the gradient of the loss with respect to
    that result, in its shape and dtype; None if nothing depends on a result (never if the op has one result). It
    returns one function without arguments per input, or None if the gradient is zero; only functions of needed
    gradients are called. Their results may have the shape to which the input was broadcast, and another floating dtype:
    it is summed over the broadcast axes, and cast to the input's dtype.
    """
    return _register(RULES, "op", names)


def composite_gradient(*names: str) -> Callable[[Rule], Rule]:
    """Registers the gradient rule of composites, by the name given to ``ctx.composite``. See ``gradient_of``.

    The rule stands for the gradients of all ops that the composite's body recorded, if only the call's results are used
    from outside of it.

    >>> from compile_dag.gradient import composite_gradient
    >>> @composite_gradient("my_package.square")
    ... def rule(forward, cotangent):
    ...     (x,) = forward.inputs
    ...     return (lambda: forward.ops.mul(cotangent, forward.ops.mul(x, 2.0)),)
    """
    return _register(COMPOSITE_RULES, "composite", names)


def _register(table: dict[str, Rule], kind: str, names: tuple[str, ...]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            if name in table:
                raise GraphError(f"the {kind} {name!r} has a gradient rule already: register one for each")
            table[name] = rule
        return rule

    return register


@checked_choices
def not_differentiable(reason: str, *names: str, refused: bool = False) -> None:
    """Registers ops with a zero gradient, with the reason.

    Args:
        reason: text for the table of ops and for messages.
        names: names of the ops.
        refused: True if a gradient through them is an error; otherwise it is 0.
    """
    NOT_DIFFERENTIABLE.update(dict.fromkeys(names, reason))
    if refused:
        REFUSED.update(names)
