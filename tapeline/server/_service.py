"""State that all routes share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, ParamSpec, TypeVar

from starlette.requests import Request

from tapeline.server._body import read_json_text
from tapeline.server._classifying_model import Classifying
from tapeline.server._compiling import CompileTurns
from tapeline.server._errors import RequestError
from tapeline.server._json import parse_json
from tapeline.server._log import Log
from tapeline.server._metrics import Metrics
from tapeline.server._model import ServedModel
from tapeline.server._models import Models
from tapeline.server._on_demand import OnDemandLoads
from tapeline.server._options import ServerOptions
from tapeline.server._pictures import PixelBudget
from tapeline.server._ranking_model import Ranking
from tapeline.server._records import IgnoredFields, RecordType, read_record, read_tolerant
from tapeline.server._response_store import ResponseStore

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=RecordType)
M = TypeVar("M", bound=ServedModel | Ranking | Classifying)

_INLINE_BYTES: Final = 1 << 16  # of a body that is parsed on the event loop
_LARGE_AT_ONCE: Final = 2  # larger bodies that are read and prepared at once


class Service:
    """State of a server.

    Args:
        models: models that are served.
        options: settings.
        log: takes a line per request.

    Attributes:
        models: as given.
        options: as given.
        log: as given.
        metrics: metrics of the server.
        pixels: limits and memory of pictures.
        compiling: turns of clients at compiling grammars.
        responses: responses that later requests continue.
        loads: loads of models on demand.
        draining: whether new requests are refused, because the server is shutting down.
        active: requests that are being answered.
    """

    def __init__(self, models: Models, options: ServerOptions, log: Log) -> None:
        self.models: Final = models
        self.options: Final = options
        self.log: Final = log
        self.metrics: Final = Metrics(models.figures, models.stalled_seconds)
        self.pixels: Final = PixelBudget(options)
        self.compiling: Final = CompileTurns()
        self.responses: Final = ResponseStore()
        self.loads: Final = OnDemandLoads(models, options.request_seconds)
        self._large: Final = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.draining = False
        self.active = 0

    async def read(self, request: Request, kind: type[R]) -> R:
        """Returns the fields of a request's body.

        Raises:
            RequestError: the body is invalid for the route.
        """
        body = await read_json_text(request, self.options)
        request.scope["state"]["large"] = large = len(body) > _INLINE_BYTES
        if not large:
            fields, ignored = self._fields(kind, body)
        else:
            async with self.turn(request):  # 100,000 messages take seconds, in which others would have no answer
                fields, ignored = await in_thread(self._fields, kind, body)
        self.note_ignored(request, ignored)
        return fields

    def note_ignored(self, request: Request, ignored: IgnoredFields) -> None:
        """Counts ignored fields of a request, and names them in a header of the response."""
        if not ignored.count:
            return
        noted: IgnoredFields = request.scope["state"].setdefault("ignored", IgnoredFields())
        for name in ignored.names:
            noted.add(name)
        self.metrics.ignored(request.scope["route"].path, ignored.count)

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        """Waits for a turn of a request with a large body, for the block; other requests do not need one.

        A few large requests have their turn at once, so that they do not take the threads of other requests.
        """
        if not request.scope["state"].get("large"):
            yield
            return
        async with self._large:
            yield

    def ignore(self, request: Request, reasons: Mapping[str, str]) -> None:
        """Records fields that the answering model ignores.

        Args:
            request: the request.
            reasons: why, by the name of the field.

        Raises:
            RequestError: the server refuses ignored fields.
        """
        ignored = IgnoredFields()
        for name, reason in reasons.items():
            if self.options.strict_fields:
                raise RequestError(f"{name}: {reason}; leave the field out", param=name, code="unsupported_parameter")
            ignored.add(name)
        self.note_ignored(request, ignored)

    def loosen(self, request: Request, places: Iterable[str]) -> None:
        """Notes the keywords of schemas that the answer need not satisfy.

        Raises:
            RequestError: the server refuses ignored fields.
        """
        self.ignore(request, dict.fromkeys(places, "a grammar cannot hold an answer to this keyword"))

    def _fields(self, kind: type[R], body: bytes) -> tuple[R, IgnoredFields]:
        value = parse_json(body, self.options.max_json_depth)
        if self.options.strict_fields:
            return read_record(kind, value), IgnoredFields()
        return read_tolerant(kind, value)


def service_of(request: Request) -> Service:
    """Returns the state of the server that a request came to."""
    return request.scope["state"]["service"]


async def model_of(request: Request, find: Callable[[str | None], M], name: str | None) -> M:
    """Returns the model that ``find`` returns for a name; it is not closed before the request has its answer.

    A model on demand is loaded first.

    Raises:
        RequestError: there is none, or it cannot be loaded.
    """
    service = service_of(request)
    with service.models.wanted(name) as source:
        if source is not None:
            await service.loads.load(source)
        model = service.models.lease(find, name)
    request.scope["state"].setdefault("leases", []).append(model)
    return model


def is_known(request: Request) -> bool:
    """Returns True if the request has a valid key, or the server asks for none."""
    return request.scope["state"]["known"]


def note(request: Request, **facts: Any) -> None:
    """Notes facts of a request, for the log."""
    request.scope["state"].setdefault("facts", {}).update(facts)


async def in_thread(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Returns the result of a slow function, and leaves the event loop free meanwhile."""
    return await asyncio.to_thread(function, *arguments, **options)
