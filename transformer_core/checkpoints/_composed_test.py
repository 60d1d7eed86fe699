from collections.abc import Mapping

import numpy as np
import pytest

from lang_core import CachedWeights, CheckpointError, MappingWeights, TensorSpec, WeightSource
from transformer_core.checkpoints._audit import audit
from transformer_core.checkpoints._composed import ComposedWeights
from transformer_core.checkpoints._keys import ExpertKeys
from transformer_core.checkpoints._recipes import Cut, Interleaved, Recipe, Stacked, Stored, Transposed

PLAIN = ExpertKeys()
MIXTRAL = ExpertKeys(layer="block_sparse_moe", gate="w1", up="w3", down="w2")
E, F, D = 4, 5, 3
WANTED = {
    "model.layers.0.mlp.gate.weight": TensorSpec((E, D), "f32"),
    "model.layers.0.mlp.experts.gate_proj": TensorSpec((E, F, D), "f32"),
    "model.layers.0.mlp.experts.up_proj": TensorSpec((E, F, D), "f32"),
    "model.layers.0.mlp.experts.down_proj": TensorSpec((E, D, F), "f32"),
    "model.norm.weight": TensorSpec((D,), "f32"),
}


class Memory(MappingWeights):
    """Remembers how many rows of what were read."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(arrays, "model.safetensors")
        self.reads: list[tuple[str, int, int]] = []

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        self.reads.append((key, start, stop))
        return super().read_rows(key, start, stop)


def values() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(spec.shape).astype(np.float32) for name, spec in WANTED.items()}


def separate(names: ExpertKeys) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for name, value in values().items():
        prefix, _, rest = name.partition("mlp.experts.")
        if rest:
            short = {"gate_proj": names.gate, "up_proj": names.up, "down_proj": names.down}[rest]
            made |= {f"{prefix}{names.layer}.experts.{e}.{short}.weight": value[e] for e in range(E)}
        else:
            made[name.replace("mlp.", f"{names.layer}.")] = value
    return made


def fused() -> dict[str, np.ndarray]:
    made = values()
    prefix = "model.layers.0.mlp.experts."
    parts = [made.pop(f"{prefix}{name}_proj") for name in ("gate", "up")]
    return made | {f"{prefix}gate_up_proj": np.concatenate(parts, 1)}


FORMS = {
    "separate": (separate(PLAIN), PLAIN),
    "mixtral": (separate(MIXTRAL), MIXTRAL),
    "fused": (fused(), PLAIN),
    "mixtral, fused": (fused(), MIXTRAL),
}


def composed(arrays: Mapping[str, np.ndarray], keys: ExpertKeys = PLAIN) -> ComposedWeights:
    return ComposedWeights(Memory(arrays), WANTED, keys)


@pytest.mark.parametrize(("arrays", "keys"), FORMS.values(), ids=FORMS)
def test_every_form_gives_the_models_tensors(arrays: dict[str, np.ndarray], keys: ExpertKeys):
    weights = composed(arrays, keys)
    assert isinstance(weights, WeightSource)
    assert list(weights.keys()) == list(WANTED)
    for name, value in values().items():
        assert weights.spec(name) == WANTED[name]
        np.testing.assert_array_equal(weights.read(name), value)
        np.testing.assert_array_equal(weights.read_rows(name, 1, 3), value[1:3])
    assert audit(Memory(arrays), weights.stored()).used == tuple(weights.stored())
    assert set(weights.stored()) == set(arrays)


def test_rows_read_only_their_own_experts_and_one_is_a_view():
    arrays = separate(MIXTRAL)
    source = Memory(arrays)
    weights = ComposedWeights(source, WANTED, MIXTRAL)
    prefix = "model.layers.0.block_sparse_moe.experts."
    one = weights.read_rows("model.layers.0.mlp.experts.up_proj", 2, 3)
    assert source.reads == [(f"{prefix}2.w3.weight", 0, F)]
    assert np.shares_memory(one, arrays[f"{prefix}2.w3.weight"])
    source.reads.clear()
    weights.read_rows("model.layers.0.mlp.experts.down_proj", 1, 3)
    assert source.reads == [(f"{prefix}1.w2.weight", 0, D), (f"{prefix}2.w2.weight", 0, D)]


def test_a_part_of_a_fused_tensor_is_a_view():
    arrays = fused()
    part = composed(arrays).read_rows("model.layers.0.mlp.experts.up_proj", 1, 2)
    assert np.shares_memory(part, arrays["model.layers.0.mlp.experts.gate_up_proj"])
    assert np.shares_memory(part.reshape(-1), part)  # as the archive's writer takes it


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Stored("x", (6, 4)), np.arange(24).reshape(6, 4)),
        (Cut("x", (6, 4), 0, 2, 5), np.arange(24).reshape(6, 4)[2:5]),
        (Cut("x", (6, 4), 1, 1, 3), np.arange(24).reshape(6, 4)[:, 1:3]),
        (Stacked(["x", "x"], (6, 4)), np.stack([np.arange(24).reshape(6, 4)] * 2)),
        (Interleaved("x", (6, 4), 3, 2, 1), np.arange(24).reshape(6, 4)[1::2]),
        (Interleaved("x", (6, 4), 1, 3, 1), np.arange(24).reshape(6, 4)[2:4]),
        (Transposed("x", (6, 4), 1, 3), np.arange(24).reshape(6, 4).T[1:3]),
    ],
)
def test_recipes_row_by_row(recipe: Recipe, expected: np.ndarray):
    source = Memory({"x": np.arange(24).reshape(6, 4)})
    assert recipe.stored() == {"x": (6, 4)}
    np.testing.assert_array_equal(recipe.rows(source, 0, len(expected)), expected)
    rows = [recipe.rows(source, i, i + 1) for i in range(len(expected))]
    np.testing.assert_array_equal(np.concatenate(rows), expected)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_interleaved_rows_begin_and_end_anywhere(groups: int, part: int):
    whole = np.arange(24 * 2).reshape(24, 2)
    source = Memory({"x": whole})
    recipe = Interleaved("x", (24, 2), groups, 3, part)
    expected = whole.reshape(groups, 3, -1, 2)[:, part].reshape(8, 2)
    for start in range(8):
        for stop in range(start, 9):
            np.testing.assert_array_equal(recipe.rows(source, start, stop), expected[start:stop])


def test_the_audit_names_the_stored_keys():
    arrays = separate(MIXTRAL)
    broken = "model.layers.0.block_sparse_moe.experts.3.w1.weight"
    short = {key: value[:2] if key == broken else value for key, value in arrays.items()}
    with pytest.raises(CheckpointError, match=rf"{broken}' in model.safetensors has shape \[2, 3\], the model ne"):
        audit(Memory(short), composed(short, MIXTRAL).stored())
    fewer = {key: value for key, value in arrays.items() if key != broken}
    with pytest.raises(CheckpointError, match=f"'{broken}' is missing"):
        audit(Memory(fewer), composed(fewer, MIXTRAL).stored())
    more = {**arrays, "model.layers.0.block_sparse_moe.experts.4.w1.weight": arrays[broken]}
    with pytest.raises(CheckpointError, match=r"experts\.4\.w1\.weight' in model\.safetensors is not the model's"):
        audit(Memory(more), composed(more, MIXTRAL).stored())


def test_reading_names_the_stored_keys_too():
    arrays = separate(MIXTRAL)
    broken = "model.layers.0.block_sparse_moe.experts.3.w1.weight"
    name = "model.layers.0.mlp.experts.gate_proj"
    short = composed({**arrays, broken: arrays[broken][:2]}, MIXTRAL)
    with pytest.raises(CheckpointError, match=rf"model.safetensors: '{broken}' has shape \[2, 3\], the model ne"):
        short.read(name)
    mixed = composed({**arrays, broken: arrays[broken].astype(np.float16)}, MIXTRAL)
    with pytest.raises(CheckpointError, match=rf"'{broken}' is f16, but '.*0.w1.weight', .* is f32: store both"):
        mixed.spec(name)
    fewer = composed({key: value for key, value in arrays.items() if key != broken}, MIXTRAL)
    assert not fewer.has(name)
    assert name not in list(fewer.keys())
    with pytest.raises(CheckpointError, match=f"no tensor '{broken}'"):
        fewer.spec(name)
    empty = ComposedWeights(Memory(arrays), WANTED, lambda *_: Stacked([], (2,)))
    with pytest.raises(CheckpointError, match="a parameter is made of no stored tensor at all"):
        empty.spec(name)


def test_origins_name_file_and_stored_keys():
    weights = composed(separate(MIXTRAL), MIXTRAL)
    assert weights.origin("model.norm.weight") == "model.safetensors"
    prefix = "model.safetensors (model.layers.0.block_sparse_moe."
    assert weights.origin("model.layers.0.mlp.gate.weight") == f"{prefix}gate.weight)"
    assert weights.origin("model.layers.0.mlp.experts.up_proj") == f"{prefix}experts.0.w3.weight and 3 more)"


def test_a_name_that_is_not_the_models_is_looked_up_as_it_is():
    weights = composed({**values(), "other": np.zeros((2, 2), np.float32)})
    assert weights.spec("other") == TensorSpec((2, 2), "f32")
    assert weights.read("other").shape == (2, 2)
    with pytest.raises(CheckpointError, match="no tensor 'absent'"):
        weights.spec("absent")


def test_wrappers_are_transparent():
    """The source's description of a tensor passes through renaming and through a cache."""

    class Packed(Memory):
        def encoding(self, key: str) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            return "q4_0" if key == "norm" else super().encoding(key)

    source = Packed({"norm": np.arange(3, dtype=np.float16), "other": np.ones(2, np.float32)})
    renamed = {"model.norm.weight": "norm", "absent": "nowhere"}
    wanted = {"model.norm.weight": TensorSpec((3,), "f32"), "absent": TensorSpec((1,), "f32")}
    for inner in (source, CachedWeights(source, 100)):
        weights = ComposedWeights(inner, wanted, lambda name, shape, _: Stored(renamed.get(name, name), shape))
        assert list(weights.keys()) == ["model.norm.weight"]
        assert weights.encoding("model.norm.weight") == "q4_0"
        assert weights.encoding("other") is None
        assert weights.spec("model.norm.weight") == TensorSpec((3,), "f16")
        assert weights.origin("model.norm.weight") == "model.safetensors (norm)"
        assert weights.read("model.norm.weight").tolist() == [0, 1, 2]
        with pytest.raises(CheckpointError, match="no tensor 'nowhere'"):
            weights.spec("absent")


@pytest.mark.parametrize(("arrays", "keys"), FORMS.values(), ids=FORMS)
def test_rows_of_matrices(arrays: dict[str, np.ndarray], keys: ExpertKeys):
    """Parts of experts, however they are stored."""
    weights = composed(arrays, keys)
    for name in ("gate_proj", "down_proj"):
        path = f"model.layers.0.mlp.experts.{name}"
        whole = weights.read(path).reshape(-1, weights.spec(path).shape[-1])
        for start in range(0, len(whole), 2):
            for stop in range(start, len(whole) + 1):
                np.testing.assert_array_equal(weights.read_matrix_rows(path, start, stop), whole[start:stop])
