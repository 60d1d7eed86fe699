"""Parts of kernels that read rows of super-blocks: Q4_K and Q6_K, whose layouts lang_core/_layouts.py describes.

Names of values end with the row's number; a matvec's have none.
"""

from collections.abc import Sequence

from run_iree.kernels._packed_row import half
from run_iree.kernels._text import listed

_WORDS = "vector<4xi32>"
_BYTES = "vector<64xi8>"
_PAIRS = "vector<32xi16>"

Q4_K_BEFORE = (
    "%k_nibble = arith.constant dense<15> : vector<32xi8>",
    "%k_four = arith.constant dense<4> : vector<32xi8>",
    f"%k_down = arith.constant dense<[0, 0, 0, 4]> : {_WORDS}",
    f"%k_mask = arith.constant dense<[{0x3F3F3F3F}, {0x0F0F0F0F}, {0x3F3F3F3F}, {0x0F0F0F0F}]> : {_WORDS}",
    f"%k_two = arith.constant dense<2> : {_WORDS}",
    f"%k_upper = arith.constant dense<[0, {0x30303030}, 0, {0x30303030}]> : {_WORDS}",
)
Q4_K_NUMBERS = (16, 48, 80, 112)
"""Index constants: where a block's integers are, 32 bytes each."""

Q6_K_BEFORE = (
    f"%k_nibble = arith.constant dense<15> : {_BYTES}",
    f"%k_four = arith.constant dense<4> : {_BYTES}",
    f"%k_up = arith.constant dense<{[4] * 16 + [2] * 16}> : {_PAIRS}",
    f"%k_down = arith.constant dense<{[0] * 16 + [2] * 16}> : {_PAIRS}",
    f"%k_upper = arith.constant dense<48> : {_BYTES}",
)
Q6_K_NUMBERS = (64, 128, 160, 192, 208)


def q4_k_scales(r: int | str, w: str) -> list[str]:
    """``%scaled<r>`` vector<16xf32>: ``d * sc`` of the eight sub-blocks at ``%at<r>``, then ``dmin * m`` of each."""
    lanes = listed([0] * 8 + [1] * 8)
    return [
        f"%head{r} = vector.load %w[%at{r}] : {w}, vector<16xi8>",
        f"%words{r} = vector.bitcast %head{r} : vector<16xi8> to {_WORDS}",
        f"%rest{r} = vector.shuffle %words{r}, %words{r} [1, 3, 2, 3] : {_WORDS}, {_WORDS}",
        f"%down{r} = arith.shrui %rest{r}, %k_down : {_WORDS}",
        f"%lower{r} = arith.andi %down{r}, %k_mask : {_WORDS}",
        f"%tops{r} = vector.shuffle %words{r}, %words{r} [1, 1, 2, 2] : {_WORDS}, {_WORDS}",
        f"%moved{r} = arith.shrui %tops{r}, %k_two : {_WORDS}",
        f"%upper{r} = arith.andi %moved{r}, %k_upper : {_WORDS}",
        f"%sixes{r} = arith.ori %lower{r}, %upper{r} : {_WORDS}",
        f"%narrow{r} = vector.bitcast %sixes{r} : {_WORDS} to vector<16xi8>",
        f"%wide{r} = arith.extui %narrow{r} : vector<16xi8> to vector<16xi32>",
        f"%float_scales{r} = arith.sitofp %wide{r} : vector<16xi32> to vector<16xf32>",
        f"%halves{r} = vector.bitcast %head{r} : vector<16xi8> to vector<8xf16>",
        f"%both{r} = vector.shuffle %halves{r}, %halves{r} {lanes} : vector<8xf16>, vector<8xf16>",
        f"%d{r} = arith.extf %both{r} : vector<16xf16> to vector<16xf32>",
        f"%scaled{r} = arith.mulf %float_scales{r}, %d{r} : vector<16xf32>",
    ]


def q4_k_integers(r: int | str, pair: int, w: str) -> list[str]:
    """``%u<r>_<pair>`` vector<64xi8>: the integers, 0 to 15, of a pair of sub-blocks of the block at ``%at<r>``."""
    name, kind = f"{r}_{pair}", "vector<32xi8>"
    return [
        f"%place{name} = arith.addi %at{r}, %c{Q4_K_NUMBERS[pair]} : index",
        f"%stored{name} = vector.load %w[%place{name}] : {w}, {kind}",
        f"%low{name} = arith.andi %stored{name}, %k_nibble : {kind}",
        f"%high{name} = arith.shrui %stored{name}, %k_four : {kind}",
        f"%u{name} = vector.shuffle %low{name}, %high{name} {listed(range(64))} : {kind}, {kind}",
    ]


def q6_k_scales(r: int | str, w: str, order: Sequence[int] = range(16)) -> list[str]:
    """``%scaled<r>`` vector<16xf32>: ``d * sc`` of the sixteen sub-blocks, in an order, of the block at ``%at<r>``."""
    return [
        f"%scales_at{r} = arith.addi %at{r}, %c192 : index",
        f"%d_at{r} = arith.addi %at{r}, %c208 : index",
        f"%given{r} = vector.load %w[%scales_at{r}] : {w}, vector<16xi8>",
        f"%narrow{r} = vector.shuffle %given{r}, %given{r} {listed(order)} : vector<16xi8>, vector<16xi8>",
        f"%wide{r} = arith.extsi %narrow{r} : vector<16xi8> to vector<16xi32>",
        f"%float_scales{r} = arith.sitofp %wide{r} : vector<16xi32> to vector<16xf32>",
        *half(f"half{r}", f"%d_at{r}", w),
        f"%halves{r} = vector.shuffle %half{r}, %half{r} {listed([0] * 16)} : vector<1xf16>, vector<1xf16>",
        f"%d{r} = arith.extf %halves{r} : vector<16xf16> to vector<16xf32>",
        f"%scaled{r} = arith.mulf %float_scales{r}, %d{r} : vector<16xf32>",
    ]


def q6_k_integers(r: int | str, side: int, w: str) -> list[str]:
    """``%u<r>_<2 * side>`` and the next, vector<64xi8>: the integers, 0 to 63, of a half of the block at ``%at<r>``."""
    low, high = f"%low_at{r}_{side}", f"%high_at{r}_{side}"
    return [
        f"{low} = arith.addi %at{r}, %c{64 * side} : index",
        f"{high} = arith.addi %at{r}, %c{128 + 32 * side} : index",
        *q6_k_side(r, side, low, high, w),
    ]


def q6_k_side(r: int | str, side: int, low: str, high: str, w: str) -> list[str]:
    """As ``q6_k_integers``, of a half whose bytes of low and of high bits are at these places."""
    name, first, second = f"{r}_{side}", f"{r}_{2 * side}", f"{r}_{2 * side + 1}"
    twice = listed([*range(32), *range(32)])
    return [
        f"%low{name} = vector.load %w[{low}] : {w}, {_BYTES}",
        f"%quarter{name} = vector.load %w[{high}] : {w}, vector<32xi8>",
        f"%high{name} = vector.shuffle %quarter{name}, %quarter{name} {twice} : vector<32xi8>, vector<32xi8>",
        f"%two{name} = vector.bitcast %high{name} : {_BYTES} to {_PAIRS}",
        f"%up{name} = arith.shli %two{name}, %k_up : {_PAIRS}",
        f"%down{name} = arith.shrui %two{name}, %k_down : {_PAIRS}",
        f"%up_bytes{name} = vector.bitcast %up{name} : {_PAIRS} to {_BYTES}",
        f"%down_bytes{name} = vector.bitcast %down{name} : {_PAIRS} to {_BYTES}",
        f"%top{first} = arith.andi %up_bytes{name}, %k_upper : {_BYTES}",
        f"%top{second} = arith.andi %down_bytes{name}, %k_upper : {_BYTES}",
        f"%four{first} = arith.andi %low{name}, %k_nibble : {_BYTES}",
        f"%four{second} = arith.shrui %low{name}, %k_four : {_BYTES}",
        f"%u{first} = arith.ori %four{first}, %top{first} : {_BYTES}",
        f"%u{second} = arith.ori %four{second}, %top{second} : {_BYTES}",
    ]
