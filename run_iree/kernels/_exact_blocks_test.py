"""Products whose weight has whole groups of rows: a token alone has the bits of the kernels for prompts.

By default a part of the encodings, forms of x and numbers of tokens run; with TAPELINE_LONG=1 in the environment all.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lang_core import (
    BLOCK,
    ENCODINGS,
    Activations,
)
from run_iree.kernels._invariance_testing import (
    FORMS,
    LONG,
    NO_AVX2,
    SETS,
    check_tokens,
    packed_product,
)

# Parts of the prompts' kernel: 64 of 704 columns, 256 of 512.
_WHOLE_GROUPS = (
    ("q4_0", "exact", 704),
    ("q4_1", "q8", 704),
    ("q4_0", "q8", 512),
    ("q8_0", "exact", 512),
    ("q8_0", "q8", 704),
    ("q4_1", "exact", 512),
)[: 6 if LONG else 2]


@NO_AVX2
@pytest.mark.parametrize(("encoding", "how", "columns"), _WHOLE_GROUPS)
def test_products_of_whole_groups_of_rows_have_the_sums_of_prompts(
    encoding: str, how: Activations, columns: int, tmp_path: Path
):
    few = (1, 2, 17, 25) if encoding != "q4_0" else (1, 8, 9, 128)
    counts = (1, 2, 4, 8, 9, 16, 32, 128) if LONG else few
    used = check_tokens({"y": packed_product(encoding, columns, how, max(counts), 48)}, SETS["vnni"], tmp_path, counts)
    products = {name for function, name in used.items() if function.startswith("packed_linear.")}
    assert products == {"avx512-vnni-row-lanes", "avx512-vnni-matmul"}


@NO_AVX2
def test_products_of_whole_groups_of_rows_without_vnni(tmp_path: Path):
    cases = {"exact": packed_product("q4_0", 704, "exact", 17, 48), "q8": packed_product("q4_1", 512, "q8", 17, 48)}
    used = check_tokens(cases, SETS["avx512"], tmp_path, (1, 2, 17), near=1e-4)
    products = {name for function, name in used.items() if function.startswith("packed_linear.")}
    assert products == {"avx512-row-lanes"}


# Steps of six blocks and of eight; with AVX2 the columns of a prompt's part are a sixth, or an eighth, of all.
_EXACT_BLOCKS = (
    ("q4_0", "exact", 576, (1, 6, 7, 17)),
    ("q8_0", "exact", 768, (1, 5, 70, 130)),
    ("q4_1", "q8", 576, (1, 2, 17)),
    *((("q5_1", "q8", 768, (1, 6, 7)), ("q8_0", "q8", 576, (1, 2, 33)), ("q4_0", "q8", 768, (1, 5, 13, 70))) * LONG),
    *(
        (name, how, 1408 * 2, (1, 2, 6, 17))
        for name, encoding in ENCODINGS.items()
        for how in FORMS
        if LONG and encoding.block == BLOCK
    ),
)


@NO_AVX2
def test_rows_that_are_no_whole_steps_have_other_kernels_with_avx2(tmp_path: Path):
    cases = {f"of_{columns}": packed_product("q4_0", columns, "exact", 9, 48) for columns in (32, 128, 256)}
    used = check_tokens(cases, SETS["fma"], tmp_path, (1, 9), near=0.01)
    products = {name for function, name in used.items() if function.startswith("packed_linear.")}
    assert products == {"vector", "avx2-matvec", "avx2-few-tokens"}


@NO_AVX2
@pytest.mark.parametrize(("encoding", "how", "columns", "counts"), _EXACT_BLOCKS)
def test_products_of_whole_groups_of_rows_with_avx2_have_the_sums_of_prompts(
    encoding: str, how: Activations, columns: int, counts: Sequence[int], tmp_path: Path
):
    case = packed_product(encoding, columns, how, max(counts), 48)
    used = check_tokens({"y": case}, SETS["fma"], tmp_path, counts, near=0.02)
    products = {name for function, name in used.items() if function.startswith("packed_linear.")}
    assert products == {"avx2-matvec", "avx2-few-tokens", "avx2-matmul"}
