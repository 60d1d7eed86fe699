"""Reads a dump."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import LARGE_JSON_BOUNDS, InputError, checked_choices, file_json
from runtime.dump._payload import read_payload
from runtime.dump._record import DumpRecord
from runtime.dump._writer import MANIFEST, PARTIAL, SCHEMA

_HEAD: Final[Mapping[str, tuple[type, ...]]] = {
    "source": (dict,),
    "level": (int,),
    "tags": (list, type(None)),
    "order": (dict,),
    "limits": (dict,),
    "records": (list,),
    "totals": (dict,),
    "agreement": (list,),
    "complete": (bool,),
    "error": (str, type(None)),
}


@checked_choices
@dataclass(frozen=True, slots=True)
class Dump:
    """Dump, as its manifest describes it.

    Attributes:
        directory: directory of the dump.
        source: producer: ``context`` (``eager`` or ``device``), and further fields.
        level: 1 for tags only, 2 for all tensors, 3 for statistics of all and elements of tags.
        tags: globs that selected the tags; None if the module has none.
        order: names of the tags by entry point, in the order in which the model computes them.
        limits: ``tensor_bytes`` and ``total_bytes`` of payloads; None is unlimited.
        records: tensors, in the order in which they were dumped.
        totals: ``records``, ``payloads``, ``payload_bytes``, and ``dropped``: per reason ``count`` and ``bytes``.
        agreement: if a second module was needed, how well its results agree, per module and entry point (the fields
            of ``ModuleAgreement``).
        complete: True if the program ended well.
        error: error that ended it early; None if it ended well.
    """

    directory: Path
    source: dict[str, Any]
    level: int
    tags: list[str] | None
    order: dict[str, list[str]]
    limits: dict[str, int | None]
    records: list[DumpRecord]
    totals: dict[str, Any]
    agreement: list[dict[str, Any]]
    complete: bool
    error: str | None

    def load(self, record: DumpRecord) -> np.ndarray[Any, Any]:
        """Returns the elements of a record, in its shape.

        Raises:
            InputError: the record lacks a payload, or the payload is missing or damaged.
        """
        return read_payload(self.directory, record)


def read_dump(directory: Path) -> Dump:
    """Reads a manifest; payloads are read, and checked, when they are asked for.

    Raises:
        InputError: the manifest is missing or damaged.
    """
    path = directory / MANIFEST
    fields = {"agreement": [], **_fields(path)}  # manifests of earlier versions have none
    for name, kinds in _HEAD.items():
        if type(fields.get(name)) not in kinds:
            raise InputError(f"{path}: {name} is {fields.get(name)!r}: the manifest is damaged; dump again")
    rows = fields["records"]
    records = [DumpRecord.from_json(row, f"{path}: record {number}") for number, row in enumerate(rows)]
    _check_order(path, records, fields["totals"])
    return Dump(**{name: fields[name] for name in _HEAD} | {"directory": directory, "records": records})


def _fields(path: Path) -> dict[str, Any]:
    try:
        fields = file_json(path, LARGE_JSON_BOUNDS, nonfinite=True)
    except (FileNotFoundError, NotADirectoryError):
        if path.with_name(PARTIAL).is_file():
            raise InputError(
                f"{path.parent}: the dump was never finished: its program was killed; dump again"
            ) from None
        raise InputError(f"{path.parent} is not a dump: it has no {MANIFEST}: make one with `dump`") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}): the manifest is damaged; dump again") from None
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        actual = fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
        raise InputError(f"{path}: schema {actual!r}, this version reads schema {SCHEMA}: dump again")
    return fields


def _check_order(path: Path, records: list[DumpRecord], totals: Mapping[str, Any]) -> None:
    if totals.get("records") != len(records):
        raise InputError(
            f"{path}: {len(records)} records, its totals say {totals.get('records')!r}: the manifest is damaged; dump "
            f"again"
        )
    keys: dict[Any, int] = {}
    for number, record in enumerate(records):
        if record.index != number:
            raise InputError(f"{path}: record {number} says it is {record.index}: the manifest is damaged; dump again")
        if keys.setdefault(record.key, number) != number:
            raise InputError(
                f"{path}: records {keys[record.key]} and {number} are the same tensor, {record.key}: the manifest is "
                f"damaged; dump again"
            )
