"""A GGUF file, exported and run on a device, says what the checkpoint says that it was made from."""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from generation import load_eos_ids
from lang_core import CheckpointError, ConfigError, InputError
from run_iree import target_of_device
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE, PhaseMeter
from tapeline.cli import TerminalProgress
from tapeline.exporting import ExportOptions, dry_run, open_source
from tapeline.text import find_tokenizer
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.golden_files import read_golden
from tests.product._bundles import export, export_case, greedy
from transformer_core.checkpoints.gguf import GgufFile

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")


@pytest.mark.parametrize("name", ["llama_gqa", "apertus"])
def test_tokens_are_the_checkpoints(name: str, tmp_path: Path) -> None:
    """Also of an Apertus, the numbers of whose activation are in the metadata."""
    case, golden = CASES[name], read_golden(name)
    prompt = list(case.prompt[0])
    write_gguf(tmp_path / "model.gguf", case)
    bundle = export(
        tmp_path / "model.gguf",
        tmp_path / "bundle",
        target=(target_of_device(_DEVICE),),
        sequence=4,
        max_sequence=len(prompt) + case.steps,
        verify="iree",
    )
    tokens, logits = greedy(bundle, _DEVICE, prompt, case.steps)
    assert tokens == golden.tokens[0].tolist()
    error = np.abs(logits - golden.logits[0]).max(axis=-1) / np.abs(golden.logits[0]).max(axis=-1)
    assert error.max() < 2e-4, error


def test_bundles_are_the_checkpoints(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", CASES["phi3_window_4x"])
    bundle = export(tmp_path / "model.gguf", tmp_path / "bundle", target=(), sequence=8)
    other = export_case(CASES["phi3_window_4x"], tmp_path / "other", target=(), sequence=8)
    for file in (ARCHIVE, "module.mlir"):
        assert (bundle / file).read_bytes() == (other / file).read_bytes()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A Llama with packed matrices; norms stay f32."""
    path = tmp_path_factory.mktemp("gguf") / "packed.gguf"
    case = CASES["llama_gqa"]
    config = {**case.config, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "num_attention_heads": 4}
    kinds = GGMLQuantizationType
    small = dataclasses.replace(case, config={**config, "num_key_value_heads": 2})

    def pack(key: str, shape: tuple[int, ...]) -> GGMLQuantizationType | None:
        return kinds.Q8_0 if "ffn" in key else kinds.Q4_0 if "attn_" in key else None

    stored = write_gguf(path, small, pack=pack)
    return path, stored


def test_packed_weights_are_unpacked_and_it_is_said(
    packed: tuple[Path, dict[str, np.ndarray]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, stored = packed
    reads: Counter[str] = Counter()
    read_rows = GgufFile.read_rows
    monkeypatch.setattr(GgufFile, "read_rows", lambda *asked: reads.update([asked[1]]) or read_rows(*asked))
    target = (target_of_device(_DEVICE),)
    bundle = export(path, tmp_path / "bundle", target=target, sequence=8, verify="iree", quantize="none")
    # For the archive, and for the eager context, whose two entry points share what is unpacked.
    assert {key: count for key, count in reads.items() if "ffn_up" in key} == dict.fromkeys(
        ["blk.0.ffn_up.weight", "blk.1.ffn_up.weight"], 2
    )
    said = capfd.readouterr().err
    told = "packed weights (8 q4_0, 6 q8_0 tensors) are dequantised: the bundle holds them unpacked, in 0.23 MiB, "
    assert f"{told}where the checkpoint has 0.05 MiB; quantize=stored keeps those of q4_0, q8_0 packed\n" in said
    report = json.loads((bundle / "report.json").read_text())
    assert report["parameters"]["dequantised"] == {"q4_0": 8, "q8_0": 6}
    q4_0, q8_0 = 2 * (64 * 64 * 2 + 64 * 32 * 2), 2 * 3 * 64 * 96
    sizes = {"stored": q4_0 // 32 * 18 + q8_0 // 32 * 34, "unpacked": 4 * (q4_0 + q8_0)}
    assert report["parameters"]["dequantised_bytes"] == sizes
    assert "blk.1.ffn_down.weight" in report["parameters"]["used"]
    model = json.loads((bundle / "kernel_config.json").read_text())["model"]
    assert model["source"] == {"format": "gguf", "architecture": "llama", "rope_layout": "interleaved"}
    assert model["rope"]["layout"] == "split_half"
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        actual = weights.read("model.layers.1.mlp.down_proj.weight")
        np.testing.assert_array_equal(actual, stored["blk.1.ffn_down.weight"])
        turned = weights.read("model.layers.0.self_attn.q_proj.weight").reshape(4, 2, 8, 64)
        np.testing.assert_array_equal(turned.swapaxes(1, 2).reshape(64, 64), stored["blk.0.attn_q.weight"])


@pytest.mark.parametrize("weights", ["external", "none"])
def test_packed_matrices_stay_packed_unless_none_is_asked_for(
    packed: tuple[Path, dict[str, np.ndarray]], weights: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The module is the same where no weight is read: the header says what is packed."""
    modules = []
    for number, options in enumerate([{}, {"quantize": "stored"}]):
        bundle = export(packed[0], tmp_path / f"{number}", target=(), sequence=8, weights=weights, **options)
        assert json.loads((bundle / "kernel_config.json").read_text())["model"]["quantize"] == "stored"
        modules.append((bundle / "module.mlir").read_bytes())
    assert modules[0] == modules[1]
    assert b"packed_linear.q4_0" in modules[0]
    said = capfd.readouterr().err
    told = "14 matrices are packed as 8 q4_0, 6 q8_0, 14 of them byte for byte as stored\n"
    assert (told in said) is (weights == "external")
    options = ExportOptions(str(packed[0]), tmp_path / "no", target=(), sequence=8, weights=weights)
    assert dry_run(options, packed[0], PhaseMeter())["files"]["module.mlir"] == len(modules[0])
    plain = export(packed[0], tmp_path / "plain", target=(), sequence=8, weights=weights, quantize="none")
    assert b"packed_linear" not in (plain / "module.mlir").read_bytes()


@pytest.mark.parametrize("kind", [None, GGMLQuantizationType.F16, GGMLQuantizationType.BF16])
def test_a_file_without_packed_matrices_stays_as_it_is(kind: GGMLQuantizationType | None, tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", CASES["llama_gqa"], pack=lambda *_: kind)
    bundle = export(tmp_path / "model.gguf", tmp_path / "bundle", target=(), sequence=8)
    assert json.loads((bundle / "kernel_config.json").read_text())["model"]["quantize"] == "none"
    assert json.loads((bundle / "report.json").read_text())["parameters"]["packed"] == {}
    with pytest.raises(ConfigError, match="no matrix of the checkpoint is packed as q8_0, q4_0, "):
        export(tmp_path / "model.gguf", tmp_path / "other", target=(), sequence=8, quantize="stored")


def test_a_dry_run_writes_nothing(packed: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    options = ExportOptions(model=str(packed[0]), output=tmp_path / "bundle", target=(), sequence=8)
    prediction = dry_run(options, packed[0], PhaseMeter())
    bundle = export(packed[0], tmp_path / "other", target=(), sequence=8)
    assert prediction["files"][ARCHIVE] == (bundle / ARCHIVE).stat().st_size
    assert prediction["files"]["config.json"] == (bundle / "config.json").stat().st_size
    assert not (tmp_path / "bundle").exists()


def test_an_export_without_weights_needs_the_header_only(packed: tuple[Path, dict[str, np.ndarray]]) -> None:
    with open_source(str(packed[0]), packed[0], False) as source:
        assert source.weights is None
        assert (source.directory / "config.json").is_file()


def test_an_export_goes_on_where_it_was(packed: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(packed[0].read_bytes())
    for resume in (False, True):
        bundle = export(model, tmp_path / "bundle", target=(), sequence=8, resume=resume)
        steps = json.loads((bundle / "report.json").read_text())["steps"]
        assert steps["parameters"]["reused"] is resume
    write_gguf(model, CASES["llama_gqa"])
    bundle = export(model, tmp_path / "bundle", target=(), sequence=8, resume=True)
    assert json.loads((bundle / "report.json").read_text())["steps"]["parameters"]["reused"] is False


def test_what_cannot_be_exported_is_named(packed: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    content = packed[0].read_bytes()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content[:-4000])
    with pytest.raises(CheckpointError, match=r"damaged\.gguf: truncated: tensor '.*' ends at byte"):
        export(damaged, tmp_path / "bundle", target=())
    damaged.write_bytes(content.replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"))
    with pytest.raises(CheckpointError, match=r"'blk.1.attn_q.weight' is missing; did you mean 'blk.1.attn_x.weight'"):
        export(damaged, tmp_path / "bundle", target=())
    damaged.write_bytes(content.replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lama3", 1))
    with pytest.raises(ConfigError, match=r"general\.architecture: 'lama3' is not supported; did you mean 'llama'"):
        export(damaged, tmp_path / "bundle", target=())
    with pytest.raises(InputError, match=rf"{tmp_path} has no config\.json, but damaged\.gguf: give the file"):
        export(tmp_path, tmp_path / "bundle", target=())
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "Q4_0",
            {},
            r"'model.layers.0.mlp.up_proj.weight': block \[0, 0\] of q4_0 in .*damaged.gguf .* no finite number",
        ),
        (
            "Q4_0",
            {"quantize": "none"},
            r"'model.layers.0.mlp.up_proj.weight' in .* packed as q4_0 and has .* nan: a scale",
        ),
        ("Q4_0", {"quantize": "q8_0"}, r"'model.layers.0.mlp.up_proj.weight': element \[0, 0\] .* is nan, which q8_0"),
        ("IQ3_S", {"quantize": "none"}, r"'model.layers.0.mlp.up_proj.weight' in .* packed as iq3_s and has 256 nan"),
    ],
)
def test_a_scale_that_is_no_number_is_an_error(
    kind: str, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    case, path = CASES["llama_gqa"], tmp_path / "damaged.gguf"
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "head_dim": 64}
    small = dataclasses.replace(case, config={**case.config, **sizes, "num_key_value_heads": 2})
    write_gguf(path, small, pack=lambda *_: GGMLQuantizationType[kind])
    with GgufFile(path) as file:
        stored = file.read_packed("blk.0.ffn_up.weight").tobytes()
    content = path.read_bytes()
    path.write_bytes(content.replace(stored, b"\x01\x7e" + stored[2:]))
    with pytest.raises(InputError, match=message):
        export(path, tmp_path / "bundle", target=(), sequence=8, **options)
    assert not (tmp_path / "bundle").exists()


def _letters(model: str) -> Callable[[GGUFWriter], None]:
    """A tokenizer of letters, with a chat template."""
    tokens = ["<unk>", "<s>", "</s>", "▁", *map(chr, range(33, 127))]

    def add(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model(model)
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_token_types([2, 3, 3] + [1] * (len(tokens) - 3))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template("{{ messages[0].content }}")

    return add


def test_the_tokenizer_comes_with_the_bundle(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", CASES["llama_gqa"], tokenizer=_letters("llama"))
    bundle = export(tmp_path / "model.gguf", tmp_path / "bundle", target=(), sequence=8)
    tokenizer = find_tokenizer(bundle)
    assert tokenizer is not None
    assert tokenizer.encode("a b") == [1, 3, 68, 3, 69]
    assert tokenizer.decode([1, 3, 68, 3, 69]) == "a b"
    config = json.loads((bundle / "tokenizer_config.json").read_text())
    assert (config["chat_template"], config["eos_token"]) == ("{{ messages[0].content }}", "</s>")
    assert load_eos_ids(bundle) == {2}


def test_a_tokenizer_that_is_not_read_is_said_and_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, CASES["llama_gqa"], tokenizer=_letters("rwkv"))
    with TerminalProgress() as progress, open_source(str(path), path, True, progress) as source:
        assert find_tokenizer(source.directory) is None
    said = capfd.readouterr().err
    assert (
        "tokenizer.ggml.model: expected one of gpt2, llama, gemma4, bert, t5; found 'rwkv': the bundle will have no "
        in said
    )


def test_a_model_in_several_files(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf", CASES["llama_gqa"])
    write_gguf(tmp_path / "parts.gguf", CASES["llama_gqa"], tensors_per_file=8)
    parts = sorted(tmp_path.glob("parts-*.gguf"))
    assert len(parts) == 3
    with open_source(str(parts[1]), parts[1], True) as source:
        weights, before = source.weights, source.identity
        assert weights is not None
        assert set(weights.keys()) == set(whole)
        for key, array in whole.items():
            np.testing.assert_array_equal(weights.read(key), array)
    os.utime(parts[2], ns=(1, 1))
    with open_source(str(parts[1]), parts[1], True) as source:
        assert source.identity != before
    parts[2].unlink()
    with pytest.raises(CheckpointError, match=r"parts-00001-of-00003.gguf: part 3 of 3 is missing, expected"):
        export(parts[0], tmp_path / "third", target=(), sequence=8)
