"""Runs the IREE compiler in a process of its own."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from lang_core import CompileError, MissingPackageError, checked_choices
from run_iree.compiler._locate import locate
from run_iree.compiler._module_cache import ModuleCache
from run_iree.compiler._outline import BlockOutline
from run_iree.compiler._schedule import Schedule, schedule_file
from run_iree.compiler._substituted import outlined_text, with_kernels
from run_iree.compiler._targets import Target, target_named

_ERROR: Final = re.compile(
    r'^(?:loc\(")?(?P<file>[^"\n]*?)"?:(?P<line>\d+)(?::\d+)?\)?: (?:fatal )?error: (?P<text>.*)$', re.MULTILINE
)
_PLAIN_ERROR: Final = re.compile(r"^.*\berror: .*$", re.MULTILINE)
# Signals that end the compiler from outside: Ctrl-C on the terminal of the program, a service that stops.
_ENDED: Final = (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM)
_PEAK: Final = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
_TAIL_LINES: Final = 5
_PACKAGE: Final = "iree.compiler"
_CHUNK: Final = 2**20
# Ops that can become a matrix-vector product: sums of products, and what is not known.
_SUMS: Final = re.compile(
    r"stablehlo\.(?:dot|convolution|einsum|reduce_window|custom_call)|linalg\.|\"stablehlo\.reduce\""
    r"|stablehlo\.reduce\((?!.*applies stablehlo\.(?:maximum|minimum|and|or) )"
)
_LARGE: Final = 2**20  # bytes of text from which on a second process is worth its start


@checked_choices
@dataclasses.dataclass(frozen=True)
class CompileReport:
    """Cost and outcome of one compilation.

    Attributes:
        seconds: wall time in seconds.
        peak_rss_bytes: highest resident memory of the compiler process, in bytes.
        vmfb_bytes: size of the compiled module, in bytes.
        flags: compiler flags, without those that name temporary files (tuning spec, schedule).
        schedules: work that a call hands to the device, by entry point.
        kernels: kernels that replaced helper functions, by function.
        cached: True if the module was in the cache, and nothing was compiled.
    """

    seconds: float
    peak_rss_bytes: int
    vmfb_bytes: int
    flags: tuple[str, ...]
    schedules: Mapping[str, Schedule]
    kernels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cached: bool = False


def compile_module(
    mlir_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    target: Target | str,
    *,
    extra_flags: Sequence[str] = (),
    cache: ModuleCache | None = None,
) -> CompileReport:
    """Compiles a module's text for one target.

    The result appears whole: it is written beside ``output_path`` and renamed, so that a session that has the previous
    file mapped keeps its pages. The compiler runs in its own process, without a memory limit, and is killed when this
    call is interrupted.

    Args:
        mlir_path: path of the StableHLO text.
        output_path: path of the ``.vmfb`` to write, in an existing directory.
        target: target, or its name (see ``target_named``).
        extra_flags: compiler flags after those of the target.
        cache: compiled modules of earlier calls; the module is looked up there first, and kept there. With flags by
            which the compiler dumps or prints, it always runs.

    Raises:
        CompileError: the compiler refused the module or crashed; has its first error with op and module path.
    """
    source, output = Path(mlir_path), Path(output_path)
    chosen = target_named(target) if isinstance(target, str) else target
    if not source.is_file():
        raise CompileError(f"cannot compile {str(source)!r}: file not found; export writes it as module.mlir")
    if not output.parent.is_dir():
        raise CompileError(f"cannot write {str(output)!r}: directory {str(output.parent)!r} not found; create it first")
    flags = (*chosen.flags, *extra_flags)
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.", suffix=".tmp")
    os.close(handle)
    partial = Path(name)
    try:
        with with_kernels(source, chosen) as (text, kernels), outlined_text(text, chosen, flags) as outlined:
            job = _Compilation(source, text, outlined, chosen, flags, partial)
            report = job.run() if cache is None or job.dumps else job.cached(cache)
        partial.chmod(0o644)  # mkstemp makes it readable by its owner alone
        partial.replace(output)
        return dataclasses.replace(report, kernels=kernels)
    finally:
        partial.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class _Compilation:
    """One compilation.

    Attributes:
        source: text as the caller named it.
        text: text that is compiled, with kernels in it.
        outlined: the same text with block functions that stay functions; None if all are inlined.
        target: target.
        flags: compiler flags.
        output: file to write.
    """

    source: Path
    text: Path
    outlined: tuple[Path, BlockOutline] | None
    target: Target
    flags: tuple[str, ...]
    output: Path

    @property
    def dumps(self) -> bool:
        """True if flags ask for more than the module, such as ``--iree-hal-dump-executable-sources-to``."""
        return any("dump" in flag or "print" in flag for flag in self.flags)

    def cached(self, cache: ModuleCache) -> CompileReport:
        """Takes the module from the cache, or compiles it and keeps it there."""
        started = time.perf_counter()
        key = self._key()
        facts = cache.fetch(key, self.output)
        if facts is None:
            report = self.run()
            cache.store(key, self.output, {"schedules": _as_json(report.schedules)})
            return report
        schedules = {name: Schedule(**fields) for name, fields in facts["schedules"].items()}
        size = self.output.stat().st_size
        return CompileReport(time.perf_counter() - started, 0, size, self.flags, schedules, cached=True)

    def run(self) -> CompileReport:
        """Runs the compiler; once more, with all functions inlined, if they cannot stay functions."""
        started, peak = time.perf_counter(), 0
        if self.outlined is not None:
            text, functions = self.outlined
            status, peak, _, compiled = self._run(text)
            schedules = functions.schedules(compiled)
            if status == 0 and schedules is not None:
                return self._report(started, peak, schedules)
        status, again, messages, schedules = self._run(self.text)
        if status != 0:
            raise CompileError(_message(self.source, self.text, self.target.name, status, messages))
        return self._report(started, max(peak, again), schedules)

    def _run(self, text: Path) -> tuple[int, int, str, dict[str, Schedule]]:
        with _tuning_flags(self.target, self.flags, text) as tuning, schedule_file() as schedule:
            flags = [*self.flags, *tuning, *schedule.flags]
            if tuning and text.stat().st_size >= _LARGE and len(os.sched_getaffinity(0)) > 1:
                outcome = self._run_in_two(text, flags)
            else:
                outcome = self._run_once(text.name, [*flags, "-o", str(self.output.absolute())], text.parent)
            return *outcome, schedule.read()

    def _run_once(self, text: str, flags: Sequence[str], folder: Path) -> tuple[int, int, str]:
        return _checked_if_it_fails([compiler_path(), text, *flags], self.target.unchecked, folder)

    def _run_in_two(self, text: Path, flags: Sequence[str]) -> tuple[int, int, str]:
        """Runs the compiler up to the last use of the tuning spec, and then from there on all cores; same bytes."""
        configured = self.output.absolute().with_name(f"{self.output.name}.mlirbc")
        until, since = (f"--compile-{way}=executable-configurations" for way in ("to", "from"))
        try:
            first = self._run_once(
                text.name, [*flags, until, "--emit-mlir-bytecode", "-o", f"{configured}"], text.parent
            )
            if first[0] != 0:
                return first
            threaded = [*self.flags, since, "-o", str(self.output.absolute())]
            status, peak, messages = self._run_once(str(configured), threaded, text.parent)
            return status, max(first[1], peak), messages
        finally:
            configured.unlink(missing_ok=True)

    def _report(self, started: float, peak: int, schedules: Mapping[str, Schedule]) -> CompileReport:
        seconds, size = time.perf_counter() - started, self.output.stat().st_size
        return CompileReport(seconds, peak, size, self.flags, schedules)

    def _key(self) -> str:
        """Returns the digest of everything that the module depends on: compiler, target, flags, tiles, text."""
        target, tiles = self.target, self.target.tiles_beside(self.flags)
        fields = {
            "compiler": importlib.metadata.version("iree-base-compiler"),
            "target": target.name,
            "flags": self.flags,
            "cpu": dataclasses.asdict(target.cpu) if target.cpu else None,
            "tiles": tiles.tuning_spec() if tiles else None,
            "name": self.text.name,  # the compiler writes it into the module
        }
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode() + b"\n")
        with (self.outlined[0] if self.outlined else self.text).open("rb") as text:
            while chunk := text.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()


def _as_json(schedules: Mapping[str, Schedule]) -> dict[str, dict[str, int]]:
    return {name: dataclasses.asdict(schedule) for name, schedule in schedules.items()}


@contextlib.contextmanager
def _tuning_flags(target: Target, flags: Sequence[str], text: Path) -> Iterator[tuple[str, ...]]:
    """Yields the flags for the target's tuning spec, while a temporary file with it exists.

    Texts without sums of products are compiled without the spec: nothing in them matches, and the compiler would search
    every executable on one thread. Kernels are calls, so the texts of most models with packed weights have none.

    IREE 3.13 loads the file under a lock; a thread that waits for the loaded spec to be verified meanwhile starts on
    another executable, which waits for the lock: several threads may deadlock. One thread is hardly slower, as equal
    dispatches are compiled once.
    """
    tiles = target.tiles_beside(flags)
    if tiles is None or not _has_sums(text):
        yield ()
        return
    with tempfile.NamedTemporaryFile("w", prefix="tapeline-tuning-", suffix=".mlir") as file:
        file.write(tiles.tuning_spec())
        file.flush()
        yield f"--iree-codegen-tuning-spec-path={file.name}", "--mlir-disable-threading"


def _has_sums(text: Path) -> bool:
    """Returns whether an op of a text can become a matrix-vector product."""
    with text.open() as lines:
        return any(_SUMS.search(line) for line in lines)


def compiler_path() -> str:
    """Returns the compiler's path, without importing its Python package, which would cost 60 MB of memory.

    Raises:
        MissingPackageError: the compiler is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "_mlir_libs" / "iree-compile"
        if path.is_file():
            return str(path)
    raise MissingPackageError(
        "the IREE compiler is not installed: pip install iree-base-compiler, or export with target=none"
    )


def _checked_if_it_fails(command: list[str], unchecked: Sequence[str], folder: Path) -> tuple[int, int, str]:
    """Runs the compiler without its internal checks; if it fails, again with them, as they name the first fault."""
    status, peak, messages = _run([*command, *unchecked], folder)
    if unchecked and status not in (0, *_ENDED):
        return _run(command, folder)
    return status, peak, messages


def _run(command: list[str], folder: Path) -> tuple[int, int, str]:
    """Runs a command; returns its exit status (negative for a signal), its peak RSS in bytes, and its stderr.

    It runs in the module's directory, as the compiler writes the path that it was given into its result.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=folder)
        try:
            with _peak_of(process.pid) as peaks:
                _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        peak = max(peaks) or usage.ru_maxrss * 1024
        return process.returncode, peak, errors.read().decode(errors="replace")


@contextlib.contextmanager
def _peak_of(pid: int) -> Iterator[list[int]]:
    """Follows the peak RSS of a process within a ``with`` block; gives a list of the readings, in bytes.

    Linux includes the memory of the parent process, at the time of the start, in the figure of the ended process
    (``ru_maxrss``): the peak is read while the process runs, if there is a /proc.
    """
    peaks, ended = [0], threading.Event()

    def follow() -> None:
        pause = 0.002
        while not ended.wait(pause):
            peaks.append(_peak_rss(pid))
            pause = min(2 * pause, 0.05)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _peak_rss(pid: int) -> int:
    """Returns the peak RSS of a running process in bytes; 0 if it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = _PEAK.search(fields)
    return int(line[1]) * 1024 if line else 0


def _message(source: Path, text: Path, target: str, status: int, messages: str) -> str:
    asked = f"cannot compile {str(source)!r} for {target}"
    if status < 0:
        with contextlib.suppress(ValueError):
            ended = signal.Signals(-status).name
            hint = "; the machine may have run out of memory" if ended == "SIGKILL" else ""
            return f"{asked}: the compiler was ended by {ended}{hint}{_quoted_tail(messages)}"
    located = _ERROR.search(messages)
    plain = _PLAIN_ERROR.search(messages)
    if located is None or (plain is not None and plain.start() < located.start()):
        failure = plain[0].strip() if plain else f"exit status {status}"
        return f"{asked}: {failure}{'' if plain else _quoted_tail(messages)}"
    line = int(located["line"])
    where = f"{located['file']}:{line}"
    if Path(located["file"]).name == source.name:
        op, module_path = locate(text, line)
        where += f", op {op or 'unknown'} of module {module_path or 'unknown'}"
    return f"{asked}: {located['text']} (at {where})"


def _quoted_tail(messages: str) -> str:
    tail = messages.strip().splitlines()[-_TAIL_LINES:]
    return f"; its last messages: {' | '.join(line.strip() for line in tail)}" if tail else ""
