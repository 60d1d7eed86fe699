"""Payloads: elements of a tensor as a ``.npy`` file (NumPy's format 1.0)."""

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

from lang_core import InputError, as_dtype, bf16
from runtime.dump._record import DumpRecord
from runtime.dump._statistics import RunningStatistics, Statistics, chunks, stored

Array = np.ndarray[Any, Any]

_LOST: Final = "the dump is damaged; dump again"


def write_payload(path: Path, array: Array) -> Statistics:
    """Writes an array in row-major order and computes its statistics; bf16 is written as the u16 of the same bits.

    Raises:
        OSError: the file cannot be written.
    """
    running = RunningStatistics(as_dtype(array.dtype))
    plain = stored(array)
    header = {"descr": npy.dtype_to_descr(plain.dtype), "fortran_order": False, "shape": plain.shape}
    with path.open("xb", buffering=0) as file:
        npy.write_array_header_1_0(file, header)
        for chunk in chunks(plain):
            running.add(chunk)
            left = chunk.data.cast("B")
            while left:
                left = left[file.write(left) :]
    return running.result()


def read_payload(directory: Path, record: DumpRecord) -> Array:
    """Reads a record's elements, in its dtype and shape.

    Raises:
        InputError: the record lacks a payload, the file is missing, or is not of the record's size, dtype and shape.
    """
    what = f"{directory}: record {record.index} ({record.name!r}, step {record.step})"
    if record.file is None:
        limit = f"; it was dropped by the {record.dropped}: dump with a higher `dump_limit`" if record.dropped else ""
        raise InputError(
            f"{what} has figures only, no elements{limit or ': dump it with `dump_level=1` or `dump_level=2`'}"
        )
    path = directory / record.file
    try:
        with path.open("rb") as file:
            npy.read_magic(file)
            shape, fortran, dtype = npy.read_array_header_1_0(file)
            begin, size = file.tell(), os.fstat(file.fileno()).st_size
            wanted = stored(np.empty(0, record.spec.dtype.numpy)).dtype
            if (shape, fortran, dtype) != (record.shape, False, wanted):
                actual = f"{dtype}{list(shape)}"
                raise InputError(f"{what}: {record.file} holds {actual}, the manifest says {record.spec!r}: {_LOST}")
            if size - begin != record.bytes:
                raise InputError(
                    f"{what}: {record.file} holds {size - begin} bytes of elements, {record.spec!r} has "
                    f"{record.bytes}: {_LOST}"
                )
            array = np.fromfile(file, dtype)
    except FileNotFoundError:
        raise InputError(f"{what}: its payload {record.file} is missing: {_LOST}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{what}: its payload {record.file} cannot be read: {error}: {_LOST}") from None
    return (array.view(bf16.numpy) if record.spec.dtype is bf16 else array).reshape(record.shape)
