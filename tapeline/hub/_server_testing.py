"""Server on this machine that speaks the hub's API and fails as it is told to; repositories and settings of tests."""

import contextlib
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tapeline.cli import ProgressEvent
from tapeline.hub._listing import HubSettings
from tapeline.hub._names import HubName, ModelLocation, parse_hub_name
from tapeline.hub._snapshot import Snapshot

_LARGE: Final = (".safetensors", ".gguf", ".bin")


def commit_of(files: Mapping[str, bytes]) -> str:
    """Returns a hash that stands for a commit of these files."""
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@dataclass
class Repository:
    """Repository of a hub.

    Attributes:
        commits: files of each commit, by its hash.
        refs: commit of each branch and tag.
        gated: True refuses files to everybody.
        token: token that must be sent; None where everybody may read.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    token: str | None = None

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Adds a commit and moves a branch to it."""
        commit = commit_of(files)
        self.commits[commit] = dict(files)
        self.refs[ref] = commit
        return commit


@dataclass
class HubServer:
    """Hub with repositories and faults.

    Attributes:
        repositories: repositories by name.
        requests: method, path and range of each request so far.
        tokens: authorization of each request so far, by path.
        cuts: number of bytes after which the next download of a file ends.
        contents: bytes that are sent in place of a file's, by name.
        statuses: status and headers for requests whose path contains a text.
        hanging: texts in paths of requests that are never answered.
        listed: called after a listing has been sent.
        ranges: False ignores ranges.
    """

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    cuts: dict[str, int] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    statuses: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    listed: Callable[[], None] | None = None
    ranges: bool = True
    released: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, files: Mapping[str, bytes]) -> Repository:
        """Adds a repository with one commit."""
        repository = self.repositories[name] = Repository()
        repository.commit(files)
        return repository

    def sent(self) -> list[str]:
        """Returns the names of the files whose content was asked for, in order."""
        paths = [path.split("/") for method, path, _ in self.requests if method == "GET"]
        names = {"cdn": 6, "resolve": 5}
        return ["/".join(parts[names[kind] :]) for parts in paths for kind in (parts[1], parts[3]) if kind in names]


@contextlib.contextmanager
def hub_server() -> Iterator[HubServer]:
    """Runs a hub without repositories on a free port."""
    state = HubServer()

    class Handler(_Handler):
        hub = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        """Answers without a body."""
        self._answer()

    def do_GET(self) -> None:
        """Answers."""
        self._answer()

    def _answer(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        self.hub.tokens.append((path, self.headers.get("Authorization")))
        if any(text in path for text in self.hub.hanging):
            self.hub.released.wait(30)
            self.close_connection = True
            return
        for text, (status, headers) in self.hub.statuses.items():
            if text in path:
                self._send(status, b"{}", headers)
                return
        parts = path.strip("/").split("/")
        if parts[0] == "cdn":
            self._content(parts[1], self.hub.repositories["/".join(parts[2:4])].commits[parts[4]], "/".join(parts[5:]))
        elif parts[0] == "api":
            self._api("/".join(parts[2:4]), "/".join(parts[5:]))
        else:
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    def _repository(self, name: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        token = self.headers.get("Authorization")
        if repository is None or (repository.token is not None and token != f"Bearer {repository.token}"):
            self._send(401, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            return None
        return repository

    def _commit(self, repository: Repository, revision: str) -> str | None:
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return None
        return commit

    def _api(self, name: str, revision: str) -> None:
        repository = self._repository(name)
        commit = None if repository is None else self._commit(repository, revision)
        if repository is None or commit is None:
            return
        siblings = [_sibling(file, content) for file, content in repository.commits[commit].items()]
        self._send(200, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode(), {})
        if self.hub.listed is not None:
            self.hub.listed()

    def _resolve(self, name: str, revision: str, file: str) -> None:
        repository = self._repository(name)
        if repository is None:
            return
        if repository.gated:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
            return
        commit = self._commit(repository, revision)
        if commit is None:
            return
        content = repository.commits[commit].get(file)
        if content is None:
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        elif file.endswith(_LARGE):  # another host, as the hub's storage is
            digest = hashlib.sha256(content).hexdigest()
            storage = self.hub.endpoint.replace("127.0.0.1", "localhost")
            location = f"{storage}/cdn/{digest}/{name}/{commit}/{file}"
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            self._send(302, b"", {"Location": location, "X-Repo-Commit": commit, **linked})
        else:
            self._content(_git_hash(content), repository.commits[commit], file, {"X-Repo-Commit": commit})

    def _content(
        self, etag: str, files: Mapping[str, bytes], file: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Sends a file or a range of it; cut short, or another content, where the hub is told so."""
        content = self.hub.contents.get(file, files[file])
        status, extra = 200, {"ETag": f'"{etag}"', **(headers or {})}
        asked = self.headers.get("Range", "")
        if asked and self.hub.ranges:
            first, last = asked.removeprefix("bytes=").split("-")
            stop = min(int(last) + 1, len(content)) if last else len(content)
            status, extra["Content-Range"] = 206, f"bytes {first}-{stop - 1}/{len(content)}"
            content = content[int(first) : stop]
        cut = self.hub.cuts.pop(file, None) if self.command == "GET" else None
        self._send(status, content, extra, cut)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], cut: int | None = None) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if "X-Endless" not in headers else 1 << 60))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[:cut])
            if cut is not None:
                self.close_connection = True
            while "X-Endless" in headers and not self.hub.released.is_set():
                self.wfile.write(body)


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": _git_hash(content)}
    if name.endswith(_LARGE):
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
    return entry


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def safetensors(**tensors: np.ndarray) -> bytes:
    """Returns the bytes of a safetensors file of f32 tensors."""
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values())


SURPLUS: Final = bytes(range(256)) * 700
WEIGHTS: Final = safetensors(w=np.arange(35_000, dtype=np.float32).reshape(7, 5000))
MODEL: Final = {
    "config.json": b'{"a": 1}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "consolidated.safetensors": SURPLUS,
    "original/model.safetensors": SURPLUS,
    "onnx/model.onnx": b"graph",
    "README.md": b"text",
}
"""Files of a repository with a model in it, and others."""


class Events(list[ProgressEvent]):
    """Progress that is kept."""

    def __call__(self, event: ProgressEvent) -> None:
        """Keeps an event."""
        self.append(event)


def quick_settings(server: HubServer, cache: Path) -> HubSettings:
    """Returns settings for a server on this machine, with short waits."""
    return HubSettings(server.endpoint, cache, stall_seconds=60, answer_seconds=60, pause_seconds=0.01)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub without repositories, to which names lead."""
    with hub_server() as server:
        settings = quick_settings(server, tmp_path / "cache")
        monkeypatch.setattr(HubSettings, "from_environment", lambda: settings)
        yield server


def fetch(settings: HubSettings, text: str, need: Any = "weights", events: Events | None = None) -> ModelLocation:
    """Downloads what a name stands for."""
    name = parse_hub_name(text) or HubName("org/none")
    with Snapshot(name, Events() if events is None else events, settings).model(need) as location:
        return location
