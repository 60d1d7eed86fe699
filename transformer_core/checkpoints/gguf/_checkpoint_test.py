"""Models in one GGUF file, and in several, as the gguf package splits them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from lang_core import CheckpointError, WeightSource
from transformer_core.checkpoints.gguf import GgufCheckpoint

ARRAYS = {f"blk.{i}.w": np.full((3, 4), i, np.float32) for i in range(5)}


def write(directory: Path, *, tensors_per_file: int = 0) -> list[Path]:
    """The files of a model of five tensors."""
    writer = GGUFWriter(directory / "model.gguf", "llama", split_max_tensors=tensors_per_file)
    writer.add_string("note", "of the first")
    for name, array in ARRAYS.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(directory.glob("*.gguf"))


def check(checkpoint: GgufCheckpoint) -> None:
    assert isinstance(checkpoint, WeightSource)
    assert list(checkpoint.keys()) == list(ARRAYS)
    assert checkpoint.metadata["note"] == "of the first"
    for name, array in ARRAYS.items():
        assert checkpoint.has(name)
        assert checkpoint.encoding(name) is None
        assert checkpoint.spec(name).shape == (3, 4)
        np.testing.assert_array_equal(checkpoint.read(name), array)
        np.testing.assert_array_equal(checkpoint.read_rows(name, 1, 3), array[1:])
        assert checkpoint.read_packed(name).shape == (3, 16)
    with pytest.raises(CheckpointError, match=r"no tensor 'blk.9.w'"):
        checkpoint.spec("blk.9.w")


def test_one_file(tmp_path: Path) -> None:
    (path,) = write(tmp_path)
    with GgufCheckpoint(path) as checkpoint:
        check(checkpoint)
        assert (checkpoint.paths, checkpoint.origin("blk.0.w")) == ([str(path)], str(path))


def test_any_part_leads_to_all(tmp_path: Path) -> None:
    paths = write(tmp_path, tensors_per_file=2)
    assert [path.name for path in paths] == [f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for path in paths:
        with GgufCheckpoint(path) as checkpoint:
            check(checkpoint)
            assert checkpoint.paths == [*map(str, paths)]
            assert checkpoint.path == str(path)
            assert checkpoint.origin("blk.3.w") == str(paths[1])


def _missing(paths: list[Path]) -> None:
    paths[1].unlink()


def _renamed(paths: list[Path]) -> None:
    paths[0].rename(paths[0].with_name("model.gguf"))


def _other_count(paths: list[Path]) -> None:
    for path in paths:
        path.rename(path.with_name(path.name.replace("of-00003", "of-00004")))


def _swapped(paths: list[Path]) -> None:
    first, second = paths[0].read_bytes(), paths[1].read_bytes()
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)


def _twice(paths: list[Path]) -> None:
    paths[1].write_bytes(paths[1].read_bytes().replace(b"blk.3.w", b"blk.0.w"))


def _lacking(paths: list[Path]) -> None:
    for path in paths:
        field = b"split.tensors.count" + (5).to_bytes(4, "little")
        content = path.read_bytes()
        assert field in content
        path.write_bytes(content.replace(field + (5).to_bytes(4, "little"), field + (6).to_bytes(4, "little")))


def _damaged(paths: list[Path]) -> None:
    paths[2].write_bytes(paths[2].read_bytes()[:60])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _missing,
            r"model-00001-of-00003.gguf: part 2 of 3 is missing, expected .*-00002-of-00003.gguf: fetch it",
        ),
        (_renamed, r"model.gguf: is one of 3 files of a model, which are called name-00001-of-00003.gguf .*: give it"),
        (_other_count, r"of-00004.gguf: is one of 3 files of a model"),
        (_swapped, r"model-00001-of-00003.gguf: split.no is 1, expected 0: fetch the file again"),
        (_twice, r"model-00002-of-00003.gguf: tensor 'blk.0.w' is in .*model-00001-of-00003.gguf, too: fetch both"),
        (_lacking, r"split.tensors.count is 6, the 3 files have 5 tensors: fetch them again"),
        (_damaged, r"model-00003-of-00003.gguf: truncated"),
    ],
)
def test_parts_that_do_not_belong_together(change: Callable[[list[Path]], None], message: str, tmp_path: Path) -> None:
    change(write(tmp_path, tensors_per_file=2))
    with pytest.raises(CheckpointError, match=message):
        GgufCheckpoint(min(tmp_path.glob("*.gguf"), key=lambda path: (len(path.name), path.name)))


def test_a_count_that_is_none(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_string("split.count", "many")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"split.count is 'many', expected a number of files"):
        GgufCheckpoint(tmp_path / "model.gguf")
