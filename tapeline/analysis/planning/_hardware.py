"""Hardware: the figures of a device that times are predicted from, as TOML."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from lang_core import DTYPES, InputError, near_names

_PRESETS: Final = files(__package__ or "").joinpath("presets")
_SUFFIX: Final = ".toml"
_DTYPES: Final = [dtype.name for dtype in DTYPES]
_OPTIONAL: Final = ("link_bandwidth", "link_latency", "collective_latency", "sources")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Figures of one kind of device, and how many of them are joined.

    Attributes:
        name: name for a person.
        devices: number of devices that are joined.
        memory_bytes: bytes of a device's memory.
        memory_bandwidth: bytes per second that a device reads from its memory, or writes.
        flops: additions and multiplications per second, by dtype of the operands.
        link_bandwidth: bytes per second that a device sends to others; None if devices are not joined.
        link_latency: seconds of one step from a device to the next; 0 if it is not known.
        collective_latency: seconds of each exchange besides its steps; 0 if it is not known.
        sources: source of each figure, by key.
    """

    name: str
    devices: int
    memory_bytes: float
    memory_bandwidth: float
    flops: Mapping[str, float]
    link_bandwidth: float | None = None
    link_latency: float = 0
    collective_latency: float = 0
    sources: Mapping[str, str]

    def peak(self, dtype: str) -> float:
        """Returns the flops of a dtype; of one that is not listed, those of the slowest."""
        return self.flops.get(dtype, min(self.flops.values()))


def preset_names() -> list[str]:
    """Returns the names of the hardware that is described here."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _PRESETS.iterdir() if entry.name.endswith(_SUFFIX))


def read_hardware(name: str, base: Path = Path()) -> Hardware:
    """Reads the figures of a device.

    Args:
        name: name of a preset, or path of a TOML file of the same form.
        base: directory that a relative path starts from.

    Raises:
        InputError: the preset or file does not exist, or a key is missing, unknown or of another type.

    >>> read_hardware("h100-sxm").memory_bandwidth
    3350000000000.0
    """
    known = preset_names()
    if name in known:
        return _parsed(name, _PRESETS.joinpath(name + _SUFFIX).read_text(encoding="utf-8"))
    path = base / name
    if not path.is_file():
        raise InputError(
            f"hardware={name}: not found; available: {', '.join(known)}{near_names(name, known)}, or a TOML file of "
            f"the same form"
        )
    try:
        return _parsed(name, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"hardware={name}: cannot be read: {error}") from None


def _parsed(name: str, text: str) -> Hardware:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"hardware={name}: this is no TOML: {error}") from None
    known = [field.name for field in fields(Hardware)]
    for key in values:
        if key not in known:
            raise InputError(f"hardware={name}: key {key!r} not found; available: {', '.join(known)}")
    for key in known:
        if key not in values and key not in _OPTIONAL:
            raise InputError(f"hardware={name}: {key!r} is missing: expected {_EXPECTED[key]}")
    checked = {key: _checked(name, key, value) for key, value in values.items()}
    return Hardware(**{"sources": {}, **checked})


_NUMBER: Final = "a number above 0"
_EXPECTED: Final = {
    "name": "a text",
    "devices": "a whole number above 0",
    "memory_bytes": _NUMBER,
    "memory_bandwidth": f"{_NUMBER}, in bytes per second",
    "link_bandwidth": f"{_NUMBER}, in bytes per second and direction",
    "link_latency": "a number of seconds, 0 or more",
    "collective_latency": "a number of seconds, 0 or more",
    "flops": "a table with a number above 0 per dtype, such as bf16 = 989e12",
    "sources": "a table with a text per key",
}


def _checked(name: str, key: str, value: Any) -> Any:
    """Returns a value of a key."""
    if key == "flops":
        return _checked_flops(name, value)
    if key == "sources":
        fits = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    elif key == "name":
        fits = isinstance(value, str)
    elif key == "devices":
        fits = type(value) is int and value > 0
    else:
        fits = _is_number(value) and (value > 0 or (value == 0 and key.endswith("latency")))
    if not fits:
        raise InputError(f"hardware={name}: {key} = {value!r}: expected {_EXPECTED[key]}")
    return value


def _checked_flops(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise InputError(f"hardware={name}: flops = {value!r}: expected {_EXPECTED['flops']}")
    for dtype, flops in value.items():
        if dtype not in _DTYPES:
            raise InputError(f"hardware={name}: flops.{dtype}: dtype not found; available: {', '.join(_DTYPES)}")
        if not _is_number(flops) or flops <= 0:
            raise InputError(f"hardware={name}: flops.{dtype} = {flops!r}: expected {_NUMBER}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
