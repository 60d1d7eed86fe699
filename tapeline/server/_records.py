"""Requests as dataclasses: each field has a reader, a line of help and a default."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeVar

from lang_core import near_names, some_of
from tapeline.server._errors import RequestError
from tapeline.server._readers import Reader
from tapeline.server._values import joined, refuse

_READER: Final = "reader"
_HELP: Final = "help"
_TYPE: Final = "type"
_MOST_IGNORED: Final = 16  # names that are kept
_INDEX: Final = re.compile(r"\[\d+\]")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.:#/$\[\]-]")  # in the value of a header


class RecordType(Protocol):
    """Dataclass with fields made by ``option`` and ``required``.

    Attributes:
        REFUSED: fields of OpenAI's API that are not supported, and the alternative.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    REFUSED: ClassVar[Mapping[str, str]]


R = TypeVar("R", bound=RecordType)


@dataclass(slots=True)
class IgnoredFields:
    """Ignored fields of a request.

    Attributes:
        names: names of the first few, without indices.
        count: number of ignored values.
    """

    names: list[str] = field(default_factory=list[str])
    count: int = 0

    def add(self, path: str) -> None:
        """Notes a field."""
        self.count += 1
        if len(self.names) < _MOST_IGNORED:
            name = _UNSAFE.sub("?", _INDEX.sub("[]", path))
            if name not in self.names:
                self.names.append(name)

    @property
    def header(self) -> str:
        """Value of the header ``x-ignored-fields``.

        >>> ignored = IgnoredFields()
        >>> ignored.add("messages[0].mood")
        >>> ignored.header
        'messages[].mood'
        """
        return ", ".join(self.names)


_IGNORED: Final[ContextVar[IgnoredFields | None]] = ContextVar("ignored_fields", default=None)


def option(reader: Reader, text: str, default: Any = None) -> Any:
    """Returns the field of a dataclass that may be left out, or be null.

    Args:
        reader: reads the value.
        text: a line of help.
        default: value if it is left out.
    """
    return dataclasses.field(default=default, metadata={_READER: reader, _HELP: text})


def required(reader: Reader, text: str) -> Any:
    """Returns the field of a dataclass that must be given."""
    return dataclasses.field(metadata={_READER: reader, _HELP: text})


@functools.cache
def fields_of(kind: type[Any]) -> Mapping[str, dataclasses.Field[Any]]:
    """Returns the fields of a request's dataclass by name."""
    return {one.name: one for one in dataclasses.fields(kind)}


def read_record(kind: type[R], given: Any, path: str = "") -> R:
    """Returns the dataclass of a JSON object.

    Raises:
        RequestError: a field is unknown, not supported, missing, or invalid.
    """
    if not isinstance(given, dict):
        refuse(path or "the body", "a JSON object", given)
    known = fields_of(kind)
    for name, value in given.items():
        if name not in known:
            _refuse_name(kind, name, value, path)
    values = {name: value for name, value in given.items() if name in known and value is not None}
    for name, one in known.items():
        if name not in values and one.default is dataclasses.MISSING:
            where = joined(path, name)
            raise RequestError(f"{where}: this field is required: {one.metadata[_HELP]}", param=where)
    readers = {name: known[name].metadata[_READER] for name in values}
    return kind(**{name: readers[name].read(value, joined(path, name)) for name, value in values.items()})


def read_tolerant(kind: type[R], given: Any) -> tuple[R, IgnoredFields]:
    """Returns the dataclass of a JSON object, and the unknown fields, which are ignored.

    Raises:
        RequestError: a field is not supported, missing, or invalid.
    """
    ignored = IgnoredFields()
    token = _IGNORED.set(ignored)
    try:
        return read_record(kind, given), ignored
    finally:
        _IGNORED.reset(token)


def is_tolerant() -> bool:
    """Returns True while ``read_tolerant`` reads."""
    return _IGNORED.get() is not None


def ignore(path: str) -> None:
    """Notes that a field is ignored; does nothing when ``read_record`` reads."""
    ignored = _IGNORED.get()
    if ignored is not None:
        ignored.add(path)


def _refuse_name(kind: type[R], name: str, value: Any, path: str) -> None:
    """Refuses or ignores a field that is not read; null counts as left out."""
    if value is None:
        return
    where = joined(path, name)
    if name not in kind.REFUSED:
        if is_tolerant():
            ignore(where)
            return
        known = list(fields_of(kind))
        raise RequestError(
            f"{where}: unknown field; available: {some_of(name, known)}{near_names(name, known)}",
            param=where,
            code="unknown_parameter",
        )
    advice = kind.REFUSED[name]
    raise RequestError(f"{where}: not supported: {advice}", param=where, code="unsupported_parameter")


def record_schema(kind: type[RecordType]) -> dict[str, Any]:
    """Returns the JSON schema of a dataclass's objects."""
    needed = [name for name, one in fields_of(kind).items() if one.default is dataclasses.MISSING]
    properties = {name: _property(one) for name, one in fields_of(kind).items()}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": {"type": "null"},
        **({"required": needed} if needed else {}),
    }


def _property(one: dataclasses.Field[Any]) -> dict[str, Any]:
    schema = {**one.metadata[_READER].schema(), "description": one.metadata[_HELP]}
    if one.default is dataclasses.MISSING:
        return schema
    shown = {} if one.default is None or isinstance(one.default, tuple) else {"default": one.default}
    return {"anyOf": [schema, {"type": "null"}], **shown}


@dataclass(frozen=True, slots=True)
class Kinds:
    """Reader of objects of several dataclasses, which the field ``type`` tells apart.

    Attributes:
        kinds: dataclasses by their type.
        refused: types of OpenAI's API that are not supported, and the alternative.
    """

    kinds: Mapping[str, type[Any]]
    refused: Mapping[str, str]

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return f"an object of type {' or '.join(self.kinds)}"

    def read(self, value: Any, path: str) -> Any:
        """Returns the dataclass."""
        if not isinstance(value, dict):
            refuse(path, self.expected, value)
        where, kind = joined(path, _TYPE), value.get(_TYPE)
        if kind is None:
            raise RequestError(f"{where}: this field is required: {' or '.join(self.kinds)}", param=where)
        if isinstance(kind, str) and kind in self.refused:
            advice = self.refused[kind]
            raise RequestError(f"{where}: {kind} is not supported: {advice}", param=where, code="unsupported_parameter")
        if not isinstance(kind, str) or kind not in self.kinds:
            refuse(where, " or ".join(self.kinds), kind)
        return read_record(self.kinds[kind], value, path)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"anyOf": [record_schema(kind) for kind in self.kinds.values()]}


@dataclass(frozen=True, slots=True)
class DefaultKinds:
    """Reader of objects of several dataclasses; their field ``type`` may be left out.

    Attributes:
        kinds: reader of the objects.
        default: type of an object without one.
    """

    kinds: Kinds
    default: str

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return self.kinds.expected

    def read(self, value: Any, path: str) -> Any:
        """Returns the dataclass."""
        if isinstance(value, dict) and value.get(_TYPE) is None:
            return self.kinds.read({**value, _TYPE: self.default}, path)
        return self.kinds.read(value, path)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return self.kinds.schema()


@dataclass(frozen=True, slots=True)
class Record:
    """Reader of objects that are a dataclass.

    Attributes:
        kind: the dataclass.
    """

    kind: type[Any]

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return "an object"

    def read(self, value: Any, path: str) -> Any:
        """Returns the dataclass."""
        return read_record(self.kind, value, path)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return record_schema(self.kind)


@dataclass(frozen=True, slots=True)
class Unheeded:
    """Reader of a field that has an effect in other servers and none here.

    Attributes:
        reader: reads the value.
        heeded: values that mean the same here; other values are named in ``x-ignored-fields``.
    """

    reader: Reader
    heeded: tuple[Any, ...] = ()

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return self.reader.expected

    def read(self, value: Any, path: str) -> Any:
        """Returns the value."""
        result = self.reader.read(value, path)
        if result not in self.heeded:
            ignore(path)
        return result

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return self.reader.schema()
