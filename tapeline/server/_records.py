"""Requests as dataclasses: each field has a reader, a line of help and a default."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

from lang_core import near_names, some_of
from tapeline.server._errors import RequestError
from tapeline.server._readers import Reader
from tapeline.server._values import joined, refuse

_READER: Final = "reader"
_HELP: Final = "help"
_TYPE: Final = "type"


class RecordType(Protocol):
    """Dataclass whose fields were made by ``option`` and ``required``.

    Attributes:
        REFUSED: fields of OpenAI's API that are not supported, and what to do instead.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    REFUSED: ClassVar[Mapping[str, str]]


R = TypeVar("R", bound=RecordType)


def option(reader: Reader, text: str, default: Any = None) -> Any:
    """Returns the field of a dataclass that may be left out, or be null.

    Args:
        reader: reads the value.
        text: a line of help.
        default: value where it is left out.
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
        RequestError: a field is unknown, not supported, missing, or not what it has to be.
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


def _refuse_name(kind: type[R], name: str, value: Any, path: str) -> None:
    """Refuses a field that is not read, unless it is one of OpenAI's that is null."""
    where = joined(path, name)
    if name not in kind.REFUSED:
        known = list(fields_of(kind))
        raise RequestError(
            f"{where}: unknown field; available: {some_of(name, known)}{near_names(name, known)}",
            param=where,
            code="unknown_parameter",
        )
    if value is not None:
        advice = kind.REFUSED[name]
        raise RequestError(f"{where}: not supported: {advice}", param=where, code="unsupported_parameter")


def record_schema(kind: type[RecordType]) -> dict[str, Any]:
    """Returns the JSON schema of a dataclass's objects."""
    needed = [name for name, one in fields_of(kind).items() if one.default is dataclasses.MISSING]
    properties = {name: _property(one) for name, one in fields_of(kind).items()}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
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
        refused: types of OpenAI's API that are not supported, and what to do instead.
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
