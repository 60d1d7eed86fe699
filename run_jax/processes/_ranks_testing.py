"""Ranks as threads of one process, and a session that only counts."""

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lang_core import DeviceError
from run_jax.processes._channel import Channel
from run_jax.processes._follower import follow
from run_jax.processes._leader import Leader, Opener
from run_jax.processes._meeting import Meeting
from run_jax.processes._place import RankPlacement


class CountingSession:
    """Session that keeps arrays, and a diary of what is done with it."""

    def __init__(self, diary: list[str]) -> None:
        self.diary: Final = diary
        self.device: Final = "counting"

    def upload(self, array: np.ndarray) -> "CountingTensor":
        return CountingTensor(self.diary, array.copy())

    def hold(self, tensors: Sequence["CountingTensor"]) -> "CountingHeld":
        return CountingHeld(self.diary, [tensor.array for tensor in tensors])

    def updating(self, name: str, first: int | None = None) -> Callable[..., "tuple[CountingTensor, ...]"]:
        def call(held: "CountingHeld", *values: Any) -> tuple[CountingTensor, ...]:
            if name == "refuses":
                raise DeviceError("'refuses' takes nothing")
            held.arrays = [array + sum(float(np.sum(value)) for value in values) for array in held.arrays]
            self.diary.append(f"{name} {first} {[float(array.sum()) for array in held.arrays]}")
            return tuple(CountingTensor(self.diary, array) for array in held.arrays)

        return call

    def close(self) -> None:
        self.diary.append("close")


class CountingTensor:
    """Tensor of a counting session."""

    def __init__(self, diary: list[str], array: np.ndarray) -> None:
        self.diary: Final = diary
        self.array: Final = array

    def numpy(self) -> np.ndarray:
        self.diary.append(f"numpy {self.array.tolist()}")
        return self.array.copy()


class CountingHeld:
    """Tensors that calls change."""

    def __init__(self, diary: list[str], arrays: list[np.ndarray]) -> None:
        self.diary: Final = diary
        self.arrays = arrays

    def read(self, index: int, part: tuple[slice | int, ...]) -> np.ndarray:
        return self.arrays[index][part].copy()

    def write(self, index: int, part: tuple[slice | int, ...], values: np.ndarray) -> None:
        self.arrays[index][part] = values
        self.diary.append(f"write {index} {self.arrays[index].tolist()}")

    def replace(self, tensors: Mapping[int, CountingTensor]) -> None:
        for index, tensor in tensors.items():
            self.arrays[index] = tensor.array


class Ranks:
    """Rank 0 in this thread, others in threads of their own.

    Args:
        openers: opener of each rank.

    Attributes:
        leader: rank 0.
        losses: what rank 0 said when it was to end.
        errors: what the others raised, by rank.
        channels: the others' ends of the connections, by rank.
    """

    def __init__(self, openers: Sequence[Opener]) -> None:
        pairs = {rank: socket.socketpair() for rank in range(1, len(openers))}
        place = RankPlacement("localhost:1", len(openers), 0)
        self.losses: Final[list[str]] = []
        self.errors: Final[dict[int, str]] = {}
        self.lost: Final = threading.Event()
        self.channels: Final = {rank: Channel(pair[1]) for rank, pair in pairs.items()}
        self._threads: Final = [
            threading.Thread(target=self._follow, args=(place._replace(rank=rank), openers[rank]), daemon=True)
            for rank in self.channels
        ]
        for thread in self._threads:
            thread.start()
        self._ours: Final = {rank: Channel(pair[0]) for rank, pair in pairs.items()}
        self.leader: Final = Leader(Meeting(place, self._ours, ""), openers[0], self._lose)

    def _follow(self, place: RankPlacement, opener: Opener) -> None:
        try:
            follow(Meeting(place, {0: self.channels[place.rank]}, ""), opener, lambda text: None)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.errors[place.rank] = str(error)

    def _lose(self, text: str) -> None:
        self.losses.append(text)
        self.lost.set()

    def join(self) -> None:
        """Waits for the other ranks' ends."""
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        for channel in (*self._ours.values(), *self.channels.values()):
            channel.close()
