"""Grammars of requests, compiled a few at a time, so that they hold up no other requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from generation.engine import TokenConstraint
from lang_core import InputError
from tapeline.grammar import GrammarLimits, GrammarSpec, compile_constraints
from tapeline.server._errors import RequestError
from tapeline.server._model import TextModel
from tapeline.server._options import ServerOptions

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


async def compiled(
    spec: GrammarSpec | None,
    model: TextModel,
    count: int,
    ends: frozenset[int],
    options: ServerOptions,
    turns: CompileTurns,
    client: str,
    salt: str | None,
) -> Sequence[TokenConstraint]:
    """Returns a constraint for each of some answers; none if there is no specification.

    Args:
        spec: specification.
        model: makes the answers.
        count: number of answers.
        ends: tokens that end an answer.
        options: limits.
        turns: turns at compiling.
        client: who asks.
        salt: who shares compiled grammars; None for nobody.

    Raises:
        RequestError: the specification is damaged, too large or too complex, or cannot be held to.
    """
    if spec is None:
        return ()
    async with turns.turn(client):
        return await asyncio.to_thread(_constraints, spec, model, count, ends, options, salt)


def _constraints(
    spec: GrammarSpec, model: TextModel, count: int, ends: frozenset[int], options: ServerOptions, salt: str | None
) -> Sequence[TokenConstraint]:
    limits = GrammarLimits(characters=options.max_schema_bytes, depth=options.max_json_depth)
    try:
        return compile_constraints(spec, model.tokenizer, ends, count, limits, salt=salt)
    except InputError as error:
        raise RequestError(str(error), param="response_format", code="invalid_grammar") from error
