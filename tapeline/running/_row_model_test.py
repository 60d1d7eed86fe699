"""A bundle with slots generates, by its first row, what a plain one does."""

from pathlib import Path

import numpy as np
import pytest

import tapeline
from lang_core import InputError
from tapeline.running._row_model import RowModel
from tapeline.running._slots import BundleSlots

_PROMPT = "It was the best of times,"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tapeline.Bundle:
    folder = tmp_path_factory.mktemp("rows")
    return tapeline.export("demo", folder / "bundle", slots=2, sequence=40, max_sequence=64, verify="none")


def test_it_generates_what_a_plain_bundle_does(bundle: tapeline.Bundle, tmp_path: Path) -> None:
    plain = tapeline.export("demo", tmp_path / "plain", sequence=16, max_sequence=64, verify="none")
    with tapeline.load(plain.path) as one, tapeline.load(bundle.path) as other:
        for prompt in (_PROMPT, f"{_PROMPT} it was the worst of times, it was", _PROMPT):
            assert other.generate(prompt, max_new_tokens=12).text == one.generate(prompt, max_new_tokens=12).text
        with pytest.raises(InputError, match="several prompts go with a bundle exported without slots"):
            other.generate_batch([_PROMPT, _PROMPT], max_new_tokens=2)
    with (
        tapeline.load(bundle.path, prompt_cache=tmp_path / "cache") as kept,
        pytest.raises(InputError, match="`prompt_cache` goes with a bundle exported without slots"),
    ):
        kept.generate(_PROMPT, max_new_tokens=2)


def test_prompts_are_cut_into_the_largest_chunks(bundle: tapeline.Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    run = BundleSlots.run_prefill

    def noted(self, entry, token_ids, row, position):
        sizes.append((entry.size, len(token_ids)))
        return run(self, entry, token_ids, row, position)

    with bundle.session("local-task") as session:
        model = RowModel(BundleSlots(bundle, session))
        monkeypatch.setattr(BundleSlots, "run_prefill", noted)
        model.prefill(np.ones((1, 40), np.int32), 0, 38)
        assert sizes == [(32, 32), (8, 7)]
        array = model.read_cache("layers.0.key_cache")
        assert array.shape == model.cache_specs["layers.0.key_cache"].shape
        assert array[0, :, 38].any()
        assert not array[0, :, 39:].any()
        model.write_caches({"layers.0.key_cache": array * 2})
        np.testing.assert_array_equal(model.read_cache("layers.0.key_cache"), array * 2)
