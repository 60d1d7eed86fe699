"""Cases of the gated delta rule and the causal convolution: what the interpreter and every device run."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lang_core import f32
from tests.emission._cases import Case

# Rounding: a case has a few hundred additions of numbers near 1.
_ULPS: Final = 64


def _cases() -> Iterator[Case]:
    random = np.random.default_rng(30)
    for tokens, chunk, per_channel, gates in (
        (1, None, False, True),
        (1, None, True, True),
        (9, 16, False, True),
        (21, 8, False, True),
        (13, 4, True, True),
        (6, 4, False, False),
    ):
        shared, heads, key, value = 2, 4, 6, 5
        q, k = (random.standard_normal((2, tokens, n, key)) for n in (heads, shared))
        gate = -random.exponential(0.5, (2, tokens, shared, key) if per_channel else (2, tokens, shared))
        gate[:, ::5] = -1e30
        operands = [
            q / np.linalg.norm(q, axis=-1, keepdims=True),
            k / np.linalg.norm(k, axis=-1, keepdims=True),
            random.standard_normal((2, tokens, shared, value)),
            random.standard_normal((2, shared, key, value)),
            *((gate, random.random((2, tokens, shared))) if gates else ()),
        ]

        def rule(ctx: Any, q: Any, k: Any, v: Any, state: Any, *gates: Any, chunk: int | None = chunk) -> Any:
            return ctx.ops.gated_delta_rule(q, k, v, *(gates or (None, None)), state, chunk_size=chunk)

        name = f"gated_delta_{tokens}_{'channel' if per_channel else 'head' if gates else 'none'}"
        yield Case("gated_delta_rule", name, f32, rule, tuple(x.astype(np.float32) for x in operands), _ULPS)
    for tokens in (1, 7):
        shapes = (2, tokens, 5), (5, 4), (5,), (2, 3, 5)
        inputs = tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
        yield Case(
            "causal_conv", f"causal_conv_{tokens}", f32, lambda c, *operands: c.ops.causal_conv(*operands), inputs, 8
        )


CASES: Final = tuple(_cases())
