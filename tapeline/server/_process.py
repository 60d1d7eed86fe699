"""The process of a server: sockets, signals, the end."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import uvicorn

from lang_core import InputError, TapelineError
from tapeline.interrupts import EXIT_INTERRUPTED, Deadline, other_handlers, say_interrupted
from tapeline.server._allocator import bound_free_memory
from tapeline.server._app import create_app
from tapeline.server._log import Log, LogHandler
from tapeline.server._models import Models, ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._protocol import GuardedProtocol
from tapeline.server._service import Service
from tapeline.server._stop_signals import StopSignals

_TICK: Final = 0.05
_THREADS: Final = 16  # for calls that take long: most kinds of them run a few at once
_INTERRUPTED_DRAIN: Final = 0.7  # seconds that answers have after Ctrl-C
_INTERRUPTED_END: Final = 1.6  # seconds after which Ctrl-C has ended the process
_END: Final = 4.0  # seconds from the end of the drain to that of the process, at most
# Seconds after which a thread that computes in Python lets others run. With the default, 5 ms, a step of the engine
# waits that long for a thread that checks a request, several times.
_SWITCH: Final = 0.0005
_MARGIN: Final = 0.3  # seconds from then to the end by the process beside, which needs no thread of this one
_BEAT: Final = 0.5
_ROOM: Final = 60.0  # seconds that a load waits for models in use
_IDLE_TICK: Final = 1.0  # seconds between two looks at models without requests
_STUCK: Final = "a thread did not end in time"


def serve(
    sources: Sequence[ModelSource],
    options: ServerOptions,
    *,
    log: Log | None = None,
    on_listening: Callable[[str], object] = lambda address: None,
) -> None:
    """Serves models until the process is told to end, by SIGTERM or SIGINT; SIGHUP loads them again.

    At SIGTERM no more requests are taken, and those that run have ``options.drain_seconds`` to end; at SIGINT they have
    less than a second. At the second signal the server ends at once. The process ends also if a thread hangs.

    Args:
        sources: models to serve; they are loaded while the server answers that it is not ready.
        options: settings.
        log: takes a line per request; one on stderr if None.
        on_listening: is told the server's address when connections can be made.

    Raises:
        InputError: the address cannot be listened at, or a model cannot be loaded.
        KeyboardInterrupt: SIGINT has ended the server.
    """
    chosen = log or Log()
    sys.setswitchinterval(_SWITCH)
    bound_free_memory()
    aliases = dict(options.model_aliases)
    models = Models(
        sources,
        chosen,
        watchdog_seconds=options.watchdog_seconds,
        aliases=aliases,
        memory=options.models_memory,
        wait_seconds=min(_ROOM, options.request_seconds),
    )
    service = Service(models, options, chosen)
    with _listener(options) as listener, _logged(chosen), other_handlers():
        address = f"{'https' if options.certificate else 'http'}://{_shown(listener)}"
        process = _Process(service, listener)
        try:
            with process.signals() as signals:
                asyncio.run(process.run(signals, lambda: on_listening(address)))
        finally:
            process.deadline.cancel()
    if process.interrupted:
        raise KeyboardInterrupt
    if models.failure is not None:
        raise models.failure


class _Process:
    """Server in the event loop of the main thread."""

    def __init__(self, service: Service, listener: socket.socket) -> None:
        self._service: Final = service
        self._listener: Final = listener
        self._server: Final = _Server(server_config(service))
        self._told: Final = asyncio.Event()
        self._drain_seconds = service.options.drain_seconds
        self.deadline: Final = Deadline()
        self.interrupted = False
        self._work: Final = set[asyncio.Task[Any]]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: Final[list[Callable[[], object]]] = []

    def signals(self) -> StopSignals:
        """Returns the handlers of signals, with a process that sees the signals even if this one hangs."""
        handlers: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGTERM: lambda: self._call(partial(self._end, signal.SIGTERM)),
            signal.SIGINT: lambda: self._call(partial(self._end, signal.SIGINT)),
            signal.SIGHUP: lambda: self._call(lambda: self._start(self._reload(changed_only=False))),
        }
        return StopSignals(
            handlers,
            term_seconds=self._drain_seconds + _END + _MARGIN,
            interrupt_seconds=_INTERRUPTED_END + _MARGIN,
            again_seconds=_END + _MARGIN,
        )

    async def run(self, signals: StopSignals, on_listening: Callable[[], object]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="work"))
        loop.add_reader(signals.fileno(), lambda: signals.clear() or loop.remove_reader(signals.fileno()))
        self._start(_beat())
        for call in self._early:
            call()
        serving = asyncio.create_task(self._server.serve([self._listener]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(_TICK)
        on_listening()
        self._start(self._load())
        self._start(self._unload_idle())
        self._start(self._drain())
        await serving
        for task in self._work:
            task.cancel()
        await asyncio.to_thread(self._service.models.close, 0.0)
        loop.remove_reader(signals.fileno())

    def _call(self, call: Callable[[], object]) -> None:
        """Has a signal's function called in the event loop, now or once it runs."""
        if self._loop is None:
            self._early.append(call)
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so will the process
            self._loop.call_soon_threadsafe(call)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _end(self, number: signal.Signals) -> None:
        again = self._told.is_set()
        if number == signal.SIGINT:
            self.interrupted = True
            self._drain_seconds = min(self._drain_seconds, _INTERRUPTED_DRAIN)
            self.deadline.set(0.0 if again else _INTERRUPTED_END, EXIT_INTERRUPTED, say_interrupted)
        else:
            seconds = 0.0 if again else self._drain_seconds
            self.deadline.set(seconds + _END, 1, lambda: self._service.log.error("killed", error=_STUCK))
        if again:
            self._server.force_exit = self._server.should_exit = True
        self._told.set()

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(self._service.models.load)
        except TapelineError:  # no model, or the end; the log has it
            self._server.should_exit = True
            return
        self._service.log.info("ready")
        while self._service.options.watch_seconds:
            await asyncio.sleep(self._service.options.watch_seconds)
            await self._reload(changed_only=True)

    async def _unload_idle(self) -> None:
        while self._service.models.unloads_idle:
            await asyncio.sleep(_IDLE_TICK)
            try:
                await self._service.loads.unload_idle()
            except Exception as error:  # noqa: BLE001 - the watching goes on
                self._service.log.failure("unload failed", error)

    async def _reload(self, *, changed_only: bool) -> None:
        if not self._service.models.ready:
            return
        try:
            await asyncio.to_thread(self._service.models.reload, changed_only=changed_only)
        except Exception as error:  # noqa: BLE001 - the watching goes on
            self._service.log.failure("reload failed", error)

    async def _drain(self) -> None:
        """Waits for the signal to end, then for the requests that run."""
        await self._told.wait()
        self._service.draining = True
        self._service.log.info("draining", active=self._service.active)
        self._start(asyncio.to_thread(self._service.models.end_loading))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                while self._service.active:
                    await asyncio.sleep(_TICK)
        self._service.log.info("ended", active=self._service.active)
        self._server.should_exit = True
        if self._service.active:
            self._server.force_exit = True


async def _beat() -> None:
    """Wakes the event loop now and then: it handles a signal that another thread received, whatever sees it."""
    while True:
        await asyncio.sleep(_BEAT)


class _Server(uvicorn.Server):
    """Uvicorn's server, which leaves the signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield


def server_config(service: Service) -> uvicorn.Config:
    """Returns uvicorn's settings of a server.

    Raises:
        InputError: the certificate cannot be used.
    """
    options = service.options
    protocol = type(
        "Protocol",
        (GuardedProtocol,),
        {"header_seconds": options.header_seconds, "stall_seconds": options.stall_seconds},
    )
    try:
        config = uvicorn.Config(
            create_app(service),
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=options.max_connections,
            timeout_graceful_shutdown=1,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.certificate_key,
        )
        config.load()
    except OSError as error:
        raise InputError(
            f"certificate={options.certificate}: it cannot be used ({error}): give a PEM file with the certificate, "
            "and the private key with `certificate_key`"
        ) from error
    return config


def _listener(options: ServerOptions) -> socket.socket:
    """Returns a socket that listens.

    Raises:
        InputError: the address cannot be listened at.
    """
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"host={options.host}, port={options.port}: cannot listen there ({error}): choose others, or end what "
            "listens there"
        ) from error


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def _logged(log: Log) -> Iterator[None]:
    """Writes the log records of uvicorn and asyncio as lines of the log."""
    handler = LogHandler(log)
    loggers = [logging.getLogger(name) for name in ("uvicorn", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
