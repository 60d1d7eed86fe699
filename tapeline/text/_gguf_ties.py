"""Order of merges of SentencePiece's BPE for tokens with equal scores."""

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

MOST_STEPS: Final = 100_000_000
"""Most letters and neighbours that are looked at for one file; the vocabularies in use take a tenth of that."""


class TiesError(ValueError):
    """An order of the merges cannot give SentencePiece's result: among equal scores it merges the leftmost pair."""


class TiedMerges:
    """Finds an order for merges of equal scores, so that a list of merges equals SentencePiece and llama.cpp.

    Both merge, of all neighbours that make a token, those with the best score, and of equal ones the leftmost. A list
    of merges ranks by the token alone. It does the same if of each two pairs that can overlap in a text the left one
    comes first, and merges do not make a neighbour that is as good as themselves. Whether a state of a text can come up
    is found by merging its letters: surrounding letters do not matter before the state is left.

    Args:
        ranks: rank of each token that two tokens make; the lowest is merged first.
    """

    def __init__(self, ranks: Mapping[str, float]) -> None:
        self._ranks: Final = ranks
        self._last: Final[dict[str, tuple[str, str] | None]] = {}
        self._steps = 0

    def ordered(self, classes: Iterable[Sequence[str]]) -> dict[str, int]:
        """Returns each token's place among those of its rank.

        Args:
            classes: tokens of equal rank.

        Raises:
            TiesError: such an order does not exist.
        """
        return {token: place for tokens in classes for place, token in enumerate(self._in_order(tokens))}

    def is_made(self, token: str) -> bool:
        """Returns whether the letters of a token are merged to the token."""
        return self._pair(token) is not None

    def _in_order(self, tokens: Sequence[str]) -> list[str]:
        pairs = {token: pair for token in tokens if (pair := self._pair(token)) is not None}
        if len(pairs) < 2:
            return [*pairs]
        self._check_growth(pairs)
        begins: dict[str, list[str]] = {}
        for token, (left, _) in pairs.items():
            begins.setdefault(left, []).append(token)
        after = {
            token: [
                other
                for other in begins.get(pair[1], ())
                if other != token and self._comes_up([*pair, pairs[other][1]])
            ]
            for token, pair in pairs.items()
        }
        return _sorted(after, [*pairs])

    def _check_growth(self, pairs: Mapping[str, tuple[str, str]]) -> None:
        """Checks that tokens are not parts of tokens with the same rank or a lower one.

        Raises:
            TiesError: one is.
        """
        rank = self._ranks[next(iter(pairs))]
        for token, other in self._ranks.items():
            self._count(len(token))
            cuts = range(1, len(token))
            if other > rank or not any(token[:cut] in pairs or token[cut:] in pairs for cut in cuts):
                continue
            if (pair := self._pair(token)) is not None:
                part = next((part for part in pair if part in pairs), None)
                if part is not None:
                    raise TiesError(
                        f"{part!r:.40} has the score of {len(pairs) - 1} other tokens ({-rank:g}) and is part of "
                        f"{token!r:.40} with {-other:g}, so which tokens are merged depends on their places in a text"
                    )

    def _count(self, steps: int) -> None:
        """Counts steps; no more than ``MOST_STEPS`` are taken for all tokens.

        Raises:
            TiesError: there are more.
        """
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise TiesError(f"finding an order of tokens with equal scores takes more than {MOST_STEPS} steps")

    def _pair(self, token: str) -> tuple[str, str] | None:
        """Returns the two symbols that make a token wherever it is made; None of a token that is never made."""
        if token not in self._last:
            pair = self._merged(token)
            self._last[token] = None if pair is None else (pair[0], pair[1])
        return self._last[token]

    def _comes_up(self, parts: Sequence[str]) -> bool:
        """Returns whether the letters of three symbols come to be these symbols."""
        return self._merged("".join(parts), parts) is not None

    def _merged(self, text: str, wanted: Sequence[str] = ()) -> Sequence[str] | None:
        """Merges the letters of a text; returns the wanted state, or the last state of two symbols that make the text.

        Returns None without such a state.
        """
        parts = [*text]
        while True:
            self._count(len(parts))
            if wanted and parts == [*wanted]:
                return parts
            best = min(
                (
                    (self._ranks[left + right], place)
                    for place, (left, right) in enumerate(itertools.pairwise(parts))
                    if left + right in self._ranks
                ),
                default=None,
            )
            if best is None:
                return None
            place = best[1]
            if not wanted and len(parts) == 2:
                return parts
            parts[place : place + 2] = [parts[place] + parts[place + 1]]


def _sorted(after: Mapping[str, Sequence[str]], tokens: Sequence[str]) -> list[str]:
    """Returns tokens so that each is before those that come after it, otherwise in their order.

    Raises:
        TiesError: they go round in a circle.
    """
    waits = dict.fromkeys(tokens, 0)
    for listed in after.values():
        for token in listed:
            waits[token] += 1
    index = {token: place for place, token in enumerate(tokens)}
    ready = [index[token] for token, count in waits.items() if not count]
    heapq.heapify(ready)
    ordered: list[str] = []
    while ready:
        token = tokens[heapq.heappop(ready)]
        ordered.append(token)
        for other in after[token]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, index[other])
    if len(ordered) < len(tokens):
        circle = [token for token, count in waits.items() if count]
        raise TiesError(
            f"{circle[0]!r:.40} and {len(circle) - 1} other tokens have equal scores and overlap either way, so which "
            "tokens are merged depends on their places in a text"
        )
    return ordered
