"""Products with weights of every packed encoding in XLA, x as it is, against the eager context."""

from pathlib import Path

import numpy as np

from compile_hlo import lower_module
from compile_hlo.emit import EXACT_PRODUCTS, ArgumentParameters
from lang_core import (
    ENCODINGS,
    Argument,
    EagerExecutionContext,
    EntryPoint,
    ExecutionContext,
    Tensor,
    TensorSpec,
    as_dtype,
)
from run_jax import StableHloFunction

_COLUMNS = 512


def _products(ctx: ExecutionContext, *values: Tensor) -> dict[str, Tensor]:
    """Returns x times a weight of every encoding, and what the chosen ones of three experts make of it."""
    x, rows, expert, *weights = values
    made: dict[str, Tensor] = {}
    for (name, encoding), weight, stacked in zip(ENCODINGS.items(), weights[::2], weights[1::2], strict=True):
        made[name] = ctx.ops.packed_linear(x, weight, encoding)
        made[f"{name}.experts"] = ctx.ops.packed_expert_linear(rows, expert, stacked, encoding)
    return made


def _blocks(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random blocks whose weights are finite and not far apart."""
    encoding, random = ENCODINGS[name], np.random.default_rng(len(name))
    count = _COLUMNS // encoding.block
    packed = random.integers(-128, 128, (*shape, count, encoding.block_bytes)).astype(np.int8)
    layout = encoding.layout
    if layout.exponent:
        packed[..., layout.scale] = random.integers(115, 120, (*shape, count))
    else:
        places = [layout.scale] + ([] if layout.minimum is None else [layout.minimum])
        for place in places:
            half = random.uniform(0.01, 0.02, (*shape, count)).astype(np.float16)
            packed[..., place : place + 2] = half[..., None].view(np.int8)
    return packed.reshape(*shape, -1)


def test_every_encoding_is_multiplied_as_the_eager_context_does(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = {
        "x": random.standard_normal((3, _COLUMNS)).astype(np.float32),
        "rows": random.standard_normal((2, 3, _COLUMNS)).astype(np.float32),
        "expert": np.array([2, 0, 1, 2], np.int32),
    }
    for name in ENCODINGS:
        arrays |= {name: _blocks(name, (5,)), f"{name}.experts": _blocks(name, (3, 5))}
    arguments = tuple(Argument(name, TensorSpec(a.shape, as_dtype(a.dtype))) for name, a in arrays.items())
    point = EntryPoint("products", _products, arguments)
    text: list[str] = []
    lowered = lower_module([point], text.append, ArgumentParameters(), overrides=EXACT_PRODUCTS)
    assert "block_quantize" not in "".join(text)
    eager = EagerExecutionContext()
    expected = {name: tensor.numpy() for name, tensor in point(eager, *map(eager.constant, arrays.values())).items()}
    (tmp_path / "m.mlir").write_text("".join(text))
    results = StableHloFunction(tmp_path / "m.mlir")(*arrays.values())
    for name, result in zip(lowered.functions[0].results, results, strict=True):
        wanted = expected[name]
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max(), err_msg=name)
