"""Loops and branches, as JAX's own. The functions may use tensors from around them."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lang_core import OPS, Tensor, TensorSpec
from lang_core import bool_ as boolean
from run_jax._tensor import JaxTensor, is_traced, tensor_of

Lift = Callable[[Any], JaxTensor]

_PROCEEDS: Final = (TensorSpec((), boolean),)


class _Results(NamedTuple):
    """Specs that a function returned: enough of a region for the op's shape rule."""

    result_specs: tuple[TensorSpec, ...]

    def __repr__(self) -> str:
        return f"function -> {list(self.result_specs)}"


def loop(
    lift: Lift, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[JaxTensor, ...]
) -> tuple[JaxTensor, ...]:
    """Runs a loop with a data-dependent end.

    Args:
        lift: function that makes tensors from the results of ``cond`` and ``body``.
        cond: function from the values to a rank-0 bool.
        body: function from the values to new ones.
        init: first values.

    Raises:
        OpError: ``cond`` or ``body`` returns other specs than the op's contract wants.
    """
    proceeds, advance = _regions(lift, cond, body, _specs(init))
    return tuple(map(tensor_of, lax.while_loop(proceeds, advance, _data(init))))


def bounded_loop(
    lift: Lift,
    most: int,
    cond: Callable[..., Tensor],
    body: Callable[..., Sequence[Tensor]],
    init: tuple[JaxTensor, ...],
) -> tuple[JaxTensor, ...]:
    """Runs a loop with a data-dependent end, of at most ``most`` rounds.

    A scan of ``most`` rounds, of which those after the end do nothing. Reverse mode keeps the inputs of a round and
    computes the round again.

    Raises:
        OpError: as for ``loop``.
    """
    proceeds, advance = _regions(lift, cond, body, _specs(init))

    @jax.checkpoint
    def one_round(arrays: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        return lax.cond(proceeds(arrays), advance, lambda same: same, arrays), None

    arrays, _ = lax.scan(one_round, _data(init), None, length=most)
    return tuple(map(tensor_of, arrays))


def _regions(
    lift: Lift, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], specs: tuple[TensorSpec, ...]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns a loop's condition and body as functions of a tuple of arrays, which check the op's contract."""

    def proceeds(arrays: tuple[Any, ...]) -> Any:
        result = lift(cond(*map(tensor_of, arrays)))
        OPS["while"].infer_afresh(specs, (_Results((result.spec,)), _Results(specs), len(specs)))
        return result.data

    def advance(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return _advanced(lift, body, tuple(map(tensor_of, arrays)), specs)

    return proceeds, advance


def counted_loop(
    lift: Lift, stop: int, body: Callable[..., Sequence[Tensor]], init: tuple[JaxTensor, ...]
) -> tuple[JaxTensor, ...]:
    """Runs ``body(i, *values)`` for the i32 i = 0 .. stop - 1.

    Raises:
        OpError: ``body`` returns other specs than the values'.
    """
    specs = _specs(init)

    def advance(arrays: tuple[Any, ...], i: Any) -> tuple[tuple[Any, ...], None]:
        return _advanced(lift, lambda *v: body(tensor_of(i), *v), tuple(map(tensor_of, arrays)), specs), None

    arrays, _ = lax.scan(advance, _data(init), np.arange(max(stop, 0), dtype=np.int32))
    return tuple(map(tensor_of, arrays))


def branch(
    lift: Lift,
    pred: JaxTensor,
    on_true: Callable[..., Sequence[Tensor]],
    on_false: Callable[..., Sequence[Tensor]],
    operands: tuple[JaxTensor, ...],
) -> tuple[JaxTensor, ...]:
    """Runs one of two functions.

    Raises:
        OpError: ``pred`` is not a rank-0 bool, or the functions return different specs.
    """
    specs = (pred.spec, *_specs(operands))
    seen: list[_Results] = []

    def side(function: Callable[..., Sequence[Tensor]]) -> Callable[..., tuple[Any, ...]]:
        def run(*arrays: Any) -> tuple[Any, ...]:
            results = tuple(map(lift, function(*map(tensor_of, arrays))))
            seen.append(_Results(_specs(results)))
            OPS["cond"].infer_afresh(specs, (seen[0], seen[-1]))
            return tuple(jnp.asarray(tensor.data) for tensor in results)

        return run

    if pred.shape == () and not is_traced(pred.data):  # as the eager context: one branch, at once
        chosen = side(on_true if bool(pred.data) else on_false)
        return tuple(map(tensor_of, chosen(*_data(operands))))
    OPS["cond"].infer_afresh((pred.spec,), (_Results(()), _Results(())))
    return tuple(map(tensor_of, lax.cond(pred.data, side(on_true), side(on_false), *_data(operands))))


def _advanced(
    lift: Lift, body: Callable[..., Sequence[Tensor]], values: tuple[JaxTensor, ...], specs: tuple[TensorSpec, ...]
) -> tuple[Any, ...]:
    after = tuple(map(lift, body(*values)))
    OPS["while"].infer_afresh(specs, (_Results(_PROCEEDS), _Results(_specs(after)), len(specs)))
    return tuple(jnp.asarray(tensor.data) for tensor in after)


def _specs(tensors: Sequence[JaxTensor]) -> tuple[TensorSpec, ...]:
    return tuple(tensor.spec for tensor in tensors)


def _data(tensors: Sequence[JaxTensor]) -> tuple[Any, ...]:
    return tuple(jnp.asarray(tensor.data) for tensor in tensors)
