"""The linear kernel with packed weights, compiled by IREE, where kernels for the CPU may take the op's place."""

from typing import Any

import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor
from autotune.iree_compiler import IreeCompiler
from autotune.supplied import LinearConfig, LinearKernel, pack_weight
from lang_core import ENCODINGS, EagerExecutionContext

_COMPILER = IreeCompiler("local-sync")


@pytest.mark.parametrize("form", ["direct", "flat", "unpacked"])
@pytest.mark.parametrize("layout", ["q8_0", "q4_0"])
def test_compiled_forms_are_the_eager_op(layout: str, form: Any) -> None:
    random = np.random.default_rng(6)
    packed: Any = pack_weight(random.standard_normal((70, 96)).astype(np.float32), layout)
    cfg = LinearConfig(form, blocks=2 if form == "flat" else 1)
    executor = Executor(ConfigSelectorChain(policy="heuristics"), compiler=_COMPILER)
    x: Any = random.standard_normal((1, 3, 96)).astype(np.float32)
    compiled: Any = executor.compile(LinearKernel(), x, packed, cfg=cfg, layout=layout)
    for scaled in (x, -3 * x):
        actual = compiled(scaled, packed, layout=layout)
        ops: Any = EagerExecutionContext().ops
        wanted = ops.packed_linear(scaled, packed, ENCODINGS[layout]).numpy()
        if form != "unpacked":  # integers of 16 bits take the place of x
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
            wanted = ops.block_product(ops.block_quantize(scaled), packed, ENCODINGS[layout]).numpy()
        assert actual.shape == (1, 3, 70)
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
