"""Process of a launch: rank 0 runs the command, the others follow its calls."""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lang_core import MeshShape, ProcessError
from run_jax.processes import Leader, Meeting, connect_devices, exit_for, follow, join, lead, leading, leave, place_of
from tapeline.backends import Place, open_on_rank
from tapeline.bundle import VERIFY, Bundle
from tapeline.cli import VERSION, say_error, whole_file
from tapeline.command._program import load_command, run_command
from tapeline.launching import TOKEN, guard_rank, stdout_is_ours

_LEFT_TO_RANK_0: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_rank(
    place: tuple[str | None, int | None, int | None],
    timeout: float,
    name: str,
    arguments: Sequence[str],
    figures: Path | None = None,
) -> int:
    """Runs a command as one of several processes and returns its exit code.

    Args:
        place: coordinator, number of processes and rank; all None if JAX is to find them.
        timeout: seconds to wait for the other ranks.
        name: the command.
        arguments: its flags.
        figures: file that rank 0 writes with the figures of all ranks.

    Raises:
        InputError: see ``join``.
        ProcessError: see ``join``; or another rank has ended.
    """
    guard_rank()
    secret = os.environ.get(TOKEN, "").encode()
    spot = place_of(*place, timeout=timeout)
    stdout_is_ours(wanted=spot.rank == 0)
    meeting = join(spot, {"tapeline": VERSION, "flags": [name, *arguments]}, secret=secret, timeout=timeout)
    if getattr(load_command(name), "EVERY_RANK", False):
        return _run_alike(meeting, name, arguments)
    if spot.rank == 0:
        return _run_leading(meeting, name, arguments, figures)
    return _run_following(meeting)


def _run_leading(meeting: Meeting, name: str, arguments: Sequence[str], figures: Path | None) -> int:
    leader = Leader(meeting, _open)
    lead(leader)
    code = run_command(name, arguments)
    ranks = leader.end()
    leave()
    if figures is not None:
        with whole_file(figures) as file:
            file.write(f"{json.dumps({'ranks': ranks}, indent=2)}\n".encode())
    return code


def _run_following(meeting: Meeting) -> int:
    for number in _LEFT_TO_RANK_0:
        signal.signal(number, signal.SIG_IGN)
    try:
        follow(meeting, _open)
    except ProcessError as error:
        _end_at_once(str(error), 1)
    leave()
    return 0


def _run_alike(meeting: Meeting, name: str, arguments: Sequence[str]) -> int:
    """Runs the command, which computes the same on every rank; the end of one is noticed by all."""
    leader = Leader(meeting, _open) if meeting.place.rank == 0 else None
    if leader is None:
        threading.Thread(target=_watch, args=(meeting,), name="rank 0", daemon=True).start()
    connect_devices()
    code = run_command(name, arguments)
    if code:
        _end_at_once("", code)  # the others may wait for this rank for ever
    leave()  # all ranks have come here
    if leader is not None:
        leader.end()
    return code


def _watch(meeting: Meeting) -> None:
    try:
        follow(meeting, _open)
    except ProcessError as error:
        exit_for(str(error))


def _end_at_once(error: str, code: int) -> None:
    """Ends the process without taking leave of ranks that are gone."""
    if error:
        say_error(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _open(arguments: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Opens a bundle on this rank; returns the session, and the hashes of its files."""
    connect_devices()  # before anything that may fail on one rank, for which the others would wait
    bundle = Bundle(Path(arguments["bundle"]))
    mesh = None if arguments["mesh"] is None else MeshShape.parse(arguments["mesh"])
    checkpoint = None if arguments["checkpoint"] is None else Path(arguments["checkpoint"])
    # Rank 0 says what the background finds; the files of another rank are compared before it takes part.
    verify = "full" if arguments["verify"] == VERIFY[0] and not leading() else arguments["verify"]
    bundle.checks.check(verify)
    session = open_on_rank(bundle, Place("jax", arguments["device"], mesh, checkpoint, verify))
    return session, {f"sha256 of {name} of {bundle.path}": value for name, value in bundle.config.sha256.items()}
