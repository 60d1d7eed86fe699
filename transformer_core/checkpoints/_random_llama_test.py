import json
from pathlib import Path

import numpy as np
import pytest

from lang_core import InputError, bf16, f32, i32
from transformer_core.checkpoints._checkpoint import SafetensorsCheckpoint
from transformer_core.checkpoints._random_llama import LLAMA_PRESETS, llama_specs, write_random_llama


def test_tinyllama_has_its_number_of_parameters() -> None:
    specs = llama_specs(LLAMA_PRESETS["tinyllama-1.1b"], bf16)
    assert sum(spec.size for spec in specs.values()) == 1_100_048_384  # the figure of the model's card
    assert specs["model.layers.21.self_attn.k_proj.weight"].shape == (256, 2048)


def test_shards_and_single_file_hold_the_same_values(tmp_path: Path) -> None:
    sizes = LLAMA_PRESETS["tiny"]
    write_random_llama(tmp_path / "one", sizes, bf16, seed=3)
    write_random_llama(tmp_path / "three", sizes, bf16, seed=3, shards=3)
    with SafetensorsCheckpoint(tmp_path / "one") as one, SafetensorsCheckpoint(tmp_path / "three") as three:
        assert set(one.keys()) == set(three.keys()) == set(llama_specs(sizes, bf16))
        assert all(one.read(key).tobytes() == three.read(key).tobytes() for key in one.keys())  # noqa: SIM118
        assert (one.read("model.norm.weight") == 1).all()
        head = one.read("lm_head.weight").astype(np.float32)
        assert abs(head.std() - 0.02) < 1e-3
        assert abs(head.mean()) < 1e-3
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    assert (config["model_type"], config["num_key_value_heads"], config["torch_dtype"]) == ("llama", 2, "bfloat16")


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="random weights are f32, f16, bf16, not i32"):
        write_random_llama(tmp_path, LLAMA_PRESETS["tiny"], i32)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot write the checkpoint"):
        write_random_llama(tmp_path / "file", LLAMA_PRESETS["tiny"], f32)
