"""The linear kernel's packed layouts, against the gguf package and the op."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from autotune import ConfigSelectorChain, Executor, Invocation, Kernel, profile, using_kernels
from autotune.supplied import LinearConfig, LinearKernel, composite_kernels, pack_weight
from lang_core import ENCODINGS, ConfigError, EagerExecutionContext, f64, quantizable

_EXECUTOR = Executor(ConfigSelectorChain(policy="heuristics"))


def _candidates(*args: Any, layout: str) -> list[LinearConfig]:
    return LinearKernel().candidate_cfgs(Invocation("linear", args, {"layout": layout}))


def _coarse(*shape: int) -> np.ndarray[Any, Any]:
    """Returns numbers that rounding in blocks does not change: integers to 127, with a 127 in every block."""
    x = np.random.default_rng(1).integers(-127, 128, shape).astype(np.float32)
    x[..., ::32] = 127
    return x


_PLAIN = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4")  # which the gguf package writes, too


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", quantizable())
def test_every_form_is_the_product_with_what_gguf_unpacks(layout: str, bias: bool) -> None:
    random = np.random.default_rng(2)
    columns = max(96, 2 * ENCODINGS[layout].block)
    weight, b = (random.standard_normal(shape).astype(np.float32) for shape in ((70, columns), 70))
    x, packed = _coarse(2, 3, columns), pack_weight(weight, layout)
    kind = GGMLQuantizationType[layout.upper()]
    if layout in _PLAIN:
        assert packed.tobytes() == quants.quantize(weight, kind).tobytes()
    unpacked = quants.dequantize(packed.view(np.uint8), kind)
    assert np.abs(unpacked - weight).max() > 0, "packing loses something, so the truth is not the weight's own"
    wanted = x.astype(np.float64) @ unpacked.T.astype(np.float64) + (b if bias else 0)
    given = (x, packed, *([b] if bias else []))
    candidates = _candidates(*given, layout=layout)
    assert {cfg.form for cfg in candidates} == {"direct", "flat", "unpacked"}
    assert {cfg.blocks for cfg in candidates} == {1, 2, 4}
    for cfg in candidates:
        result = _EXECUTOR(LinearKernel(), *given, cfg=cfg, layout=layout)
        assert (result.shape, result.dtype) == ((2, 3, 70), np.float32)
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max(), err_msg=str(cfg))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("layout", quantizable())
def test_every_form_multiplies_what_the_blocks_say(layout: str, dtype: Any) -> None:
    random = np.random.default_rng(3)
    columns = max(64, 2 * ENCODINGS[layout].block)
    x = random.standard_normal((5, columns)).astype(dtype)
    packed = pack_weight(random.standard_normal((33, columns)).astype(np.float32), layout)
    ops: Any = EagerExecutionContext().ops
    wanted = x.astype(np.float64) @ ops.dequantize(packed, ENCODINGS[layout]).numpy().T
    step = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}[np.dtype(dtype).name] * np.abs(wanted).max()
    for cfg in _candidates(x, packed, layout=layout):
        result: Any = _EXECUTOR(LinearKernel(), x, packed, cfg=cfg, layout=layout)
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=0, atol=step, err_msg=str(cfg))


def test_a_tuning_takes_none_of_them_for_wrong() -> None:
    random = np.random.default_rng(4)
    x, packed = random.standard_normal((3, 64)).astype(np.float32), pack_weight(_coarse(40, 64), "q4_0")
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain()
    executor = Executor(chain)
    assert executor.explain(LinearKernel(), x, packed, layout="q4_0").tier == "autotune"
    (entry,) = chain.cache.entries()
    assert [measurement.status for measurement in entry.measurements] == ["ok"] * len(
        _candidates(x, packed, layout="q4_0")
    )
    other = executor.explain(LinearKernel(), x, pack_weight(_coarse(40, 64), "q8_0"), layout="q8_0")
    assert other.tier == "autotune", "another layout is another call"


class _Last:
    """Chooser of configurations far from the heuristic one."""

    def choose(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Any:
        """Returns a configuration."""
        return list(kernel.candidate_cfgs(inv))[-1]


def test_the_op_of_a_model_becomes_a_call_of_the_kernel() -> None:
    random = np.random.default_rng(5)
    encoding = ENCODINGS["q8_0"]
    x: Any = random.standard_normal((3, 64)).astype(np.float32)
    packed: Any = pack_weight(random.standard_normal((40, 64)).astype(np.float32), "q8_0")
    ctx = EagerExecutionContext()
    wanted = ctx.ops.packed_linear(x, packed, encoding).numpy()
    with using_kernels(ctx, composite_kernels(), _EXECUTOR), profile() as calls:
        assert ctx.ops.packed_linear(x, packed, encoding).numpy().tobytes() == wanted.tobytes()
    assert [(call.label.partition("#")[2].partition("@")[0], call.cfg) for call in calls] == [
        ("linear", LinearConfig())
    ]
    with using_kernels(ctx, composite_kernels(), Executor(_Last())), profile() as calls:
        result = ctx.ops.packed_linear(x, packed, encoding).numpy()
        other = ctx.ops.packed_linear(x, packed, encoding, "f64")
    assert [call.cfg for call in calls] == [LinearConfig("unpacked", 2)], "another dtype is left to the op"
    np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    assert other.dtype is f64


@pytest.mark.parametrize(("layout", "place"), [("q4_k", 0), ("q6_k", 208)])
def test_every_form_of_drawn_super_blocks(layout: str, place: int) -> None:
    random, kind = np.random.default_rng(4), GGMLQuantizationType[layout.upper()]
    blocks = random.integers(0, 256, (70, 2, ENCODINGS[layout].block_bytes), np.uint8)
    blocks[..., place : place + 2] = random.standard_normal((70, 2, 1)).astype(np.float16).view(np.uint8)
    if layout == "q4_k":
        blocks[..., 2:4] = random.standard_normal((70, 2, 1)).astype(np.float16).view(np.uint8)
    packed = blocks.reshape(70, -1)
    x = _coarse(3, 512)
    wanted = x.astype(np.float64) @ quants.dequantize(packed, kind).T.astype(np.float64)
    given = (x, packed.view(np.int8))
    for cfg in _candidates(*given, layout=layout):
        result = _EXECUTOR(LinearKernel(), *given, cfg=cfg, layout=layout)
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max(), err_msg=str(cfg))


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"f32\[6,40\] cannot be packed as q8_0: blocks of 32 go along the last axis"):
        pack_weight(np.ones((6, 40), np.float32), "q8_0")
