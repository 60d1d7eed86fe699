"""Choice of an encoding per matrix: the least loss of a size, or the least size of a loss."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lang_core import InputError


class Option(NamedTuple):
    """Encoding that a matrix may have.

    Attributes:
        encoding: its name.
        nbytes: bytes of the matrix.
        loss: loss that it costs, in nats per token.
    """

    encoding: str
    nbytes: int
    loss: float


@dataclass(frozen=True, slots=True)
class Loss:
    """Measured loss of a matrix.

    Attributes:
        path: path of the parameter.
        layer: number of the layer; None outside of layers.
        weights: number of weights.
        options: encodings that the matrix may have; one alone if nothing was measured.
    """

    path: str
    layer: int | None
    weights: int
    options: tuple[Option, ...]


class Choice(NamedTuple):
    """Encodings of all matrices.

    Attributes:
        options: chosen option of each matrix, by path.
        nbytes: bytes of all matrices.
        loss: sum of the losses.
    """

    options: Mapping[str, Option]
    nbytes: int
    loss: float


def hull(options: Sequence[Option]) -> list[Option]:
    """Returns the options on the lower convex hull of loss over size, the smallest first.

    >>> [option.encoding for option in hull([Option("a", 4, 9.0), Option("b", 5, 8.0), Option("c", 6, 1.0)])]
    ['a', 'c']
    """
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (option.nbytes, option.loss)):
        if kept and option.loss >= kept[-1].loss:
            continue
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) <= _slope(kept[-2], option):
            kept.pop()
        kept.append(option)
    return kept


def _slope(first: Option, second: Option) -> float:
    """Returns the loss that a further byte saves."""
    return (first.loss - second.loss) / (second.nbytes - first.nbytes)


def _walk(losses: Sequence[Loss], room: int | None = None) -> Iterator[tuple[str, Option, Option]]:
    """Yields each change (path, before, after), those that save most per byte first.

    A change that does not fit ``room``, the bytes beyond the smallest choice, ends the changes of its matrix.
    """
    hulls = {loss.path: hull(loss.options) for loss in losses}
    places = dict.fromkeys(hulls, 0)
    queue = [(-_slope(*kept[:2]), path) for path, kept in hulls.items() if len(kept) > 1]
    heapq.heapify(queue)
    while queue:
        _, path = heapq.heappop(queue)
        kept, place = hulls[path], places[path]
        before, after = kept[place], kept[place + 1]
        if room is not None:
            if after.nbytes - before.nbytes > room:
                continue
            room -= after.nbytes - before.nbytes
        places[path] = place + 1
        if place + 2 < len(kept):
            heapq.heappush(queue, (-_slope(after, kept[place + 2]), path))
        yield path, before, after


def frontier(losses: Sequence[Loss]) -> list[tuple[int, float]]:
    """Returns size in bytes and loss of every choice on the convex frontier, the smallest first."""
    first = _smallest(losses)
    points = [(first.nbytes, first.loss)]
    for _, before, after in _walk(losses):
        size, loss = points[-1]
        points.append((size + after.nbytes - before.nbytes, max(0.0, loss - before.loss + after.loss)))
    return points


def choose(losses: Sequence[Loss], nbytes: int | None, loss: float | None) -> Choice:
    """Returns the choice of the least loss of at most ``nbytes``, or of the least size with at most ``loss``.

    Args:
        losses: losses of the matrices.
        nbytes: the most bytes of all matrices; None if ``loss`` is given.
        loss: the most loss in all; None if ``nbytes`` is given.

    Raises:
        InputError: no choice is as small, or loses as little.
    """
    first = _smallest(losses)
    options, size, total = dict(first.options), first.nbytes, first.loss
    if nbytes is not None and size > nbytes:
        weights = sum(loss.weights for loss in losses)
        raise InputError(
            f"target_bpw={8 * nbytes / weights:.3g}: the smallest encodings of these matrices have "
            f"{8 * size / weights:.3g} bits per weight: give at least as many"
        )
    for path, before, after in _walk(losses, None if nbytes is None else nbytes - size):
        if loss is not None and total <= loss:
            break
        options[path] = after
        size, total = size + after.nbytes - before.nbytes, total - before.loss + after.loss
    if loss is not None and total > loss:
        raise InputError(
            f"max_loss={loss:g}: the largest encodings lose {total:.3g} nats per token: give more, or quantize=none"
        )
    return Choice(options, size, total)


def _smallest(losses: Sequence[Loss]) -> Choice:
    options = {loss.path: hull(loss.options)[0] for loss in losses}
    return Choice(
        options, sum(option.nbytes for option in options.values()), sum(option.loss for option in options.values())
    )
