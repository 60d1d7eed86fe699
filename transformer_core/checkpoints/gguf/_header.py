"""Headers of GGUF files, parsed and proved consistent before any byte of a tensor is trusted.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: the magic ``GGUF``, a version,
the numbers of tensors and of metadata fields, the metadata, for each tensor its name, dimensions (the fastest first),
type and offset, padding; then the data, each tensor at the next multiple of ``general.alignment``.

The ``gguf`` package has a reader, too. It trusts the file's counts, offsets and lengths, so it serves here only as the
reference of the tests.
"""

import math
import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.constants import GGUF_DEFAULT_ALIGNMENT

from lang_core import CheckpointError
from transformer_core.checkpoints.gguf._cursor import REDO, Cursor
from transformer_core.checkpoints.gguf._metadata import Value, read_metadata

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)  # equal but for the byte order, which version 3 leaves open
MAX_RANK: Final = 4
ALIGNMENT: Final = "general.alignment"
_MAX_BYTES: Final = 2**63 - 1
_MAX_ALIGNMENT: Final = 1 << 20
_LEAST_TENSOR: Final = 8 + 4 + 4 + 8


class GgufTensor(NamedTuple):
    """Tensor of a file.

    Attributes:
        type: type of the elements, plain or packed.
        shape: dimensions, the slowest first, as in NumPy.
        begin: first byte, counted from the start of the file.
        nbytes: number of bytes.
    """

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    begin: int
    nbytes: int


class GgufHeader(NamedTuple):
    """Header of a file.

    Attributes:
        metadata: metadata by name, in the file's order.
        types: types of the metadata by name, of lists those of the elements.
        tensors: tensors by name, in the order of their data.
    """

    metadata: dict[str, Value]
    types: dict[str, GGUFValueType]
    tensors: dict[str, GgufTensor]


def read_header(descriptor: int, path: str) -> GgufHeader:
    """Reads and validates the header of an open file.

    Args:
        descriptor: descriptor of the open file.
        path: path of the file, for messages.

    Raises:
        CheckpointError: the file is not a consistent GGUF file; names the file, the field or tensor, the actual and the
            expected value.
        OSError: the file cannot be read.
    """
    size = os.fstat(descriptor).st_size
    with os.fdopen(os.dup(descriptor), "rb") as file:
        cursor = Cursor(file, size, path)
        tensor_count, field_count = _counts(cursor)
        types: dict[str, GGUFValueType] = {}
        metadata = read_metadata(cursor, field_count, types)
        tensors = _tensors(cursor, tensor_count)
    alignment = _alignment(metadata, path)
    data = _aligned(cursor.position, alignment)
    placed = {name: tensor._replace(begin=data + tensor.begin) for name, tensor in tensors.items()}
    return GgufHeader(metadata, types, _in_order(placed, data, alignment, size, path))


def _counts(cursor: Cursor) -> tuple[int, int]:
    magic = cursor.take(4, "the magic")
    if magic != MAGIC:
        raise CheckpointError(f"{cursor.path}: begins with {magic!r}, expected {MAGIC!r}: this is not a GGUF file")
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise CheckpointError(
                f"{cursor.path}: the file is big-endian: convert it with gguf-convert-endian, of the gguf package"
            )
        known = " and ".join(map(str, VERSIONS))
        cure = "convert the model again" if version < 100 else "the file is damaged: fetch it again"
        raise CheckpointError(f"{cursor.path}: GGUF version {version}, read are {known}: {cure}")
    return cursor.number("Q", "the number of tensors"), cursor.number("Q", "the number of metadata fields")


def _alignment(metadata: Mapping[str, Value], path: str) -> int:
    alignment = metadata.get(ALIGNMENT, GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise CheckpointError(f"{path}: {ALIGNMENT} is {alignment!r:.80}, expected a power of two: {REDO}")
    return alignment


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _tensors(cursor: Cursor, count: int) -> dict[str, GgufTensor]:
    cursor.need(count, _LEAST_TENSOR, f"the list of {count} tensors")
    tensors: dict[str, GgufTensor] = {}
    for index in range(count):
        name = cursor.text(f"the name of tensor {index}")
        if name in tensors:
            raise CheckpointError(f"{cursor.path}: tensor {name!r} is listed twice: {REDO}")
        tensors[name] = _tensor(cursor, f"tensor {name!r}")
    return tensors


def _tensor(cursor: Cursor, what: str) -> GgufTensor:
    rank = cursor.number("I", f"the rank of {what}")
    if rank > MAX_RANK:
        raise CheckpointError(f"{cursor.path}: {what} has rank {rank}, expected {MAX_RANK} at most: {REDO}")
    shape = tuple(reversed([cursor.number("Q", f"the shape of {what}") for _ in range(rank)]))
    number = cursor.number("I", f"the type of {what}")
    offset = cursor.number("Q", f"the offset of {what}")
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        raise CheckpointError(
            f"{cursor.path}: {what} has type {number}, which this version of the gguf package does not know: "
            f"quantise the model to a type that is read (docs/gguf.md), or {REDO}"
        ) from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    size = math.prod(shape)
    # Zeros count as ones: a shape whose other dimensions overflow cannot be held by an array either.
    if math.prod(max(dim, 1) for dim in shape) * block_bytes > _MAX_BYTES or offset > _MAX_BYTES:
        raise CheckpointError(f"{cursor.path}: {what} of shape {list(shape)} at {offset} is beyond any file: {REDO}")
    if (shape[-1] if shape else 1) % block:
        raise CheckpointError(
            f"{cursor.path}: {what} has {kind.name} rows of {shape[-1] if shape else 1}, "
            f"expected a multiple of {block}: {REDO}"
        )
    return GgufTensor(kind, shape, offset, size // block * block_bytes)


def _in_order(tensors: dict[str, GgufTensor], data: int, alignment: int, size: int, path: str) -> dict[str, GgufTensor]:
    """Returns the tensors in the order of their data, after checking that they follow each other within the file."""
    ordered = sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].nbytes))
    stop, before = data, "the start of the data"
    for name, tensor in ordered:
        if tensor.begin != (expected := _aligned(stop, alignment)):
            relation = "overlaps" if tensor.begin < stop else "does not follow"
            raise CheckpointError(
                f"{path}: tensor {name!r} begins at data byte {tensor.begin - data} and {relation} {before}, "
                f"expected {expected - data} ({ALIGNMENT} is {alignment}): {REDO}"
            )
        stop, before = tensor.begin + tensor.nbytes, f"tensor {name!r}"
        if stop > size:
            raise CheckpointError(f"{path}: truncated: {before} ends at byte {stop}, the file has {size}: {REDO}")
    return dict(ordered)
