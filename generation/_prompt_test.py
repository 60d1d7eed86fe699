"""Prompts in pieces, and their room."""

import re

import numpy as np
import pytest

from generation import KnownLogits, check_room, run_prompt
from lang_core import InputError


class _Model:
    """Notes its calls; the prediction is the number of tokens so far."""

    def __init__(self, chunk: int, capacity: int, recurrent: bool = False) -> None:
        self.chunk, self.capacity, self.recurrent = chunk, capacity, recurrent
        self.cache = [-1] * capacity
        self.calls: list[tuple[str, int]] = []

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> KnownLogits:
        self.calls.append(("prefill", position))
        self.cache[position : position + self.chunk] = token_ids[0].tolist()
        return KnownLogits(np.array([position + last + 1], np.float32))

    def decode(self, token_id: int, position: int) -> KnownLogits:
        self.calls.append(("decode", position))
        self.cache[position] = token_id
        return KnownLogits(np.array([position + 1], np.float32))


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(
    ("length", "capacity", "starts"),
    [(1, 11, [0]), (4, 11, [0]), (5, 11, [0, 4]), (9, 11, [0, 4, 7]), (9, 12, [0, 4, 8]), (11, 11, [0, 4, 7])],
)
def test_a_prompt_runs_in_pieces(length: int, capacity: int, starts: list[int], recurrent: bool) -> None:
    model, prompt = _Model(4, capacity, recurrent), list(range(10, 10 + length))
    assert run_prompt(model, prompt).logits() == length
    assert model.cache[:length] == prompt
    if recurrent and starts[-1] % 4:  # no token runs twice
        assert model.calls == [("prefill", 0), ("prefill", 4), *(("decode", place) for place in range(8, length))]
    else:
        assert model.calls == [("prefill", start) for start in starts]


@pytest.mark.parametrize(
    ("prompt", "new", "message"),
    [
        ([], 1, "the prompt has no token: give `prompt` or `token_ids` at least one"),
        ([5, 6, 7, 8], 4, "a prompt of 4 tokens and 4 new ones need 7 positions, the bundle's caches hold 6: ask for "
                          "fewer, or export with max_sequence=7 or more"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(prompt: list[int], new: int, message: str) -> None:
    check_room([1, 2, 3, 4], 3, 6)
    with pytest.raises(InputError, match=re.escape(message)):
        check_room(prompt, new, 6)
