"""Host and Origin: which names the server has, and which pages may ask."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import ConfigError
from tapeline.server._errors import RequestError
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._origins import OriginRules
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model

_LOOPBACK = (
    "localhost",
    "LOCALHOST",
    "localhost.",
    "app.localhost",
    "127.0.0.1",
    "127.8.9.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
)
_FOREIGN = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "notlocalhost.example",
    "8.8.8.8.nip.io",
)
_DAMAGED = (
    "",
    " ",
    "a b",
    "me@localhost",
    "localhost:999999",
    "[::1",
    "::1",
    "[localhost]",
    "lo\tcalhost",
    "a/b",
    "%6c",
    "..",
)


def _allows(name: str, **options: Any) -> bool:
    rules = OriginRules(ServerOptions(**options))
    try:
        rules.check_host(name)
    except RequestError as error:
        if (error.status, error.code) == (421, "host_not_allowed") and len(str(error)) < 500:
            return False
        raise
    return True


@pytest.mark.parametrize("port", ["", ":8000", ":1"])
@pytest.mark.parametrize("listens", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.168.1.5", "chat.example"])
def test_names_of_this_machine_are_allowed_and_public_names_are_not(listens: str, port: str) -> None:
    named = f"[{listens}]" if ":" in listens else listens
    for host in (*_LOOPBACK, named, named.upper()):
        assert _allows(host + port, host=listens), host
    for host in _FOREIGN:
        assert not _allows(host + port, host=listens), host
        assert _allows(host + port, host=listens, allowed_hosts=("*",))
    for host in _DAMAGED:
        assert not _allows(host, host=listens), host


@pytest.mark.parametrize(
    "host", ["10.1.2.3:8000", "[fd00::7]:8000", "tapeline:8000", "a.b.svc", "x.y.svc.cluster.local"]
)
def test_addresses_and_private_names_are_allowed_if_others_can_connect(host: str) -> None:
    assert _allows(host, host="0.0.0.0")
    assert not _allows(host, host="127.0.0.1")


def test_allowed_hosts() -> None:
    options: dict[str, Any] = {"allowed_hosts": ("Chat.example.com", "*.example.org", "one.example:81")}
    allowed = ("chat.example.com", "CHAT.EXAMPLE.COM.:9", "a.b.example.org", "one.example:81", "localhost")
    refused = ("example.com", "xchat.example.com", "example.org", "evilexample.org", "one.example", "one.example:82")
    assert [_allows(host, **options) for host in allowed] == [True] * len(allowed)
    assert [_allows(host, **options) for host in refused] == [False] * len(refused)
    for wrong in ("", "a b", "http://a", "*a", "**"):
        with pytest.raises(ConfigError, match="`allowed_hosts`: expected names such as"):
            ServerOptions(allowed_hosts=(wrong,))
    for wrong in ("", "example.com", "https://example.com/", "https://Example.com", "https://a b"):
        with pytest.raises(ConfigError, match="`cors_origins`: expected origins such as"):
            ServerOptions(cors_origins=(wrong,))


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=40) | st.from_regex(r"[a-z0-9.:\[\]*@-]{0,20}", fullmatch=True))
def test_any_host_is_allowed_or_refused(host: str) -> None:
    if _allows(host):
        name = host.lower().rpartition(":")[0] if not host.endswith("]") and ":" in host else host.lower()
        name = name.removesuffix(".")
        assert name.startswith("127.") or name.endswith("localhost") or ":" in name


@pytest.fixture(scope="module", name="servers")
def servers_with_and_without_origins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningServer]]:
    directory = tmp_path_factory.mktemp("model")
    source = ModelSource("demo", lambda: text_model(directory, ScriptSlots([5] * 64, VOCABULARY)))
    listed = ServerOptions(port=0, cors_origins=("https://chat.example", "null"), api_keys=("key",))
    any_origin = ServerOptions(port=0, cors_origins=("*",), allowed_hosts=("*",))
    with running([source]) as closed, running([source], listed) as some, running([source], any_origin) as every:
        yield {"closed": closed, "some": some, "every": every}


_CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}


def _status(server: RunningServer, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answered = server.request("/v1/chat/completions", _CHAT, headers=named)
    if answered.status != 200:
        assert set(answered.error) == {"message", "type", "param", "code"}
    return answered.status


def test_a_page_of_another_site_sends_nothing(servers: dict[str, RunningServer]) -> None:
    server = servers["closed"]
    own = f"127.0.0.1:{server.port}"
    assert _status(server) == 200
    assert _status(server, origin=f"http://{own}") == 200
    assert _status(server, origin=f"https://{own}") == 200  # a proxy may end TLS
    assert _status(server, origin="https://chat.example", sec_fetch_site="same-origin") == 200  # it may change Host too
    for origin in ("https://evil.example", "null", "http://localhost:1", f"http://evil.example:{server.port}", "", "x"):
        assert _status(server, origin=origin) == 403, origin
        assert _status(server, origin=origin, sec_fetch_site="cross-site") == 403
    assert _status(server, sec_fetch_site="cross-site") == 403
    assert _status(server, origin=f"http://{own}", sec_fetch_site="same-site") == 403  # another port of this machine


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/audio/transcriptions", "/tokenize", "/v1/embeddings"])
def test_a_request_that_needs_no_preflight_is_refused(servers: dict[str, RunningServer], kind: str, path: str) -> None:
    body = json.dumps(_CHAT).encode()
    headers = {"content-type": kind, "origin": "https://evil.example"}
    answered = servers["closed"].request(path, body, headers=headers)
    assert (answered.status, answered.error["code"]) == (403, "origin_not_allowed")
    if path != "/v1/audio/transcriptions":
        assert servers["closed"].request(path, body, headers={"content-type": kind}).status == 415


def _preflight(server: RunningServer, origin: str, **headers: str) -> Any:
    asked = {"origin": origin, "access-control-request-method": "POST", **headers}
    return server.request("/v1/chat/completions", method="OPTIONS", headers=asked)


def test_preflights(servers: dict[str, RunningServer]) -> None:
    refused = _preflight(servers["closed"], "https://evil.example")
    assert (refused.status, refused.error["code"]) == (403, "origin_not_allowed")
    assert not [name for name in refused.headers if name.startswith("access-control")]
    assert _preflight(servers["some"], "https://evil.example").status == 403
    names = {"access-control-request-headers": "authorization,content-type,x-stainless-os"}
    allowed = _preflight(servers["some"], "https://Chat.example", **names)  # without a key: browsers send none
    assert (allowed.status, allowed.body) == (204, b"")
    assert allowed.headers["access-control-allow-origin"] == "https://Chat.example"
    assert allowed.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
    assert allowed.headers["vary"] == "Origin"
    assert "access-control-allow-private-network" not in allowed.headers
    wrong = _preflight(servers["some"], "null", **{"access-control-request-headers": "a: b"})
    assert wrong.headers["access-control-allow-headers"] == "authorization, content-type, x-api-key, x-request-id"
    local = _preflight(servers["every"], "https://any.example", **{"access-control-request-private-network": "true"})
    assert local.headers["access-control-allow-origin"] == "*"
    assert local.headers["access-control-allow-private-network"] == "true"
    assert servers["every"].request("/v1/chat/completions", method="OPTIONS").status == 405


def test_a_listed_page_reads_answers_and_errors(servers: dict[str, RunningServer]) -> None:
    origin, key = {"origin": "https://chat.example"}, {"authorization": "Bearer key"}
    for headers, status in (({**origin, **key}, 200), (origin, 401)):
        answered = servers["some"].request("/v1/chat/completions", _CHAT, headers=headers)
        assert answered.status == status
        assert answered.headers["access-control-allow-origin"] == "https://chat.example"
        assert "x-request-id" in answered.headers["access-control-expose-headers"]
    other = servers["some"].request("/v1/models", headers={"origin": "https://evil.example", **key})
    assert "access-control-allow-origin" not in other.headers
    assert other.headers["vary"] == "Origin"
    assert "vary" not in servers["closed"].request("/v1/models").headers


def _raw(server: RunningServer, head: str) -> tuple[int, dict[str, Any]]:
    with server.socket() as connection:
        connection.sendall((head + "\r\n\r\n").replace("PORT", str(server.port)).encode())
        with connection.makefile("rb") as file:
            text = file.read().decode()
    status, _, rest = text.partition("\r\n")
    body = rest.partition("\r\n\r\n")[2]
    return int(status.split()[1]), json.loads(body) if body.startswith("{") else {}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /live HTTP/1.1\r\nHost: 127.0.0.1:PORT", 200),
        ("GET /live HTTP/1.1\r\nHost: evil.example", 421),
        ("GET /nowhere HTTP/1.1\r\nHost: evil.example", 421),
        ("GET http://localhost/live HTTP/1.1\r\nHost: evil.example", 200),
        ("GET HTTP://evil.example/live HTTP/1.1\r\nHost: localhost", 421),
        ("GET http://me@localhost/live HTTP/1.1\r\nHost: localhost", 421),
        ("GET http://localhost/live?x=1 HTTP/1.1\r\nHost: localhost", 200),
        ("GET http://localhost HTTP/1.1\r\nHost: localhost", 200),
        ("GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 400),
        ("GET /live HTTP/1.1", 400),
        ("GET /live HTTP/1.1\r\nHost:", 421),
        ("GET /live HTTP/1.0", 200),
        ("GET /live HTTP/1.0\r\nHost: evil.example", 421),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost", 404),
    ],
)
def test_heads_of_requests(servers: dict[str, RunningServer], head: str, status: int) -> None:
    answered, body = _raw(servers["closed"], head + "\r\nConnection: close")
    assert answered == status
    if status == 421:
        assert body["error"]["code"] == "host_not_allowed"
        assert "--allowed_hosts=" in body["error"]["message"]
