"""Models with states in GGUF files: what the converter folds into weights, and files that contradict themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from lang_core import ConfigError, EagerExecutionContext
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.golden_files import read_golden
from tests.parity._golden_models import relative_error
from transformer_core.models import DecoderLM, weights_of
from transformer_core.models.gguf import GgufModel


def test_scales_in_the_weights_of_falcon_h1_are_those_of_config_json(tmp_path: Path) -> None:
    case = CASES["falcon_h1"]
    write_gguf(tmp_path / "model.gguf", case)
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config())
        prompt: Any = np.array(case.prompt, np.int32)
        logits = model(EagerExecutionContext(weights_of(model, file)), prompt).numpy()
    assert relative_error(logits, read_golden("falcon_h1").prompt_logits) < 2e-4


@pytest.mark.parametrize("counts", [[1, 0, 2, 0], [1, 0], "none"])
def test_numbers_of_key_heads_say_which_layers_have_states(counts: Any, tmp_path: Path) -> None:
    def wrong(writer: GGUFWriter) -> None:
        key = "lfm2.attention.head_count_kv"
        writer.kv_data[0].pop(key)
        writer.add_string(key, counts) if isinstance(counts, str) else writer.add_array(key, counts)

    write_gguf(tmp_path / "model.gguf", CASES["lfm2"], tokenizer=wrong)
    with pytest.raises(ConfigError, match="expected a number, or 4"):
        GgufModel(tmp_path / "model.gguf")


def test_a_mamba2_has_whole_heads(tmp_path: Path) -> None:
    def wrong(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop("mamba2.ssm.inner_size")
        writer.add_ssm_inner_size(50)

    write_gguf(tmp_path / "model.gguf", CASES["mamba2"], tokenizer=wrong)
    with pytest.raises(ConfigError, match="expected a multiple of embedding_length"):
        GgufModel(tmp_path / "model.gguf")
