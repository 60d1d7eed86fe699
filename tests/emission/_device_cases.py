"""Cases of devices: every op in f32, i32 and bf16, a selection in the other dtypes; and those that they cannot run.

Compiling takes the time, and the StableHLO of every case is interpreted by the tests beside these. So without
TAPELINE_LONG=1 in the environment a device runs one case of each op in f32, beside the kinds of cases that one device
gets wrong and another does not; in i32 and bf16 a selection of these, in f64, i64 and u8 one per kind. vmvx and Vulkan,
which compile from the same StableHLO, run one per kind in all dtypes but f32; and in f32 each one half of the cases of
packed weights, attention and what stands around products, which the CPU runs too.
"""

import dataclasses
import os
import re
from typing import Final

from tests.emission._attention_cases import ATTENTION_CASES
from tests.emission._between_cases import BETWEEN_CASES
from tests.emission._cases import Case
from tests.emission._fusion_cases import FUSION_CASES
from tests.emission._op_cases import CASES
from tests.emission._packed_cases import PACKED_CASES

_WHOLE: Final = ("f32", "i32", "bf16")
# In the other dtypes, one case or two of a kind are enough: the rules are the same.
_SELECTED: Final = re.compile(
    r"(logical_.*|negate|abs|sign|exp|tanh|erf|log|sqrt|sin|round|add|mul|div|quotient|rem|pow|maximum|less|equal|bitwise_xor|"
    r"shift_.*|select|clamp|cast_.*|reverse|concat|pad|constant|while|cond_true|iota|sum_1|max_1|any_1|all_02|"
    r"argmax|argmax_nan|sort|sort_descending|cumsum_2|dot_general|dot_general_wide|dot_general_casts|conv_depthwise|conv_turned|conv_2d_groups|"
    r"take_int32|gather_int32|dynamic_slice_int32|update_int32|put_int32|scatter_(set|add|max)_int32)_[a-z0-9]+\Z"
)


def is_run(case: Case) -> bool:
    """Returns whether devices run the case."""
    if case.dtype.name not in _WHOLE:
        return _SELECTED.match(case.name) is not None
    return case.dtype.name == "f32" or "_int64_" not in case.name


DEVICE_CASES: Final = (
    *(case for case in CASES if is_run(case)),
    *FUSION_CASES,
    *BETWEEN_CASES,
    *PACKED_CASES,
    *ATTENTION_CASES,
)
_CPU: Final = ("local-task", "local-sync")
_IN_F32: Final = frozenset(case.op for case in DEVICE_CASES if case.dtype.name == "f32")
_PLAIN: Final = frozenset(case.name for case in CASES if case.dtype.name != "f32" and case.op in _IN_F32)


# Of what a device has its own ideas: NaN, conversions, a few indices of 64 bits, tensors without elements; in f32 all
# that adds up.
_TOUCHY: Final = re.compile(
    r"(cast|argm..|sort)_.*|.*_(nan|special|itself|wide|empty|far|long|no_channels)(_.*)?|(take|put|update)_int64_.*|"
    r"(scatter_.*_int32|conv_.*|dot_general.*|pow)_f32"
)
_FIRST: Final = {(case.op, case.dtype.name): case.name for case in reversed(CASES) if is_run(case)}
# Cases that the other encodings have too, in the same ways; of some only the product with exact x in f32 remains.
_LIKE_OTHERS: Final = re.compile(
    r"(dequantize|dequantize_beyond|packed_linear_one_row)_(q8_0|q6_k)(_f32)?|"
    r"(dequantize|dequantize_beyond|packed_linear_one_row)_(q4_1|q5_.|q[23]_k|iq4_..|mxfp4)(_f32|_bf16)?|"
    r"packed_linear_(q4_1|q5_.|q[23]_k|iq4_..|mxfp4)_b?f16|"
    r"(packed_linear|block_product|packed_expert_linear)_(q4_1|q5_.|q[236]_k|iq4_..)(_2)?"
)
_FURTHER: Final = frozenset(
    case.name
    for case in CASES
    if case.name != _FIRST.get((case.op, case.dtype.name)) and _TOUCHY.fullmatch(case.name) is None
) | frozenset(case.name for case in PACKED_CASES if _LIKE_OTHERS.fullmatch(case.name))
# The compiler's own code on a CPU, where tests of run_iree/kernels hold the products of each encoding.
_OF_CPU: Final = re.compile(r"dequantize_.*_f32")
_OF_KERNELS: Final = re.compile(r"packed_linear_(q4_1|q5_.|q[23]_k|iq4_..)_exact")
_PRODUCT: Final = re.compile(r"(packed|expert|block|dequantize|cached_attention|dot_general_of)_.*")
_FIRST_ON_DEVICES: Final = {(case.op, case.dtype.name): case.name for case in reversed(DEVICE_CASES)}
_LATER: Final = [
    case.name
    for case in DEVICE_CASES
    if case.dtype.name == "f32"
    and case.name not in {*_FURTHER, *_FIRST_ON_DEVICES.values()}
    and _PRODUCT.fullmatch(case.name)
]
# The later cases of products, each on one of the two devices that compile no kernels.
_IN_TURNS: Final = {"vmvx": frozenset(_LATER[::2]), "vulkan": frozenset(_LATER[1::2])}


# Dtypes that no bundle computes with, and f16, which is emitted as bf16 is.
_RARE: Final = ("f16", "f64", "i64", "u8")
# One case per kind: the rules are the same in every dtype.
_PER_KIND: Final = re.compile(
    r"(cast|constant|concat|less|select|add|sum_1|max_1|dot_general|while|gather_int32|put_int32|argmax|sort|"
    r"block_quantize|packed_linear_q4_0|cached_attention_one)_[a-z0-9]+|cast_.*"
)


def is_sampled(case: Case, device: str) -> bool:
    """Returns whether a device runs the case also without TAPELINE_LONG."""
    if os.environ.get("TAPELINE_LONG"):
        return True
    if case.name in _LATER and case.name not in _IN_TURNS.get(device, _LATER):
        return False
    if device in _CPU and _OF_KERNELS.fullmatch(case.name):
        return False
    if case.name in _FURTHER and not (device in _CPU and _OF_CPU.fullmatch(case.name)):
        return False
    if _is_reduced(case, device) and case.op in _IN_F32 and not _PER_KIND.fullmatch(case.name):
        return False
    return case.name not in _PLAIN or _SELECTED.match(case.name) is not None


def _is_reduced(case: Case, device: str) -> bool:
    return case.dtype.name in _RARE or (device not in _CPU and case.dtype.name != "f32")


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """Cases that devices cannot run.

    Attributes:
        devices: their names.
        cases: matches the cases' names, whole.
        why: what IREE 3.13 lacks or gets wrong.
    """

    devices: tuple[str, ...]
    cases: str
    why: str


_MOVES: Final = "reverse|concat|pad|constant|while|cond|take|gather|dynamic_slice|update|put|select|scatter_set"

# Of IREE 3.13. The first gives wrong numbers, as the one of attention does; the compiler refuses the others.
LIMITS: Final = (
    Limit(("vulkan",), r"rem_b?f\d+", "the remainder is x - y * trunc(x / y), rounded: 1 rem 0.1 is 0"),
    Limit(("cuda",), "cached_attention_one_f16", "attention of one query with a mask can be NaN"),
    Limit(_CPU, r"(sin|rem)_f64", "the linker finds no sin, cos or fmod of f64"),
    Limit(("vulkan",), r"(exp|log|tanh|erf|sin|pow)_f64", "SPIR-V has these functions for 16 and 32 bits only"),
    Limit(
        ("vulkan",),
        "cached_attention_(one|blocks)_bf16",
        "SPIR-V has no vectors of bf16, in which one row is multiplied",
    ),
    Limit(("vmvx",), rf"(?!{_MOVES}).*_f16(_\d+)?", "f16 can be moved, not computed with"),
    Limit(("vmvx",), r"cast_f16_(?!f64).*", "f16 can be moved, not computed with"),
    Limit(("vmvx",), r"cast_(?!f64|bool).*_f64", "f64 cannot be made anything else"),
    Limit(("vmvx",), r"cast_f64_(i8|u8|i32|bool)", "only f32 and i64 can be made f64"),
)


def limit_of(case: Case, device: str) -> Limit | None:
    """Returns the limit by which a device cannot run a case; None where it can."""
    return next((x for x in LIMITS if device in x.devices and re.fullmatch(x.cases, case.name)), None)
