"""Server of tests: the application in a thread, and requests to it over sockets."""

import asyncio
import contextlib
import io
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import uvicorn

from generation import DEFAULT_SAMPLING
from generation.engine import Engine, EngineSettings, ModelRunner
from tapeline.demo import write_demo_checkpoint
from tapeline.server._log import Log
from tapeline.server._model import TextModel
from tapeline.server._models import Models, ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._process import server_config
from tapeline.server._service import Service
from tapeline.text import ChatTemplate, Tokenizer
from tapeline.toolcalls import ToolSupport

TEMPLATE: Final = (  # as Hermes' models have it
    "{% if tools %}<tools>{% for tool in tools %}{{ tool|tojson }}{% endfor %}</tools>"
    'Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>{% endif %}'
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
)
VOCABULARY: Final = 512


def text_model(directory: Path, slots: ModelRunner, name: str = "demo", **engine: Any) -> TextModel:
    """Returns a model with the demo model's tokenizer, which is written to a directory, and any tokens."""
    write_demo_checkpoint(directory)
    tokenizer, template = Tokenizer.load(directory), ChatTemplate(TEMPLATE, "the test")
    return TextModel(
        name=name,
        created=1,
        context=slots.capacity,
        vocabulary=slots.vocabulary,
        engine=Engine(slots, EngineSettings(**engine)),
        tokenizer=tokenizer,
        ends=frozenset({1}),
        template=template,
        tools=ToolSupport(template, tokenizer),
        chat_ends=frozenset({1}),
        defaults=DEFAULT_SAMPLING,
    )


@dataclass(frozen=True, slots=True)
class Answered:
    """Response to a request.

    Attributes:
        status: HTTP's status.
        headers: its headers, by names in small letters.
        body: its body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> Mapping[str, Any]:
        """Error of the body."""
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """Server-sent events of the body; the last one is the text ``[DONE]``."""
        data = [line.removeprefix("data: ") for line in self.body.decode().split("\n\n") if line]
        return [one if one == "[DONE]" else json.loads(one) for one in data]


@dataclass(slots=True)
class RunningServer:
    """Server in a thread of this process.

    Attributes:
        service: its state.
        port: where it listens.
        log: what it logged.
    """

    service: Service
    port: int
    log: io.StringIO = field(default_factory=io.StringIO)

    def request(
        self, path: str, body: Any = None, *, method: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """Sends a request and returns the whole response; a body that is no bytes is sent as JSON."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            kind = {} if body is None else {"content-type": "application/json"}
            connection.request(method or ("GET" if body is None else "POST"), path, sent, {**kind, **(headers or {})})
            response = connection.getresponse()
            return Answered(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def socket(self) -> socket.socket:
        """Returns a connection, for requests byte by byte."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def logged(self) -> list[Any]:
        """Returns the lines of the log."""
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@contextlib.contextmanager
def running(
    sources: list[ModelSource],
    options: ServerOptions | None = None,
    *,
    load: bool = True,
    room_seconds: float = 60.0,
) -> Iterator[RunningServer]:
    """Runs a server in a thread for the block."""
    lines, chosen = io.StringIO(), options or ServerOptions(port=0)
    log = Log(lines)
    aliases = dict(chosen.model_aliases)
    models = Models(
        sources,
        log,
        watchdog_seconds=chosen.watchdog_seconds,
        aliases=aliases,
        memory=chosen.models_memory,
        wait_seconds=room_seconds,
    )
    if load:
        models.load()
    service = Service(models, chosen, log)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(service))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        yield RunningServer(service, listener.getsockname()[1], lines)
    finally:
        server.should_exit = True
        thread.join()
        models.close(0)
