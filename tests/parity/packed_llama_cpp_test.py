"""Logits with packed weights are as near to those without as llama.cpp's own on the same bits.

What llama.cpp gives is in a golden (``tests/goldens/make_packed_llama_cpp_goldens.py``).
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from lang_core import Activations, EagerExecutionContext, encoding_named
from tests.goldens.gguf_files import write_gguf
from tests.goldens.golden_files import DATA
from tests.goldens.packed_models import nmse, packed_models, super_block_model
from transformer_core import keep_packed, pack_weights
from transformer_core.models import DecoderLM, stored_encodings, weights_of
from transformer_core.models.gguf import GgufModel

_GOLDEN: Final[dict[str, Any]] = json.loads((DATA / "packed_llama_cpp.json").read_text())
# Both round x to 8 bits, and which way what lies between two integers goes differs by chance: found are 0.985 to 1.009.
_CHANCE: Final = 1.03


@pytest.mark.parametrize("name", _GOLDEN["nmse"])
@pytest.mark.parametrize("activations", ["exact", "q8"])
def test_no_worse_than_llama_cpp_on_the_same_weights(name: str, activations: Activations, tmp_path: Path) -> None:
    model, ids = packed_models(tmp_path / "demo")[name], np.array(_GOLDEN["tokens"], np.int32)
    given: Any = ids
    write_gguf(tmp_path / "model.gguf", model.case, weights=model.weights)
    actual: dict[str, np.ndarray] = {}
    with GgufModel(tmp_path / "model.gguf") as file:
        for encoding in (None, "q8_0", "q4_0"):
            decoder = DecoderLM(file.config())
            if encoding is not None:
                pack_weights(decoder, encoding_named(encoding), decoder.dtype, activations)
            actual[encoding or "f32"] = decoder(EagerExecutionContext(weights_of(decoder, file)), given).numpy()
    theirs = _GOLDEN["nmse"][name]
    ours = {encoding: nmse(actual[encoding], actual["f32"]) for encoding in theirs}
    assert 0 < ours["q8_0"] <= 1e-3, "the bound for Q8_0"
    for encoding, bound in theirs.items():
        assert ours[encoding] <= _CHANCE * bound, (encoding, ours, theirs)


@pytest.mark.parametrize("encoding", _GOLDEN["nmse_of_x"])
@pytest.mark.parametrize("activations", ["exact", "q8"])
def test_of_super_blocks_rounding_x_costs_no_more_than_llama_cpps(
    encoding: str, activations: Activations, tmp_path: Path
) -> None:
    """Beside the same blocks in f32. llama.cpp has one scale for 256 elements of x, q8 here one for 32."""
    model, kind = super_block_model(), GGMLQuantizationType[encoding.upper()]
    given: Any = np.array(_GOLDEN["tokens"], np.int32)
    write_gguf(tmp_path / "model.gguf", model.case, weights=model.weights, pack=lambda *_: kind)
    with GgufModel(tmp_path / "model.gguf") as file:
        packed, exact = DecoderLM(file.config()), DecoderLM(file.config())
        keep_packed(packed, stored_encodings(packed, file), packed.dtype, activations)
        encodings = (parameter.encoding for _, parameter in packed.named_parameters())
        assert {kind.name for kind in encodings if kind} == {encoding}
        contexts = (EagerExecutionContext(weights_of(model, file)) for model in (packed, exact))
        actual, wanted = (model(ctx, given).numpy() for model, ctx in zip((packed, exact), contexts, strict=True))
    error = nmse(actual, wanted)
    assert error < 1e-12 if activations == "exact" else 0 < error <= _GOLDEN["nmse_of_x"][encoding]
