"""Settings of huggingface_hub that downloads keep to, and files of one commit: as the hub or its cache lists them."""

import contextlib
import os
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from lang_core import json_value
from tapeline.hub._names import HubError, HubName

COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES: Final = 64 << 20
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
_LIBRARY: Final = "tapeline"


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Place of the hub and of its cache, and bounds on waiting.

    Attributes:
        endpoint: address of the hub.
        cache: directory of the hub's cache.
        offline: True asks nothing of the network.
        stall_seconds: longest time without any byte.
        answer_seconds: longest time for one answer of the hub's API.
        attempts: number of times that a question is asked which the hub answers with 429 or 5xx.
        pause_seconds: time between them.
    """

    endpoint: str
    cache: Path
    offline: bool = False
    stall_seconds: float = 60.0
    answer_seconds: float = 20.0
    attempts: int = 3
    pause_seconds: float = 1.0

    @classmethod
    def from_environment(cls) -> Self:
        """Returns the settings of huggingface_hub's variables HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE."""
        return cls(constants.ENDPOINT, Path(constants.HF_HUB_CACHE), offline=constants.is_offline_mode())

    @property
    def shown(self) -> str:
        """Address of the hub for messages, without a password in it."""
        parts = urllib.parse.urlsplit(self.endpoint)
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def storage(self, repository: str) -> Path:
        """Returns the directory of a repository in the cache."""
        return self.cache / f"models--{repository.replace('/', '--')}"

    def snapshot(self, repository: str, commit: str) -> Path:
        """Returns the directory of a commit's files in the cache."""
        return self.storage(repository) / "snapshots" / commit


@dataclass(frozen=True, slots=True)
class HubFile:
    """File of a commit.

    Attributes:
        name: path in the repository.
        size: bytes.
        sha256: hash of the content, of files in large file storage.
        blob: git's hash of the content, of the others.
    """

    name: str
    size: int
    sha256: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Files of a commit.

    Attributes:
        repository: name of the repository.
        revision: branch, tag or commit that was asked for.
        commit: hash of the commit; all files are taken from it, wherever the branch moves meanwhile.
        files: files by name.
        cached: True if the cache lists them, because the hub was not asked or did not answer.
    """

    repository: str
    revision: str
    commit: str
    files: Mapping[str, HubFile]
    cached: bool = False


def headers() -> dict[str, str]:
    """Returns the headers of a request, with the token of huggingface_hub's own login."""
    return build_hf_headers(library_name=_LIBRARY)


def online_listing(name: HubName, settings: HubSettings) -> Listing:
    """Asks the hub for the files of a revision.

    Raises:
        HubError: the answer is not a listing.
        Exception: errors of huggingface_hub and of its transport.
    """
    revision = urllib.parse.quote(name.revision, safe="")
    url = f"{settings.endpoint}/api/models/{name.repository}/revision/{revision}"
    text = _answer(url, settings)
    try:
        values = json_value(text)
        files = [_file(entry) for entry in values["siblings"]]
        commit = values["sha"]
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise ValueError(f"the commit is {commit!r:.80}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise HubError(
            f"{settings.shown} gives no listing of {name.repository} such as the hub's ({reason:.200}): check "
            "HF_ENDPOINT, and the connection (a login page of the network, a proxy)"
        ) from None
    return Listing(name.repository, name.revision, commit, {file.name: file for file in files})


def cached_listing(name: HubName, settings: HubSettings) -> Listing | None:
    """Returns the cached files of a revision; None if it has nothing."""
    storage, commit = settings.storage(name.repository), name.revision
    if not COMMIT.fullmatch(commit):
        try:
            commit = (storage / "refs" / name.revision).read_text().strip()
        except (OSError, ValueError):
            return None
    snapshot = settings.snapshot(name.repository, commit)
    if not COMMIT.fullmatch(commit) or not snapshot.is_dir():
        return None
    paths = sorted(path for path in snapshot.rglob("*") if path.is_file())
    files = [HubFile(path.relative_to(snapshot).as_posix(), path.stat().st_size) for path in paths]
    return Listing(name.repository, name.revision, commit, {file.name: file for file in files}, cached=True)


def write_ref(listing: Listing, settings: HubSettings) -> None:
    """Notes in the cache which commit a revision is, which offline runs ask for."""
    if listing.revision == listing.commit:
        return
    with contextlib.suppress(OSError):  # a cache that is read-only serves all the same
        ref = settings.storage(listing.repository) / "refs" / listing.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        partial = ref.with_name(f".{ref.name}.{os.getpid()}")
        partial.write_text(listing.commit)
        partial.replace(ref)


def _answer(url: str, settings: HubSettings) -> bytes:
    """Returns the hub's answer, asked again if it is busy."""
    for attempt in range(settings.attempts):
        if attempt:
            time.sleep(settings.pause_seconds)
        timeout = settings.answer_seconds
        with get_session().stream("GET", url, params={"blobs": "true"}, headers=headers(), timeout=timeout) as response:
            if response.status_code not in _RETRIED or attempt == settings.attempts - 1:
                raise_for_status(response)
                return b"".join(_bounded(response.iter_bytes(), url, settings))
    raise AssertionError(settings.attempts)


def raise_for_status(response: Any) -> None:
    """Raises huggingface_hub's error if an answer is one.

    A part of its body is taken before, so that the library, which finds the rest consumed, does not read it to its end.
    """
    if response.status_code >= 400:
        next(response.iter_raw(), b"")
    hf_raise_for_status(response)


def _bounded(chunks: Iterator[bytes], url: str, settings: HubSettings) -> Iterator[bytes]:
    end, received = time.monotonic() + settings.answer_seconds, 0
    for chunk in chunks:
        received += len(chunk)
        if received > _MOST_BYTES or time.monotonic() > end:
            raise HubError(f"{settings.shown} does not end its answer ({received} bytes so far): check HF_ENDPOINT")
        yield chunk


def _file(entry: Any) -> HubFile:
    name, size, blob, lfs = (entry.get(key) for key in ("rfilename", "size", "blobId", "lfs"))
    sha256 = lfs.get("sha256") if isinstance(lfs, dict) else None
    if not isinstance(name, str) or not _is_plain(name):
        raise ValueError(f"a file is called {name!r:.80}")
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"{name!r:.80} has {size!r:.40} bytes")
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise ValueError(f"{name!r:.80} has the SHA-256 {sha256!r:.80}")
    git = blob if isinstance(blob, str) and COMMIT.fullmatch(blob) and sha256 is None else None
    return HubFile(name, size, sha256, git)


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(parts)
