"""Place of a process in a run: its rank, and the address of rank 0."""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from jax._src import clusters  # how JAX finds its processes has no public name

from lang_core import InputError

_ADVICE: Final = "give `processes` for processes on this machine, or `coordinator`, `num_processes` and `process_id`"
_SAID_TO_JAX: Final = "JAX_LOCAL_DEVICE_IDS"
_CARDS: Final = "CUDA_VISIBLE_DEVICES"
_LOCAL: Final = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)
"""Variables with the number of processes, that of this one, and its number on this machine."""


class RankPlacement(NamedTuple):
    """Place of a process in a run of several.

    Attributes:
        coordinator: ``HOST:PORT`` at which rank 0 meets the others.
        processes: number of ranks.
        rank: number of this process, from 0.
        local_device_ids: devices of this machine that the process is to see; None for all.
    """

    coordinator: str
    processes: int
    rank: int
    local_device_ids: tuple[int, ...] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which rank 0 meets the others."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


def place_of(
    coordinator: str | None = None, processes: int | None = None, rank: int | None = None, *, timeout: float = 60
) -> RankPlacement:
    """Returns the place that is given, or else that which JAX finds: SLURM, Open MPI, Kubernetes, Cloud TPU.

    Args:
        coordinator: ``HOST:PORT`` of rank 0.
        processes: number of ranks.
        rank: number of this process.
        timeout: seconds that finding may take.

    Raises:
        InputError: something is missing or contradicts itself, and JAX finds none.
    """
    given = {"coordinator": coordinator, "num_processes": processes, "process_id": rank}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise InputError(f"{', '.join(f'`{name}`' for name in missing)}: not given; they go together: give all three")
    if coordinator is None or processes is None or rank is None:
        return _checked(_detected(timeout))
    return _checked(RankPlacement(coordinator, processes, rank, _own_devices(_local_rank(processes, rank))))


def _checked(place: RankPlacement) -> RankPlacement:
    host, colon, port = place.coordinator.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"coordinator={place.coordinator}: expected HOST:PORT, such as node0:9000")
    if place.processes < 1:
        raise InputError(f"num_processes={place.processes}: expected 1 or more")
    if not 0 <= place.rank < place.processes:
        raise InputError(f"process_id={place.rank}: expected 0 to {place.processes - 1} of {place.processes} processes")
    return place


def _detected(timeout: float) -> RankPlacement:
    try:
        address, processes, rank, devices = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, int(timeout)
        )
    except Exception as error:  # noqa: BLE001 - the client of a cluster raises errors of its own
        raise InputError(f"JAX finds a cluster, and not this process's place in it ({error!r}): {_ADVICE}") from None
    if address is None or processes is None or rank is None:
        raise InputError(f"no cluster found (JAX knows SLURM, Open MPI 4, Kubernetes and Cloud TPU): {_ADVICE}")
    return RankPlacement(address, processes, rank, _own_devices(devices))


def _local_rank(processes: int, rank: int) -> Sequence[int] | None:
    """Returns the number on this machine of a rank that SLURM or Open MPI has started; None if neither has."""
    for size, number, local in _LOCAL:
        if (os.environ.get(size), os.environ.get(number)) == (str(processes), str(rank)) and local in os.environ:
            return [int(os.environ[local])]
    return None


def _own_devices(local_rank: Sequence[int] | None) -> tuple[int, ...] | None:
    """Returns the devices of a rank by its number on the machine: the only one if the cluster shows it no other."""
    if local_rank is None or _SAID_TO_JAX in os.environ:
        return None
    cards = os.environ.get(_CARDS, "")
    return (0,) if cards and "," not in cards else tuple(local_rank)
