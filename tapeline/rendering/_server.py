"""The process that workers are forked from: it has jinja2, and nothing of a model."""

import contextlib
import gc
import os
import signal
import socket
from typing import NoReturn

from tapeline.rendering._worker import work


def serve_workers(descriptor: int) -> None:
    """Forks a worker for each connection that comes over a socket, until the other side of that is closed.

    Ctrl-C is for the program that started this process. Ended workers do not stay as zombies.

    Args:
        descriptor: descriptor of a Unix socket, over which descriptors of connections come.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # what is shared with workers is not written
    with socket.socket(fileno=descriptor) as control:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                return
            with socket.socket(fileno=descriptors[0]) as connection:
                try:
                    pid = os.fork()
                except OSError:
                    continue  # the other side finds the connection closed
                if pid == 0:
                    _run(control, connection)


def _run(control: socket.socket, connection: socket.socket) -> NoReturn:
    """Runs a worker, and ends the process."""
    with contextlib.suppress(BaseException):
        control.close()
        work(connection)
    os._exit(0)
