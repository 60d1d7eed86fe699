"""Recorded calls, in this process and in a file: specs without data."""

import fcntl
import json
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from autotune.caches import Key, cache_directory, decode, encode
from autotune.kernel import (
    KERNEL_CLASSES,
    ArraySpec,
    CacheWarning,
    Kernel,
    KernelError,
    abstractify,
    is_trial,
    map_arrays,
)
from lang_core import ExecutionContext, InputError, json_value

RECORD_VARIABLE: Final = "TAPELINE_OPS_RECORD"
FILE_VARIABLE: Final = "TAPELINE_OPS_RECORD_FILE"
SCHEMA: Final = 1

Calls = dict[str, tuple[Kernel[Any, Any], tuple[Any, ...], dict[str, Any]]]

_LINE: Final = ("schema", "key", "kernel", "op_id", "method", "batch_axes", "args", "kwargs")
_RECORDED: Final[dict[Key, "RecordedCall"]] = {}
_LINES: Final[dict[Key, Mapping[str, Any]]] = {}
_LOCK: Final = threading.Lock()


class RecordedCall(NamedTuple):
    """Call of a kernel, with specs in place of arrays.

    Attributes:
        key: key of the call.
        kernel: class of the kernel, as ``module:class``.
        op_id: id of the kernel.
        args: positional arguments.
        kwargs: keyword arguments.
        method: way of execution.
        batch_axes: axis of an added batch, by argument.
        live: kernel object, if this process recorded the call.
    """

    key: Key
    kernel: str
    op_id: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    method: str | None = None
    batch_axes: Mapping[str, int] | None = None
    live: Kernel[Any, Any] | None = None

    def make_kernel(self) -> Kernel[Any, Any]:
        """Returns the kernel, made anew unless this process recorded the call.

        Raises:
            InputError: the class is not loaded, or cannot be made without arguments.
        """
        if self.live is not None:
            return self.live
        known = KERNEL_CLASSES.get(self.kernel)
        if known is None:
            raise InputError(
                f"the recorded call of {self.key.op} is of the kernel {self.kernel}, which is not loaded: import its "
                f"module {self.kernel.partition(':')[0]} first; kernels of a script (__main__) are tuned by the script "
                f"itself (autotune_recorded)"
            )
        try:
            kernel = known()
        except TypeError as error:
            raise InputError(
                f"the kernel {self.kernel} of {self.key.op} cannot be made without arguments: {error}"
            ) from None
        kernel.op_id = self.op_id
        return kernel


def is_recording_calls() -> bool:
    """Returns whether ``TAPELINE_OPS_RECORD`` asks for recording; trials of candidates are not recorded."""
    return not is_trial() and os.environ.get(RECORD_VARIABLE, "0") not in ("", "0")


def record_file() -> Path:
    """Returns ``$TAPELINE_OPS_RECORD_FILE``, else ``invocations.jsonl`` in the cache directory."""
    named = os.environ.get(FILE_VARIABLE)
    return Path(named) if named else cache_directory() / "invocations.jsonl"


def record_invocation(
    dev: str,
    op_id_v: str,
    call_key: str,
    kernel: Kernel[Any, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: str | None = None,
    batch_axes: Mapping[str, int] | None = None,
) -> bool:
    """Records a call in memory and in the file, once per process, and returns whether it is new.

    Args:
        dev: device part of the key.
        op_id_v: ``op_id@vVERSION``.
        call_key: call part of the key.
        kernel: kernel of the call.
        args: prepared positional arguments; arrays are recorded as specs.
        kwargs: prepared keyword arguments.
        method: way of execution.
        batch_axes: axis of an added batch, by argument.
    """
    key = Key(dev, op_id_v, call_key, kernel.source)
    if key in _RECORDED:
        return False
    call = call_of(key, kernel, args, kwargs, method, batch_axes)
    with _LOCK:
        if key in _RECORDED:
            return False
        _RECORDED[key] = call
    _append([as_line(call)])
    return True


def call_of(
    key: Key,
    kernel: Kernel[Any, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: str | None = None,
    batch_axes: Mapping[str, int] | None = None,
) -> RecordedCall:
    """Returns a call as a record.

    Args:
        key: key of the call.
        kernel: kernel that was called.
        args: positional arguments; their specs are kept.
        kwargs: keyword arguments; their specs are kept, contexts are left out.
        method: way of execution.
        batch_axes: axis of an added batch, by argument.
    """
    named = {name: value for name, value in kwargs.items() if not isinstance(value, ExecutionContext)}
    name = f"{type(kernel).__module__}:{type(kernel).__qualname__}"
    specs = abstractify(tuple(args)), abstractify(named)
    return RecordedCall(key, name, kernel.op_id, *specs, method, batch_axes, kernel)


def record_lines(lines: Iterable[Mapping[str, Any]]) -> int:
    """Appends calls that were recorded elsewhere to the file, and returns how many are new to this process.

    A run of a bundle records the bundle's calls in this way, because their configurations were chosen at export.

    Args:
        lines: calls in the form of ``as_line``.
    """
    with _LOCK:
        new = {Key(*line["key"]): {name: line.get(name) for name in _LINE} for line in lines}
        new = {key: line for key, line in new.items() if key not in _RECORDED and key not in _LINES}
        _LINES.update(new)
    if new:
        _append(list(new.values()))
    return len(new)


def recorded_calls() -> list[RecordedCall]:
    """Returns the calls that this process recorded."""
    return list(_RECORDED.values())


def get_invocations(dev: str | None = None) -> dict[str, Calls]:
    """Returns the recorded calls of a device: (kernel, args, kwargs) by op and call key, arrays as specs.

    Args:
        dev: device part of keys, see ``device_fingerprint``; all devices if None.
    """
    invocations: dict[str, Calls] = {}
    for key, call in list(_RECORDED.items()):
        if dev in (None, key.device):
            invocations.setdefault(key.op, {})[key.call] = (call.make_kernel(), call.args, call.kwargs)
    return invocations


def forget_invocations() -> None:
    """Forgets the calls that this process recorded; the file stays."""
    with _LOCK:
        _RECORDED.clear()
        _LINES.clear()


def as_line(call: RecordedCall) -> dict[str, Any]:
    """Returns a call as a line of the file, in JSON values."""
    line: dict[str, Any] = {"schema": SCHEMA, "key": list(call.key), "kernel": call.kernel, "op_id": call.op_id}
    line |= {"method": call.method, "batch_axes": None if call.batch_axes is None else dict(call.batch_axes)}
    try:
        specs = {"args": encode(map_arrays(_as_json, call.args)), "kwargs": encode(map_arrays(_as_json, call.kwargs))}
    except KernelError as error:  # such as a function: the call can be tuned in this process only
        specs = {"untold": str(error)}
    return line | specs


def _append(lines: Sequence[Mapping[str, Any]]) -> None:
    path = record_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            whole = end == 0 or (file.seek(end - 1) >= 0 and file.read(1) == b"\n")
            file.write(b"" if whole else b"\n")  # a process died while it wrote a line
            file.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
    except OSError as error:
        warnings.warn(f"{path}: calls cannot be recorded: {error}", CacheWarning, stacklevel=4)


def _as_json(spec: ArraySpec) -> Any:
    return {"array": [list(spec.shape), spec.dtype]}


def read_record(path: str | os.PathLike[str] | None = None) -> Iterator[RecordedCall]:
    """Yields the calls of a file without duplicates; damaged lines are skipped with a warning.

    Raises:
        InputError: the file is missing, or a line has another schema.
    """
    file = Path(path) if path is not None else record_file()
    if not file.is_file():
        raise InputError(f"{file}: no calls were recorded there: run a model with {RECORD_VARIABLE}=1")
    seen: set[Key] = set()
    for number, text in enumerate(file.read_text(errors="replace").splitlines(), 1):
        call = _parsed(file, number, text) if text else None
        if call is not None and call.key not in seen:
            seen.add(call.key)
            yield call


def _parsed(file: Path, number: int, text: str) -> RecordedCall | None:
    try:
        line = json_value(text, nonfinite=True)
        if line["schema"] != SCHEMA:
            raise InputError(
                f"{file}:{number}: has schema {line['schema']}, this Tapeline reads {SCHEMA}: remove the file"
            )
        if "untold" in line:
            return None
        args, kwargs = _specs(decode(line["args"])), _specs(decode(line["kwargs"]))
        more = line["method"], line["batch_axes"]
        return RecordedCall(Key(*line["key"]), line["kernel"], line["op_id"], args, kwargs, *more)
    except (ValueError, KeyError, TypeError, KernelError) as error:
        warnings.warn(f"{file}:{number}: not a recorded call ({error}): skipped", CacheWarning, stacklevel=3)
        return None


def _specs(tree: Any) -> Any:
    if isinstance(tree, dict) and set(tree) == {"array"}:
        shape, dtype = tree["array"]
        return ArraySpec(tuple(shape), dtype)
    if isinstance(tree, dict):
        return {key: _specs(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return type(tree)(_specs(value) for value in tree)
    return tree
