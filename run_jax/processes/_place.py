"""Place of a process in a run: its rank, and where rank 0 is met."""

from typing import Final, NamedTuple

from jax._src import clusters  # how JAX finds its processes has no public name

from lang_core import InputError

_ADVICE: Final = "give `processes` for processes on this machine, or `coordinator`, `num_processes` and `process_id`"


class Place(NamedTuple):
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
) -> Place:
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
    return _checked(Place(coordinator, processes, rank))


def _checked(place: Place) -> Place:
    host, colon, port = place.coordinator.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"coordinator={place.coordinator}: expected HOST:PORT, such as node0:9000")
    if place.processes < 1:
        raise InputError(f"num_processes={place.processes}: expected 1 or more")
    if not 0 <= place.rank < place.processes:
        raise InputError(f"process_id={place.rank}: expected 0 to {place.processes - 1} of {place.processes} processes")
    return place


def _detected(timeout: float) -> Place:
    try:
        address, processes, rank, devices = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, int(timeout)
        )
    except (KeyError, ValueError, RuntimeError, OSError) as error:
        raise InputError(f"JAX finds a cluster, and not this process's place in it ({error!r}): {_ADVICE}") from None
    if address is None or processes is None or rank is None:
        raise InputError(f"no cluster found (JAX knows SLURM, Open MPI, Kubernetes and Cloud TPU): {_ADVICE}")
    return Place(address, processes, rank, None if devices is None else tuple(devices))
