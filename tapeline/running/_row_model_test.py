"""A row of a bundle with slots, as a model for one sequence: the drafts of a server."""

import numpy as np
import pytest

import tapeline
from tapeline.running._row_model import RowModel
from tapeline.running._slots import BundleSlots


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tapeline.Bundle:
    folder = tmp_path_factory.mktemp("rows")
    return tapeline.export("demo", folder / "bundle", slots=2, sequence=40, max_sequence=64, verify="none")


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
