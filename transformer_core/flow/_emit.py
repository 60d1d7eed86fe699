"""Raw ops on flow values: the escape hatch."""

import inspect
from typing import Any, Final

from lang_core import ExecutionContext, OpError, Ops, Tensor, TensorSpec, near_names
from transformer_core.flow._value import FlowValue

_NAMES: Final = tuple(name for name, _ in inspect.getmembers(Ops, callable) if not name.startswith("_"))


class Emit:
    """Calls ops of the table, on and to flow values, and holds their results to a spec.

    Args:
        ctx: where to compute.
    """

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx: Final = ctx

    def __call__(self, op: str, *operands: Any, spec: TensorSpec | None = None, **attributes: Any) -> FlowValue:
        """The result of ``ctx.ops.<op>(*operands, **attributes)``.

        Args:
            op: a method of ``ctx.ops`` with one result.
            operands: flow values, tensors, numbers, or sequences of these.
            spec: what the result must be; as it comes where None.
            attributes: of the op.

        Raises:
            OpError: there is no such op, it has several results, or another spec; or the op's own contract is broken.
        """
        found = self.several(op, *operands, **attributes)
        if len(found) != 1:
            raise OpError(f"emit {op!r} at {self._where()}: it has {len(found)} results: call emit.several")
        if spec is not None and found[0].spec != spec:
            raise OpError(f"emit {op!r} at {self._where()}: expected {spec!r}; found {found[0].spec!r}")
        return found[0]

    def several(self, op: str, *operands: Any, **attributes: Any) -> tuple[FlowValue, ...]:
        """The same for ops of any number of results."""
        if op not in _NAMES:
            raise OpError(f"emit {op!r} at {self._where()}: there is no such op{near_names(op, _NAMES)}")
        plain = {name: _plain(value) for name, value in attributes.items()}
        results = getattr(self._ctx.ops, op)(*map(_plain, operands), **plain)
        return tuple(map(FlowValue.of, (results,) if isinstance(results, Tensor) else results))

    def _where(self) -> str:
        return self._ctx.module_path or "the root"


def _plain(value: Any) -> Any:
    if isinstance(value, FlowValue):
        return value.tensor
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
