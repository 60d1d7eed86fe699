"""Files of profiles, in TOML."""

import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from lang_core import ConfigError
from transformer_core.flow._profile import PRESETS, CompileProfile


def load_profiles(path: str | os.PathLike[str]) -> tuple[CompileProfile, ...]:
    """Reads a file with one table per profile, under the name of its entry point.

    ::

        [prefill]             # the preset of the same name, unless there is a key `preset`
        sequence = 128
        max_sequence = 1024

        [embed]
        preset = "encoder"
        sequence = 64

    Raises:
        ConfigError: the file is missing or not TOML, or a table has an unknown key or a value that does not fit; names
            the file and the line.
    """
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        tables = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file: give a TOML file with a table per profile") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # tomllib.TOMLDecodeError, which says the line, and UnicodeDecodeError
        raise ConfigError(f"{name}: is no TOML: {error}") from None
    if not tables:
        raise ConfigError(f"{name}: expected a table per profile, such as [prefill]; found none")
    return tuple(_profile(name, text, title, values) for title, values in tables.items())


def _profile(path: str, text: str, title: str, values: Any) -> CompileProfile:
    if not isinstance(values, Mapping):
        where = f"{path}:{_line(text, '', title)}"
        raise ConfigError(f"{where}: key {title!r} stands in no table: put it below a profile's, such as [prefill]")
    changes = dict(values)
    preset = changes.pop("preset", title)
    if type(preset) is not str or (preset == title and title not in PRESETS):
        where = f"{path}:{_line(text, title, 'preset')}"
        raise ConfigError(
            f"{where}: [{title}]: expected a key 'preset', one of {', '.join(PRESETS)}; "
            f"found {'none' if 'preset' not in values else repr(preset)}"
        )
    if title not in PRESETS or "preset" in values:
        changes.setdefault("name", title)
    try:
        return CompileProfile.preset(preset, **changes)
    except ConfigError as error:
        key = next((key for key in values if re.search(rf"(^|'){re.escape(key)}('|:)", str(error))), "preset")
        raise ConfigError(f"{path}:{_line(text, title, key)}: [{title}]: {error}") from None


def _line(text: str, table: str, key: str) -> int:
    """Returns the line of a table's key, or of the table."""
    here, line_of_table = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if head:
            here = head[1].strip("\"'")
            line_of_table = number if here == table else line_of_table
        elif here == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return line_of_table
