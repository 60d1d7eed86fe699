"""Models as functions of JAX: parameters and arrays in, arrays out."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lang_core import EagerExecutionContext, Module, TensorSpec, WeightSource
from run_jax._context import JaxExecutionContext, require_width
from run_jax._tensor import JaxTensor

Sharding = Any


def jax_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``fn(ctx, *arguments)`` as a function of JAX, ``function(parameters, *arguments)``.

    It is pure: ``jax.jit``, ``grad`` with respect to the parameters or the arguments, ``vmap`` and ``shard_map`` apply.

    Args:
        fn: module, entry point, or function of a context and tensors.

    Returns:
        A function of a dict of arrays by parameter path (``parameter_arrays``), and of ``fn``'s arguments with arrays
        for tensors. It returns the results of ``fn``, with arrays for tensors.

    >>> import jax
    >>> square = jax_function(lambda ctx, x: ctx.ops.mul(x, x))
    >>> float(jax.grad(square, argnums=1)({}, 3.0))
    6.0
    """

    def function(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        ctx = JaxExecutionContext(parameters)
        args, kwargs = jax.tree.map(lambda leaf: ctx.tensor(leaf) if _is_array(leaf) else leaf, (args, kwargs))
        return arrays_of(fn(ctx, *args, **kwargs))

    return function


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def arrays_of(tree: Any) -> Any:
    """Returns a tree with arrays of JAX in place of its tensors."""
    return jax.tree.map(
        lambda leaf: leaf.data if isinstance(leaf, JaxTensor) else leaf, tree, is_leaf=lambda x: type(x) is JaxTensor
    )


def parameter_arrays(
    module: Module,
    weights: WeightSource,
    sharding: Callable[[str, TensorSpec], Sharding | None] | None = None,
) -> dict[str, jax.Array]:
    """Reads a module's weights as arrays of JAX of their shapes: a pytree to differentiate, update and shard.

    Args:
        module: module with the parameters to read, each in its own dtype; packed ones as their bytes.
        weights: source of the parameters, read one at a time.
        sharding: function from a path and its spec to the array's sharding; JAX's default device if it is left out
            or gives None.

    Raises:
        CheckpointError: a weight is missing, or has another shape.
        OpError: a dtype has 64 bits, and JAX's are off.
    """
    ctx = EagerExecutionContext(weights)
    arrays: dict[str, jax.Array] = {}
    for path, parameter in module.named_parameters():
        require_width(parameter.stored_spec.dtype)
        place = None if sharding is None else sharding(path, parameter.stored_spec)
        arrays[path] = jax.device_put(np.array(ctx.parameter(parameter).data), place)
    return arrays
