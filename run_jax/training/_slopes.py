"""Loss and gradients of a step's batches, on a mesh of devices."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from run_jax.training._mesh import TrainingMesh

Arrays = Mapping[str, Any]
Slopes = tuple[jax.Array, dict[str, jax.Array]]
"""A loss, rank 0, and gradients by path; or those of several places, stacked."""


class BatchSlopes:
    """Loss and gradients of an objective, added up over batches and devices.

    If each process has one device, which holds all parameters, it computes the gradients of its own rows by a program
    of one device, and another program adds them up. XLA joins operations of a program for several devices into other
    loops, which round otherwise: so a process has the bits that its rows have in a training of one process.

    Args:
        objective: function of trainable parameters, frozen ones and the rows of a batch to a loss, rank 0.
        mesh: devices.
    """

    def __init__(self, objective: Callable[..., jax.Array], mesh: TrainingMesh) -> None:
        self._objective: Final = objective
        self._mesh: Final = mesh
        self._is_joined: Final = mesh.is_one_per_process and mesh.rows > 1
        self._slopes: Final = jax.jit(self._of_rows)
        self._add: Final = jax.jit(functools.partial(jax.tree.map, jnp.add), donate_argnums=0)
        self._join: Final = jax.jit(functools.partial(jax.tree.map, _sum), out_shardings=mesh.replicated())

    def __call__(self, trainable: Arrays, frozen: Arrays, batches: Sequence[np.ndarray]) -> Slopes:
        """Returns loss and gradients, which lie as their parameters do.

        Args:
            trainable: parameters that are trained.
            frozen: parameters that are not.
            batches: arrays [A, B, ..] of A batches of B rows.
        """
        total = functools.reduce(self._add, self._of_batches((dict(trainable), dict(frozen)), batches))
        return self._join(jax.tree.map(self._mesh.stack, total)) if self._is_joined else total

    def _of_batches(self, parameters: tuple[Arrays, Arrays], batches: Sequence[np.ndarray]) -> Iterator[Any]:
        mesh = self._mesh
        given = jax.tree.map(_own, parameters) if self._is_joined else parameters
        for arrays in zip(*batches, strict=True):
            rows = [mesh.place(array, mesh.batch()) for array in arrays]
            yield self._slopes(*given, *(map(_own, rows) if self._is_joined else rows))

    def _of_rows(self, trainable: Arrays, frozen: Arrays, *rows: jax.Array) -> Any:
        """Returns the results of the rows; with an axis [1, ..] in front if those of several places are stacked."""
        loss, gradients = jax.value_and_grad(self._loss)(trainable, frozen, *rows)
        if self._is_joined:
            return jax.tree.map(lambda array: array[None], (loss, gradients))
        return loss, self._constrained(gradients, self._mesh.parameter)

    def _loss(self, trainable: Arrays, frozen: Arrays, *rows: jax.Array) -> jax.Array:
        """Computes with whole parameters: shards along fsdp are gathered where they are needed."""
        whole = (self._constrained(parameters, self._mesh.gathered) for parameters in (trainable, frozen))
        return self._objective(*whole, *rows)

    def _constrained(self, arrays: Arrays, sharding: Callable[[str, tuple[int, ...]], Any]) -> dict[str, jax.Array]:
        if self._mesh.is_one_per_process:
            return dict(arrays)
        shardings = {path: sharding(path, array.shape) for path, array in arrays.items()}
        return jax.lax.with_sharding_constraint(dict(arrays), shardings)


def _own(array: jax.Array) -> jax.Array:
    """Returns the part of an array that this process's device has."""
    return array.addressable_data(0)


def _sum(stacked: jax.Array) -> jax.Array:
    return stacked.sum(0)
