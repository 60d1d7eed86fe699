from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import InputError
from tapeline.running import BundleBatch
from tapeline.running._generator import Generator
from tapeline.running._prompt_pictures import PictureMemory, PromptPictures, SeenPicture
from tapeline.running._row_model import RowModel

_IMAGE = 9


def _seen(digest: int, tokens: int) -> SeenPicture:
    return SeenPicture(0, 0, np.arange(tokens * 2, dtype=np.float32).reshape(tokens, 2) + 100 * digest, digest)


def _placed(ids: list[int], *pictures: SeenPicture) -> PromptPictures:
    return PromptPictures([place for place, token in enumerate(ids) if token == _IMAGE], pictures)


@given(st.lists(st.sampled_from([1, _IMAGE]), min_size=1, max_size=30), st.data())
def test_rows_of_a_piece_are_the_embeddings_of_its_image_tokens(ids: list[int], data: st.DataObject) -> None:
    count = ids.count(_IMAGE)
    first = data.draw(st.integers(0, count))
    placed = _placed(ids, _seen(1, first), _seen(2, count - first))
    embeddings = np.concatenate([_seen(1, first).embeddings, _seen(2, count - first).embeddings])
    whole = np.zeros((len(ids), 2), np.float32)
    whole[np.array(ids) == _IMAGE] = embeddings
    start = data.draw(st.integers(0, len(ids) - 1))
    tokens = data.draw(st.integers(1, len(ids) - start))
    rows = placed.rows(start, tokens, 32)
    if _IMAGE not in ids[start : start + tokens]:
        assert rows is None
    else:
        assert rows is not None
        assert rows.shape == (1, 32, 2)
        np.testing.assert_array_equal(rows[0, :tokens], whole[start : start + tokens])
        assert not rows[0, tokens:].any()


class _Memory:
    """Memory that notes what it is given."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    def restore(self, token_ids: Any) -> int:
        return sum(a == b for a, b in zip(self.kept, token_ids, strict=False))

    def keep(self, token_ids: Any) -> None:
        self.kept = list(token_ids)


def test_the_same_tokens_of_another_picture_are_other_tokens() -> None:
    memory, ids = _Memory(), [1, _IMAGE, _IMAGE, 2, _IMAGE]
    PictureMemory(memory, _placed(ids, _seen(5, 2), _seen(6, 1))).keep(ids)
    assert [token < 0 for token in memory.kept] == [False, True, True, False, True]
    assert len(set(memory.kept)) == len(ids)
    for pictures, common in (((5, 6), 5), ((5, 7), 4), ((6, 5), 2)):
        placed = _placed(ids, _seen(pictures[0], 2), _seen(pictures[1], 1))
        assert PictureMemory(memory, placed).restore(ids) == common
    assert memory.restore(ids) == 2


def _unmade(kind: Any) -> Any:
    """Returns an instance without its state: that of its class is all that is asked for."""
    return kind.__new__(kind)


def test_a_batch_refuses_pictures() -> None:
    generator: Any = Generator(
        cast(Any, SimpleNamespace(path=Path("bundle"))),
        cast(Any, None),
        encoder_inputs=None,
        prompt_cache=None,
        speculate=None,
    )
    with pytest.raises(
        InputError, match="pictures go with a bundle exported without positions=per_row, and bundle has"
    ):
        generator._check_pictures(_unmade(BundleBatch), _placed([_IMAGE], _seen(1, 1)))
    generator._check_pictures(_unmade(BundleBatch), None)
    generator._check_pictures(_unmade(RowModel), _placed([_IMAGE], _seen(1, 1)))
