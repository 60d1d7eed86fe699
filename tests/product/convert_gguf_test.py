"""Models as GGUF files: tensors and metadata are those that llama.cpp's converter writes, bit for bit.

The files that they are compared with are written by the gguf package (``tests/goldens/gguf_files.py``), and llama.cpp's
logits of these are in ``tests/parity/llama_cpp_test.py``.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

import tapeline
from lang_core import CheckpointError, ConfigError, EagerExecutionContext, InputError, quantizable
from tapeline.converting import Imatrix, read_imatrix
from tapeline.text import Tokenizer, gguf_tokenizer_fields, write_gguf_tokenizer
from tests.goldens.cases import CASES
from tests.goldens.gguf_cases import GGUF_CASES, HYBRID_CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.golden_files import DATA
from tests.goldens.weights import write_checkpoint
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.checkpoints.gguf import GgufFile
from transformer_core.models import DecoderLM, weights_of
from transformer_core.models.gguf import GgufModel

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_ALL = {**GGUF_CASES, **HYBRID_CASES}
# Files of these do not say all that the models have: states among feed-forwards, and heads in another order.
_REFUSED = ("nemotron_h", "nemotron_h_4x", "qwen3_5", "qwen3_5_moe")
_SOME = (
    "llama_gqa", "llama_llama3", "phi3_longrope_partial", "gpt2", "gemma3", "mixtral", "deepseek_v3", "gemma4_moe",
    "qwen3_next", "granite_hybrid", "apertus", "falcon", "afmoe",
)  # fmt: skip
# Fields and shapes of the golden files alone, which llama.cpp does not read.
_OPEN = {
    "phi3_window_4x": ("rope.scaling.original_context_length",),
    "granite_hybrid_dense_4x": ("expert_shared_feed_forward_length",),
}
_CLOSE = 1e-6


@pytest.mark.parametrize("name", [name for name in (_ALL if _LONG else _SOME) if name not in _REFUSED])
def test_a_checkpoint_becomes_the_file_of_llama_cpps_converter(name: str, tmp_path: Path) -> None:
    case = _ALL[name]
    write_checkpoint(tmp_path, case)
    write_gguf(tmp_path / "expected.gguf", case)
    done = tapeline.convert(tmp_path, tmp_path / "actual.gguf", to="gguf", tokenizer=False)
    expected, actual = GGUFReader(tmp_path / "expected.gguf"), GGUFReader(done.path)
    theirs, ours = ({tensor.name: tensor for tensor in reader.tensors} for reader in (expected, actual))
    assert set(ours) == {key for key in theirs if "xielu" not in key}
    for key, tensor in ours.items():
        wide = (quants.dequantize(part.data, part.tensor_type) for part in (tensor, theirs[key]))
        mine, other = (np.asarray(array, np.float32).reshape(-1) for array in wide)
        np.testing.assert_array_equal(mine, other, err_msg=key)
    prefix = f"{actual.fields['general.architecture'].contents()}."
    for key, field in expected.fields.items():
        if key.startswith(prefix) and key.removeprefix(prefix) not in _OPEN.get(name, ()):
            stated, wanted = actual.fields[key].contents(), field.contents()
            if isinstance(wanted, str):
                assert stated == wanted, key
            else:
                np.testing.assert_allclose(np.array(stated, float), np.array(wanted, float), rtol=_CLOSE, err_msg=key)


@pytest.mark.parametrize("name", _REFUSED)
def test_what_gguf_cannot_state_is_refused(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, _ALL[name])
    with pytest.raises(ConfigError, match=r"a GGUF file of architecture .* cannot state .*mixer of this .*: give to="):
        tapeline.convert(tmp_path, tmp_path / "model.gguf", to="gguf", tokenizer=False)
    assert not list(tmp_path.glob("*.gguf*"))


def _packed_file(path: Path) -> None:
    """Writes a model with a tensor of each of several types."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64}
    case = CASES["llama_gqa"]
    wide = dataclasses.replace(case, config={**case.config, **sizes, "num_key_value_heads": 2})
    kinds = {"attn_q": "Q4_K", "attn_k": "Q6_K", "ffn_up": "IQ4_XS", "ffn_down": "Q8_0", "token_embd": "MXFP4"}

    def pack(key: str, shape: tuple[int, ...]) -> Any:
        kind = next((kind for part, kind in kinds.items() if part in key), None)
        return None if kind is None else GGMLQuantizationType[kind]

    write_gguf(path, wide, pack=pack)


def test_a_gguf_file_stays_as_it_is(tmp_path: Path) -> None:
    _packed_file(tmp_path / "model.gguf")
    done = tapeline.convert(tmp_path / "model.gguf", tmp_path / "again.gguf", to="gguf")
    before, after = GGUFReader(tmp_path / "model.gguf"), GGUFReader(done.path)
    assert [(t.name, t.tensor_type, t.data.tobytes()) for t in before.tensors] == [
        (t.name, t.tensor_type, t.data.tobytes()) for t in after.tensors
    ]
    for key, field in before.fields.items():
        assert (after.fields[key].types, after.fields[key].contents()) == (field.types, field.contents())
    assert len({tensor.tensor_type for tensor in after.tensors}) >= 6


def test_there_and_back_through_safetensors(tmp_path: Path) -> None:
    """f16 weights come back bit for bit: rows are turned and turned back."""
    write_gguf(tmp_path / "model.gguf", CASES["llama_gqa"])
    first = tapeline.convert(tmp_path / "model.gguf", tmp_path / "f16.gguf", to="gguf", dtype="f16")
    directory = tapeline.convert(first.path, tmp_path / "directory", dtype="f32")
    second = tapeline.convert(directory.path, tmp_path / "again.gguf", to="gguf", dtype="f16", tokenizer=False)
    tensors = [{t.name: t.data.tobytes() for t in GGUFReader(path).tensors} for path in (first.path, second.path)]
    assert tensors[0] == tensors[1]


@pytest.mark.parametrize(("encoding", "tolerance"), [("q4_k", 0.5), ("iq4_nl", 0.5), ("q8_0", 0.05)])
def test_matrices_are_packed(encoding: str, tolerance: float, tmp_path: Path) -> None:
    _packed_file(tmp_path / "model.gguf")
    done = tapeline.convert(tmp_path / "model.gguf", tmp_path / "packed.gguf", to="gguf", encoding=encoding)
    assert done.dtype == encoding
    with GgufModel(tmp_path / "model.gguf") as exact, GgufModel(done.path) as packed:
        names = {key: packed.encoding(key) for key in packed.keys()}  # noqa: SIM118 - no mapping
        assert names["blk.0.attn_q.weight"] == encoding
        assert names["blk.0.attn_norm.weight"] is None
        assert names["output.weight"] == ("q8_0" if encoding == "q8_0" else "q6_k")
        model = DecoderLM(exact.config())
        prompt: Any = np.array(CASES["llama_gqa"].prompt, np.int32)
        logits = [model(EagerExecutionContext(weights_of(model, file)), prompt).numpy() for file in (exact, packed)]
        error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
        assert 0 < error < tolerance


def test_importance_is_taken_into_account(tmp_path: Path) -> None:
    """Columns with large inputs are nearer to the weights than without importance."""
    _packed_file(tmp_path / "model.gguf")
    key, rng = "blk.0.attn_q.weight", np.random.default_rng(5)
    squares = rng.gamma(0.3, size=(1, 256)).astype(np.float32)
    Imatrix({key: squares}, {key: np.ones(1, np.float32)}).write(tmp_path / "some.dat")
    errors = {}
    for name in ("", "some.dat"):
        target = tmp_path / f"packed{name}.gguf"
        settings: dict[str, Any] = {"imatrix": tmp_path / name} if name else {}
        tapeline.convert(tmp_path / "model.gguf", target, to="gguf", encoding="q3_k", **settings)
        with GgufModel(tmp_path / "model.gguf") as exact, GgufModel(target) as packed:
            errors[name] = float((squares * (exact.read(key) - packed.read(key)) ** 2).sum())
    assert errors["some.dat"] < 0.9 * errors[""]


def test_importance_is_the_mean_square_of_inputs(tmp_path: Path) -> None:
    """Inputs of the first layer's projections are known: the normed embeddings of the text's tokens."""
    case = _TOKENIZERS["cases"][1]
    _write_tokenizer(tmp_path / "tokenizer.gguf", case)
    size = len(_TOKENIZERS["vocabularies"][case["model"]]["tokens"])
    llama = dataclasses.replace(CASES["llama_gqa"], config={**CASES["llama_gqa"].config, "vocab_size": size})
    write_checkpoint(tmp_path, llama)
    file = GgufFile(tmp_path / "tokenizer.gguf")
    write_gguf_tokenizer(file.metadata, file.path, tmp_path)
    text = "Words, 12 of them: é and more. " * 40
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    settings: dict[str, Any] = {"encoding": "q8_0", "calibration": tmp_path / "text.txt", "calibration_tokens": 900}
    tapeline.convert(tmp_path, tmp_path / "a.gguf", to="gguf", imatrix=tmp_path / "some.gguf", **settings)
    measured = read_imatrix(tmp_path / "some.gguf")
    ids = Tokenizer.load(tmp_path).encode(text)[:900]
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        embedded = checkpoint.read("model.embed_tokens.weight").astype(np.float64)[ids]
        norm = checkpoint.read("model.layers.0.input_layernorm.weight").astype(np.float64)
    eps = llama.config["rms_norm_eps"]
    normed = embedded / np.sqrt((embedded**2).mean(axis=1, keepdims=True) + eps) * norm
    for part in "qkv":
        key = f"blk.0.attn_{part}.weight"
        np.testing.assert_allclose(measured.importance()[key][0], (normed**2).mean(axis=0), rtol=1e-4)
        assert measured.counts[key] == [len(ids)]
    layers = llama.config["num_hidden_layers"]
    assert len(measured.sums) == 7 * layers
    measured.write(tmp_path / "some.dat")
    for key, means in read_imatrix(tmp_path / "some.dat").importance().items():
        np.testing.assert_allclose(means, measured.importance()[key], rtol=1e-6)
    with pytest.raises(InputError, match=r"imatrix=.*some\.gguf: exists, and with calibration a new file is written"):
        tapeline.convert(tmp_path, tmp_path / "b.gguf", to="gguf", imatrix=tmp_path / "some.gguf", **settings)
    (tmp_path / "text.txt").write_text("short", encoding="utf-8")
    with pytest.raises(InputError, match=r"text\.txt: has \d+ tokens, expected 64 at least: give a longer text"):
        tapeline.convert(tmp_path, tmp_path / "b.gguf", to="gguf", **settings)


def test_damaged_importance_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.dat").write_bytes(b"\x05\x00\x00\x00\xff")
    with pytest.raises(CheckpointError, match=r"some\.dat: ends before the length of name 0: make it again"):
        read_imatrix(tmp_path / "some.dat")
    (tmp_path / "text.dat").write_text("no importance matrix, but a text")
    with pytest.raises(CheckpointError, match=r"the number of entries is \d+, expected 0 to"):
        read_imatrix(tmp_path / "text.dat")
    write_gguf(tmp_path / "model.gguf", CASES["llama_gqa"])
    with pytest.raises(CheckpointError, match=r"general.type is None, expected 'imatrix'"):
        read_imatrix(tmp_path / "model.gguf")
    with pytest.raises(InputError, match=r"imatrix=.*: no such file"):
        read_imatrix(tmp_path / "none.gguf")


_TOKENIZERS: dict[str, Any] = json.loads((DATA / "gguf_tokenizers.json").read_text())


def _write_tokenizer(path: Path, case: dict[str, Any]) -> None:
    """Writes a file with a tokenizer and nothing else."""
    fields = _TOKENIZERS["vocabularies"][case["model"]]
    writer = GGUFWriter(path, case["architecture"])
    writer.add_tokenizer_model(case["model"])
    if case["pre"] is not None:
        writer.add_tokenizer_pre(case["pre"])
    writer.add_token_list(fields["tokens"])
    writer.add_token_types(fields["types"])
    if "merges" in fields:
        writer.add_token_merges([" ".join(pair) for pair in fields["merges"]])
    else:
        writer.add_token_scores(fields["scores"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("case", _TOKENIZERS["cases"], ids=lambda case: f"{case['architecture']}-{case['pre']}")
def test_tokenizers_there_and_back(case: dict[str, Any], tmp_path: Path) -> None:
    _write_tokenizer(tmp_path / "some.gguf", case)
    file = GgufFile(tmp_path / "some.gguf")
    write_gguf_tokenizer(file.metadata, file.path, tmp_path)
    written = gguf_tokenizer_fields(tmp_path, 0, (), case["architecture"], "")
    for name in ("model", "pre", "tokens", "token_type", "merges"):
        key = f"tokenizer.ggml.{name}"
        assert written.get(key) == file.metadata.get(key), name


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES["llama_gqa"])
    with pytest.raises(InputError, match=r"to=ggml: expected one of safetensors, gguf"):
        tapeline.convert(tmp_path, tmp_path / "a", to="ggml")
    with pytest.raises(InputError, match=r"encoding=q4_q: expected one of auto, q8_0, .*; did you mean"):
        tapeline.convert(tmp_path, tmp_path / "a", to="gguf", encoding="q4_q")
    with pytest.raises(InputError, match=r"encoding: is of GGUF files, and to=safetensors writes none"):
        tapeline.convert(tmp_path, tmp_path / "a", encoding=quantizable()[0])
    with pytest.raises(InputError, match=r"imatrix: weighs what is packed, and nothing is: give encoding"):
        tapeline.convert(tmp_path, tmp_path / "a", to="gguf", imatrix="some.gguf")
    (tmp_path / "taken.gguf").touch()
    with pytest.raises(InputError, match=r"output=.*taken.gguf: exists, and only a new file is written"):
        tapeline.convert(tmp_path, tmp_path / "taken.gguf", to="gguf")
