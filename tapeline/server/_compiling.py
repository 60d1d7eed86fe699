"""Grammars of requests, compiled a few at a time, so that they do not delay other requests."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from generation.engine import TokenConstraint
from lang_core import InputError
from tapeline.grammar import GrammarLimits, GrammarSpec, JsonObject, JsonSchema, LarkGrammar, compile_constraints
from tapeline.server._errors import RequestError
from tapeline.server._formats import AnswerFormat
from tapeline.server._model import TextModel
from tapeline.server._numbers import leading_digits
from tapeline.server._options import ServerOptions

_SCHEMA_NAME: Final = re.compile(r"(\w+)(?= at #|:)")  # that a message about a schema begins with
_AT_ONCE: Final = 3  # the event loop has more threads for calls that take long


class CompileTurns:
    """Turns of clients at compiling grammars: a client has one turn at a time, and a few clients have one together."""

    def __init__(self) -> None:
        self._all: Final = asyncio.Semaphore(_AT_ONCE)
        self._clients: Final[dict[str, _Line]] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Waits for the client's turn and has it for the block."""
        line = self._clients.setdefault(client, _Line())
        line.count += 1
        try:
            async with line.lock, self._all:
                yield
        finally:
            line.count -= 1
            if not line.count:
                del self._clients[client]


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOrigin:
    """Place of a format in a request, for errors.

    Attributes:
        param: field that has it.
        schemas: field of each schema, by the name that the grammar has for it.
    """

    param: str
    schemas: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, form: AnswerFormat) -> "FormatOrigin":
        """Returns the place of a format."""
        return cls(param=form.param, schemas={"json_schema": form.param})

    def error(self, message: str) -> RequestError:
        """Returns the refusal of the format."""
        match = _SCHEMA_NAME.match(message)
        name = self.schemas.get(match[1]) if match else None
        if match is None or name is None:
            return RequestError(message, param=self.param, code="invalid_grammar")
        return RequestError(f"{name}{message[match.end(1) :]}", param=name, code="invalid_grammar")


async def compiled(
    spec: GrammarSpec | None,
    model: TextModel,
    count: int,
    ends: frozenset[int],
    options: ServerOptions,
    turns: CompileTurns,
    client: str,
    salt: str | None,
    origin: FormatOrigin,
) -> Sequence[TokenConstraint]:
    """Returns a constraint for each of some answers; none without a specification.

    Args:
        spec: specification.
        model: makes the answers.
        count: number of answers.
        ends: tokens that end an answer.
        options: limits.
        turns: turns at compiling.
        client: who asks.
        salt: who shares compiled grammars; None for nobody.
        origin: place of the specification in the request.

    Raises:
        RequestError: the specification is damaged, too large or too complex, or cannot be held to.
    """
    if spec is None:
        return ()
    async with turns.turn(client):
        return await asyncio.to_thread(_constraints, spec, model, count, ends, options, salt, origin)


def bounds_numbers(spec: GrammarSpec | None) -> bool:
    """Returns True if answers are JSON, which bounds the digits of numbers."""
    return isinstance(spec, JsonObject | JsonSchema) or (isinstance(spec, LarkGrammar) and bool(spec.schemas))


def _constraints(
    spec: GrammarSpec,
    model: TextModel,
    count: int,
    ends: frozenset[int],
    options: ServerOptions,
    salt: str | None,
    origin: FormatOrigin,
) -> Sequence[TokenConstraint]:
    limits = GrammarLimits(characters=options.max_schema_bytes, depth=options.max_json_depth)
    try:
        constraints = compile_constraints(spec, model.tokenizer, ends, count, limits, salt=salt)
    except InputError as error:
        raise origin.error(str(error)) from error
    if bounds_numbers(spec):
        leading_digits(model.tokenizer, model.vocabulary)  # it takes long, and the event loop needs it
    return constraints
