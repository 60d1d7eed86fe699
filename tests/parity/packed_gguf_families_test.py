"""Packed GGUF files of every architecture: matrices stay the blocks that they are, whatever they are fused with."""

import dataclasses
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from lang_core import ENCODINGS, QUANTIZED
from tests.goldens.cases import GoldenCase
from tests.goldens.gguf_cases import GGUF_CASES
from tests.goldens.gguf_files import write_gguf
from transformer_core import pack_weights
from transformer_core.checkpoints import DequantizedWeights, PackedWeights
from transformer_core.models import DecoderLM, weights_of
from transformer_core.models.gguf import GgufModel

# The first case of each architecture, in sizes of whole blocks.
_FAMILIES: Final = {case.config["model_type"]: case for case in reversed(GGUF_CASES.values())}
_SIZES: Final = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "moe_intermediate_size": 32, "n_embd": 64, "n_inner": 96,
}  # fmt: skip
# Rows of a table that no product is made with; experts, of which the file has each projection in one tensor.
_DEQUANTISED: Final = {"gpt2": {"embed_positions"}, "mixtral": {"experts", "gate"}, "qwen3_moe": {"experts", "gate"}}


def _case(name: str) -> GoldenCase:
    case = _FAMILIES[name]
    sizes: dict[str, Any] = {key: size for key, size in _SIZES.items() if case.config.get(key) is not None}
    if name == "gpt2":
        sizes["n_inner"] = _SIZES["n_inner"]
    return dataclasses.replace(case, config={**case.config, **sizes})


@pytest.mark.parametrize("encoding", [ENCODINGS[name] for name in QUANTIZED], ids=list(QUANTIZED))
@pytest.mark.parametrize("name", _FAMILIES)
def test_every_matrix_stays_as_it_is(name: str, encoding: Any, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[encoding.name.upper()]
    write_gguf(tmp_path / "model.gguf", _case(name), pack=lambda key, shape: kind if shape[-1] % 32 == 0 else None)
    with GgufModel(tmp_path / "model.gguf") as file:
        whole, packed = DecoderLM(file.config()), DecoderLM(file.config())
        pack_weights(packed, encoding, packed.dtype)
        expected, found = weights_of(whole, file), weights_of(packed, file)
        assert isinstance(found, PackedWeights)
        exact, left = DequantizedWeights(found), set[str]()
        for path, parameter in packed.named_parameters():
            if parameter.encoding is not None:
                assert found.kept(path), path
            elif found.encoding(path) is not None:
                left.add(path)
            np.testing.assert_array_equal(exact.read(path), expected.read(path), err_msg=path)
    kinds = _DEQUANTISED.get(name, set())
    assert all(kinds & set(path.split(".")) for path in left), left
    assert all(any(each in path.split(".") for path in left) for each in kinds), left
