"""The ops of a JAX context: those of the table, which also take JAX arrays as tensors."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import jax

from lang_core import Op, Ops, Tensor


class _Context(Protocol):
    """Part of a JAX context that its ops call."""

    def tensor(self, value: Any) -> Tensor:
        """Returns a value as a tensor."""
        ...

    def counted_loop(
        self, stop: int, body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs a loop of known length."""
        ...

    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs a loop that data ends."""
        ...

    def bounded_loop(
        self,
        most: int,
        cond: Callable[..., Tensor],
        body: Callable[..., Sequence[Tensor]],
        init: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Runs a loop that data ends after a known number of rounds at most."""
        ...


class JaxOps(Ops):
    """All ops, as methods. Numbers take the dtype of arrays of JAX beside them too, and counted loops are scans."""

    __slots__ = ()

    def fori_loop(self, stop: int, body: Callable[..., Sequence[Tensor]], init: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs ``body(i, *values)`` for the i32 i = 0 .. stop - 1; reverse mode goes through it."""
        return self._context.counted_loop(stop, body, tuple(init))

    def while_loop(
        self,
        cond: Callable[..., Tensor],
        body: Callable[..., Sequence[Tensor]],
        init: Sequence[Tensor],
        most: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Runs a loop; reverse mode goes through it if ``most``, which its rounds cannot exceed, is given."""
        if most is None:
            return self._context.while_loop(cond, body, tuple(init))
        return self._context.bounded_loop(most, cond, body, tuple(init))

    @property
    def _context(self) -> _Context:
        return cast(_Context, self._ctx)

    def _lifted(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self._context.tensor(value) if isinstance(value, jax.Array) else value for value in values)

    def _tensors(self, op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        return super()._tensors(op, self._lifted(operands))

    def _starts(self, starts: Sequence[Any]) -> tuple[Any, ...]:
        return super()._starts(self._lifted(starts))
