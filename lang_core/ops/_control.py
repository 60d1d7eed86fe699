"""Control flow: loops and branches that depend on run-time values."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lang_core._dtypes import bool_, i32
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import OpsBase
from lang_core.ops._op import Array, Specs, define_op, require


class Region(Protocol):
    """Function that is an attribute of an op: a recorded graph, or Python code run eagerly."""

    @property
    def result_specs(self) -> Specs:
        """Specs of the function's results."""
        ...

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Runs the function on arrays."""
        ...


def _infer_while(*operands: Any) -> Specs:
    *specs, cond, body, carried = operands
    init = tuple(specs[:carried])
    returned = cond.result_specs
    require(returned == (TensorSpec((), bool_),), "while_c1", f"cond returns {returned}")
    require(body.result_specs == init, "while_c2", f"body returns {body.result_specs} for values {init}")
    return init


def _eager_while(*operands: Any) -> tuple[Array, ...]:
    *arrays, cond, body, carried = operands
    values, captured = tuple(arrays[:carried]), arrays[carried:]
    while cond(*values, *captured)[0]:
        values = body(*values, *captured)
    return values


WHILE = define_op(
    "while",
    attributes=("cond", "body", "carried"),
    summary="Replaces the carried values by body(values) as long as cond(values) holds.",
    constraints=("cond returns one rank-0 bool", "body returns values of the carried values' specs"),
    shape_rule=_infer_while,
    eager_rule=_eager_while,
)


def _infer_cond(*operands: Any) -> Specs:
    pred, on_true, on_false = operands[0], operands[-2], operands[-1]
    require(pred.shape == () and pred.dtype is bool_, "cond_c1", f"pred is {pred!r}")
    same = on_true.result_specs == on_false.result_specs
    require(same, "cond_c2", f"the branches return {on_true.result_specs} and {on_false.result_specs}")
    return on_true.result_specs


def _eager_cond(*operands: Any) -> tuple[Array, ...]:
    pred, *arrays, on_true, on_false = operands
    return (on_true if pred else on_false)(*arrays)


COND = define_op(
    "cond",
    attributes=("on_true", "on_false"),
    summary="on_true(operands) where pred holds, else on_false(operands); only that branch runs.",
    constraints=("pred is a rank-0 bool", "both branches return the same specs"),
    shape_rule=_infer_cond,
    eager_rule=_eager_cond,
)


class ControlOps(OpsBase):
    """Loops and branches. The functions may use tensors from around them."""

    __slots__ = ()

    def while_loop(
        self,
        cond: Callable[..., Tensor],
        body: Callable[..., Sequence[Tensor]],
        init: Sequence[Tensor],
        most: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Replaces ``values`` (at first ``init``) by ``body(*values)`` as long as ``cond(*values)`` holds.

        Args:
            cond: takes the values, returns a rank-0 bool.
            body: takes the values, returns new ones of the same specs.
            init: the first values.
            most: number of rounds that the loop cannot exceed, which lets a JAX context differentiate it; it bounds
                nothing, and other contexts ignore it.

        Returns:
            The last values.
        """
        del most
        return self._ctx.while_loop(cond, body, tuple(init))

    def cond(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: Sequence[Tensor] = (),
    ) -> tuple[Tensor, ...]:
        """Returns ``on_true(*operands)`` if the rank-0 bool ``pred`` holds, else ``on_false(*operands)``."""
        return self._ctx.conditional(pred, on_true, on_false, tuple(operands))

    def fori_loop(self, stop: int, body: Callable[..., Sequence[Tensor]], init: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs ``body(i, *values)`` for the i32 i = 0 .. stop - 1."""
        ops: Any = self

        def step(i: Tensor, *values: Tensor) -> Sequence[Tensor]:
            return (ops.add(i, 1), *body(i, *values))

        first = self._ctx.constant(0, i32)
        return self.while_loop(lambda i, *_: ops.less(i, stop), step, (first, *init))[1:]
