"""Runs a command in several processes on the JAX backend, one device per process.

launch --processes=N -- generate|chat|run|serve|embed|train FLAGS --backend=jax --mesh=tp=N    N ranks on this machine
srun tapeline launch -- generate FLAGS    one rank of a SLURM, Open MPI or Kubernetes job
launch --coordinator=HOST:PORT --num_processes=N --process_id=I -- generate FLAGS    one rank, by hand

The output is that of rank 0; lines of other ranks are prefixed with their rank. If one rank ends, all end.
"""

import sys
from typing import Final

from absl import flags

from lang_core import InputError, MeshShape, check_extra, load_extra, near_names
from tapeline.cli import output_file, say_error
from tapeline.command._program import COMMANDS, Command, load_command, parse_command
from tapeline.launching import launch

FLAGS: Final = flags.FlagValues()
REST: Final[list[str]] = []

_PROCESSES: Final = flags.DEFINE_integer(
    "processes", None, "Number of processes to start on this machine.", lower_bound=1, flag_values=FLAGS
)
_COORDINATOR: Final = flags.DEFINE_string(
    "coordinator",
    None,
    "Address of rank 0 as HOST:PORT. Default: taken from the cluster's environment.",
    flag_values=FLAGS,
)
_NUM_PROCESSES: Final = flags.DEFINE_integer("num_processes", None, "Total number of processes.", flag_values=FLAGS)
_PROCESS_ID: Final = flags.DEFINE_integer("process_id", None, "Rank of this process, from 0.", flag_values=FLAGS)
_TIMEOUT: Final = flags.DEFINE_float(
    "timeout", 60, "Time that ranks wait for each other at the start, in seconds.", lower_bound=0, flag_values=FLAGS
)
_FIGURES: Final = flags.DEFINE_string(
    "figures", None, "JSON file for the bytes read, memory and compute time of each rank.", flag_values=FLAGS
)

_ENGINE: Final = "jax"


def main() -> None:
    """Runs the command's ranks, or is one of them; exits with the command's code."""
    name, figures = _checked_command(), output_file("figures", _FIGURES.value)
    if _PROCESSES.value is None:
        place = (_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
        code = load_extra("tapeline.command._rank", "jax", "launch").run_rank(
            place, _TIMEOUT.value, name, REST[1:], figures
        )
    else:
        check_extra("jax", "launch")
        _check_processes(load_command(name), _PROCESSES.value)
        code, error = launch(_PROCESSES.value, [*_own_flags(), "--", *REST])
        if error is not None:
            say_error(error)
    if code:
        sys.exit(code)


def _own_flags() -> list[str]:
    """Returns the flags that ranks have of the launcher's."""
    figures = [] if _FIGURES.value is None else [f"--figures={_FIGURES.value}"]
    return [f"--timeout={_TIMEOUT.value}", *figures]


def _checked_command() -> str:
    """Returns the command that is to run; exits if its flags are wrong.

    Raises:
        InputError: it is none, or none that runs in several processes.
    """
    if not REST:
        raise InputError("launch: no command to run: give one behind --, such as launch --processes=2 -- generate ...")
    name = REST[0]
    if name not in COMMANDS:
        raise InputError(
            f"launch: command {name!r} not found; available: {', '.join(_able())}{near_names(name, COMMANDS)}"
        )
    command = load_command(name)
    if not _is_able(command):
        raise InputError(f"launch: {name} runs in one process; available: {', '.join(_able())}")
    code = parse_command(name, REST[1:])
    if code is not None:
        sys.exit(code)
    if "backend" in command.FLAGS and command.FLAGS["backend"].value != _ENGINE:
        raise InputError(f"launch: {name} with --backend={command.FLAGS['backend'].value}: give it --backend={_ENGINE}")
    return name


def _check_processes(command: Command, processes: int) -> None:
    """Checks that the mesh has a device in every process."""
    text = command.FLAGS["mesh"].value if "mesh" in command.FLAGS else None
    size = 1 if text is None else MeshShape.parse(text).size
    if size != processes:
        mesh = "without --mesh" if text is None else f"with --mesh={text}"
        raise InputError(
            f"processes={processes} {mesh}, which is of {size} devices: each process has one: give as many of one as "
            f"of the other"
        )


def _able() -> list[str]:
    return [name for name in COMMANDS if _is_able(load_command(name))]


def _is_able(command: Command) -> bool:
    return getattr(command, "EVERY_RANK", False) or "backend" in command.FLAGS
