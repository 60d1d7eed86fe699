"""Meeting of all ranks before anything is computed: who is there, and whether all are to do the same."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from lang_core import InputError, ProcessError, TapelineError
from run_jax.processes._channel import Channel
from run_jax.processes._facts import Facts, first_difference
from run_jax.processes._place import RankPlacement

SOCKET: Final = "TAPELINE_LAUNCH_SOCKET"
"""Environment variable with the number of a listening socket that rank 0 has from the program that started it."""

_RETRY: Final = 0.1
_GREETING: Final = 5.0  # seconds that a process has to say who it is
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Meeting:
    """Connections of a rank: rank 0 has one to each other rank, these have one to rank 0.

    Attributes:
        place: place of this process.
        channels: connections by rank.
        service: ``HOST:PORT`` at which JAX's coordination service is to be started by rank 0.
    """

    def __init__(self, place: RankPlacement, channels: Mapping[int, Channel], service: str) -> None:
        self.place: Final = place
        self.channels: Final = channels
        self.service: Final = service


def meet(place: RankPlacement, facts: Facts, secret: bytes, timeout: float) -> Meeting:
    """Waits until all ranks are there and agree.

    Args:
        place: place of this process.
        facts: facts that all ranks must share.
        secret: secret of the run, which all ranks must know.
        timeout: seconds to wait for the others.

    Raises:
        InputError: two ranks differ in a fact; or nobody answers at the coordinator's address.
        ProcessError: some ranks have not come.
    """
    if place.rank == 0:
        return _receive_all(place, facts, secret, timeout)
    return _go_to_coordinator(place, facts, secret, timeout)


def _receive_all(place: RankPlacement, facts: Facts, secret: bytes, timeout: float) -> Meeting:
    channels: dict[int, Channel] = {}
    others: dict[int, Facts] = {0: facts}
    try:
        with _listening(place) as server:
            _admit(server, place, secret, (channels, others), time.monotonic() + timeout)
        host = place.address[0]
        service = f"{f'[{host}]' if ':' in host else host}:{_free_port(host)}"
        trouble = _disagreement(others)
        if trouble is not None:
            raise InputError(trouble)
    except TapelineError as error:
        _tell_all(channels, {"refused": str(error)})
        for channel in channels.values():
            channel.close()
        raise
    _tell_all(channels, {"service": service})
    return Meeting(place, dict(sorted(channels.items())), service)


def _admit(
    server: socket.socket,
    place: RankPlacement,
    secret: bytes,
    known: tuple[dict[int, Channel], dict[int, Facts]],
    deadline: float,
) -> None:
    """Accepts ranks until all are there."""
    channels, facts = known
    while len(channels) < place.processes - 1:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            absent = [str(rank) for rank in range(1, place.processes) if rank not in channels]
            raise ProcessError(
                f"rank {', '.join(absent)} of {place.processes} not found at {place.coordinator} in time: see the "
                f"output of the process, start all ranks at the same time, or wait longer with a larger `timeout`"
            ) from None
        rank, greeted, channel = _greeted(connection, secret)
        if rank is None:
            channel.close()  # it was no rank of this run
        elif rank in facts or not 0 < rank < place.processes:
            channel.send_last({"refused": f"process_id={rank}: there is such a rank already, or none of this number"})
            channel.close()
        else:
            channels[rank], facts[rank] = channel, greeted


def _greeted(connection: socket.socket, secret: bytes) -> tuple[int | None, Facts, Channel]:
    """Hears who a process is; its rank is None if it does not know the secret, or says something else."""
    channel = Channel(connection)
    with contextlib.suppress(OSError, EOFError, ProcessError, ValueError, KeyError, TypeError):
        channel.wait_at_most(_GREETING)
        channel.prove(secret, answers=True)
        greeting = channel.receive()
        channel.wait_at_most(None)
        return int(greeting["rank"]), _listed(greeting["facts"]), channel
    return None, {}, channel


def _go_to_coordinator(place: RankPlacement, facts: Facts, secret: bytes, timeout: float) -> Meeting:
    deadline = time.monotonic() + timeout
    channel = Channel(_connected(place, deadline, timeout))
    try:
        channel.wait_at_most(max(deadline - time.monotonic(), _GREETING))
        channel.prove(secret, answers=False)
        channel.send({"rank": place.rank, "facts": facts})
        channel.wait_at_most(timeout + _GREETING)  # rank 0 waits for all
        answer = channel.receive()
        channel.wait_at_most(None)
    except ProcessError:
        channel.close()
        raise
    except (OSError, EOFError) as error:
        channel.close()
        raise ProcessError(
            f"coordinator={place.coordinator}: rank 0 has not let rank {place.rank} in ({error or type(error).__name__}"
            f"): see the output of rank 0"
        ) from None
    if "refused" in answer:
        channel.close()
        raise InputError(answer["refused"])
    return Meeting(place, {0: channel}, answer["service"])


def _connected(place: RankPlacement, deadline: float, timeout: float) -> socket.socket:
    """Connects to rank 0, which may not have begun yet."""
    while True:
        try:
            connection = socket.create_connection(place.address, max(deadline - time.monotonic(), _RETRY))
            connection.settimeout(None)
            return connection
        except OSError as error:
            if time.monotonic() + _RETRY > deadline:
                raise InputError(
                    f"coordinator={place.coordinator}: nobody answers there ({error.strerror or error}) within "
                    f"{timeout:g} s: rank 0 has to run on that host, the port has to be open to this machine, and all "
                    f"ranks have to start at the same time"
                ) from None
            time.sleep(_RETRY)


@contextlib.contextmanager
def _listening(place: RankPlacement):
    inherited = os.environ.get(SOCKET)
    try:
        if inherited is not None:
            server = socket.socket(fileno=int(inherited))
        else:
            server = _server(*place.address, backlog=place.processes)
    except OSError as error:
        raise InputError(
            f"coordinator={place.coordinator}: rank 0 cannot listen there ({error.strerror or error}): choose a free "
            f"port of its machine"
        ) from None
    with server:
        yield server


def _free_port(host: str) -> int:
    with _server(host, 0) as server:
        return server.getsockname()[1]


def _server(host: str, port: int, backlog: int = 1) -> socket.socket:
    """Listens at the addresses of the host: on this machine only, or on each of its addresses of that kind."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host if host in _LOOPBACK else "", port), family=family, backlog=backlog)


def _disagreement(facts: Mapping[int, Facts]) -> str | None:
    """Returns the facts that differ from rank 0's, with the fix."""
    for rank in sorted(facts):
        difference = first_difference(0, facts[0], rank, facts[rank])
        if difference is not None:
            return f"ranks disagree: {difference}: start all ranks alike"
    return None


def _listed(facts: Facts) -> Facts:
    """Returns facts as they were before they were sent: with lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}


def _tell_all(channels: Mapping[int, Channel], message: Mapping[str, str]) -> None:
    for channel in channels.values():
        with contextlib.suppress(OSError):
            channel.send(message)
