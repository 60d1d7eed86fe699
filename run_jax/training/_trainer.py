"""A step: loss, gradients and update, on a mesh of devices."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lang_core import ConfigError
from run_jax.training._mesh import TrainingMesh
from run_jax.training._optimizer import OptimizerOptions, adamw

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


class TrainingState(NamedTuple):
    """State that a step updates; it is donated to the step.

    Attributes:
        trainable: parameters that are trained, f32, by path.
        optimizer: optax's state, with moments in f32 and the number of steps.
    """

    trainable: dict[str, jax.Array]
    optimizer: Any


class Trainer:
    """Training of an objective with AdamW, one compiled step at a time.

    Args:
        objective: pure function ``(trainable, frozen, *batch)`` of dicts of arrays by path and of a batch [B, ..] to
            its loss, rank 0. Losses of batches are added up, so that weights in the batch make a mean of them.
        options: settings of AdamW.
        mesh: devices; one if None.
    """

    def __init__(
        self, objective: Callable[..., jax.Array], options: OptimizerOptions, mesh: TrainingMesh | None = None
    ) -> None:
        self._optimizer: Final = adamw(options)
        self.mesh: Final = mesh or TrainingMesh()
        self._slopes: Final = BatchSlopes(objective, self.mesh)
        self._compiled: Any = None

    def start(self, trainable: Mapping[str, np.ndarray]) -> TrainingState:
        """Returns the state before the first step; the parameters, of any shapes, become f32."""
        place = self.mesh
        arrays = {
            path: place.place(np.asarray(array, np.float32), place.parameter(path, array.shape))
            for path, array in trainable.items()
        }
        shardings = self._shardings(arrays)
        return TrainingState(arrays, jax.jit(self._optimizer.init, out_shardings=shardings.optimizer)(arrays))

    def freeze(self, parameters: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Returns parameters that are not trained, each in its own shape and dtype, on the devices."""
        place = self.mesh
        return {path: place.place(array, place.parameter(path, array.shape)) for path, array in parameters.items()}

    def collect(self, state: TrainingState) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Yields the trained parameters, f32 in their whole shapes, one at a time; every process takes part."""
        whole = jax.jit(lambda array: array, out_shardings=self.mesh.replicated())
        for path, array in state.trainable.items():
            yield path, np.asarray(whole(array).addressable_data(0))

    def step(self, state: TrainingState, frozen: Arrays, *batch: np.ndarray) -> tuple[TrainingState, float]:
        """Runs a step.

        Args:
            state: state, which is dead afterwards.
            frozen: parameters that are not trained.
            batch: arrays [A, B, ..] with A batches; their gradients are accumulated one after the other. Every process
                gives all rows, and computes its own.

        Returns:
            The new state, and the loss before the step.

        Raises:
            ConfigError: the mesh does not divide the rows.
        """
        rows = batch[0].shape[1]
        if rows % self.mesh.rows:
            raise ConfigError(
                f"batch={rows}: the mesh {self.mesh.shape} cuts a batch into {self.mesh.rows} parts: give a multiple"
            )
        loss, gradients = self._slopes(state.trainable, frozen, batch)
        if self._compiled is None:
            shardings = self._shardings(state.trainable)
            self._compiled = jax.jit(self._update, donate_argnums=0, out_shardings=shardings)
        return self._compiled(state, gradients), float(loss)

    def _update(self, state: TrainingState, gradients: Arrays) -> TrainingState:
        updates, optimizer = self._optimizer.update(dict(gradients), state.optimizer, state.trainable)
        trainable: Any = optax.apply_updates(state.trainable, updates)
        return TrainingState(trainable, optimizer)

    def _shardings(self, trainable: Arrays) -> TrainingState:
        """Returns the sharding of each array of the state: moments lie as their parameters."""
        of = {path: self.mesh.parameter(path, array.shape) for path, array in trainable.items()}
        shapes = jax.eval_shape(self._optimizer.init, dict(trainable))
        optimizer = optax.tree_utils.tree_map_params(
            self._optimizer, lambda _, sharding: sharding, shapes, of,
            transform_non_params=lambda _: self.mesh.replicated(),
        )  # fmt: skip
        return TrainingState(cast(Any, of), optimizer)
