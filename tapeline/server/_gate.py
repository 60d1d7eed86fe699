"""Gate that every request passes: its name, the keys, the state of the server, the log."""

import base64
import binascii
import functools
import hashlib
import hmac
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lang_core import TapelineError
from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._failures import as_request_error
from tapeline.server._gone import ClientGoneError
from tapeline.server._model import cache_salt, client_name
from tapeline.server._models import ModelState
from tapeline.server._openapi import known_names
from tapeline.server._origins import OriginRules
from tapeline.server._service import Service

_PROBES: Final = ("/health", "/live", "/ping")  # answered without a key
_POLLED: Final = (*_PROBES, "/metrics")  # not logged: a line for each poll would hide the others
_PAGE: Final = "/"
_API: Final = "/v1/"
_ANTHROPIC: Final = "/v1/messages"
_OTHER_PATHS: Final = {
    **{
        path: f"/v1{path}"
        for path in (
            "/chat/completions",
            "/completions",
            "/embeddings",
            "/messages",
            "/models",
            "/rerank",
            "/responses",
            "/score",
        )
    },
    "/v1/health": "/health",
    "/v1/classify": "/classify",
    "/v1/pooling": "/pooling",
    "/v2/rerank": "/v1/rerank",
}
_BARE: Final = ("/models/", "/responses/", "/messages/", "/audio/")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ABSOLUTE: Final = re.compile(r"https?://([^/]*)(/.*)?", re.IGNORECASE | re.DOTALL)
_PREFLIGHT: Final = "access-control-request-method"
_LONGEST_RETRY: Final = 30  # seconds
_GONE: Final = 499  # nginx's status, for the log alone


class Gate:
    """Application in front of the routes.

    Args:
        app: the routes.
        service: state of the server.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app: Final = app
        self._service: Final = service
        self._rules: Final = OriginRules(service.options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(_canonical(_in_origin_form(scope)), send, self._service, self._rules)
        self._service.active += 1
        try:
            await exchange.run(self._app, receive)
        finally:
            self._service.active -= 1
            exchange.release()
            exchange.log()


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send, service: Service, rules: OriginRules) -> None:
        self._rules: Final = rules
        self._scope: Final = scope
        self._send: Final = send
        self._service: Final = service
        self._headers: Final = Headers(scope=scope)
        self._began: Final = perf_counter()
        self._status: int | None = None
        self._error: Mapping[str, str] = {}
        given = self._headers.get("x-request-id", "")
        self._id: Final = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        try:
            self._rules.check_host(self._scope.get("authority", self._headers.get("host")))
            if self._scope["method"] == "OPTIONS" and _PREFLIGHT in self._headers and "origin" in self._headers:
                allowed = Response(status_code=204, headers=self._rules.preflight(self._headers))
                await allowed(self._scope, receive, self._send_with_id)
                return
            self._rules.check_origin(self._scope["method"], self._headers)
            key, known = self._checked_key()
            self._check_state()
            options = self._service.options
            address = (self._scope.get("client") or ("",))[0]
            client = functools.partial(_client, key, address)
            self._scope.setdefault("state", {}).update(
                request_id=self._id,
                client=client,
                cache_salt=cache_salt(key, options.prefix_cache, options.prefix_secret),
                service=self._service,
                known=known,
            )
            self._scope["app"] = app  # for which the router raises what it does not find
            await app(self._scope, receive, self._send_with_id)
        except ClientGoneError:
            self._status = _GONE
        except Exception as error:  # noqa: BLE001 - the last word before the client
            await self._fail(error, receive)

    def release(self) -> None:
        """Gives back the models that the request used."""
        for model in self._scope.get("state", {}).get("leases", ()):
            self._service.models.release(model)

    def log(self) -> None:
        """Writes the line of the request."""
        facts = self._scope.get("state", {}).get("facts", {})
        route = getattr(self._scope.get("route"), "path", "")
        self._service.metrics.responded(route, self._status or 0)
        if self._scope["path"] in _POLLED and not self._error:
            return
        self._service.log.info(
            "request",
            request_id=self._id,
            method=self._scope["method"],
            path=self._scope["path"],
            status=self._status,
            seconds=round(perf_counter() - self._began, 6),
            **facts,
            **self._error,
        )

    async def _fail(self, error: Exception, receive: Receive) -> None:
        """Answers with an error; a response that has begun is cut off."""
        failure = as_request_error(error)
        self._error = failure.for_log(known_names())
        if failure.status == 500:
            self._service.log.failure("failure", failure.__cause__ or error, request_id=self._id, of_request=True)
        if self._status is not None:  # the web server logs what is raised, with its text
            raise TapelineError(f"request {self._id}: the response was cut off, since it failed") from None
        kind = {"type": "error"} if self._scope["path"].startswith(_ANTHROPIC) else {}
        response = Response(to_json({**kind, **failure.as_json()}), failure.status, failure.headers, "application/json")
        if failure.status == 401:
            response.headers["www-authenticate"] = "Basic" if self._scope["path"] == _PAGE else "Bearer"
        await response(self._scope, receive, self._send_with_id)

    def _checked_key(self) -> tuple[str | None, bool]:
        """Returns the key of the request, or None without required keys, and whether the client is known.

        Raises:
            RequestError: the route needs a key, and the request has none, or one that is not known.
        """
        keys = self._service.options.api_keys
        if not keys:
            return None, True
        header = self._headers.get("authorization")
        if header is None:  # Anthropic's clients have a header of their own
            header = f"Bearer {self._headers.get('x-api-key', '')}"
        key = _given_key(header.encode("latin-1").decode(errors="replace"))
        if not _is_one_of(key, keys):
            if self._scope["path"] in _PROBES:
                return None, False
            raise RequestError(
                "no valid API key: send one of the server's as `Authorization: Bearer KEY`",
                status=401,
                code="invalid_api_key",
            )
        return key, True

    def _check_state(self) -> None:
        service, asks = self._service, self._scope["method"] == "POST"
        loading = not service.models.ready and (asks or self._scope["path"].startswith(_API))
        if not loading and not (asks and service.draining):
            return
        if service.draining:
            raise RequestError("the server ends: ask again", status=503, code="unavailable", retry_after=1)
        running = next((state for state in service.models.states() if state.step is not None), None)
        raise _loading_error(running)

    async def _send_with_id(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._id
            ignored = self._scope.get("state", {}).get("ignored")
            if ignored is not None:
                headers["x-ignored-fields"] = ignored.header
            headers.update(self._rules.response_headers(self._headers))
        await self._send(message)


def _in_origin_form(scope: Scope) -> Scope:
    """Returns the scope of a request with its target in origin form; of an absolute one the host is ``authority``.

    A target in absolute form (``GET http://host/path``) outdoes Host (RFC 9112, 3.2.2).
    """
    match = _ABSOLUTE.fullmatch(scope["path"])
    if match is None:
        return scope
    return {**scope, "authority": match[1], "path": match[2] or "/", "raw_path": (match[2] or "/").encode()}


def _canonical(scope: Scope) -> Scope:
    """Returns the scope of a request with the path of its route: with ``/v1``, and without a slash at its end."""
    path = scope["path"]
    canonical = path.rstrip("/") or "/"
    canonical = _OTHER_PATHS.get(canonical, canonical)
    if canonical.startswith(_BARE):
        canonical = f"/v1{canonical}"
    return scope if canonical == path else {**scope, "path": canonical, "raw_path": canonical.encode()}


def _loading_error(running: ModelState | None) -> RequestError:
    """Returns the refusal of a request while models are loaded, with the running step and the time to retry."""
    progress, wait = "", 1.0
    if running is not None and running.step is not None:
        step = running.step
        left = "" if step.seconds_left is None else f", about {step.seconds_left:.0f} s left"
        progress = f" ({running.name}: {step.text}; {step.seconds:.0f} s so far{left})"
        wait = step.seconds / 4 if step.seconds_left is None else step.seconds_left
    message = f"the models are being loaded{progress}: ask again, or poll /health for the progress"
    return RequestError(message, status=503, code="unavailable", retry_after=min(math.ceil(wait), _LONGEST_RETRY))


def _client(key: str | None, address: str, user: str | None) -> str:
    return client_name(key, user, address)


def _given_key(header: str) -> str:
    """Returns the key of an authorization: a bearer's token, or the password that a browser has asked for."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _is_one_of(key: str, keys: Sequence[str]) -> bool:
    """Returns whether a key is one of those known; every one is compared, and takes as long as every other."""
    digest = hashlib.sha256(key.encode()).digest()
    return sum(hmac.compare_digest(digest, hashlib.sha256(one.encode()).digest()) for one in keys) > 0
