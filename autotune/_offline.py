"""Tuning of recorded calls: those of this process, of a file, or of a lowered module."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self

from autotune.caches import Key, PersistentCache, Selection, overlay_cache
from autotune.compilers import KernelCompiler, compile_invocation, compiler_named
from autotune.kernel import Invocation, KernelError, as_jax, checked_arguments, device_fingerprint, map_arrays
from autotune.records import RecordedCall, label, labels_in, prefixed_labels_in, recorded_calls, text_of
from autotune.selection import ConfigSelectorChain, policy_override
from lang_core import InputError

Progress = Callable[[int, int, str], object]

# Runtimes of calls that were recorded to be compiled; their candidates are timed compiled.
_COMPILED: Final = ("recorded", "iree")


@dataclass(frozen=True)
class Entry:
    """Best configuration of a tuned call.

    Attributes:
        op_id_v: ``op_id@vVERSION``.
        call_key: call part of the key.
        cfg: best configuration.
        device: device part of the key under which it is remembered.
        recorded_on: device part of the key with which it was recorded.
        selection: choice, with the measurements of all candidates.
    """

    op_id_v: str
    call_key: str
    cfg: Any
    device: str = ""
    recorded_on: str = ""
    selection: Selection | None = None


@dataclass(frozen=True)
class AutotuningResult:
    """Result of tuning recorded calls; an overlay in a ``with`` block.

    Attributes:
        device: device part of the keys of entries that have none.
        entries: configurations of the tuned calls.
        skipped: (call, reason) of calls that were not tuned.
    """

    device: str
    entries: tuple[Entry, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def as_overlay(self) -> dict[tuple[str, str, str], Any]:
        """Returns a mapping for ``overlay_cache``, which also matches recordings for an unknown device."""
        overlay: dict[tuple[str, str, str], Any] = {}
        for entry in self.entries:
            for device in {entry.device or self.device, entry.recorded_on or self.device}:
                overlay[device, entry.op_id_v, entry.call_key] = entry.cfg
        return overlay

    @cached_property
    def _overlay(self) -> overlay_cache:
        return overlay_cache(self.as_overlay())

    def __enter__(self) -> Self:
        self._overlay.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._overlay.__exit__(kind, error, trace)


def default_chooser() -> ConfigSelectorChain[Any, Any]:
    """Returns a chain with the user's persistent cache."""
    return ConfigSelectorChain(persistent=PersistentCache())


def autotune_recorded(
    chooser: ConfigSelectorChain[Any, Any] | None = None,
    calls: Iterable[RecordedCall] | None = None,
    *,
    compiler: KernelCompiler | str | None = None,
    progress: Progress | None = None,
) -> AutotuningResult:
    """Tunes recorded calls on example arrays of their specs, and stores the results.

    Args:
        chooser: chain with the caches that store the results; None for a chain with the user's persistent cache.
        calls: calls, such as those of ``read_record()``; the calls that this process recorded if None.
        compiler: compiler for all candidates; if None, IREE for calls that a context recorded, and none for others.
        progress: callback with (number done, number of calls, description) before each call and at the end.
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
    """Tunes the recorded calls with labels in a lowered module.

    Args:
        module: text, path, or lowered function of JAX; see ``text_of``.
        chooser: chain, as in ``autotune_recorded``. The two may come in either order.
        **options: further arguments of ``autotune_recorded``.
    """
    if hasattr(module, "choose"):
        module, chooser = chooser, module
    used = set(labels_in(text_of(module)))
    calls = list(recorded_calls() if options.get("calls") is None else options["calls"])
    wanted = [call for call in calls if used & set(labels_in(label(call.key.op, call.key.call)))]
    return autotune_recorded(chooser, **{**options, "calls": _distinct(wanted)})


def labels_to_configs(lowered: Any, selector: ConfigSelectorChain[Any, Any]) -> list[tuple[str, Any]]:
    """Returns the labels of a lowered module, each with its remembered configuration, or None."""
    remembered: dict[str, Any] = {}
    persistent = [] if selector.persistent is None else selector.persistent.entries()
    for entry in (*persistent, *selector.cache.entries()):
        remembered[label(entry.key.op, entry.key.call)] = entry.cfg
    return [
        (label(op, key, prefix), remembered.get(label(op, key)))
        for prefix, op, key in prefixed_labels_in(text_of(lowered))
    ]


def tune_recorded_call(
    chain: ConfigSelectorChain[Any, Any], call: RecordedCall, compiler: KernelCompiler | str | None = None
) -> Selection:
    """Tunes one call anew, and stores the result.

    Raises:
        InputError: the kernel is not loaded.
        KernelError: all candidates failed, or the compiler is not available.
    """
    kernel = call.make_kernel()
    args, kwargs = checked_arguments(kernel, "example_args", kernel.example_args(call.args, call.kwargs))
    runtime = call.key.device.partition("|")[0]
    if compiler is None and runtime in _COMPILED:
        compiler = "iree"
    if compiler is not None:
        chosen = _compiler_for(compiler, call) if isinstance(compiler, str) else compiler
        inv = compile_invocation(chosen, kernel, args, kwargs, method=call.method, batch_axes=call.batch_axes)
    else:
        if runtime == "jax":
            args, kwargs = map_arrays(as_jax, (args, kwargs))
        inv = Invocation(kernel.op_id, args, kwargs, call.batch_axes, method=call.method)
    with policy_override(chain, "autotune", tune_again=True, allow_heuristics=False):
        selection = chain.select(inv, kernel)
    if selection.entry is not None and call.key.device != selection.key.device:
        here = Key(call.key.device, selection.key.op, selection.key.call, selection.key.source)
        if runtime == "recorded":  # stored for the recording's key as well, because its device is not known
            chain.cache.store(replace(selection.entry, key=here))
    return selection


def _compiler_for(name: str, call: RecordedCall) -> KernelCompiler:
    """Returns a compiler, for the device of IREE that a call was recorded for, if it was."""
    runtime, *more = call.key.device.split("|")
    return compiler_named(name, more[1] if runtime == name == "iree" and len(more) > 1 else None)


def _distinct(calls: Iterable[RecordedCall]) -> list[RecordedCall]:
    return list({call.key: call for call in calls}.values())
