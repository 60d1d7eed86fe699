import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tapeline.running._text_rows import TextRow, plan_calls
from transformer_core import TEXT_ALIGNMENT

ALONE = (32, 128, 256)
ROWS = (TextRow("packed_128", 128, 192), TextRow("packed_512", 512, 768))


def _drawn(seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    least, most = sorted(random.integers(1, ALONE[-1] + 1, 2).tolist())
    return random.integers(least, most + 1, int(random.integers(1, 80))).tolist()


def _tokens(call: Any, lengths: list[int]) -> int:
    longest = max(lengths[text] for text in call.texts)
    return next(size for size in ALONE if size >= longest) if call.row is None else call.row.tokens


@pytest.mark.parametrize("rows", [(), ROWS[:1], ROWS], ids=len)
def test_every_text_is_in_one_call_that_it_fits(rows: tuple[TextRow, ...]) -> None:
    for seed in range(200):
        lengths = _drawn(seed)
        calls = plan_calls(lengths, ALONE, 1, rows)
        assert sorted(text for call in calls for text in call.texts) == list(range(len(lengths)))
        for call in calls:
            if call.row is None:
                assert len(call.texts) == 1
                continue
            assert sum(lengths[text] for text in call.texts) <= call.row.tokens
            places = sum(math.ceil(lengths[text] / TEXT_ALIGNMENT) for text in call.texts)
            assert places * TEXT_ALIGNMENT <= call.row.keys


def test_rows_are_never_slower_than_each_text_alone() -> None:
    for seed in range(200):
        lengths = _drawn(seed)
        calls = plan_calls(lengths, ALONE, 1, ROWS)
        alone = plan_calls(lengths, ALONE, 1, ())
        assert len(calls) <= len(alone)
        assert sum(_tokens(call, lengths) for call in calls) <= sum(_tokens(call, lengths) for call in alone)


def test_many_sentences_have_little_padding() -> None:
    """Sentences of 5 to 60 words: less than 15 % of the tokens are padding; 51 % are if each text is alone."""
    lengths = np.random.default_rng(0).integers(7, 90, 256).tolist()

    def padding(rows: tuple[TextRow, ...]) -> float:
        return 1 - sum(lengths) / sum(_tokens(call, lengths) for call in plan_calls(lengths, ALONE, 1, rows))

    assert padding(()) > 0.4
    assert padding(ROWS) < 0.05
    short = np.random.default_rng(1).integers(5, 20, 256).tolist()
    lengths = short
    assert padding(ROWS) < 0.15


def test_texts_of_a_batch_are_those_of_similar_lengths() -> None:
    assert [call.texts for call in plan_calls([90, 5, 80, 6, 7], ALONE, 2, ())] == [(1, 3), (4, 2), (0,)]


def test_arguments_of_a_row() -> None:
    texts: Any = [SimpleNamespace(ids=[7, 8, 9], types=[0, 0, 1]), SimpleNamespace(ids=[5] * 17, types=[0] * 17)]
    arrays = {name: array[0] for name, array in TextRow("packed_64", 64, 96).arrays(texts, 2).items()}
    assert arrays["token_ids"][:21].tolist() == [7, 8, 9, *[5] * 17, 0]
    assert arrays["text_ids"].tolist() == [0] * 3 + [1] * 17 + [-1] * 44
    assert arrays["positions"][:21].tolist() == [0, 1, 2, *range(17), 0]
    assert arrays["token_type_ids"][:4].tolist() == [0, 0, 1, 0]
    assert arrays["pooling_mask"][:7].tolist() == [0, 0, 1, 0, 0, 1, 1]
    expected = np.full(96, -1)
    expected[:3], expected[16:33] = range(3), range(3, 20)
    np.testing.assert_array_equal(arrays["key_places"], expected)
