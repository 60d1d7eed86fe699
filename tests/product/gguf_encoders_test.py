"""An encoder in a GGUF file, exported with its tokenizer, embeds texts on a device."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

import tapeline
from run_iree import target_of_device
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden
from tests.goldens.encoders.gguf_encoders import write_encoder_gguf
from tests.goldens.encoders.gguf_own_encoders import OWN, texts_of, write_own_gguf
from tests.goldens.golden_files import DATA
from tests.product._bundles import export

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def _words(writer: GGUFWriter) -> None:
    """A vocabulary of 67 tokens."""
    tokens = [*_SPECIAL, *(f"▁{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"), *(f"x{i}" for i in range(37))]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(_SPECIAL) + [1] * (len(tokens) - len(_SPECIAL)))
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)


def test_a_file_embeds_texts(tmp_path: Path) -> None:
    case, golden = ENCODER_CASES["bert_sentence"], read_encoder_golden("bert_sentence")
    write_encoder_gguf(tmp_path / "model.gguf", case, tokenizer=_words)
    batch, sequence = golden.inputs["token_ids"].shape
    sizes = {"batch": batch, "sequence": sequence, "verify": "auto", "target": (target_of_device(_DEVICE),)}
    bundle = export(tmp_path / "model.gguf", tmp_path / "bundle", **sizes)
    with tapeline.load(bundle, device=_DEVICE) as model:
        embedded = model.run("forward", golden.inputs)["sentence_embedding"]
        vectors = np.asarray(model.embed(["a b c", "A b  C", "z"]))
    expected = golden.outputs["sentence_embedding"]
    assert np.abs(embedded - expected).max() < 2e-4 * np.abs(expected).max()
    np.testing.assert_allclose(vectors @ vectors[0], [1, 1, vectors[2] @ vectors[0]], atol=1e-6)
    assert vectors[2] @ vectors[0] < 0.999


@pytest.mark.parametrize("name", OWN)
def test_a_model_that_llama_cpp_alone_has_is_llama_cpps_on_a_device(name: str, tmp_path: Path) -> None:
    """Experts, slopes and gates in encoders, compiled; llama.cpp takes gelu by its tanh, and some products in f16."""
    write_own_gguf(tmp_path / "model.gguf", OWN[name])
    text, expected = texts_of(OWN[name])[0], json.loads((DATA / "llama_cpp.json").read_text())["embeddings"][name][0]
    sizes = {"batch": 1, "sequence": len(text), "verify": "auto", "target": (target_of_device(_DEVICE),)}
    bundle = export(tmp_path / "model.gguf", tmp_path / "bundle", **sizes)
    ids = np.array([text], np.int32)
    inputs = {"token_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    with tapeline.load(bundle, device=_DEVICE) as model:
        taken = {key: inputs[key] for key in inputs if key != "token_type_ids" or name == "jina_bert_v2"}
        embedded = model.run("forward", taken)["sentence_embedding"]
    assert np.abs(embedded[0] - expected).max() < 1e-2
