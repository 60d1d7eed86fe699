"""Models of the suite ``serve``, and the requests that its clients send."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

_SHARED_LEAST: Final = 5 / 4  # a prompt that shares the prefix goes on after it for a quarter of it at least


@dataclass(frozen=True, slots=True)
class ServeGroup:
    """Model that both servers run, from one GGUF file.

    Attributes:
        bits: type of its matrices, or the file's name, for titles.
        file: GGUF file of a real model; one of random weights and of type ``bits`` is made where None.
    """

    bits: str
    file: Path | None = None


SERVE_GROUPS: Final = (ServeGroup("Q4_0"), ServeGroup("Q8_0"))


@dataclass(frozen=True, slots=True)
class ServeSizes:
    """Sizes of what clients ask for.

    Attributes:
        clients: numbers of clients of the closed loops, and of the requests that they send in all.
        shortest: least number of tokens of a prompt; lengths are as often between 16 and 32 as between 500 and 1,000.
        longest: greatest number.
        shared: tokens of the beginning that half of the prompts have in common.
        tokens: new tokens of an answer.
        slots: answers at a time.
        arrivals: requests of the open loop.
        busy: how often they come, in shares of what the slower server answered in the closed loop.
        busy_clients: clients of that loop.
        alone: turns of one client in a round: what the server adds to a token is less than what a machine's speed
            changes from one turn to the next.
    """

    clients: tuple[tuple[int, int], ...] = ((1, 4), (4, 8), (8, 16), (16, 32))
    shortest: int = 16
    longest: int = 1000
    shared: int = 128
    tokens: int = 64
    slots: int = 16
    arrivals: int = 24
    busy: float = 0.7
    busy_clients: int = 8
    alone: int = 5

    @property
    def capacity(self) -> int:
        """Tokens of a slot: those of a prompt and its answer, in whole blocks of 64."""
        return -(-(self.longest + self.tokens) // 64) * 64

    def fewer(self, share: float) -> "ServeSizes":
        """Returns sizes with a share of the requests in every loop: one per client at least."""
        clients = tuple((clients, max(clients, round(share * count))) for clients, count in self.clients)
        return replace(self, clients=clients, arrivals=max(1, round(share * self.arrivals)))


TINY_SERVE_SIZES: Final = ServeSizes(
    clients=((1, 1), (2, 3)), shortest=2, longest=24, shared=8, tokens=4, slots=2, arrivals=2, busy_clients=2, alone=1
)


class Requests:
    """Draws requests; the same seed draws the same.

    Args:
        sizes: of prompts and answers.
        vocabulary: token ids are below it; the first three are special.
        seed: of all draws.
    """

    def __init__(self, sizes: ServeSizes, vocabulary: int, seed: str) -> None:
        self._sizes: Final = sizes
        self._vocabulary: Final = vocabulary
        self._random: Final = random.Random(seed)
        self._shared: Final = [(31 * place + 7) % (vocabulary - 3) + 3 for place in range(sizes.shared)]

    def mixed(self, count: int) -> list[dict[str, Any]]:
        """Returns requests of mixed lengths, every second of which begins with the shared prefix."""
        return [{"body": body(self._prompt(index % 2 == 1), self._sizes.tokens)} for index in range(count)]

    def arriving(self, count: int, per_second: float) -> list[dict[str, Any]]:
        """Returns mixed requests that come at random times, so many per second."""
        at, requests = 0.0, self.mixed(count)
        for request in requests:
            request["at"] = at
            at += self._random.expovariate(per_second)
        return requests

    def cold_and_warm(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns a request of the longest prompt, and one with the same but for its end."""
        prompt = self.ids(self._sizes.longest)
        kept = prompt[: -max(1, len(prompt) // 100)]
        return [{"body": body(prompt, 2)}], [{"body": body([*kept, *self.ids(len(prompt) - len(kept))], 2)}]

    def ids(self, count: int) -> list[int]:
        """Returns random token ids."""
        return [self._random.randrange(3, self._vocabulary) for _ in range(count)]

    def _prompt(self, shares: bool) -> list[int]:
        sizes = self._sizes
        least = int(sizes.shared * _SHARED_LEAST) if shares else sizes.shortest
        length = round(least * (sizes.longest / least) ** self._random.random())
        return [*self._shared, *self.ids(length - sizes.shared)] if shares else self.ids(length)


def body(prompt: Sequence[int], tokens: int) -> dict[str, Any]:
    """Returns the body of a request: the likeliest tokens, as many as are asked for, streamed, with their count."""
    return {
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
