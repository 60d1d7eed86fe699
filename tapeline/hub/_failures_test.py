import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from huggingface_hub import constants

from lang_core import InputError
from tapeline.hub import HubError, HubName, _download, parse_hub_name, resolve_adapter, resolve_model
from tapeline.hub._listing import HubFile, HubSettings
from tapeline.hub._server_testing import MODEL, WEIGHTS, Events, HubServer, fetch, hub_server, quick_settings

_API = "/api/models/org/name"
_FILE = "model.safetensors"


@pytest.fixture(name="server")
def _server() -> Iterator[HubServer]:
    with hub_server() as server:
        server.add("org/name", MODEL)
        yield server


@pytest.fixture(name="settings")
def _settings(server: HubServer, tmp_path: Path) -> HubSettings:
    return quick_settings(server, tmp_path / "cache")


def refused(settings: HubSettings, text: str = "org/name") -> str:
    with pytest.raises(HubError) as caught:
        fetch(settings, text)
    return str(caught.value)


def test_a_download_that_is_cut_goes_on_where_it_ended(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    server.cuts[_FILE] = 100_000
    location = fetch(settings, "org/name")
    assert (location.path / _FILE).read_bytes() == WEIGHTS
    assert [given for method, path, given in server.requests if method == "GET" and "/cdn/" in path] == [
        "",
        "bytes=100000-",
    ]


def test_a_content_with_another_hash_is_refused_and_removed(server: HubServer, settings: HubSettings) -> None:
    server.contents[_FILE] = WEIGHTS[:-1] + b"x"
    assert f"the content of {_FILE} of org/name is not what {server.endpoint} lists" in refused(settings)
    assert not list(settings.cache.rglob(_FILE))
    assert not [path for path in settings.cache.rglob("blobs/*") if path.stat().st_size == len(WEIGHTS)]
    server.contents = {"config.json": b'{"a": 2}'}
    other = quick_settings(server, settings.cache / "other")
    assert "the content of config.json of org/name is not what" in refused(other)
    server.contents.clear()
    assert (fetch(settings, "org/name").path / _FILE).read_bytes() == WEIGHTS


def test_a_content_that_was_never_checked_is_checked_later(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(file: HubFile, *others: Any) -> str:
        if file.name == _FILE:
            raise KeyboardInterrupt
        return digest(file, *others)

    digest = _download._digest
    server.contents[_FILE] = WEIGHTS[:-1] + b"x"
    with monkeypatch.context() as patch:
        patch.setattr(_download, "_digest", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch(settings, "org/name")
    assert list(settings.cache.rglob(_FILE))
    assert "is not what" in refused(settings)


def test_a_cached_file_that_was_cut_short_is_fetched_again(server: HubServer, settings: HubSettings) -> None:
    path = fetch(settings, "org/name").path / _FILE
    os.truncate(path, 1000)
    server.requests.clear()
    fetch(settings, "org/name")
    assert path.read_bytes() == WEIGHTS
    assert server.sent() == [_FILE]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "org/none",
            "has no repository org/none that is public (log in with `hf auth login`, or set HF_TOKEN for others)",
        ),
        ("org/name@v9", "org/name has no revision 'v9': name a branch, a tag or a commit"),
        ("org/name@" + "0" * 40, "org/name has no revision '0000"),
    ],
)
def test_unknown_names_are_told(settings: HubSettings, text: str, message: str) -> None:
    assert message in refused(settings, text)


def test_gated_and_private_repositories_ask_for_a_login(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = server.repositories["org/name"]
    repository.gated = True
    message = refused(settings)
    assert f"org/name is gated: accept its conditions at {server.endpoint}/org/name, and log in" in message
    repository.gated, repository.token = False, "hf_secret"
    assert "has no repository org/name that is public" in refused(settings)
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    message = refused(settings)
    assert "has no repository org/name that the present login can read" in message
    assert "hf_other" not in message


def test_the_token_goes_to_the_hub_alone(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repositories["org/name"].token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    events = Events()
    fetch(settings, "org/name", events=events)
    fetch(HubSettings(server.endpoint, settings.cache / "other"), "org/name", "headers", events)
    tokens = {("/cdn/" in path, token) for path, token in server.tokens}
    assert tokens == {(False, "Bearer hf_secret"), (True, None)}
    assert "hf_secret" not in "".join(map(str, events))


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "does not accept the login (401)"),
        (403, {}, "forbids org/name to this login (403)"),
        (404, {}, "has no org/name at main (404)"),
        (429, {"Retry-After": "3600"}, "takes no more questions for now (429): try again in 3600 s"),
        (500, {}, "answers org/name with 500: try again later"),
        (418, {}, "answers org/name with 418"),
        (418, {"X-Endless": "1"}, "answers org/name with 418"),
    ],
)
def test_answers_of_the_hub_are_told(
    server: HubServer, settings: HubSettings, status: int, headers: dict[str, str], message: str
) -> None:
    server.statuses[_API] = (status, headers)
    assert message in refused(settings)
    assert len(server.requests) == (3 if status in (429, 500) else 1)


def test_a_busy_hub_is_asked_again(server: HubServer, settings: HubSettings) -> None:
    server.statuses[_API] = (503, {})
    server.listed = None
    attempts = iter([None, server.statuses.clear])

    class Once(dict[str, Any]):
        """Statuses that end after the first answer."""

        def items(self) -> Any:
            step = next(attempts, None)
            return {_API: (503, {})}.items() if step is None else {}.items()

    server.statuses = Once()
    assert (fetch(settings, "org/name").path / _FILE).is_file()


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b"{}", b'{"sha": "x", "siblings": []}', b'{"sha": "' + b"0" * 40 + b'", "siblings": [{}]}',
     b'{"sha": "' + b"0" * 40 + b'", "siblings": [{"rfilename": "../../config.json", "size": 1}]}', b"[" * 100_000],
)  # fmt: skip
def test_an_answer_that_is_no_listing_is_told(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr("tapeline.hub._listing._answer", lambda *_: body)
    assert f"{server.endpoint} gives no listing of org/name such as the hub's" in refused(settings)
    assert not settings.cache.exists()


def test_a_listing_without_an_end_is_bounded(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.hub._listing._MOST_BYTES", 100)
    assert f"{server.endpoint} does not end its answer" in refused(settings)


@pytest.mark.parametrize("text", [_API, "/resolve/", "/cdn/"])
def test_a_hub_that_hangs_is_left_in_time(server: HubServer, tmp_path: Path, text: str) -> None:
    server.hanging.add(text)
    settings = HubSettings(server.endpoint, tmp_path / "cache", stall_seconds=0.5, answer_seconds=0.5)
    message = refused(settings)
    assert "no byte came from the hub for 0.5 s" in message or "cannot be reached" in message


def test_a_long_wait_that_the_hub_asks_for_is_not_waited(server: HubServer, tmp_path: Path) -> None:
    server.statuses["/resolve/"] = (429, {"Retry-After": "3600"})
    settings = HubSettings(server.endpoint, tmp_path / "cache", stall_seconds=0.5)
    assert "no byte came from the hub for 0.5 s" in refused(settings)


def test_no_connection_says_both_and_takes_the_cache_if_it_can(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = HubSettings("http://127.0.0.1:1", settings.cache)
    monkeypatch.setattr(HubSettings, "from_environment", lambda: gone)
    expected = r"model=org/name: there is no directory or file .*, and http://127\.0\.0\.1:1 cannot be reached .*cache"
    with pytest.raises(HubError, match=expected), resolve_model("org/name", tmp_path / "org" / "name"):
        pass
    location, events = fetch(settings, "org/name"), Events()
    assert fetch(gone, "org/name", events=events) == location
    assert [str(event)[:60] for event in events] == ["warning: http://127.0.0.1:1 cannot be reached ([Errno 111] C"]


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_disk_that_is_too_small_is_told_before_a_byte(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 40, 1 << 40, 1000))
    assert "of org/name do not fit on the disk of" in refused(settings)
    assert not server.sent()


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"the disk of .*cache is full \(No space left on device\): free some, or set HF_HUB_CACHE"),
        (errno.EROFS, r"the hub's cache .* cannot be written \(Read-only file system\): set HF_HUB_CACHE"),
        (errno.ECONNRESET, r"cannot be reached \(Connection reset by peer\)"),
    ],
)
def test_refusals_of_the_file_system_are_told(
    server: HubServer, settings: HubSettings, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tapeline.hub._download.hf_hub_download", full)
    with pytest.raises(HubError, match=message):
        fetch(settings, "org/name")
    assert server.requests


def test_a_body_of_another_length_is_told(server: HubServer, settings: HubSettings) -> None:
    server.contents[_FILE] = WEIGHTS[:1000]
    assert "the download of org/name is broken (Consistency check failed" in refused(settings)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name", "main", None)),
        ("org/name@v1.0", HubName("org/name", "v1.0", None)),
        ("org/name@refs/pr/1:Q4_K_M", HubName("org/name", "refs/pr/1", "Q4_K_M")),
        ("org/na-me_1.5:part/model-Q8_0.gguf", HubName("org/na-me_1.5", "main", "part/model-Q8_0.gguf")),
    ],
)
def test_names_of_the_hub_have_parts(text: str, name: HubName) -> None:
    assert parse_hub_name(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "demo", "gpt2", "a/b/c", "./a/b", "/a/b", "../b", "a/../b", "a/model.gguf", "a/x.safetensors", "a/b@",
     "a/b@../x", "a/b@x/../y", "a/b@/x", "a/b:", "a b/c", "a/b@x y", "a/-b", "a/b\n"],
)  # fmt: skip
def test_other_texts_are_paths(text: str) -> None:
    assert parse_hub_name(text) is None


def test_a_local_directory_of_that_name_wins(tmp_path: Path) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    with resolve_model("org/name", tmp_path / "org" / "name") as location:
        assert (location.path, location.facts) == (tmp_path / "org" / "name", {})
    assert resolve_adapter("org/name", tmp_path / "org" / "name").path == tmp_path / "org" / "name"


def test_what_is_neither_path_nor_name_says_both_forms(tmp_path: Path) -> None:
    with (
        pytest.raises(
            InputError, match=r"model=a/b/c: there is no directory or file .*/b/c: give .*, or org/name\[@rev"
        ),
        resolve_model("a/b/c", tmp_path / "a/b/c"),
    ):
        pass
    with pytest.raises(InputError, match=r"adapter=x: there is no directory or file .*: give a directory of PEFT"):
        resolve_adapter("x", tmp_path / "x")


def test_errors_of_the_hub_are_errors_of_the_input() -> None:
    assert issubclass(HubError, InputError)
