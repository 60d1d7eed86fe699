"""Choices of encodings, held to all possible ones."""

import itertools

import numpy as np
import pytest

from lang_core import InputError
from tapeline.quantizing import Loss, Option, choose, frontier


def _losses(seed: int, matrices: int = 4, options: int = 4) -> list[Loss]:
    """Returns matrices of different sizes with encodings that need not be convex."""
    generator = np.random.default_rng(seed)
    losses = []
    for number in range(matrices):
        weights = 32 * int(generator.integers(1, 9))
        sizes = weights // 32 * (10 + np.cumsum(generator.integers(1, 7, options)))
        values = np.sort(generator.random(options))[::-1] * generator.choice([0.1, 1, 10])
        named = zip("abcdefg", map(int, sizes), map(float, values), strict=False)
        losses.append(Loss(f"m{number}", number, weights, tuple(Option(*option) for option in named)))
    return losses


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_as_small_loses_less_than_one_of_the_frontier(seed: int) -> None:
    losses = _losses(seed)
    every = [
        (sum(option.nbytes for option in options), sum(option.loss for option in options))
        for options in itertools.product(*(loss.options for loss in losses))
    ]
    points = frontier(losses)
    assert points == sorted(points)
    for size, loss in points:
        assert loss == pytest.approx(min(value for other, value in every if other <= size))
        choice = choose(losses, size, None)
        assert (choice.nbytes, choice.loss) == pytest.approx((size, loss))
        assert sum(choice.options[loss.path].nbytes for loss in losses) == choice.nbytes
    between = (points[0][0] + points[-1][0]) // 2
    assert choose(losses, between, None).nbytes <= between


@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_choice_of_the_frontier_that_loses_little_enough(seed: int) -> None:
    losses = _losses(seed)
    points = frontier(losses)
    limit = points[len(points) // 2][1] * 1.01
    choice = choose(losses, None, limit)
    assert choice.loss <= limit
    assert choice.nbytes == min(size for size, loss in points if loss <= limit)


def test_a_choice_beyond_the_encodings_is_refused() -> None:
    losses = _losses(0)
    least, most = frontier(losses)[0], frontier(losses)[-1]
    with pytest.raises(InputError, match=r"target_bpw=.*: the smallest encodings of these matrices have .*: give at"):
        choose(losses, least[0] - 1, None)
    with pytest.raises(InputError, match=r"max_loss=.*: the largest encodings lose .*: give more, or quantize=none"):
        choose(losses, None, most[1] / 2)
