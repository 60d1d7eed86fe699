"""Starts ranks on this machine, passes signals on, and ends all if one ends."""

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from lang_core import InputError, python_command
from tapeline.launching._environment import PIPE, environment_of, graphics_cards, shares_of
from tapeline.launching._output import PrefixedLines

# A rank starts with SIGINT blocked: Ctrl-C would print a traceback before the program's guard of interrupts runs.
_UNBLOCK: Final = """
import signal
if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
"""
PROGRAM: Final = "from tapeline.program import main; main()"
_SOCKET: Final = "TAPELINE_LAUNCH_SOCKET"  # of run_jax.processes, which loads JAX
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WAITED_FOR: Final = (*_PASSED_ON, signal.SIGCHLD)
_KERNEL: Final = 0x80  # si_code of a signal of the terminal, which rank 0 has got from it as well
_LOOK: Final = 0.25  # seconds between two looks, should a signal be lost
_PATIENCE: Final = 5.0  # seconds that ranks have to end when they are told to
_HASTE: Final = 1.0  # the same at a second Ctrl-C
_FAREWELL: Final = 60.0  # seconds that ranks have to end after rank 0


class Ending(NamedTuple):
    """End of a run.

    Attributes:
        code: exit code: that of the first rank that ended badly, 1 of one that was killed.
        error: error message; None if the rank has said it.
    """

    code: int
    error: str | None = None


def launch(processes: int, arguments: Sequence[str], *, program: str = PROGRAM) -> Ending:
    """Runs a command in ranks on this machine and returns how they ended.

    Each has its share of the cores, and a graphics card if there are enough. Output of rank 0 is the program's,
    all others' goes to stderr, with the rank before each line. When a rank ends with an error or is killed, the
    others are ended.

    Args:
        processes: number of ranks.
        arguments: of each rank, behind its place: flags of ``launch``, ``--``, the command and its flags.
        program: Python code of a rank.

    Raises:
        InputError: there are fewer than 1.
    """
    if processes < 1:
        raise InputError(f"processes={processes}: expected 1 or more")
    with ExitStack() as stack:
        ours, theirs = os.pipe()  # they read what nobody writes, until this process is gone
        stack.callback(os.close, theirs)
        with socket.create_server(("127.0.0.1", 0), backlog=processes) as server:
            started = _start(processes, [program, "launch"], arguments, server, ours)
        os.close(ours)
        stack.enter_context(_waiting_for_signals())
        pumps = [PrefixedLines(process.stderr, rank) for rank, process in enumerate(started) if process.stderr]
        for pump in pumps:
            pump.start()
        ending = _Run(started).wait()
        for pump in pumps:
            pump.join(_PATIENCE)
        return ending


def _start(
    processes: int, program: Sequence[str], flags: Sequence[str], server: socket.socket, pipe: int
) -> list[subprocess.Popen[bytes]]:
    token, cards = secrets.token_hex(32), graphics_cards()
    where = f"127.0.0.1:{server.getsockname()[1]}"
    cores = os.sched_getaffinity(0)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which the child keeps as well
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank, share in enumerate(shares_of([*cores], processes)):
            os.sched_setaffinity(0, share)  # which the child keeps
            environment = environment_of(rank, processes, os.environ, token, cards) | {PIPE: str(pipe)}
            if rank == 0:
                environment[_SOCKET] = str(server.fileno())
            place = [f"--coordinator={where}", f"--num_processes={processes}", f"--process_id={rank}"]
            started.append(
                subprocess.Popen(
                    python_command("-c", _UNBLOCK + program[0], *program[1:], *place, *flags),
                    env=environment,
                    stdin=None if rank == 0 else subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=(pipe, server.fileno()) if rank == 0 else (pipe,),
                    process_group=None if rank == 0 else 0,  # what the terminal sends is for rank 0
                )
            )
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        os.sched_setaffinity(0, cores)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return started


@contextmanager
def _waiting_for_signals() -> Iterator[None]:
    """Keeps signals from acting, so that they can be waited for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Run:
    """Ranks that run."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes: Final = processes
        self._passed: Final[set[int]] = set()
        self._ending: Ending | None = None
        self._kill_at: float | None = None

    def wait(self) -> Ending:
        """Waits until all ranks have ended."""
        known: set[int] = set()
        while len(known) < len(self._processes):
            received = signal.sigtimedwait(_WAITED_FOR, _LOOK)
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._pass_on(received)
            ended = [rank for rank, process in enumerate(self._processes) if process.poll() is not None]
            fresh = [rank for rank in ended if rank not in known]
            known.update(fresh)
            if fresh and self._ending is None:
                self._note(min(fresh, key=self._suspicion), whole=len(known) == len(self._processes))
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._kill(known)
        return self._ending or Ending(0)

    def _suspicion(self, rank: int) -> tuple[bool, bool, int]:
        """Returns a key by which that rank is first of which the others' ends are likeliest the consequence."""
        code = self._processes[rank].returncode
        return code == 0, code in (1, -signal.SIGABRT), rank

    def _note(self, rank: int, *, whole: bool) -> None:
        """Notes how a rank has ended; tells the others to end if it was an error."""
        code = self._processes[rank].returncode
        if code == 0:
            if rank == 0 and not whole:
                self._kill_at = time.monotonic() + _FAREWELL
            return
        self._ending = self._ending_by(rank, code)
        interrupted = signal.SIGINT in self._passed and rank == 0
        self._kill_at = time.monotonic() + (0 if interrupted else _PATIENCE)
        self._send(signal.SIGTERM)

    def _ending_by(self, rank: int, code: int) -> Ending:
        if code > 0:
            said = None if rank == 0 else f"rank {rank} ended with exit code {code}: the other ranks were ended"
            return Ending(code, said)
        if -code in self._passed:
            return Ending(128 - code)
        name = signal.Signals(-code).name
        return Ending(1, f"rank {rank} was killed by signal {-code} ({name}): the other ranks were ended")

    def _pass_on(self, received: signal.struct_siginfo) -> None:
        number = received.si_signo
        if number == signal.SIGINT and number in self._passed:
            self._kill_at = time.monotonic() + _HASTE
        self._passed.add(number)
        if number != signal.SIGINT:
            self._send(number)
        elif received.si_code != _KERNEL:  # rank 0 has it from the terminal
            self._send(number, self._processes[:1])  # with which the others end

    def _send(self, number: int, processes: Sequence[subprocess.Popen[bytes]] | None = None) -> None:
        for process in self._processes if processes is None else processes:
            if process.poll() is None:
                process.send_signal(number)

    def _kill(self, ended: set[int]) -> None:
        self._kill_at = None
        late = [rank for rank in range(len(self._processes)) if rank not in ended]
        if self._ending is None and signal.SIGINT in self._passed:
            self._ending = Ending(128 + signal.SIGINT, "interrupted")
        if self._ending is None and late:
            self._ending = Ending(1, f"rank {late[0]} did not end when rank 0 had: it was killed")
        self._send(signal.SIGKILL)
