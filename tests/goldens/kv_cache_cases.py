"""Cases of quantized KV caches: heads of 32 numbers, so that each key and value of a head is whole blocks."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import llama5
from tests.goldens.cases import CASES
from tests.goldens.golden_files import DATA

KV_CACHE_ENCODINGS: Final = ("q8_0", "q4_0")

_WINDOWED: Final = CASES["gemma3_4x"]

KV_CACHE_CASES: Final = (
    GoldenCase(
        name="kv_llama",
        twist="grouped heads",
        config=llama5(K=2, H=32, sizes=dict(D=48, F=72, V=97, L=3, N=6)),
        form="5.x",
        seed=31,
        prompt=prompt(11, vocab=97),
        steps=5,
    ),
    replace(
        _WINDOWED,
        name="kv_gemma3",
        twist="norms of heads, windows, two RoPEs",
        config={**_WINDOWED.config, "head_dim": 64},
        hidden=False,
        must_matter=(),
        steps=5,
    ),
)


def kv_cache_path(case: GoldenCase, encoding: str) -> Path:
    """Returns the golden file of a case: ``prompt`` [B, T], ``tokens`` [B, steps] and ``logits`` [B, steps, V]."""
    return DATA / f"{case.name}_{encoding}.npz"
