"""Writes safetensors in a stream: the header first, then a chunk at a time."""

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO, Final

import numpy as np

from lang_core import InputError, TensorSpec
from transformer_core.checkpoints._checkpoint import INDEX_FILE, SINGLE_FILE
from transformer_core.checkpoints._header import DTYPES

Chunks = Callable[[str, TensorSpec], Iterable[np.ndarray]]
"""Gives the data of a tensor as arrays of its dtype, whose elements follow each other in row-major order."""

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def write_safetensors(
    path: str | os.PathLike[str],
    specs: Mapping[str, TensorSpec],
    chunks: Chunks,
    *,
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Writes one file, atomically: it appears complete or not at all.

    Tensors are ordered by falling element size, then as in ``specs``, so that each is aligned.

    Args:
        path: path of the file.
        specs: shape and dtype of each tensor.
        chunks: gives the data of a tensor; called once per tensor, in the order of the file.
        metadata: ``__metadata__`` of the file.

    Returns:
        The number of bytes of the file.

    Raises:
        InputError: the file cannot be written, or the chunks do not match the specs.
    """
    target = os.fspath(path)
    ordered = sorted(specs.items(), key=lambda item: -item[1].dtype.itemsize)
    temporary = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{secrets.token_hex(4)}.partial")
    try:
        with open(temporary, "xb", buffering=0) as file:
            file.write(_header(ordered, metadata))
            for key, spec in ordered:
                _write_tensor(file, key, spec, chunks(key, spec), target)
            total = file.tell()
        os.replace(temporary, target)
    except OSError as error:
        _remove(temporary)
        raise InputError(f"{target}: cannot write the checkpoint: {error.strerror or error}") from None
    except BaseException:
        _remove(temporary)
        raise
    return total


def write_sparse_safetensors(path: str | os.PathLike[str], specs: Mapping[str, TensorSpec]) -> int:
    """Writes one file of zeros as a sparse file (a hole), for trials and measurements.

    Returns:
        The number of bytes of the file.

    Raises:
        InputError: the file cannot be written.
    """
    header = _header(sorted(specs.items(), key=lambda item: -item[1].dtype.itemsize), None)
    total = len(header) + sum(spec.nbytes for spec in specs.values())
    try:
        with open(path, "wb") as file:
            file.write(header)
            file.truncate(total)
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot write the checkpoint: {error.strerror or error}") from None
    return total


def write_sharded_safetensors(
    directory: str | os.PathLike[str], specs: Mapping[str, TensorSpec], chunks: Chunks, shards: int
) -> list[str]:
    """Writes a checkpoint as a single file (``shards`` = 1), or as shards of about equal bytes and their index.

    Args:
        directory: existing directory.
        specs: specs by key, in the order of the file.
        chunks: function that gives the bytes of a tensor, a chunk at a time.
        shards: number of files.

    Returns:
        The paths of the files, the index last.

    Raises:
        InputError: as for ``write_safetensors``, or there are fewer tensors than shards.
    """
    metadata = {"format": "pt"}  # transformers requires it
    if shards == 1:
        path = os.path.join(directory, SINGLE_FILE)
        write_safetensors(path, specs, chunks, metadata=metadata)
        return [path]
    if not 1 <= shards <= len(specs):
        raise InputError(
            f"{os.fspath(directory)}: {shards} shards asked for {len(specs)} tensors: use 1 to {len(specs)}"
        )
    paths, weight_map = [], {}
    for number, keys in enumerate(_split(specs, shards), 1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        weight_map.update(dict.fromkeys(keys, name))
        paths.append(os.path.join(directory, name))
        write_safetensors(paths[-1], {key: specs[key] for key in keys}, chunks, metadata=metadata)
    index = {"metadata": {"total_size": sum(spec.nbytes for spec in specs.values())}, "weight_map": weight_map}
    paths.append(os.path.join(directory, INDEX_FILE))
    with open(paths[-1], "w", encoding="utf-8") as file:
        json.dump(index, file, indent=2)
    return paths


def _split(specs: Mapping[str, TensorSpec], shards: int) -> list[list[str]]:
    """Cuts the keys, in their order, into ``shards`` non-empty runs of about equal bytes."""
    runs: list[list[str]] = [[]]
    total, done = sum(spec.nbytes for spec in specs.values()), 0
    for left, (key, spec) in zip(range(len(specs), 0, -1), specs.items(), strict=True):
        open_runs = shards - len(runs)
        if runs[-1] and (left <= open_runs or (open_runs and done >= total * len(runs) // shards)):
            runs.append([])
        runs[-1].append(key)
        done += spec.nbytes
    return runs


def _header(ordered: list[tuple[str, TensorSpec]], metadata: Mapping[str, str] | None) -> bytes:
    fields: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for key, spec in ordered:
        end = offset + spec.nbytes
        fields[key] = {"dtype": _NAMES[spec.dtype], "shape": list(spec.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to 8 bytes
    return len(text).to_bytes(8, "little") + text


def _write_tensor(file: BinaryIO, key: str, spec: TensorSpec, chunks: Iterable[np.ndarray], path: str) -> None:
    done = 0
    for chunk in chunks:
        if chunk.dtype != spec.dtype.numpy or done + chunk.size > spec.size:
            raise InputError(f"{path}: tensor {key!r}: a chunk {chunk.dtype}{list(chunk.shape)} does not fit {spec}")
        left = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
        while left:
            left = left[file.write(left) :]
        done += chunk.size
    if done != spec.size:
        raise InputError(f"{path}: tensor {key!r}: chunks hold {done} elements, {spec} has {spec.size}")


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
