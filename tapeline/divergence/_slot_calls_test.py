"""Example calls on rows of caches: rows are distinct, one rests, and they go on where others left them."""

import numpy as np

from lang_core import TensorSpec
from tapeline.divergence import Arrays, example_inputs, next_state

_CACHE = TensorSpec((4, 1, 20, 2), "f32")


def _specs(batch: int, tokens: int) -> dict[str, TensorSpec]:
    rows = () if tokens > 1 else (batch,)
    last = "last" if tokens > 1 else "count"
    places = {name: TensorSpec(rows, "i32") for name in ("row", "position", last)}
    return {"token_ids": TensorSpec((batch, tokens), "i32"), **places, "layers.0.key_cache": _CACHE}


def test_calls_go_on_from_one_another() -> None:
    state: Arrays = {}
    for row, tokens in enumerate((12, 8)):
        given = example_inputs(_specs(1, tokens), 50, state)
        assert (int(given["row"]), int(given["position"]), int(given["last"])) == (row, 0, tokens - 2)
        left = np.random.default_rng(row).standard_normal(_CACHE.shape).astype(np.float32)
        state |= next_state(given, {"layers.0.key_cache": left})
    given = example_inputs(_specs(3, 1), 50, state)
    assert given["row"].tolist() == [3, 2, 1]
    assert given["position"].tolist() == [0, 0, 7]
    assert given["count"].tolist() == [1, 1, 0]
    assert len(set(given["token_ids"][:, 0].tolist())) == 3
    np.testing.assert_array_equal(given["layers.0.key_cache"], state["layers.0.key_cache"])
    state |= next_state(given, {"layers.0.key_cache": given["layers.0.key_cache"]})
    assert example_inputs(_specs(1, 1), 50, state)["count"].tolist() == [1]
    copied = example_inputs(
        {"source": TensorSpec((), "i32"), "target": TensorSpec((), "i32"), "c_cache": _CACHE}, 0, state
    )
    assert (int(copied["source"]), int(copied["target"])) == (0, 2)


def test_positions_fit() -> None:
    state: Arrays = {f"filled.{row}": np.asarray(20) for row in range(4)}
    assert int(example_inputs(_specs(1, 12), 50, state)["position"]) == 8
    assert example_inputs(_specs(2, 1), 50, state)["position"].tolist() == [19, 19]
