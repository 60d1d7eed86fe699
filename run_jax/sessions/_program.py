"""Loaded artifact with its parameters on devices, and everything that a session hands out."""

import itertools
import threading
from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np

from lang_core import CheckpointError, WeightSource, part_of
from run_jax.sessions._artifact import Artifact
from run_jax.sessions._memory import Zeros
from run_jax.sessions._observed import Observer
from run_jax.sessions._partitions import Partitions
from runtime import CallGuard, Counters


class Program:
    """Owner of the parameters and of every array that a session hands out.

    Handles name their array by a key, so that closing frees all memory whatever handles are left.

    Attributes:
        origin: path of the artifact, for messages.
        artifact: the functions.
        observer: receiver of all calls; None if there is none.
        partitions: devices and their shards.
        arrays: live arrays, by the keys of handles.
        held: arrays of held tensors, by their keys.
        counters: calls and bytes copied so far.
        parameter_bytes: bytes of parameters that were read so far, those of this process's devices.
        keys: names of arrays.
        lock: lock held during a call.
        closed: True once ``close`` was called.
    """

    def __init__(
        self,
        artifact: Artifact,
        partitions: Partitions,
        weights: WeightSource | None,
        parameters: Sequence[str],
        observer: Observer | None = None,
        guard: CallGuard | None = None,
    ) -> None:
        """Does not read parameters yet."""
        self.origin: Final = str(artifact.path)
        self.artifact: Final = artifact
        self.observer: Final = observer
        self.partitions: Final = partitions
        self.parameters: Final = tuple(parameters)
        self.arrays: Final[dict[int, jax.Array | Zeros]] = {}
        self.held: Final[dict[int, list[jax.Array | Zeros]]] = {}
        self.counters: Final = Counters()
        self.parameter_bytes = 0
        self.keys: Final = itertools.count()
        self.lock: Final = threading.RLock()
        self.closed = False
        self._weights: Final = weights
        self._guard: Final = guard
        if guard is not None:
            guard.bind(self.lock)
        self._placed: Final[dict[str, jax.Array]] = {}

    def parameter(self, name: str) -> jax.Array:
        """Returns a parameter on the devices; each reads its part when the parameter is first asked for.

        Devices that work in host memory use an aligned part of a mapped archive in place.

        Raises:
            CheckpointError: the source lacks it.
            InputError: the mesh does not divide it.
        """
        if name not in self._placed:
            spec = self.source(name).spec(name)
            sharding = self.partitions.parameter(name, spec)
            self._placed[name] = jax.make_array_from_callback(spec.shape, sharding, lambda i: self._read(name, i))
        return self._placed[name]

    def source(self, name: str) -> WeightSource:
        """Returns the source that has a parameter.

        Raises:
            CheckpointError: there is none.
        """
        if self._weights is None:
            raise CheckpointError(
                f"{self.origin}: parameter {name!r} is needed, and there are no weights beside the module: export "
                f"with weights=external"
            )
        return self._weights

    def _read(self, name: str, index: Any) -> np.ndarray:
        part = part_of(self.source(name), name, index)
        self.parameter_bytes += part.nbytes
        return part

    def add(self, array: jax.Array | Zeros) -> int:
        """Takes an array and returns its key; the lock is held."""
        key = next(self.keys)
        self.arrays[key] = array
        return key

    def close(self) -> None:
        """Frees everything, waiting for a call in another thread; closing twice is allowed."""
        with self.lock:
            self.closed = True
            self.held.clear()
            self.arrays.clear()
            self._placed.clear()
        if self._guard is not None:
            self._guard.close()

    def check(self) -> None:
        """Raises an error if the file of the weights is not the one that was loaded; the lock is held."""
        if self._guard is not None:
            self._guard.check()
