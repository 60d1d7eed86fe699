"""Headers of weights by ranged requests: files of the true size whose data are holes."""

import contextlib
import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from huggingface_hub import hf_hub_url
from huggingface_hub.utils import get_session, hf_raise_for_status

from lang_core import CheckpointError
from tapeline.hub._listing import HubFile, Listing, headers
from tapeline.hub._names import HubError
from tapeline.hub._settings import HubSettings
from tapeline.hub._transfer import Transfer, run_jobs
from transformer_core.checkpoints.gguf import GgufFile

_SAFETENSORS_FIRST: Final = 64 << 10
_SAFETENSORS_MOST: Final = 100 << 20
_GGUF_FIRST: Final = 4 << 20
_GGUF_MOST: Final = 256 << 20


class HeaderFiles:
    """Files that have the headers of weights on the hub, and nothing after them.

    Args:
        listing: commit and its files.
        settings: place of the hub.
        directory: where the files are made.
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
            hf_raise_for_status(response)
            skip = 0 if response.status_code == 206 else begin  # the whole file comes where ranges are ignored
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
    """Returns the first byte of the data as the file says; a number beyond any where it ends within its header."""
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
