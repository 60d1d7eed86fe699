"""Choice of data tiling for modules with products that do not fill the compiler's tiles.

IREE 3.13 tiles the rows of an f32 product by a divisor of their number. A product of 196 or 200 rows reaches 74 GFLOP/s
on a Zen 4 core, and a product of 197 rows (a ViT's 196 patches and its class token) 25. With data tiling rows are
padded to whole tiles, and 197 rows reach 58, or more if the weight is packed when the module is loaded. Packed weights
are a second copy in memory, so modules with full tiles do without.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from run_iree.compiler._targets import DATA_TILING, Target

_CPU: Final = "llvm-cpu"
_CACHE: Final = "alias_result"  # in the signature of an entry point
_PRODUCT: Final = re.compile(
    r"stablehlo\.dot_general .*contracting_dims = \[\d\] x \[1\].* : "
    r"\(tensor<(?P<x>(?:\d+x)+)f32>, tensor<(?P<outputs>\d+)x(?P<inputs>\d+)xf32>\) -> "
)
_TILE: Final = 4  # rows; a number of rows that it divides has a good tile
_FEW_ROWS: Final = 32
_LARGE_WEIGHT: Final = 2**16  # elements


def tiling_flags(text: Path, target: Target) -> tuple[str, ...]:
    """Returns compiler flags that make a module faster, in addition to those of its target.

    Args:
        text: path of the StableHLO text.
        target: target to compile for.
    """
    if target.name != _CPU:
        return ()
    with text.open(encoding="utf-8") as lines:
        return (DATA_TILING,) if wants_data_tiling(lines) else ()


def wants_data_tiling(lines: Iterable[str]) -> bool:
    """Returns True if a module is an encoder in f32 with products that do not fill tiles.

    Modules with caches have steps of one token, which data tiling makes slower.

    >>> product = "%2 = stablehlo.dot_general %0, %1, contracting_dims = [2] x [1] : "
    >>> types = "(tensor<1x{}x768xf32>, tensor<768x768xf32>) -> tensor<1x{}x768xf32>"
    >>> [wants_data_tiling([product + types.format(rows, rows)]) for rows in (196, 197, 29)]
    [False, True, False]
    """
    slow = False
    for line in lines:
        if _CACHE in line:
            return False
        slow = slow or ("dot_general" in line and _is_slow(line))
    return slow


def _is_slow(line: str) -> bool:
    product = _PRODUCT.search(line)
    if product is None:
        return False
    *_, rows, _ = (1, *map(int, product["x"][:-1].split("x")))
    large = int(product["outputs"]) * int(product["inputs"]) >= _LARGE_WEIGHT
    return large and rows > _FEW_ROWS and rows % _TILE != 0
