"""weights.irpa: the index, and reads of every parameter."""

import struct
from pathlib import Path
from random import Random

import numpy as np

from run_iree.archive import ArchiveWeights, write_archive
from run_iree.archive._archive_testing import ARRAYS, Arrays, same
from tests.fuzz._files import written
from tests.fuzz._target import Target

_NUMBERS = (0, 1, 2, 3, 31, 32, 33, 64, 95, 96, 97, 4096, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)


def _archive(arrays: dict[str, np.ndarray]) -> bytes:
    path = Path.cwd() / "seed.irpa"
    write_archive(path, same(arrays), Arrays(arrays))
    return path.read_bytes()


def _seeds() -> list[bytes]:
    return [_archive(ARRAYS), _archive({"w": ARRAYS["w"]})]


def _mutate(data: bytes, draw: Random) -> bytes:
    """Changes numbers of the header and of the table, which come first."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        if len(changed) < 16:
            break
        place = draw.randrange(min(len(changed), 700) - 8) // 4 * 4
        (value,) = struct.unpack_from("<Q", changed, place)
        other = struct.unpack_from("<Q", changed, draw.randrange(min(len(changed), 700) - 8) // 8 * 8)[0]
        struct.pack_into("<Q", changed, place, draw.choice((*_NUMBERS, value + 1, value - 1, value * 2, other)) % 2**64)
    return bytes(changed)


def _run(data: bytes) -> bool:
    with ArchiveWeights(written("weights.irpa", data)) as weights:
        for key in [*weights.keys()]:
            spec = weights.spec(key)
            array = weights.read(key)
            if array.shape != spec.shape:
                raise AssertionError(f"{key}: read {array.shape}, expected {spec.shape}")
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
