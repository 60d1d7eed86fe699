"""Rank 0 of this process, for those that open sessions."""

from run_jax.processes._leader import Leader

_LEADERS: list[Leader] = []


def lead(leader: Leader) -> None:
    """Makes this process rank 0: sessions are opened on all ranks from now on."""
    _LEADERS.append(leader)


def leading() -> Leader | None:
    """Returns rank 0; None if this process is none."""
    return _LEADERS[-1] if _LEADERS else None
