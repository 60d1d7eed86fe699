"""Labels of calls in profiles and lowered modules, and the search for them."""

import json
import os
import re
from collections.abc import Callable
from typing import Any, Final

from autotune.caches import Key, cfg_name
from autotune.kernel import Invocation, Kernel, KernelError, describe, short_hash
from lang_core import json_value, near_names

PREFIX: Final = "tapeline_ops"
"""Beginning of the labels of kernels' calls."""
STAMP_VARIABLE: Final = "TAPELINE_OPS_STAMP"
_MODES: Final = ("hash", "json", "none")
# JAX's names have ~ in place of @, from which on XLA drops the rest of a name.
_REST: Final = r"#(?P<op>[\w.-]+[@~]v[\w.-]+?):(?P<key>[0-9a-f]{16})(?![0-9a-f])"
_PREFIXES: Final = {PREFIX: None}
_PREFIX: Final = re.compile(r"[\w.-]+", re.ASCII)
_UNFIT: Final = re.compile(r"[^\w.-]", re.ASCII)  # other letters are escaped in texts of MLIR
_HASH: Final = re.compile(r"[0-9a-f]{16}")


def stamp_mode() -> str:
    """Returns the form of labels: ``hash`` (op and call key), ``json`` (with specs and configuration), or ``none``.

    Raises:
        KernelError: the environment variable has another value.
    """
    mode = os.environ.get(STAMP_VARIABLE, "hash").lower()
    if mode not in _MODES:
        raise KernelError(
            f"{STAMP_VARIABLE}={mode}: unknown form of labels; available: {', '.join(_MODES)}{near_names(mode, _MODES)}"
        )
    return mode


def label(op_id: str, call_hash: str, prefix: str | None = None) -> str:
    """Returns the label of a call. A key from a kernel's own ``key_builder`` that is not a hash is hashed.

    >>> label("matmul@v1", "0123456789abcdef")
    'tapeline_ops#matmul@v1:0123456789abcdef'
    """
    digits = call_hash if _HASH.fullmatch(call_hash) else short_hash(call_hash)
    name, version_mark, version = op_id.rpartition("@v")
    op = "".join((_UNFIT.sub("_", name), version_mark, _UNFIT.sub("_", version)))
    return f"{(prefix or PREFIX).rstrip('#')}#{op}:{digits}"


def stamp_of(mode: str, prefix: str, key: Key, inv: Invocation[Any, Any], kernel: Kernel[Any, Any], cfg: Any) -> str:
    """Returns the label of a call in a form; empty for ``none``. The form ``json`` begins with that of ``hash``.

    Args:
        mode: form: ``none``, ``hash`` or ``json``.
        prefix: beginning of the label.
        key: key of the call.
        inv: invocation with the specs.
        kernel: kernel that is called.
        cfg: configuration of the call.
    """
    if mode == "none":
        return ""
    plain = label(kernel.op, key.call, prefix)
    if mode == "hash":
        return plain
    args, kwargs = inv.specs()
    more = {"args": describe(args), "kwargs": describe(kwargs), "cfg": json_value(_as_json(cfg), nonfinite=True)}
    return f"{plain} {json.dumps(more, sort_keys=True, separators=(',', ':'))}"


def _as_json(cfg: Any) -> str:
    name = cfg_name(cfg)
    try:
        json_value(name, nonfinite=True)
    except ValueError:  # the name of an object that JSON cannot hold
        return json.dumps(name)
    return name


def checked_prefix(prefix: Any) -> str:
    """Returns a prefix of labels, and remembers it, so that labels with it are found in texts.

    Raises:
        KernelError: it is not a text, is empty, or has a character that ends a name in a text.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix.rstrip("#")):
        raise KernelError(
            f"stamp_prefix={prefix!r}: expected a text of letters, digits, '_', '.' and '-', such as {PREFIX!r}"
        )
    _PREFIXES[prefix.rstrip("#")] = None
    return prefix


def prefixed_labels_in(text: str, prefix: str | None = None) -> list[tuple[str, str, str]]:
    """Returns ``(prefix, op, call key)`` of the labels in a text, without duplicates, in order.

    Args:
        text: text to search.
        prefix: prefix of the labels; that of every executor of this process if None.
    """
    wanted = [prefix.rstrip("#")] if prefix else sorted(_PREFIXES, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?P<prefix>{'|'.join(map(re.escape, wanted))}){_REST}")
    return list(dict.fromkeys((m["prefix"], m["op"].replace("~v", "@v"), m["key"]) for m in pattern.finditer(text)))


def labels_in(text: str, prefix: str | None = None) -> list[tuple[str, str]]:
    """Returns ``(op, call key)`` of the labels in a text, without duplicates, in order."""
    return list(dict.fromkeys((op, key) for _, op, key in prefixed_labels_in(text, prefix)))


def extract_labels_from_hlo_text(hlo_text: str, prefix: str | None = None) -> list[str]:
    """Returns the labels in a text, without duplicates, in order.

    Args:
        hlo_text: text to search.
        prefix: prefix of the labels; that of every executor of this process if None.
    """
    return [label(op, key, own) for own, op, key in prefixed_labels_in(hlo_text, prefix)]


def text_of(lowered: Any) -> str:
    """Returns the text of a lowered module, with its locations.

    Args:
        lowered: text, path of a file, or lowered function of JAX (``jax.jit(f).lower(...)``).

    Raises:
        KernelError: the value is none of these.
    """
    if isinstance(lowered, os.PathLike):
        with open(lowered, encoding="utf-8", errors="replace") as file:
            return file.read()
    if isinstance(lowered, str):
        return lowered
    as_text: Callable[..., str] | None = getattr(lowered, "as_text", None)
    if as_text is None:
        raise KernelError(f"expected text, a path, or a lowered function of JAX; found {lowered!r}")
    try:
        return as_text(debug_info=True)
    except TypeError:  # an object without that option
        return as_text()


def find_labels_in_lowered(lowered: Any, prefix: str | None = None) -> list[str]:
    """Returns the labels in a lowered or compiled module.

    Args:
        lowered: see ``text_of`` for the allowed types.
        prefix: prefix of the labels; that of every executor of this process if None.
    """
    return extract_labels_from_hlo_text(text_of(lowered), prefix)
