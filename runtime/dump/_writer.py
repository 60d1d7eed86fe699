"""Writes a dump: a directory with a manifest and payloads."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, Self

import numpy as np

from lang_core import InputError, as_dtype, checked_choices
from runtime.dump._agreement import ModuleAgreement
from runtime.dump._payload import write_payload
from runtime.dump._record import DumpRecord, TensorLabel, fields_of
from runtime.dump._statistics import Statistics, statistics

MANIFEST: Final = "manifest.json"
"""Name of the file that describes the tensors of a dump."""
PARTIAL: Final = f".{MANIFEST}.partial"
SCHEMA: Final = 1
_LONGEST_NAME: Final = 150  # characters of a tensor's name in its file name


@dataclass(frozen=True, slots=True)
class DumpLimits:
    """Limits of payloads; those beyond a limit are dropped.

    Attributes:
        tensor_bytes: largest payload; None is unlimited.
        total_bytes: sum of all payloads; None is unlimited.
    """

    tensor_bytes: int | None = None
    total_bytes: int | None = None


@dataclass(slots=True)
class Dropped:
    """Number and size of payloads that were requested and not written."""

    count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class DumpTotals:
    """Totals of a dump."""

    records: int
    payloads: int
    payload_bytes: int
    dropped: dict[str, Dropped]

    def text(self) -> str:
        """Returns one line for the user with the dropped tensors."""
        line = f"{self.records} tensors, {self.payloads} payloads of {self.payload_bytes} bytes"
        for reason, dropped in self.dropped.items():
            if dropped.count:
                line += f"; {dropped.count} payloads of {dropped.bytes} bytes dropped by the {reason.replace('_', ' ')}"
        return line


class DumpWriter:
    """Dump that is being written; use it in a ``with`` block.

    The manifest is written to a temporary file, which is renamed when the block ends; after an exception it says
    ``complete: false`` and the error. Only the totals are kept in memory.

    Attributes:
        directory: directory of the dump.
        level: level of the dump.
        totals: totals so far.
        agreement: agreement so far of the modules that were needed, per module and entry point.
    """

    def __init__(
        self,
        directory: Path,
        *,
        level: int,
        source: Mapping[str, Any],
        tags: Sequence[str] | None = None,
        order: Mapping[str, Sequence[str]] | None = None,
        limits: DumpLimits | None = None,
    ) -> None:
        """Makes the directory.

        Args:
            directory: new or empty directory.
            level: level of the dump, for the reader.
            source: producer: ``context`` (``eager`` or ``device``), and further fields, as JSON.
            tags: globs that selected the tags; None if the module has none.
            order: names of the tags by entry point, in the order in which the model computes them; a device may
                deliver them in another order.
            limits: limits of payloads.

        Raises:
            InputError: the directory is not empty, or cannot be written.
        """
        self.directory: Final = directory
        self.level: Final = level
        self._limits: Final = limits or DumpLimits()
        self.totals: Final = DumpTotals(0, 0, 0, {"tensor_limit": Dropped(), "total_limit": Dropped()})
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise InputError(f"dump={directory}: the directory is not empty: choose another, or empty it")
            self._manifest: Final[IO[str]] = (directory / PARTIAL).open("x", encoding="utf-8")
        except OSError as error:
            raise self._refused(error) from None
        head = {
            "schema": SCHEMA,
            "source": dict(source),
            "level": level,
            "tags": None if tags is None else list(tags),
            "order": {name: list(tags) for name, tags in (order or {}).items()},
            "limits": asdict(self._limits),
        }
        self.agreement: Final[list[ModuleAgreement]] = []
        self._write(f'{json.dumps(head)[:-1]}, "records": [')

    @checked_choices
    def add(self, label: TensorLabel, array: np.ndarray[Any, Any], *, payload: bool) -> DumpRecord:
        """Adds a tensor.

        Args:
            label: name of the tensor, and the moment.
            array: elements, of any shape and of a dtype of the table; read before this returns, and not kept.
            payload: True to write the elements too.

        Returns:
            The record in the manifest.

        Raises:
            InputError: the disk is full, or the directory was removed.
        """
        index = self.totals.records
        dropped = self._drop(array.nbytes) if payload else None
        file: str | None = None
        if payload and dropped is None:
            file = f"step{label.step:06d}/{index:06d}.{_file_name(label)}.npy"
            figures = self._payload(file, array)
        else:
            figures = statistics(array)
        record = DumpRecord(
            **fields_of(label),
            **fields_of(figures),
            index=index,
            dtype=as_dtype(array.dtype).name,
            shape=array.shape,
            bytes=array.nbytes,
            file=file,
            dropped=dropped,
        )
        self._write(("," if index else "") + "\n" + json.dumps(record.as_json(), allow_nan=False))
        self.totals.records += 1
        return record

    def _drop(self, nbytes: int) -> Literal["tensor_limit", "total_limit"] | None:
        limits, totals = self._limits, self.totals
        if limits.tensor_bytes is not None and nbytes > limits.tensor_bytes:
            reason = "tensor_limit"
        elif limits.total_bytes is not None and totals.payload_bytes + nbytes > limits.total_bytes:
            reason = "total_limit"
        else:
            return None
        totals.dropped[reason].count += 1
        totals.dropped[reason].bytes += nbytes
        return reason

    def _payload(self, file: str, array: np.ndarray[Any, Any]) -> Statistics:
        path = self.directory / file
        try:
            path.parent.mkdir(exist_ok=True)
            figures = write_payload(path, array)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise self._refused(error) from None
        self.totals.payloads += 1
        self.totals.payload_bytes += array.nbytes
        return figures

    def _write(self, text: str) -> None:
        try:
            self._manifest.write(text)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> InputError:
        return InputError(f"dump={self.directory}: cannot be written: {error.strerror}: choose another directory")

    def close(self, error: BaseException | None = None) -> None:
        """Completes the manifest and renames it; a dump that failed before its first tensor is removed.

        Args:
            error: error that ended the dump early.

        Raises:
            InputError: the manifest cannot be written.
        """
        tail = {
            "totals": asdict(self.totals),
            "agreement": [asdict(agreement) for agreement in self.agreement],
            "complete": error is None,
            "error": None if error is None else f"{type(error).__name__}: {error}",
        }
        try:
            if error is not None and not self.totals.records:
                self._undo()
                return
            with self._manifest:
                self._manifest.write(f"\n], {json.dumps(tail)[1:]}\n")
            (self.directory / PARTIAL).replace(self.directory / MANIFEST)
        except OSError as refused:
            raise self._refused(refused) from error

    def _undo(self) -> None:
        """Removes the dump's own files and directories, and nothing else."""
        self._manifest.close()
        (self.directory / PARTIAL).unlink()
        for directory in (*self.directory.glob("step*"), self.directory):
            with contextlib.suppress(OSError):
                directory.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


def _file_name(label: TensorLabel) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", label.name)[-_LONGEST_NAME:]
    return f"{name}.{label.when}" if label.direction != "TAG" else name
