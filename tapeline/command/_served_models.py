"""Models that ``tapeline serve`` loads on demand: a directory of bundles, or a TOML file with settings of each."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lang_core import InputError, near_names
from tapeline.bundle import MARK
from tapeline.cli import parse_size


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModels:
    """Models of a directory or a file.

    Attributes:
        models: the models.
        memory: largest memory of loaded models, in bytes; None if the file does not say.
    """

    models: Sequence["ServedBundle"]
    memory: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedBundle:
    """Bundle that is served, and its settings; None takes that of the server.

    Attributes:
        name: name of the model.
        bundle: directory of the bundle.
        aliases: further names of the model.
        pinned: True loads it when the server starts, and keeps it.
        idle_seconds: time without requests after which it is unloaded; 0 never unloads it for that.
        chat_template: file of a chat template in place of the bundle's own.
        prefix_cache_memory: memory of its prefix cache, in bytes.
        max_waiting: maximum number of queued requests.
        max_batched_tokens: maximum number of prompt tokens between two decode steps.
        target_itl: target inter-token latency of running sequences, in seconds.
        speculate: ``prompt_lookup`` or ``prompt_lookup:N``.
        draft: bundle that drafts.
        draft_tokens: maximum number of draft tokens per step.
        draft_rows: maximum number of running sequences with drafts.
        adapters: directories of LoRA adapters by name.
    """

    name: str
    bundle: Path
    aliases: tuple[str, ...] = ()
    pinned: bool = False
    idle_seconds: float | None = None
    chat_template: Path | None = None
    prefix_cache_memory: int | None = None
    max_waiting: int | None = None
    max_batched_tokens: int | None = None
    target_itl: float | None = None
    speculate: str | None = None
    draft: Path | None = None
    draft_tokens: int | None = None
    draft_rows: int | None = None
    adapters: Mapping[str, Path] = field(default_factory=dict)


def models_of_directory(directory: Path) -> ServedModels:
    """Returns the bundles in a directory; their directories' names are the models' names.

    Raises:
        InputError: the directory has none, or cannot be read.
    """
    try:
        folders = sorted(path for path in directory.iterdir() if (path / MARK).is_file())
    except OSError as error:
        raise InputError(f"models_dir={directory}: cannot be read ({error}): name a directory of bundles") from error
    if not folders:
        raise InputError(f"models_dir={directory}: no directory in it is a bundle: export models into it")
    return ServedModels(models=[ServedBundle(name=path.name, bundle=path) for path in folders])


def models_of_file(path: Path) -> ServedModels:
    """Returns the models of a TOML file; relative paths start from its directory.

    Raises:
        InputError: the file cannot be read, or a key is missing, unknown or of another type.
    """
    where = f"models_file={path}"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: cannot be read ({error}): name a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: this is no TOML: {error}") from error
    table = _Table(where, values, path.parent)
    memory, idle = table.read("memory", _size), table.read("idle_seconds", _seconds)
    named = table.read("models", _table) or {}
    table.check()
    if not named:
        raise InputError(f"{where}: no model in it: add a table such as [models.small] with bundle = 'small'")
    models: list[ServedBundle] = []
    for name, settings in named.items():
        if not isinstance(settings, dict):
            raise InputError(f"{where}: models.{name}: expected a table; found {settings!r}")
        models.append(_model(name, _Table(where, settings, path.parent, f"models.{name}."), idle))
    return ServedModels(models=models, memory=memory)


def _model(name: str, table: "_Table", idle: float | None) -> ServedBundle:
    bundle = table.read("bundle", _path)
    if bundle is None:
        raise InputError(f"{table.where}: models.{name}.bundle is missing: expected a directory")
    own = table.read("idle_seconds", _seconds)
    model = ServedBundle(
        name=name,
        bundle=bundle,
        aliases=table.read("aliases", _texts) or (),
        pinned=table.read("pinned", _flag) or False,
        idle_seconds=idle if own is None else own,
        chat_template=table.read("chat_template", _path),
        prefix_cache_memory=table.read("prefix_cache_memory", _size),
        max_waiting=table.read("max_waiting", _count),
        max_batched_tokens=table.read("max_batched_tokens", _count),
        target_itl=table.read("target_itl", _seconds),
        speculate=table.read("speculate", _text),
        draft=table.read("draft", _path),
        draft_tokens=table.read("draft_tokens", _count),
        draft_rows=table.read("draft_rows", _count),
        adapters=table.read("adapters", _paths) or {},
    )
    table.check()
    if model.pinned and own:
        raise InputError(f"{table.where}: models.{name}.idle_seconds: a pinned model stays loaded: leave one out")
    return model


class _Table:
    """Table of the file, whose keys are read one by one.

    Args:
        where: the file, for messages.
        values: values by key.
        base: directory that relative paths start from.
        prefix: name of the table before its keys, for messages.
    """

    def __init__(self, where: str, values: Mapping[str, Any], base: Path, prefix: str = "") -> None:
        self.where: Final = where
        self.base: Final = base
        self._values: Final = values
        self._prefix: Final = prefix
        self._known: Final[list[str]] = []

    def read(self, key: str, reader: Callable[["_Table", str, Any], Any]) -> Any:
        """Returns the value of a key as a reader has it; None if the table has no such key."""
        self._known.append(key)
        return reader(self, key, self._values[key]) if key in self._values else None

    def check(self) -> None:
        """Refuses keys that were not read.

        Raises:
            InputError: there is one.
        """
        for key in self._values:
            if key not in self._known:
                names = f"{', '.join(self._known)}{near_names(key, self._known)}"
                raise InputError(f"{self.where}: {self._prefix}{key}: unknown key; available: {names}")

    def refuse(self, key: str, expected: str, value: Any) -> InputError:
        """Returns the error of a value."""
        return InputError(f"{self.where}: {self._prefix}{key}: expected {expected}; found {value!r}")


def _text(table: _Table, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise table.refuse(key, "a text", value)
    return value.strip()


def _texts(table: _Table, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise table.refuse(key, "a list of texts", value)
    return tuple(_text(table, key, one) for one in value)


def _path(table: _Table, key: str, value: Any) -> Path:
    return table.base / Path(_text(table, key, value)).expanduser()


def _paths(table: _Table, key: str, value: Any) -> dict[str, Path]:
    return {name: _path(table, f"{key}.{name}", path) for name, path in _table(table, key, value).items()}


def _flag(table: _Table, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise table.refuse(key, "true or false", value)
    return value


def _count(table: _Table, key: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise table.refuse(key, "a whole number above 0", value)
    return value


def _seconds(table: _Table, key: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise table.refuse(key, "seconds, 0 or more", value)
    return float(value)


def _size(table: _Table, key: str, value: Any) -> int:
    text = _text(table, key, value)
    return 0 if text == "0" else parse_size(key, text)


def _table(table: _Table, key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise table.refuse(key, "a table", value)
    return value
