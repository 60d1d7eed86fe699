from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, TensorSpec
from transformer_core.checkpoints._audit import Audit, audit
from transformer_core.checkpoints._checkpoint import SafetensorsCheckpoint

EMBED, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
FREQUENCIES = "model.layers.0.self_attn.rotary_emb.inv_freq"
WANTED = {EMBED: TensorSpec((7, 4), "bf16"), NORM: TensorSpec((4,), "f32")}


def checkpoint(directory: Path, **changes: tuple[int, ...] | None) -> SafetensorsCheckpoint:
    shapes = {EMBED: (7, 4), NORM: (4,)} | {key.replace("__", "."): shape for key, shape in changes.items()}
    arrays = {key: np.zeros(shape, np.float32) for key, shape in shapes.items() if shape is not None}
    safetensors.numpy.save_file(arrays, directory / "model.safetensors")
    return SafetensorsCheckpoint(directory)


def test_complete_checkpoint(tmp_path: Path) -> None:
    assert audit(checkpoint(tmp_path), WANTED) == Audit((EMBED, NORM), (), (), (), ())


def test_tied_and_ignored_keys_are_no_error(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, **{HEAD: (7, 4), FREQUENCIES: (2,)})
    result = audit(source, WANTED, tied={HEAD: EMBED})
    assert result == Audit((EMBED, NORM), (HEAD,), (FREQUENCIES,), (), ())
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' in .*model.safetensors is not the model's"):
        audit(source, WANTED)
    with pytest.raises(CheckpointError, match=r"rotary_emb.inv_freq' in"):
        audit(source, WANTED, tied={HEAD: EMBED}, ignorable=())
    with pytest.raises(
        CheckpointError, match=r"'lm_head.weight' is tied to 'model.embed', which the model does not have"
    ):
        audit(source, WANTED, tied={HEAD: "model.embed"})


def test_tied_key_need_not_be_stored(tmp_path: Path) -> None:
    assert audit(checkpoint(tmp_path), WANTED, tied={HEAD: EMBED}).tied == (HEAD,)


def test_missing_key_names_the_stored_near_miss(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, **{NORM: None, "model.nrom.weight": (4,)})
    message = (
        r"does not fit the model \(.*model.safetensors\): 'model.norm.weight' is missing; did you mean "
        r"'model.nrom.weight'\?; 'model.nrom.weight' in .* is not the model's; did you mean 'model.norm.weight'"
    )
    with pytest.raises(CheckpointError, match=message):
        audit(source, WANTED)
    result = audit(source, WANTED, strict=False)
    assert (result.missing, result.unexpected) == ((NORM,), ("model.nrom.weight",))


def test_wrong_shape_is_an_error_even_where_not_strict(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, **{EMBED: (4, 7)})
    message = r"embed_tokens.weight' in .*model.safetensors has shape \[4, 7\], the model needs \[7, 4\]"
    for strict in (True, False):
        with pytest.raises(CheckpointError, match=message):
            audit(source, WANTED, strict=strict)


def test_only_floating_dtypes_are_exchangeable(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"norm.weight' in .* is f32, the model needs i32"):
        audit(checkpoint(tmp_path), WANTED | {NORM: TensorSpec((4,), "i32")})


def test_long_lists_are_cut(tmp_path: Path) -> None:
    wanted = WANTED | {f"model.layers.{i}.w": TensorSpec((1,), "f32") for i in range(30)}
    with pytest.raises(CheckpointError, match=r"'model.layers.7.w' is missing; and 22 more\."):
        audit(checkpoint(tmp_path), wanted)
