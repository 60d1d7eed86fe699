"""Downloads into the hub's cache, each file checked against the hash that the hub lists; headers of weights alone."""

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from huggingface_hub import hf_hub_download, hf_hub_url
from huggingface_hub.utils import get_session

from lang_core import CheckpointError
from tapeline.cli import Progress, ProgressEvent, size_text
from tapeline.hub._listing import HubFile, HubSettings, Listing, headers, raise_for_status
from tapeline.hub._names import HubError
from tapeline.hub._transfer import Transfer, bar_class, run_jobs
from transformer_core.checkpoints.gguf import GgufFile

_UNCHECKED: Final = ".tapeline-unchecked"
_CHUNK: Final = 4 << 20
_RESERVE: Final = 16 << 20
_SAFETENSORS_FIRST: Final = 64 << 10
_SAFETENSORS_MOST: Final = 100 << 20
_GGUF_FIRST: Final = 4 << 20
_GGUF_MOST: Final = 256 << 20


class Downloads:
    """Files of one commit, fetched into the cache as far as they are not there.

    Args:
        listing: commit and its files.
        settings: place of the hub and of its cache.
        progress: receives bytes.
    """

    def __init__(self, listing: Listing, settings: HubSettings, progress: Progress) -> None:
        self._listing: Final = listing
        self._settings: Final = settings
        self._progress: Final = progress
        self._storage: Final = settings.storage(listing.repository)
        self.snapshot: Final[Path] = settings.snapshot(listing.repository, listing.commit)

    def missing(self, files: Sequence[HubFile]) -> list[HubFile]:
        """Returns the files that are not in the cache, are cut short there, or were never checked."""
        return [file for file in files if not self._is_complete(file)]

    def fetch(self, files: Sequence[HubFile]) -> None:
        """Downloads missing files, a few at a time.

        Raises:
            HubError: the disk is too small, the transfer stalls, or the content differs from the hub's listing.
            Exception: errors of huggingface_hub and of its transport.
        """
        missing = self.missing(files)
        if not missing:
            return
        if self._listing.cached:
            raise HubError(f"the cache {self._settings.cache} lacks {missing[0].name}: go online to fetch it")
        total = sum(file.size for file in missing)
        self._check_space(total)
        transfer = Transfer()
        tick = functools.partial(self._tell, transfer, total)
        run_jobs(
            [functools.partial(self._fetch, file, transfer) for file in missing],
            transfer,
            self._settings.stall_seconds,
            tick,
        )
        tick()

    def _tell(self, transfer: Transfer, total: int) -> None:
        self._progress(ProgressEvent(f"download {self._listing.repository}", min(transfer.done, total), total))

    def _is_complete(self, file: HubFile) -> bool:
        path = self.snapshot / file.name
        return path.is_file() and path.stat().st_size == file.size and not self._mark(file).exists()

    def _fetch(self, file: HubFile, transfer: Transfer) -> None:
        """Downloads a file. The mark tells a later run of a content that was not compared with its hash."""
        mark, path = self._mark(file), self.snapshot / file.name
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        if path.is_file() and path.stat().st_size != file.size:
            _remove(path, self._storage)
        hf_hub_download(
            self._listing.repository,
            file.name,
            revision=self._listing.commit,
            cache_dir=self._settings.cache,
            endpoint=self._settings.endpoint,
            library_name="tapeline",
            tqdm_class=bar_class(transfer),
        )
        self._check(file, path, transfer)
        mark.unlink(missing_ok=True)  # the folder stays: another thread or process may be about to mark a file in it

    def _check(self, file: HubFile, path: Path, transfer: Transfer) -> None:
        size = path.stat().st_size
        actual = _digest(file, path, transfer) if size == file.size else f"{size} bytes"
        wanted = (file.sha256 or file.blob) if size == file.size else f"{file.size} bytes"
        if wanted is None or actual == wanted:
            return
        _remove(path, self._storage)
        self._mark(file).unlink(missing_ok=True)
        raise HubError(
            f"the content of {file.name} of {self._listing.repository} is not what {self._settings.shown} lists "
            f"({actual}, expected {wanted}): it was removed; try again, and check HF_ENDPOINT if it stays so"
        )

    def _mark(self, file: HubFile) -> Path:
        return self._storage / _UNCHECKED / (file.sha256 or hashlib.sha256(file.name.encode()).hexdigest())

    def _check_space(self, total: int) -> None:
        cache = self._settings.cache.absolute()
        above = next(path for path in (cache, *cache.parents) if path.exists())
        free = shutil.disk_usage(above).free
        if free < total + _RESERVE:
            raise HubError(
                f"{size_text(total)} of {self._listing.repository} do not fit on the disk of {cache} "
                f"({size_text(free)} free): free some, or set HF_HUB_CACHE to another"
            )


def recorded_sha256(file: HubFile, path: Path) -> str:
    """Returns the SHA-256 of a file: as the hub lists it, as the cache calls its content, or by reading it."""
    if file.sha256 is not None:
        return file.sha256
    stored = path.resolve().name
    if len(stored) == hashlib.sha256().digest_size * 2 and path.is_symlink():
        return stored
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(file: HubFile, path: Path, transfer: Transfer) -> str:
    """Returns the hash of a content: SHA-256, or git's of a blob."""
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    for chunk in _chunks(path):
        digest.update(chunk)
        transfer.add(0)
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK):
            yield chunk


def _remove(path: Path, storage: Path) -> None:
    """Removes a file of a snapshot, with the content that it links to."""
    content = path.resolve()
    path.unlink(missing_ok=True)
    if content.parent == (storage / "blobs").resolve():
        with contextlib.suppress(OSError):
            os.unlink(content)


class HeaderFiles:
    """Files that have the headers of weights on the hub, and nothing after them.

    Args:
        listing: commit and its files.
        settings: place of the hub.
        directory: directory for the files.
    """

    def __init__(self, listing: Listing, settings: HubSettings, directory: Path) -> None:
        self._listing: Final = listing
        self._settings: Final = settings
        self._directory: Final = directory

    def fetch(self, files: Sequence[HubFile]) -> None:
        """Makes the files.

        Raises:
            HubError: a header is longer than any, or the hub stalls.
            Exception: errors of huggingface_hub and of its transport.
        """
        transfer = Transfer()
        jobs = [functools.partial(self._make, file, transfer) for file in files]
        run_jobs(jobs, transfer, self._settings.stall_seconds, lambda: None)

    def _make(self, file: HubFile, transfer: Transfer) -> None:
        path = self._directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        fetch = self._safetensors if file.name.endswith(".safetensors") else self._gguf
        with path.open("wb") as target:
            target.truncate(file.size)

            def more(begin: int, end: int) -> bytes:
                content = self._range(file, begin, min(end, file.size), transfer)
                target.seek(begin)
                target.write(content)
                target.flush()
                return content

            fetch(file, path, more)

    def _safetensors(self, file: HubFile, path: Path, more: Callable[[int, int], bytes]) -> None:
        del path
        first = more(0, _SAFETENSORS_FIRST)
        end = 8 + int.from_bytes(first[:8], "little")
        if end > _SAFETENSORS_MOST and end <= file.size:
            raise HubError(f"{file.name} of {self._listing.repository} has a header of {end} bytes: it is damaged")
        if len(first) < end <= file.size:
            more(len(first), end)

    def _gguf(self, file: HubFile, path: Path, more: Callable[[int, int], bytes]) -> None:
        begin, end = 0, _GGUF_FIRST
        while True:
            more(begin, end)
            if end >= file.size or end >= _GGUF_MOST or _header_end(path) <= end:
                return
            begin, end = end, 2 * end

    def _range(self, file: HubFile, begin: int, end: int, transfer: Transfer) -> bytes:
        if begin >= end:
            return b""
        url = hf_hub_url(
            self._listing.repository, file.name, revision=self._listing.commit, endpoint=self._settings.endpoint
        )
        asked = {**headers(), "Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        content, skip = bytearray(), 0
        with get_session().stream("GET", url, headers=asked, timeout=self._settings.answer_seconds) as response:
            raise_for_status(response)
            skip = 0 if response.status_code == 206 else begin  # the whole file comes if ranges are ignored
            for chunk in response.iter_bytes(1 << 16):
                transfer.add(len(chunk))
                content += chunk
                if len(content) >= skip + end - begin:
                    break
        made = bytes(content[skip : skip + end - begin])
        if len(made) != end - begin:
            raise HubError(f"{file.name} of {self._listing.repository} ends before byte {end}: try again")
        return made


def _header_end(path: Path) -> int:
    """Returns the first byte of the data as the file says; a number beyond any if it ends within its header."""
    try:
        with GgufFile(path) as file:
            return file.data_begin
    except CheckpointError:
        return _GGUF_MOST + 1


def copy_small(files: Sequence[HubFile], snapshot: Path, directory: Path) -> None:
    """Copies small files of a snapshot into the directory of the headers."""
    for file in files:
        path = directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(shutil.SameFileError):
            shutil.copyfile(snapshot / file.name, path)
