"""Damaged and unusual GGUF files, written byte by byte: what is wrong is named, and nothing else happens."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import CheckpointError, TensorSpec
from transformer_core.checkpoints.gguf import PACKED, GgufFile
from transformer_core.checkpoints.gguf._cursor import MAX_HEADER_BYTES

Type = GGMLQuantizationType


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def field(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str = "w", dims: tuple[int, ...] = (3, 2), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def raw(tensors: list[bytes] = [], fields: list[bytes] = [], data: int = 0, **given: Any) -> bytes:  # noqa: B006
    counts = given.get("tensors_said", len(tensors)), given.get("fields_said", len(fields))
    header = given.get("magic", b"GGUF") + struct.pack("<IQQ", given.get("version", 3), *counts)
    header += b"".join(fields) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


_HUGE = struct.pack("<Q", 1 << 60)
DAMAGED = [
    (b"", r"truncated: the magic needs 4 bytes or more at byte 0, 0 are left: download"),
    (b"GGU", "truncated: the magic"),
    (b"PK\3\4" + bytes(40), r"begins with b'PK\\x03\\x04', expected b'GGUF': this is not a GGUF file"),
    (raw(version=1), "GGUF version 1, read are 2 and 3: convert the model again"),
    (raw(version=4), "GGUF version 4"),
    (raw(version=0x62626262), "GGUF version 1650614882, read are 2 and 3: the file is damaged: fetch it again"),
    (raw(version=3 << 24), "the file is big-endian: convert it with gguf-convert-endian"),
    (raw()[:20], "truncated: the number of metadata fields needs 8 bytes"),
    (raw(tensors_said=1 << 60), r"truncated: the list of \d+ tensors needs \d+ bytes or more"),
    (raw(fields_said=1 << 62), r"truncated: the metadata's \d+ fields needs"),
    (raw(fields=[_HUGE]), "truncated: "),
    (raw(fields=[field("a", 0, b"\1"), field("a", 0, b"\1")]), "the metadata has the field 'a' twice"),
    (raw(fields=[field("a", 99, b"")]), "metadata field 'a' has type 99, known are 0 UINT8, 1 INT8"),
    (raw(fields=[field("a", 8, _HUGE)]), "truncated: metadata field 'a' needs"),
    (raw(fields=[field("a", 8, struct.pack("<Q", 2) + b"\xff\xfe")]), "metadata field 'a' is not UTF-8"),
    (raw(fields=[field("a", 9, struct.pack("<IQ", 0, 1 << 60))]), "'a' has 1152921504606846976 elements, expected"),
    (raw(fields=[field("a", 9, struct.pack("<IQ", 8, 1 << 20))]), "truncated: metadata field 'a' needs 8388608 bytes"),
    (raw(fields=[field("a", 9, struct.pack("<IQ", 6, 1 << 20))]), "truncated: metadata field 'a' needs 4194304 bytes"),
    (raw(fields=[field("a", 9, struct.pack("<IQ", 9, 1) * 6)]), "'a' has arrays more than 4 deep"),
    (raw(fields=[field("general.alignment", 4, struct.pack("<I", 24))]), "general.alignment is 24, expected a power"),
    (raw(fields=[field("general.alignment", 8, text("x"))]), "general.alignment is 'x', expected a power of two"),
    (raw([tensor(dims=(1,) * 5)], data=64), "tensor 'w' has rank 5, expected 4 at most"),
    (raw([tensor(kind=4)], data=64), "tensor 'w' has type 4, which this version of the gguf package does not know"),
    (raw([tensor(kind=8)], data=64), "tensor 'w' has Q8_0 rows of 3, expected a multiple of 32"),
    (raw([tensor(dims=(1 << 40, 1 << 40))], data=64), "is beyond any file"),
    (raw([tensor(dims=(0, 1 << 63))], data=64), "is beyond any file"),
    (raw([tensor(offset=1 << 63)], data=64), "is beyond any file"),
    (raw([tensor(), tensor()], data=64), "tensor 'w' is listed twice"),
    (raw([tensor(dims=(1 << 30, 4))], data=64), r"truncated: tensor 'w' ends at byte \d+, the file has 160: download"),
    (raw([tensor()], data=20), "truncated: tensor 'w' ends at byte 120, the file has 116"),
    (raw([tensor(offset=4)], data=64), r"'w' begins at data byte 4 and does not follow the start of the data"),
    (raw([tensor(), tensor("b", (2,), 0, 24)], data=64), "'b' begins at data byte 24 and does not follow tensor 'w', "
     r"expected 32 \(general.alignment is 32\)"),
    (raw([tensor(), tensor("b", (2,), 0, 0)], data=64), "'w' begins at data byte 0 and overlaps tensor 'b', expected"),
    (raw([tensor(), tensor("b", (2,), 0, 64)], data=96), "'b' begins at data byte 64 and does not follow tensor 'w'"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=[message[:40] for _, message in DAMAGED])
def test_damage_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=message) as error:
            GgufFile(path)
        assert str(path) in str(error.value)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_damage_of_every_packed_type_is_named(kind: Type, tmp_path: Path) -> None:
    block, size = GGML_QUANT_SIZES[kind]
    shape, nbytes = (2 * block, 3), 6 * size
    next_at = -(-nbytes // 32) * 32
    path = tmp_path / "some.gguf"
    for content, message in (
        (
            raw([tensor("w", shape, kind)], data=nbytes - 1),
            r"truncated: tensor 'w' ends at byte \d+, the file has \d+",
        ),
        (
            raw([tensor("w", (block + 1, 3), kind)], data=nbytes),
            rf"'w' has {kind.name} rows of {block + 1}, expected a mul",
        ),
        (
            raw([tensor("w", (), kind)], data=nbytes),
            rf"tensor 'w' has {kind.name} rows of 1, expected a multiple of {block}",
        ),
        (
            raw([tensor("w", shape, kind), tensor("v", (8,), 0, next_at - 32)], data=2 * nbytes),
            r"'v' begins .* overlaps",
        ),
        (
            raw([tensor("w", shape, kind), tensor("v", (8,), 0, next_at + 32)], data=2 * nbytes),
            r"'v' .* does not follow",
        ),
        (raw([tensor("w", (block << 40, 1 << 20), kind)], data=nbytes), "'w' of shape .* is beyond any file|truncated"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            GgufFile(path)
    path.write_bytes(raw([tensor("w", shape, kind)], data=nbytes))
    with GgufFile(path) as file:
        assert (file.read("w").shape, file.read_packed("w").shape) == (shape[::-1], (3, 2 * size))
        assert file.packed_as("w") == kind.name.lower()


def test_a_header_may_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as file:
        file.write(raw(fields=[field("a", 8, struct.pack("<Q", MAX_HEADER_BYTES))]))
        file.truncate(MAX_HEADER_BYTES * 4)
    with pytest.raises(CheckpointError, match=r"damaged \(a header has 268435456 at most\): metadata field 'a' needs"):
        GgufFile(path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(raw([tensor("w", (256, 2), Type.Q8_1)], data=2 * 320))
    with GgufFile(path) as file:
        assert (list(file.keys()), file.encoding("w")) == (["w"], "q8_1")
        for ask in (file.spec, file.read, file.read_packed, lambda key: file.read_rows(key, 0, 1)):
            with pytest.raises(CheckpointError, match=r"tensor 'w' has type Q8_1, readable are F32, .*, IQ3_S: take"):
                ask("w")
        with pytest.raises(CheckpointError, match=r"some.gguf: no tensor 'v'"):
            file.read("v")
    with pytest.raises(CheckpointError, match=r"none\.gguf: no such file, expected a GGUF file"):
        GgufFile(tmp_path / "none.gguf")
    with pytest.raises(CheckpointError, match=r"is a directory, expected a GGUF file"):
        GgufFile(tmp_path)


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(raw([tensor("s", (), 0, 0), tensor("e", (32, 0), 8, 32)], data=32))
    with GgufFile(path) as file:
        assert file.spec("s") == TensorSpec((), "f32")
        assert (file.read("s"), file.read_rows("s", 0, 1).shape, file.read_rows("s", 1, 1).shape) == (0, (), (0,))
        assert file.read("e").shape == (0, 32)
        assert file.read_packed("e").shape == (0, 0)


def read_all(path: Path) -> None:
    with GgufFile(path) as file:
        for key in list(file.keys()):
            try:
                shape = file.spec(key).shape
            except CheckpointError:
                continue
            assert file.read(key).shape == shape


SMALL = raw(
    [tensor("token_embd.weight", (32, 3), 8, 0), tensor("norm", (5,), 0, 128), tensor("h", (2, 2), 1, 160),
     tensor("m", (64, 1), Type.MXFP4, 192), tensor("i", (256, 1), Type.IQ3_S, 256), tensor("f", (2, 1), 0, 384)],
    [field("general.architecture", 8, text("llama")), field("n", 9, struct.pack("<IQ3I", 4, 3, 7, 8, 9)),
     field("t", 9, struct.pack("<IQ", 8, 2) + text("a") + text("▁b")), field("general.alignment", 4, b"\x20\0\0\0")],
    data=416,
)  # fmt: skip


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    path = tmp_path_factory.mktemp("fuzz") / "fuzz.gguf"

    def write(content: bytes) -> Path:
        path.write_bytes(content)
        return path

    return write


def test_every_truncation_is_an_error(scratch: Callable[[bytes], Path]) -> None:
    read_all(scratch(SMALL))
    end = len(SMALL) - 24  # the last tensor's padding
    for length in range(end):
        with pytest.raises(CheckpointError):
            read_all(scratch(SMALL[:length]))
    read_all(scratch(SMALL[:end]))


@settings(max_examples=200_000 if os.environ.get("TAPELINE_LONG") else 600, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_flipped_byte_is_harmless(scratch: Callable[[bytes], Path], flips: list[tuple[int, int]]) -> None:
    """The file is read, or refused as it should be: nothing else is raised, nothing large is allocated."""
    content = bytearray(SMALL)
    for place, value in flips:
        content[place] = value
    try:
        read_all(scratch(bytes(content)))
    except CheckpointError as error:
        assert "fuzz.gguf" in str(error)  # noqa: PT017
