"""Directories of safetensors files: one file, or shards and their index."""

import os
import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from lang_core import CheckpointError, file_bytes, near_names
from transformer_core.checkpoints._file import SafetensorsFile
from transformer_core.checkpoints._header import MAX_HEADER_BYTES, parse_json
from transformer_core.checkpoints._parts import CheckpointInParts

SINGLE_FILE: Final = "model.safetensors"
"""Name of the weights of a checkpoint in one file."""
INDEX_FILE: Final = "model.safetensors.index.json"
"""Name of the index of a checkpoint in several files."""
_MODULE: Final = re.compile(r"[0-9]+_(Dense|LayerNorm)")
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class SafetensorsCheckpoint(CheckpointInParts[SafetensorsFile]):
    """Weights of a Hugging Face directory: ``model.safetensors``, or the shards that the index names.

    Keys of the files in ``2_Dense``, ``3_LayerNorm`` and so on, of sentence-transformers, begin with the directory's
    name.

    All headers are checked on opening; tensors are read on demand.

    Attributes:
        unlisted: names of further safetensors files in the directory, which are not read.

    Raises:
        CheckpointError: the directory lacks safetensors, a file is damaged, or the index and the shards disagree.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        path = os.fspath(directory)
        files = _files(path)
        read = {os.path.basename(file.path) for file in files}
        self.unlisted: Final = tuple(
            sorted(name for name in _listing(path) if name.endswith(".safetensors") and name not in read)
        )
        super().__init__(path, [*files, *_module_files(path)])

    def stored_form(self, key: str) -> tuple[str, tuple[int, ...]]:
        """Returns the format's name of a tensor's dtype, and its shape. Raises CheckpointError for an unknown key."""
        return self._file(key).stored_form(key)

    def read_stored(self, key: str) -> np.ndarray:
        """Reads a part of a quantised weight from its file; see ``SafetensorsFile.read_stored``."""
        return self._file(key).read_stored(key)


def read_shard_names(index: str | os.PathLike[str]) -> list[str]:
    """Returns the names of the shards that an index names, sorted.

    Raises:
        CheckpointError: the index is damaged, or names a file outside of its directory.
    """
    return sorted(_read_index(os.fspath(index)))


def _files(directory: str) -> list[SafetensorsFile]:
    """Returns the single file, or the shards in the order of their names."""
    names = _listing(directory)
    if SINGLE_FILE in names:
        return [SafetensorsFile(os.path.join(directory, SINGLE_FILE))]
    if INDEX_FILE in names:
        return _shards(directory)
    raise CheckpointError(_nothing_found(directory, names))


def _module_files(directory: str) -> list[SafetensorsFile]:
    """Returns the files of the modules that sentence-transformers has in directories of their own."""
    names = sorted(name for name in _listing(directory) if _MODULE.fullmatch(name))
    paths = {name: os.path.join(directory, name, SINGLE_FILE) for name in names}
    return [SafetensorsFile(path, f"{name}.") for name, path in paths.items() if os.path.exists(path)]


def _shards(directory: str) -> list[SafetensorsFile]:
    index = os.path.join(directory, INDEX_FILE)
    files: list[SafetensorsFile] = []
    for name, listed in sorted(_read_index(index).items()):
        path = os.path.join(directory, name)
        if not os.path.exists(path):
            raise CheckpointError(
                f"{index}: the shard {name!r} is not in {directory} ({len(listed)} tensors, "
                f"the first is {listed[0]!r}): finish the download"
            )
        files.append(SafetensorsFile(path))
        _check_shard(files[-1], listed, index)
    return files


def _listing(directory: str) -> set[str]:
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        raise CheckpointError(f"{directory}: no such directory, expected a checkpoint's") from None
    except NotADirectoryError:
        raise CheckpointError(f"{directory}: is a file, expected the checkpoint's directory") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory}: cannot list the checkpoint's directory: {error}") from None


def _nothing_found(directory: str, names: set[str]) -> str:
    wanted = f"{directory}: no {SINGLE_FILE} and no {INDEX_FILE}"
    others = sorted(name for name in names if name.endswith(".safetensors"))
    if others:
        return f"{wanted}, but {', '.join(others[:4])}: rename the single file, or fetch the index of the shards"
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    if pickles:
        listing = ", ".join(pickles[:4])
        return f"{wanted}, only {listing}: a pickle can run code and is never loaded: convert it to safetensors"
    listing = ", ".join(sorted(names)[:6]) or "an empty directory"
    return f"{wanted}: found {listing}; name a directory with safetensors files"


def _read_index(path: str) -> Mapping[str, list[str]]:
    """Returns the keys of each shard."""
    try:
        text = file_bytes(path, MAX_HEADER_BYTES)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read the index: {error}") from None
    weight_map = parse_json(text, path, "index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map is {weight_map!r:.80}, expected an object from keys to shards")
    shards: dict[str, list[str]] = {}
    for key, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain(name):
            raise CheckpointError(
                f"{path}: tensor {key!r} is mapped to {name!r:.80}, expected the plain name of a .safetensors file "
                "beside the index: a shard outside the directory is never read"
            )
        shards.setdefault(name, []).append(key)
    return shards


def _is_plain(name: str) -> bool:
    return (
        name.isprintable()
        and not set(name) & set('/\\:"')
        and not name.startswith(".")
        and name.endswith(".safetensors")
    )


def _check_shard(file: SafetensorsFile, listed: list[str], index: str) -> None:
    for key in listed:
        if not file.has(key):
            hint = near_names(key, file.keys())
            raise CheckpointError(
                f"{index}: tensor {key!r} is mapped to {file.path}, which lacks it{hint}: fetch both again"
            )
    surplus = sorted(set(file.keys()).difference(listed))
    if surplus:
        raise CheckpointError(
            f"{file.path}: tensor {surplus[0]!r}{f' and {len(surplus) - 1} more' if surplus[1:] else ''} "
            f"not listed for this shard by {index}: fetch both again"
        )
