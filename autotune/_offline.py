"""Tuning of what was recorded: in this process, in a file, or in a lowered module."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from autotune.caches import Key, PersistentCache, Selection, overlay_cache
from autotune.compilers import KernelCompiler, compile_invocation, compiler_named
from autotune.kernel import Invocation, KernelError, as_jax, device_fingerprint, map_arrays
from autotune.records import RecordedCall, label, labels_in, recorded_calls, text_of
from autotune.selection import ConfigSelectorChain, policy_override
from lang_core import InputError

Progress = Callable[[int, int, str], object]

# Runtimes of calls that were recorded to be compiled: they are timed compiled.
_COMPILED: Final = ("recorded", "iree")


@dataclass(frozen=True)
class Entry:
    """What was found for a call.

    Attributes:
        op_id_v: ``op_id@vVERSION``.
        call_key: the call part of its key.
        cfg: the best configuration.
        device: the device part of the key under which it is remembered.
        recorded_on: the device part of the key with which it was recorded.
        selection: with the measurements of all candidates.
    """

    op_id_v: str
    call_key: str
    cfg: Any
    device: str = ""
    recorded_on: str = ""
    selection: Selection | None = None


@dataclass(frozen=True)
class AutotuningResult:
    """What a tuning of recorded calls found. In a ``with`` block it is an overlay.

    Attributes:
        device: the device part of keys, where entries do not say another.
        entries: of the calls that were tuned.
        skipped: calls that were not, with the reason.
    """

    device: str
    entries: tuple[Entry, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def as_overlay(self) -> dict[tuple[str, str, str], Any]:
        """For ``overlay_cache``: also for a recording that does not say where it will run."""
        found: dict[tuple[str, str, str], Any] = {}
        for entry in self.entries:
            for device in {entry.device or self.device, entry.recorded_on or self.device}:
                found[device, entry.op_id_v, entry.call_key] = entry.cfg
        return found

    def __enter__(self) -> Self:
        overlay = overlay_cache(self.as_overlay())
        overlay.__enter__()
        _ENTERED.append((self, overlay))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        position = max(i for i, (result, _) in enumerate(_ENTERED) if result is self)
        _ENTERED.pop(position)[1].__exit__(kind, error, trace)


_ENTERED: Final[list[tuple[AutotuningResult, overlay_cache]]] = []


def default_chooser() -> ConfigSelectorChain[Any, Any]:
    """A chain with the user's persistent cache."""
    return ConfigSelectorChain(persistent=PersistentCache())


def autotune_recorded(
    chooser: ConfigSelectorChain[Any, Any] | None = None,
    calls: Iterable[RecordedCall] | None = None,
    *,
    compiler: KernelCompiler | str | None = None,
    progress: Progress | None = None,
) -> AutotuningResult:
    """Tunes recorded calls, on made-up arrays of their specs, and remembers what it finds.

    Args:
        chooser: remembers it; one with the user's persistent cache if None.
        calls: such as ``read_record()`` gives; those that this process recorded if None.
        compiler: times candidates compiled; if None, those calls that were recorded by a context are compiled by IREE,
            and all others run as they did.
        progress: is called with (done, of how many, the call) before each call and at the end.
    """
    chain = default_chooser() if chooser is None else chooser
    todo = list(recorded_calls() if calls is None else calls)
    entries: list[Entry] = []
    skipped: list[tuple[str, str]] = []
    for number, call in enumerate(todo):
        name = f"{call.key.op} {call.args}"
        if progress is not None:
            progress(number, len(todo), name)
        try:
            selection = tune_recorded_call(chain, call, compiler)
        except (InputError, KernelError, NotImplementedError) as error:
            skipped.append((name, str(error)))
            continue
        key = selection.key
        entries.append(Entry(key.op, key.call, selection.cfg, key.device, call.key.device, selection))
    if progress is not None:
        progress(len(todo), len(todo), "")
    devices = {entry.device for entry in entries}
    device = devices.pop() if len(devices) == 1 else device_fingerprint()
    return AutotuningResult(device, tuple(entries), tuple(skipped))


def autotune_lowered(module: Any, chooser: Any = None, **options: Any) -> AutotuningResult:
    """Tunes those recorded calls whose labels a lowered module has.

    Args:
        module: text, a path, or what ``jax.jit(...).lower(...)`` gave; see ``text_of``.
        chooser: see ``autotune_recorded``. The two may come in either order.
        **options: of ``autotune_recorded``.
    """
    if hasattr(module, "choose"):
        module, chooser = chooser, module
    used = set(labels_in(text_of(module)))
    calls = list(recorded_calls() if options.get("calls") is None else options["calls"])
    wanted = [call for call in calls if used & set(labels_in(label(call.key.op, call.key.call)))]
    return autotune_recorded(chooser, **{**options, "calls": _each_once(wanted)})


def labels_to_configs(lowered: Any, selector: ConfigSelectorChain[Any, Any]) -> list[tuple[str, Any]]:
    """The labels of a lowered module, each with the configuration that is remembered for it here, or None."""
    remembered: dict[str, Any] = {}
    kept = [] if selector.persistent is None else selector.persistent.entries()
    for entry in (*kept, *selector.cache.entries()):
        remembered[label(entry.key.op, entry.key.call)] = entry.cfg
    return [(text, remembered.get(text)) for text in (label(*each) for each in labels_in(text_of(lowered)))]


def tune_recorded_call(
    chain: ConfigSelectorChain[Any, Any], call: RecordedCall, compiler: KernelCompiler | str | None = None
) -> Selection:
    """Tunes one call anew, and remembers what it finds.

    Raises:
        InputError: the kernel is not there.
        KernelError: no candidate is good, or the compiler is not there.
    """
    kernel = call.make_kernel()
    args, kwargs = kernel.example_args(call.args, call.kwargs)
    runtime = call.key.device.partition("|")[0]
    if compiler is None and runtime in _COMPILED:
        compiler = "iree"
    if compiler is not None:
        chosen = _compiler_for(compiler, call) if isinstance(compiler, str) else compiler
        inv = compile_invocation(chosen, kernel, args, kwargs, method=call.method)
    else:
        if runtime == "jax":
            args, kwargs = map_arrays(as_jax, (args, kwargs))
        inv = Invocation(kernel.op_id, args, kwargs, call.batch_axes, method=call.method)
    with policy_override(chain, "autotune", tune_again=True, allow_heuristics=False):
        selection = chain.select(inv, kernel)
    if selection.entry is not None and call.key.device != selection.key.device:
        here = Key(call.key.device, selection.key.op, selection.key.call, selection.key.source)
        if runtime == "recorded":  # such a recording does not know where it will run
            chain.cache.store(replace(selection.entry, key=here))
    return selection


def _compiler_for(name: str, call: RecordedCall) -> KernelCompiler:
    """A compiler for the device of IREE that a call was recorded for, if it was for one."""
    runtime, *more = call.key.device.split("|")
    return compiler_named(name, more[1] if runtime == name == "iree" and len(more) > 1 else None)


def _each_once(calls: Iterable[RecordedCall]) -> list[RecordedCall]:
    return list({call.key: call for call in calls}.values())
