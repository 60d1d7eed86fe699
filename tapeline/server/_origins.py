"""Names of a server and origins of web pages: which requests of a browser are answered.

A browser sends the requests of any page. A page on another site may send requests to a local server, and a page that
points its own name at the server's address (DNS rebinding) may read the answers too. So the server checks Host, which
is the name in the address, and Origin, which is the page's site.

>>> OriginRules(ServerOptions()).check_host("localhost:8000")
"""

import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Final

from tapeline.server._errors import RequestError
from tapeline.server._options import ServerOptions
from tapeline.server._patterns import split_authority
from tapeline.server._shortening import shortened

_LOCAL: Final = "localhost"
# Suffixes that no public DNS has: a page on the internet cannot have such a name.
_PRIVATE: Final = (".internal", ".svc", ".cluster.local")
_SAME: Final = ("same-origin", "none")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = "GET, POST, DELETE"
_HEADERS: Final = "authorization, content-type, x-api-key, x-request-id"
_EXPOSED: Final = "x-request-id, x-ignored-fields, retry-after"
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9-]+(?:\s*,\s*[A-Za-z0-9-]+){0,63}")
_PREFLIGHT_SECONDS: Final = 600
_SHOWN: Final = 100

Headers = Mapping[str, str]


class OriginRules:
    """Rules of a server for Host and Origin.

    Args:
        options: settings of the server.
    """

    def __init__(self, options: ServerOptions) -> None:
        name, _ = split_authority(options.host) or (options.host, None)
        self._listens: Final = name.lower().rstrip(".")
        self._open: Final = not _is_loopback(self._listens)
        self._own: Final = socket.gethostname().lower()
        self._patterns: Final = options.allowed_hosts
        self._origins: Final = frozenset(options.cors_origins)

    def check_host(self, authority: str | None) -> None:
        """Checks the name by which a request calls the server.

        Args:
            authority: Host, or that of a target in absolute form; None for a request of HTTP/1.0 without Host, which
                browsers do not send.

        Raises:
            RequestError: it is not a name of this server.
        """
        if authority is None:
            return
        parts = split_authority(authority)
        if parts is not None and self._is_own(*parts):
            return
        name = parts[0] if parts is not None else "NAME"
        raise RequestError(
            f"Host: {shortened(authority, _SHOWN)!a} is not a name of this server: call it by another name, or start "
            f"it with --allowed_hosts={shortened(name, _SHOWN)}",
            status=421,
            code="host_not_allowed",
        )

    def check_origin(self, method: str, headers: Headers) -> None:
        """Checks that a request which may change something, or cost time, does not come from a page of another site.

        Raises:
            RequestError: it comes from a page of another site, which ``cors_origins`` does not list.
        """
        origin = headers.get("origin")
        if method in _READS or self._is_listed(origin):
            return
        site = headers.get("sec-fetch-site", "").lower()
        if site in _SAME or (origin is None and not site):
            return
        if origin is not None and not site and _authority_of(origin) == headers.get("host", "").lower():
            return
        raise _foreign(origin)

    def preflight(self, headers: Headers) -> dict[str, str]:
        """Returns the headers of the answer to a browser that asks whether a page may send a request.

        Raises:
            RequestError: the page is of another site, which ``cors_origins`` does not list.
        """
        if not self._is_listed(headers.get("origin")):
            raise _foreign(headers.get("origin"))
        asked = headers.get("access-control-request-headers", "").strip()
        local = headers.get("access-control-request-private-network") == "true"
        return {
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": asked if _HEADER_NAMES.fullmatch(asked) else _HEADERS,
            "access-control-max-age": str(_PREFLIGHT_SECONDS),
            **({"access-control-allow-private-network": "true"} if local else {}),
        }

    def response_headers(self, headers: Headers) -> dict[str, str]:
        """Returns the headers by which a browser lets a page of a listed site read an answer."""
        if not self._origins:
            return {}
        vary = {} if "*" in self._origins else {"vary": "Origin"}
        origin = headers.get("origin")
        if origin is None or not self._is_listed(origin):
            return vary
        allowed = "*" if "*" in self._origins else origin
        return {"access-control-allow-origin": allowed, "access-control-expose-headers": _EXPOSED, **vary}

    def _is_listed(self, origin: str | None) -> bool:
        return origin is not None and ("*" in self._origins or origin.lower().rstrip("/") in self._origins)

    def _is_own(self, name: str, port: str | None) -> bool:
        if name == self._listens or _is_loopback(name):
            return True
        if any(_matches(name, port, pattern) for pattern in self._patterns):
            return True
        if not self._open:
            return False
        private = "." not in name and not name.isdecimal()
        named = name in (self._own, f"{self._own}.local") or private or name.endswith(_PRIVATE)
        return named or _address(name) is not None  # a name can be pointed at this server, an address cannot


def _foreign(origin: str | None) -> RequestError:
    shown = "a page of another site" if origin is None else f"the page of {shortened(origin, _SHOWN)!a}"
    return RequestError(
        f"Origin: {shown} may not send requests here: start the server with --cors_origins and the page's origin, such "
        "as https://chat.example.com, if it may",
        status=403,
        code="origin_not_allowed",
    )


def _authority_of(origin: str) -> str:
    """Returns host and port of an origin, as Host has them; "null" of a page without one."""
    return origin.lower().partition("://")[2] or "null"


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    if address is None:
        return name == _LOCAL or name.endswith(f".{_LOCAL}")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _matches(name: str, port: str | None, pattern: str) -> bool:
    if pattern == "*":
        return True
    wanted, wanted_port = split_authority(pattern.removeprefix("*.")) or ("", None)
    if wanted_port is not None and wanted_port != port:
        return False
    return name.endswith(f".{wanted}") if pattern.startswith("*.") else name == wanted
