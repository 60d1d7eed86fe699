"""Configurations as JSON, and back."""

import dataclasses
import enum
import sys
from typing import Any, Final

import numpy as np

from autotune.kernel import KernelError
from lang_core import DType, TapelineError, as_dtype

_PLAIN: Final = (bool, int, float, str, type(None))


def encode(cfg: Any) -> Any:
    """A configuration as JSON's values: numbers, strings, tuples, lists, mappings, enums, (data)classes of them.

    Raises:
        KernelError: it has something else in it.
    """
    if isinstance(cfg, enum.Enum):
        return {"__enum__": _name(type(cfg)), "value": cfg.name}
    if isinstance(cfg, _PLAIN):
        return cfg
    if isinstance(cfg, np.generic):
        return encode(cfg.item())
    if isinstance(cfg, DType | np.dtype):
        return {"__dtype__": cfg.name, "table": isinstance(cfg, DType)}
    if isinstance(cfg, list):
        return [encode(each) for each in cfg]
    if isinstance(cfg, tuple) and _fields(cfg):
        return {"__class__": _name(type(cfg)), "fields": {k: encode(getattr(cfg, k)) for k in _fields(cfg)}}
    if isinstance(cfg, tuple):
        return {"__tuple__": [encode(each) for each in cfg]}
    if isinstance(cfg, dict) and all(isinstance(key, str) for key in cfg):
        return {"__dict__": {key: encode(value) for key, value in cfg.items()}}
    if dataclasses.is_dataclass(cfg) and not isinstance(cfg, type):
        fields = {field.name: encode(getattr(cfg, field.name)) for field in dataclasses.fields(cfg) if field.init}
        return {"__class__": _name(type(cfg)), "fields": fields}
    if hasattr(cfg, "model_dump"):  # pydantic's way
        fields: dict[str, Any] = cfg.model_dump()  # pyright: ignore[reportAttributeAccessIssue]
        return {"__class__": _name(type(cfg)), "fields": {key: encode(value) for key, value in fields.items()}}
    raise KernelError(
        f"a configuration has {cfg!r} of type {type(cfg).__qualname__} in it, which cannot be remembered: use a "
        f"dataclass of numbers, strings, enums and tuples"
    )


def decode(value: Any, kind: type | None = None) -> Any:
    """What ``encode`` was given.

    Args:
        value: from JSON.
        kind: the class of the outermost value; looked up by name among loaded modules if None.

    Raises:
        KernelError: the class is not there, or does not take these fields any more.
    """
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "__tuple__" in value:
        return tuple(decode(each) for each in value["__tuple__"])
    if "__dict__" in value:
        return {key: decode(each) for key, each in value["__dict__"].items()}
    try:
        if "__dtype__" in value:
            return as_dtype(value["__dtype__"]) if value["table"] else np.dtype(value["__dtype__"])
        if "__enum__" in value:
            return _class(value["__enum__"], None)[value["value"]]
        return _class(value["__class__"], kind)(**{key: decode(each) for key, each in value["fields"].items()})
    except (AttributeError, KeyError, TypeError, TapelineError) as error:
        raise KernelError(f"the remembered configuration {value} cannot be read: {error}") from None


def _fields(value: Any) -> tuple[str, ...]:
    """The names of a named tuple's elements."""
    return getattr(value, "_fields", ())


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str, kind: type | None) -> Any:
    """The class: never imported, for a file may not say what is to be run."""
    if kind is not None and (kind.__qualname__ == name.partition(":")[2]):
        return kind
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        if part == "<locals>":
            found = None
        found = getattr(found, part)
    return found
