"""A directory of safetensors files: one file, or shards and their index."""

import os
from collections.abc import Iterator, Mapping
from typing import Final, Self

import numpy as np

from lang_core import CheckpointError, TensorSpec, near_names
from transformer_core.checkpoints._file import SafetensorsFile
from transformer_core.checkpoints._header import MAX_HEADER_BYTES, parse_json

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class SafetensorsCheckpoint:
    """The weights of a Hugging Face directory: ``model.safetensors``, else the shards that the index names.

    Implements ``lang_core.WeightSource``. All headers are checked on opening; no tensor is read before it is asked for.

    Raises:
        CheckpointError: the directory holds no safetensors, a file is damaged, or the index and the shards disagree.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path: Final = os.fspath(directory)
        self._files: Final[list[SafetensorsFile]] = []
        names = _listing(self.path)
        if SINGLE_FILE in names:
            self._open(SINGLE_FILE)
        elif INDEX_FILE in names:
            self._open_shards(os.path.join(self.path, INDEX_FILE))
        else:
            raise CheckpointError(_nothing_found(self.path, names))
        self._owner: Final = {key: file for file in self._files for key in file.keys()}  # noqa: SIM118

    def keys(self) -> Iterator[str]:
        """The keys: shards in the order of their names, then the order of the data."""
        return iter(self._owner)

    def has(self, key: str) -> bool:
        """Whether a file of the checkpoint has this key."""
        return key in self._owner

    def spec(self, key: str) -> TensorSpec:
        """The stored shape and dtype. Raises CheckpointError: no such key, or a dtype that cannot be read."""
        return self._file(key).spec(key)

    def encoding(self, key: str) -> None:
        """None: the format packs nothing."""
        self._file(key).encoding(key)

    def read(self, key: str) -> np.ndarray:
        """The whole tensor, a read-only view onto the map. Raises CheckpointError as ``SafetensorsFile.read``."""
        return self._file(key).read(key)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of the first axis, a read-only view. Raises CheckpointError as ``read``."""
        return self._file(key).read_rows(key, start, stop)

    def origin(self, key: str) -> str:
        """The path of the file that holds the key."""
        return self._file(key).path

    def close(self) -> None:
        """Closes every file: see ``SafetensorsFile.close``."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _file(self, key: str) -> SafetensorsFile:
        file = self._owner.get(key)
        if file is None:
            raise CheckpointError(f"{self.path}: no tensor {key!r} in the checkpoint{near_names(key, self._owner)}")
        return file

    def _open(self, name: str) -> SafetensorsFile:
        file = SafetensorsFile(os.path.join(self.path, name))
        self._files.append(file)
        return file

    def _open_shards(self, index: str) -> None:
        shards = _read_index(index)
        for name in sorted(shards):
            if not os.path.exists(os.path.join(self.path, name)):
                raise CheckpointError(
                    f"{index}: the shard {name!r} is not in {self.path} ({len(shards[name])} tensors, "
                    f"the first is {shards[name][0]!r}): finish the download"
                )
            _check_shard(self._open(name), shards[name], index)


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
        found = ", ".join(pickles[:4])
        return f"{wanted}, only {found}: a pickle can run code and is never loaded: convert it to safetensors"
    found = ", ".join(sorted(names)[:6]) or "an empty directory"
    return f"{wanted}: found {found}; name a directory with safetensors files"


def _read_index(path: str) -> Mapping[str, list[str]]:
    """Returns the keys of each shard."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_HEADER_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read the index: {error}") from None
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(f"{path}: the index has more than {MAX_HEADER_BYTES} bytes: not a checkpoint's index")
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
