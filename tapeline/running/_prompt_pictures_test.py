from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.engine import PromptPicture
from lang_core import InputError
from tapeline.running import BundleBatch, BundleModel
from tapeline.running._generator import Generator
from tapeline.running._prompt_pictures import PictureEmbeddings, PictureMemory, PromptPictures

_IMAGE = 9


def _picture(start: int, tokens: int, shade: int) -> PromptPicture:
    return PromptPicture(pixels=np.full((3, 2, 2), shade, np.float32), start=start, stop=start + tokens)


def _placed(ids: list[int], *pictures: tuple[int, int]) -> PromptPictures:
    """Returns pictures of these (shade, tokens), one behind the other, in the places of a prompt's image tokens."""
    places = iter(place for place, token in enumerate(ids) if token == _IMAGE)
    placed: list[PromptPicture] = []
    for shade, tokens in pictures:
        placed.append(_picture(next(places), tokens, shade))
        for _ in range(tokens - 1):
            next(places)
    return PromptPictures(placed, [_embeddings(*picture) for picture in pictures])


def _embeddings(shade: int, tokens: int) -> np.ndarray:
    return np.arange(tokens * 2, dtype=np.float32).reshape(tokens, 2) + 100 * shade


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_rows_of_a_piece_are_the_embeddings_of_its_image_tokens(texts: list[int], data: st.DataObject) -> None:
    pictures = [(shade, data.draw(st.integers(1, 4))) for shade in range(len(texts))]
    ids: list[int] = []
    for text, (_, tokens) in zip(texts, pictures, strict=True):
        ids += [1] * text + [_IMAGE] * tokens
    placed = _placed(ids, *pictures)
    whole = np.zeros((len(ids), 2), np.float32)
    whole[np.array(ids) == _IMAGE] = np.concatenate([_embeddings(*picture) for picture in pictures])
    start = data.draw(st.integers(0, len(ids) - 1))
    tokens = data.draw(st.integers(1, len(ids) - start))
    rows = placed.rows(start, tokens, 64)
    if _IMAGE not in ids[start : start + tokens]:
        assert rows is None
    else:
        assert rows is not None
        assert rows.shape == (1, 64, 2)
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
    PictureMemory(memory, _placed(ids, (5, 2), (6, 1))).keep(ids)
    assert [token < 0 for token in memory.kept] == [False, True, True, False, True]
    assert len(set(memory.kept)) == len(ids)
    for (first, second), common in (((5, 6), 5), ((5, 7), 4), ((6, 5), 2)):
        assert PictureMemory(memory, _placed(ids, (first, 2), (second, 1))).restore(ids) == common
    assert memory.restore(ids) == 2


class _Tower:
    """Bundle and session of a vision tower whose embeddings are the pixels, and which notes its calls."""

    def __init__(self, batch: int) -> None:
        self.calls: list[int] = []
        self._shape = (batch, 3, 2, 2)

    def entry_point(self, name: str) -> Any:
        assert name == "encode_image"
        return SimpleNamespace(arguments=[SimpleNamespace(spec=SimpleNamespace(shape=self._shape))])

    def function(self, name: str) -> Any:
        assert name == "encode_image"
        return self._run

    def _run(self, pixels: np.ndarray) -> Any:
        assert pixels.shape == self._shape
        self.calls.append(int(pixels.any(axis=(1, 2, 3)).sum()))
        embeddings = pixels.reshape(len(pixels), 4, 3)
        return [SimpleNamespace(numpy=lambda: embeddings)]


def test_each_picture_is_encoded_once_for_as_long_as_prompts_have_it() -> None:
    tower: Any = _Tower(batch=2)
    embeddings = PictureEmbeddings(tower, tower)
    pictures = [_picture(4 * place, 4, shade) for place, shade in enumerate((1, 2, 1, 3))]
    rows = embeddings.of(pictures).rows(0, 16, 16)
    assert rows is not None
    np.testing.assert_array_equal(rows[0, ::4, 0], [1, 2, 1, 3])
    assert tower.calls == [2, 1]
    embeddings.of([*pictures, _picture(16, 4, 7)])
    assert tower.calls == [2, 1, 1]
    embeddings.of(pictures[:1])
    embeddings.of(pictures[1:2])
    assert tower.calls == [2, 1, 1, 1]


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
        generator._check_pictures(_unmade(BundleBatch), [_picture(0, 1, 1)])
    generator._check_pictures(_unmade(BundleBatch), [])
    generator._check_pictures(_unmade(BundleModel), [_picture(0, 1, 1)])
