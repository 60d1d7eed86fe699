"""Comparison of gradients with jax, and with differences of the eager function, for tests."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from compile_dag import evaluate, record
from compile_dag.gradient import gradient, value_and_gradient
from lang_core import EagerExecutionContext, ExecutionContext, Tensor, TensorSpec, as_dtype

jax.config.update("jax_enable_x64", True)

Array = np.ndarray[Any, Any]
_STEP: Final = 1e-5


def rng(seed: int = 0) -> np.random.Generator:
    """Returns a generator of numbers that are the same in each run."""
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Returns normally distributed numbers of a shape."""
    return rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def weights_for(spec: TensorSpec, seed: int = 7) -> Array:
    """Returns factors for a result, so that each of its elements has another gradient."""
    return normal(*spec.shape, seed=seed).astype(spec.dtype.numpy)


def listed(results: Any) -> list[Any]:
    """Returns a result, or several, as a list."""
    return list(results) if isinstance(results, tuple | list) else [results]


def weighted_loss(fn: Callable[..., Any]) -> Callable[..., Tensor]:
    """Returns a loss that depends on every element of every floating result of ``fn``."""

    def loss(ctx: ExecutionContext, *tensors: Tensor) -> Tensor:
        total: Any = None
        for seed, result in enumerate(listed(fn(ctx, *tensors))):
            if result.dtype.is_floating:
                weights = ctx.ops.constant(weights_for(result.spec, seed))
                part = ctx.ops.sum(ctx.ops.mul(result, weights))
                total = part if total is None else ctx.ops.add(total, part)
        return total

    return loss


def gradients(fn: Callable[..., Any], inputs: Sequence[Array]) -> list[Array]:
    """Returns the gradients of the weighted loss by ``gradient``, and checks that ``value_and_gradient`` agrees."""
    floating = [i for i, x in enumerate(inputs) if as_dtype(x.dtype).is_floating]
    loss = weighted_loss(fn)
    specs = [TensorSpec(x.shape, as_dtype(x.dtype)) for x in inputs]
    names = [f"x{i}" for i in range(len(inputs))]
    graph = gradient(record(loss, *specs, input_names=names, name="loss"), "result", [names[i] for i in floating])
    ctx = EagerExecutionContext()
    tensors = [ctx.constant(x) for x in inputs]
    outputs = evaluate(graph, ctx, dict(zip(names, tensors, strict=True)))
    first = [outputs[f"gradient.{names[i]}"].numpy() for i in floating]
    _, second = value_and_gradient(loss, wrt=floating)(ctx, *tensors)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b.numpy())
    for i, a in zip(floating, first, strict=True):
        assert (a.shape, a.dtype) == (inputs[i].shape, inputs[i].dtype)
    return first


def jax_gradients(reference: Callable[..., Any], inputs: Sequence[Array]) -> list[Array]:
    """Returns the gradients of the weighted loss by jax.grad."""
    floating = [i for i, x in enumerate(inputs) if as_dtype(x.dtype).is_floating]

    def loss(*arrays: Any) -> Any:
        total: Any = 0.0
        for seed, result in enumerate(listed(reference(*arrays))):
            if jnp.issubdtype(result.dtype, jnp.floating):
                spec = TensorSpec(tuple(result.shape), as_dtype(np.dtype(result.dtype)))
                total = total + jnp.sum(result * weights_for(spec, seed))
        return total

    slope = jax.jit(jax.grad(loss, argnums=tuple(floating)))
    return [np.asarray(array) for array in slope(*map(jnp.asarray, inputs))]


def check(
    fn: Callable[..., Any],
    reference: Callable[..., Any] | None,
    *inputs: Array,
    rtol: float = 1e-9,
    atol: float = 1e-11,
    differences: bool = True,
) -> None:
    """Checks that the gradients of ``fn`` are jax's, and in f64 agree with differences along a random direction."""
    actual = gradients(fn, inputs)
    if reference is not None:
        for mine, theirs in zip(actual, jax_gradients(reference, inputs), strict=True):
            wide = [x.astype(np.float64) for x in (mine, theirs)]
            np.testing.assert_allclose(*wide, rtol=rtol, atol=atol)
    if differences:
        check_differences(fn, inputs, actual)


def check_differences(fn: Callable[..., Any], inputs: Sequence[Array], slopes: Sequence[Array]) -> None:
    """Checks one central difference along a random direction of all floating inputs together."""
    loss = weighted_loss(fn)
    ctx = EagerExecutionContext()
    directions = [normal(*x.shape, seed=11 + i) if x.dtype == np.float64 else None for i, x in enumerate(inputs)]

    def at(step: float) -> float:
        moved = [x if d is None else x + step * d for x, d in zip(inputs, directions, strict=True)]
        return float(loss(ctx, *map(ctx.constant, moved)).numpy())

    wanted = (at(_STEP) - at(-_STEP)) / (2 * _STEP)
    given = [d for d in directions if d is not None]
    slope = sum(float(np.sum(g * d)) for g, d in zip(slopes, given, strict=True))
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-6)
