"""Prefix caches in files, which outlive the server's process."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from generation.engine import ArchivedBlock
from lang_core import LARGE_JSON_BOUNDS, InputError, json_value
from tapeline.bundle import Bundle
from tapeline.cli import VERSION
from tapeline.server._log import Log

_MAGIC: Final = b"tapeline prefixes 1\n"
_SECRET: Final = "secret"
_SECRET_BYTES: Final = 32
_LENGTH_BYTES: Final = 8
_RUNTIMES: Final = ("iree-base-runtime", "jaxlib", "numpy")


class DamagedFileError(ValueError):
    """A file of prefixes, or a block in it, is not as it was written."""


class PrefixFile:
    """``PrefixArchive`` in a file: a header in JSON, then the arrays of every block, each block with its sha256.

    A file of another bundle, version or device is not used. A damaged block is left out, with those that continue it.

    Args:
        path: the file.
        identity: text of everything that the entries depend on.
        budget: largest size of the file, in bytes.
        log: is told what is loaded, saved and damaged.
    """

    def __init__(self, path: Path, identity: str, budget: int, log: Log) -> None:
        self._path: Final = path
        self._identity: Final = identity
        self._budget: Final = budget
        self._log: Final = log

    def load(self, rules: str) -> Sequence[ArchivedBlock]:
        """Returns the blocks of the file; none if there is no file, or it is damaged, or another model's."""
        try:
            with self._path.open("rb") as file:
                header = _read_header(file, self._path)
                if header.get("identity") != self._identity or header.get("rules") != rules:
                    self._log.info("prefixes of another bundle", file=self._path.name)
                    return ()
                blocks, damaged = _read_blocks(file, header["blocks"], self._budget)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._log.error("prefixes not loaded", file=self._path.name, error=str(error))
            return ()
        if damaged:
            self._log.error("damaged prefixes", file=self._path.name, blocks=damaged)
        self._log.info("prefixes loaded", file=self._path.name, blocks=len(blocks))
        return blocks

    def save(self, rules: str, blocks: Sequence[ArchivedBlock]) -> None:
        """Writes the blocks in place of the file, in one step. A failure leaves the file and is logged."""
        part = self._path.with_name(f".{self._path.name}.part")
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # prompts can be read from it
            with os.fdopen(descriptor, "wb") as file:
                count = _write(file, {"identity": self._identity, "rules": rules}, blocks, self._budget)
            part.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            self._log.error("prefixes not saved", file=self._path.name, error=str(error))
            return
        self._log.info("prefixes saved", file=self._path.name, blocks=count)


@dataclass(frozen=True, slots=True)
class PrefixDirectory:
    """Directory of the files of prefixes of a server's models.

    Attributes:
        path: the directory.
        secret: secret from which the salts of API keys are made, the same for every start.
        log: is told what is loaded and saved.
    """

    path: Path
    secret: bytes
    log: Log

    @classmethod
    def open(cls, path: Path, log: Log) -> "PrefixDirectory":
        """Makes the directory, for its owner alone, and its secret.

        Raises:
            InputError: it cannot be made, read or written.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path / _SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(_SECRET_BYTES))
            secret = (path / _SECRET).read_bytes()
            writable = os.access(path, os.W_OK)
        except OSError as error:
            raise InputError(f"prefix_cache_dir={path}: cannot be used ({error}): name another directory") from error
        if len(secret) != _SECRET_BYTES or not writable:
            why = "its file `secret` is damaged: remove the directory" if writable else "it cannot be written"
            raise InputError(f"prefix_cache_dir={path}: {why}")
        return cls(path, secret, log)

    def file(self, name: str, bundle: Bundle, place: str, budget: int) -> PrefixFile:
        """Returns the file of a model.

        Args:
            name: name of the model.
            bundle: its bundle.
            place: engine and devices that run it.
            budget: largest size of the file, in bytes.
        """
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        short = hashlib.sha256(name.encode()).hexdigest()[:8]
        return PrefixFile(self.path / f"{safe[:64]}-{short}.prefixes", _identity(bundle, place), budget, self.log)


def _identity(bundle: Bundle, place: str) -> str:
    """Returns the hash of everything that entries depend on: every file of the bundle, the device, the runtimes."""
    versions = {"tapeline": VERSION}
    for name in _RUNTIMES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    decides = [sorted(bundle.config.sha256.items()), place, versions]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def _read_header(file: BinaryIO, path: Path) -> Mapping[str, Any]:
    size = path.stat().st_size
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DamagedFileError("it is no file of prefixes of this version")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > size:
        raise DamagedFileError("its header is cut off")
    text, digest = file.read(length), file.read(hashlib.sha256().digest_size)
    if hashlib.sha256(text).digest() != digest:
        raise DamagedFileError("the sha256 of its header is another")
    return json_value(text, LARGE_JSON_BOUNDS)


def _read_blocks(file: BinaryIO, listed: Sequence[Any], budget: int) -> tuple[list[ArchivedBlock], int]:
    """Returns the blocks that are as they were written, and the number of damaged ones."""
    blocks: list[ArchivedBlock] = []
    places: dict[int, int] = {}  # of blocks that are kept
    damaged = 0
    for index, entry in enumerate(listed):
        size = entry["nbytes"]
        if size > budget:
            raise DamagedFileError("a block is larger than the cache")
        data = file.read(size)
        sound = len(data) == size and hashlib.sha256(data).hexdigest() == entry["sha256"]
        damaged += not sound
        if not sound or (entry["parent"] >= 0 and entry["parent"] not in places):
            continue
        tokens, *arrays = _arrays(data, entry["arrays"])
        parent = places.get(entry["parent"], -1)
        places[index] = len(blocks)
        blocks.append(ArchivedBlock(entry["salt"], parent, tokens, arrays))
    return blocks, damaged


def _arrays(data: bytes, specs: Sequence[Any]) -> Iterator[np.ndarray]:
    offset = 0
    for dtype, shape in specs:
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        yield np.frombuffer(data, kind, count, offset).reshape(shape)
        offset += count * kind.itemsize


def _write(file: BinaryIO, head: Mapping[str, Any], blocks: Sequence[ArchivedBlock], budget: int) -> int:
    """Writes the blocks that fit into the budget, and returns their number."""
    listed: list[Any] = []
    places: dict[int, int] = {}
    payload: list[np.ndarray] = []
    total = 0
    for index, block in enumerate(blocks):
        arrays = [block.tokens, *block.arrays]
        nbytes = sum(array.nbytes for array in arrays)
        if (block.parent >= 0 and block.parent not in places) or total + nbytes > budget:
            continue
        places[index] = len(listed)
        listed.append(
            {
                "salt": block.salt,
                "parent": places.get(block.parent, -1),
                "arrays": [[array.dtype.name, array.shape] for array in arrays],
                "nbytes": nbytes,
                "sha256": _sha256(arrays),
            }
        )
        payload += arrays
        total += nbytes
    text = json.dumps({**head, "blocks": listed}).encode()
    file.write(_MAGIC + len(text).to_bytes(_LENGTH_BYTES, "little") + text + hashlib.sha256(text).digest())
    for array in payload:
        file.write(_bytes(array))
    return len(listed)


def _sha256(arrays: Sequence[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
