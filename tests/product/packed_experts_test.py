"""Packed experts from a GGUF file: kept byte for byte, the same tokens on a device, only the chosen ones are read."""

import ctypes
import dataclasses
import json
import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGUFWriter
from gguf import GGMLQuantizationType as Kind

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from generation import StopRule
from generation.engine._sequence_testing import steps_of
from lang_core import (
    Argument,
    EagerExecutionContext,
    EntryPoint,
    ExecutionContext,
    MappingWeights,
    Tensor,
    TensorSpec,
    encoding_named,
)
from run_iree import Session, compile_module, target_named
from run_iree._device_testing import sharing
from run_iree.archive import ArchiveEntry, ArchiveWeights, read_archive_index, write_archive
from tapeline.backends import model_of
from tapeline.bundle import ARCHIVE, Bundle
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.gguf_files import write_gguf
from tests.product._bundles import ON_FAST_DEVICES, export, export_stored, greedy
from tests.product._eager_model import EagerModel
from transformer_core import Experts
from transformer_core.checkpoints import PackedWeights
from transformer_core.checkpoints.gguf import GgufFile

_DEVICE: Final = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_NONE: Final = 0  # PROT_NONE
_ONE_DEVICE: Final = pytest.mark.skipif(_DEVICE != "local-task", reason="measured on one device")
_SIZES: Final = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 2,
    "num_hidden_layers": 2,
}  # fmt: skip
_STEPS: Final = 12


def _case() -> GoldenCase:
    mixtral = CASES["mixtral"]
    return dataclasses.replace(mixtral, config={**mixtral.config, **_SIZES})


def _kind(key: str, _: tuple[int, ...]) -> Kind | None:
    """Returns types as of Q4_K_M: routers stay as they are, some layers' ffn_down has six bits."""
    if "ffn_gate_inp" in key:
        return None
    return Kind.Q6_K if key == "blk.1.ffn_down_exps.weight" else Kind.Q4_K


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed_experts") / "model.gguf"
    write_gguf(path, _case(), pack=_kind)
    return path


@pytest.fixture(scope="module")
def bundle(file: Path) -> Path:
    return export_stored(file, _DEVICE, sequence=8, max_sequence=40, quantize="stored")


def test_experts_are_kept_byte_for_byte(bundle: Path, file: Path) -> None:
    report = json.loads((bundle / "report.json").read_text())["parameters"]
    assert report["packed"]["unpacked_parameters"] == ["model.layers.*.mlp.gate.weight"]
    assert (report["packed"]["kept"], report["dequantised"]) == (report["packed"]["matrices"], {})
    with ArchiveWeights(bundle / ARCHIVE) as weights, GgufFile(file) as stored:
        for layer in range(2):
            for name in ("gate", "up", "down"):
                actual = weights.read(f"model.layers.{layer}.mlp.experts.{name}_proj")
                wanted = stored.read_packed(f"blk.{layer}.ffn_{name}_exps.weight")
                assert actual.shape == wanted.shape
                assert actual.tobytes() == wanted.tobytes()


def test_tokens_are_the_eager_contexts(bundle: Path) -> None:
    _, points = model_of(Bundle(bundle))
    prefill, decode = (next(point for point in points if point.name == name) for name in ("prefill", "decode"))
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        model = EagerModel(prefill, decode, weights, _case().config["vocab_size"])
        steps = steps_of(model, _case().prompt[0], StopRule(frozenset(), _STEPS))
    for device in sharing(_DEVICE):
        tokens, logits = greedy(bundle, device, _case().prompt[0], _STEPS)
        assert tokens == [step.token_id for step in steps], device
        np.testing.assert_allclose(logits, np.stack([step.logits for step in steps]), rtol=0, atol=2e-3)


def _one_layer(experts: Experts) -> EntryPoint:
    def fn(ctx: ExecutionContext, x: Tensor, chosen: Tensor, weights: Tensor) -> dict[str, Tensor]:
        return {"y": experts(ctx, x, chosen, weights)}

    assert experts.gate_proj is not None
    size = experts.gate_proj.spec.shape[2]
    arguments = {"x": ((1, size), "f32"), "chosen": ((1, 2), "i32"), "weights": ((1, 2), "f32")}
    return EntryPoint("layer", fn, tuple(Argument(name, TensorSpec(*spec)) for name, spec in arguments.items()))


def _protect(archive: Path, ranges: Sequence[tuple[int, int]], protection: int) -> int:
    """Sets the protection of the whole pages of byte ranges of a file, wherever it is mapped; returns their bytes."""
    mprotect, page, total = ctypes.CDLL(None, use_errno=True).mprotect, mmap.PAGESIZE, 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if not line.endswith(str(archive)):
            continue
        span, _, at_text, *_ = line.split()
        first, last, at = (int(part, 16) for part in (*span.split("-"), at_text))
        for begin, end in ranges:
            low, high = max(-(-begin // page) * page, at), min(end // page * page, at + last - first)
            if low < high:
                place = ctypes.c_void_p(first + low - at)
                assert mprotect(place, ctypes.c_size_t(high - low), protection) == 0, os.strerror(ctypes.get_errno())
                total += high - low
    return total


@_ONE_DEVICE
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells where a file is mapped")
def test_a_token_reads_only_its_experts_bytes(tmp_path: Path) -> None:
    """Takes the right to read all other experts' pages away: whoever reads them ends the process.

    One layer has 32 experts, of which a token chooses two; on the device and in the eager context.
    """
    experts, encoding, rng = Experts(32, 256, 768), encoding_named("q8_0"), np.random.default_rng(0)
    sizes = {name: parameter.spec.shape for name, parameter in experts.named_parameters()}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    for _, parameter in experts.named_parameters():
        parameter.encoding = encoding
    module, compiled, archive = (tmp_path / f"layer.{suffix}" for suffix in ("mlir", "vmfb", "irpa"))
    with module.open("w") as text:
        lowered = lower_module([_one_layer(experts)], text.write, ExternalParameters("model"))
    compile_module(module, compiled, target_named("llvm-cpu"))
    entries = [ArchiveEntry(path, path, spec) for path, spec in lowered.parameters().items()]
    write_archive(archive, entries, PackedWeights(MappingWeights(arrays), dict.fromkeys(sizes, encoding)))
    chosen = np.array([[29, 8]], np.int32)
    others: list[tuple[int, int]] = []
    for record in read_archive_index(archive).values():
        size = record.nbytes // 32
        others += [(record.offset + size * i, record.offset + size * (i + 1)) for i in range(32) if i not in chosen[0]]
    x, weights = rng.standard_normal((1, 256)).astype(np.float32), np.full((1, 2), 0.5, np.float32)
    with Session(compiled, "local-task", parameters=archive) as session, ArchiveWeights(archive) as stored:
        function, ctx = session.function("layer"), EagerExecutionContext(stored)
        before = function(x, chosen, weights)[0].numpy()
        of_others = sum(end - begin for begin, end in others)
        try:
            assert _protect(archive, others, _NONE) >= 0.9 * 2 * of_others, "in the maps of both"
            after = function(x, chosen, weights)[0].numpy()
            eager = experts(ctx, *map(ctx.constant, (x, chosen, weights))).numpy()
        finally:
            _protect(archive, others, mmap.PROT_READ)
    np.testing.assert_array_equal(after, before)
    np.testing.assert_allclose(after, eager, rtol=0, atol=1e-3 * np.abs(eager).max())


def _write_sparse_mixtral(path: Path, layers: int, experts: int, vocabulary: int) -> int:
    """Writes a file of Mixtral-8x22B's sizes in Q4_0 whose weights are a hole; returns its bytes."""
    size, inner, kv = 6144, 16384, 1024
    writer = GGUFWriter(path, "llama")
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    for add, value in (
        (writer.add_block_count, layers), (writer.add_embedding_length, size), (writer.add_feed_forward_length, inner),
        (writer.add_head_count, 48), (writer.add_head_count_kv, 8), (writer.add_context_length, 65536),
        (writer.add_rope_dimension_count, 128), (writer.add_expert_count, experts), (writer.add_expert_used_count, 2),
    ):  # fmt: skip
        add(value)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (vocabulary, size), "output_norm": (size,)}
    shapes["output"] = shapes["token_embd"]
    for layer in range(layers):
        of_layer = {
            "attn_norm": (size,), "ffn_norm": (size,), "attn_q": (size, size), "attn_k": (kv, size),
            "attn_v": (kv, size), "attn_output": (size, size), "ffn_gate_inp": (experts, size),
            "ffn_gate_exps": (experts, inner, size), "ffn_up_exps": (experts, inner, size),
            "ffn_down_exps": (experts, size, inner),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
    total = 0
    for name, shape in shapes.items():
        kind = Kind.F32 if len(shape) == 1 or "gate_inp" in name else Kind.Q4_0
        block, block_bytes = GGML_QUANT_SIZES[kind]
        nbytes = math.prod(shape) // block * block_bytes
        stored = (*shape[:-1], shape[-1] // block * block_bytes) if kind is Kind.Q4_0 else shape
        writer.add_tensor_info(
            f"{name}.weight", stored, np.dtype(np.uint8 if kind is Kind.Q4_0 else np.float32), nbytes, kind
        )
        total += GGUFWriter.ggml_pad(nbytes, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    writer.write_padding(writer.fout[0], writer.fout[0].tell())
    end = writer.fout[0].tell() + total
    writer.close()
    os.truncate(path, end)
    return end


@_ONE_DEVICE
def test_an_export_of_mixtral_8x22bs_sizes_holds_little_in_memory(tmp_path: Path) -> None:
    """Two experts of a layer; with TAPELINE_LONG=1 four layers of eight: 6 GB of disk, where all 56 are 80 GB."""
    sizes = (4, 8, 32768) if os.environ.get("TAPELINE_LONG") else (1, 2, 256)
    size = _write_sparse_mixtral(tmp_path / "model.gguf", *sizes)
    assert (tmp_path / "model.gguf").stat().st_blocks * 512 < 1 << 20
    options: dict[str, Any] = {"sequence": 8, "max_sequence": 64, "quantize": "stored", "target": (), "dtype": "bf16"}
    made = export(tmp_path / "model.gguf", tmp_path / "bundle", **options)
    report = json.loads((made / "report.json").read_text())
    assert report["parameters"]["packed"]["unpacked_parameters"] == ["model.layers.*.mlp.gate.weight"]
    assert (made / ARCHIVE).stat().st_size >= size - (1 << 20)
    for phase, row in report["phases"].items():
        assert row["anonymous_delta_bytes"] < 64 << 20, phase
