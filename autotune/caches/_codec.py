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
    """Returns a configuration as JSON values.

    Numbers, strings, dtypes and enums are supported, and tuples, lists, mappings and dataclasses of these.

    Raises:
        KernelError: the configuration holds a value of another type.
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
        return [encode(value) for value in cfg]
    if isinstance(cfg, tuple) and _fields(cfg):
        return {"__class__": _name(type(cfg)), "fields": {k: encode(getattr(cfg, k)) for k in _fields(cfg)}}
    if isinstance(cfg, tuple):
        return {"__tuple__": [encode(value) for value in cfg]}
    if isinstance(cfg, dict) and all(isinstance(key, str) for key in cfg):
        return {"__dict__": {key: encode(value) for key, value in cfg.items()}}
    if dataclasses.is_dataclass(cfg) and not isinstance(cfg, type):
        fields = {field.name: encode(getattr(cfg, field.name)) for field in dataclasses.fields(cfg) if field.init}
        return {"__class__": _name(type(cfg)), "fields": fields}
    if hasattr(cfg, "model_dump"):  # a model of pydantic
        fields: dict[str, Any] = cfg.model_dump()  # pyright: ignore[reportAttributeAccessIssue]
        return {"__class__": _name(type(cfg)), "fields": {key: encode(value) for key, value in fields.items()}}
    raise KernelError(
        f"a configuration has {cfg!r} of type {type(cfg).__qualname__} in it, which cannot be remembered: use a "
        f"dataclass of numbers, strings, enums and tuples"
    )


def decode(value: Any, kind: type | None = None) -> Any:
    """Returns the configuration that ``encode`` made JSON values of.

    Args:
        value: JSON value.
        kind: class of the outermost value; looked up by name among loaded modules if None.

    Raises:
        KernelError: the class is not loaded, or does not take these fields any more.
    """
    if isinstance(value, list):
        return [decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "__tuple__" in value:
        return tuple(decode(part) for part in value["__tuple__"])
    if "__dict__" in value:
        return {key: decode(part) for key, part in value["__dict__"].items()}
    try:
        if "__dtype__" in value:
            return as_dtype(value["__dtype__"]) if value["table"] else np.dtype(value["__dtype__"])
        if "__enum__" in value:
            return _class(value["__enum__"], None)[value["value"]]
        return _class(value["__class__"], kind)(**{key: decode(part) for key, part in value["fields"].items()})
    except (AttributeError, KeyError, TypeError, TapelineError) as error:
        raise KernelError(f"the remembered configuration {value} cannot be read: {error}") from None


def _fields(value: Any) -> tuple[str, ...]:
    """Returns the field names of a named tuple; empty for other values."""
    return getattr(value, "_fields", ())


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str, kind: type | None) -> Any:
    """Returns a class of a loaded module.

    Reading does not import modules: a file must not choose the code that runs.
    """
    if kind is not None and (kind.__qualname__ == name.partition(":")[2]):
        return kind
    module, _, path = name.partition(":")
    resolved: Any = sys.modules.get(module)
    for part in path.split("."):
        if part == "<locals>":
            resolved = None
        resolved = getattr(resolved, part)
    return resolved
