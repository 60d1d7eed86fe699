"""Environment of a rank that is started, and the bond with its launcher."""

import contextlib
import ctypes
import itertools
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

TOKEN: Final = "TAPELINE_LAUNCH_TOKEN"
"""Environment variable with the secret of the run."""

PIPE: Final = "TAPELINE_LAUNCH_PIPE"
"""Environment variable with the number of a pipe that nobody writes; it ends when the program does that holds it."""

_LOCAL_DEVICES: Final = "JAX_LOCAL_DEVICE_IDS"
_DEVICE_COUNT: Final = re.compile(r"--xla_force_host_platform_device_count=\S*")
_PR_SET_PDEATHSIG: Final = 1


def environment_of(
    rank: int, processes: int, given: Mapping[str, str], token: str, graphics_cards: int
) -> dict[str, str]:
    """Returns the environment of a rank: that of its launcher, with one device of its own.

    Args:
        rank: number of the rank.
        processes: number of ranks.
        given: the launcher's environment.
        token: secret of the run.
        graphics_cards: number of such in this machine; a rank has one of its own if there are enough.
    """
    environment = {**given, TOKEN: token, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    flags = _DEVICE_COUNT.sub("", given.get("XLA_FLAGS", "")).strip()
    if flags != given.get("XLA_FLAGS", ""):
        environment["XLA_FLAGS"] = flags
    if graphics_cards >= processes:
        environment.setdefault(_LOCAL_DEVICES, str(rank))
    return environment


def graphics_cards() -> int:
    """Returns the number of NVIDIA's cards that the driver shows."""
    return len([path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal()])


def shares_of(cores: Sequence[int], ranks: int) -> list[set[int]]:
    """Divides cores among ranks, neighbours together; if there are fewer, ranks share one.

    >>> shares_of([0, 1, 2, 3, 4], 2)
    [{0, 1}, {2, 3, 4}]
    >>> shares_of([5, 7], 3)
    [{5}, {5}, {7}]
    """
    ordered = sorted(cores)
    if len(ordered) < ranks:
        return [{ordered[rank * len(ordered) // ranks]} for rank in range(ranks)]
    bounds = [rank * len(ordered) // ranks for rank in range(ranks + 1)]
    return [set(ordered[begin:end]) for begin, end in itertools.pairwise(bounds)]


def guard_rank() -> None:
    """Ends this process with its launcher, even if that is killed; does nothing if nobody launched it."""
    number = os.environ.get(PIPE)
    if number is None:
        return
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(int(number),), name="launcher", daemon=True).start()


def _end_with(pipe: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(pipe, 1):
            pass
    os._exit(1)
