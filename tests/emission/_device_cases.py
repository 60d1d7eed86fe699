"""Cases of devices: every op in f32, i32 and bf16, a selection in the other dtypes; and those that they cannot run.

Compiling takes the time, and the StableHLO of every case is interpreted by the tests beside these. So the default run
has, for each device: one case of each op (in f32 if the op has it), every case that shows a known fault of the device's
compiler (``compile_hlo/quirks``), and a sample of the rest, drawn with a fixed seed that the test prints: some of each
dtype, of fusions, of what stands around products, of packed weights and of attention. With TAPELINE_LONG=1 in the
environment a device runs all of them.
"""

import dataclasses
import functools
import os
import random
import re
from typing import Final

from compile_hlo.quirks import FAULTS
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


_CPU: Final = ("local-task", "local-sync")
_MOVES: Final = "reverse|concat|pad|constant|while|cond|take|gather|dynamic_slice|update|put|select|scatter_set"

# Of IREE 3.13. The first gives wrong numbers, as the one of attention does; the compiler refuses the others.
LIMITS: Final = (
    Limit(
        ("vulkan",),
        r"rem_(by_one_)?b?f\d+",
        "the remainder is x - y * trunc(x / y), rounded: 1 rem 0.1 is 0, -1 rem 1 is 0.0",
    ),
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


SEED: Final = 20261129
"""Seed of the sample that a device runs without TAPELINE_LONG."""
TARGETS: Final = {
    "local-task": "llvm-cpu",
    "local-sync": "llvm-cpu",
    "vmvx": "vmvx",
    "vulkan": "vulkan-spirv",
    "cuda": "cuda",
}
"""Target that each device runs the modules of, by the names that faults have."""
# Number of drawn cases: of each dtype, and of each table beside the ops alone.
_DRAWN: Final = {"f32": 6, "bf16": 4, "i32": 3, "fusion": 5, "between": 3, "packed": 5, "attention": 3}
_DRAWN_ELSE: Final = 2
_TABLES: Final = {
    **{case.name: "fusion" for case in FUSION_CASES},
    **{case.name: "between" for case in BETWEEN_CASES},
    **{case.name: "packed" for case in PACKED_CASES},
    **{case.name: "attention" for case in ATTENTION_CASES},
}


@functools.cache
def _default(device: str) -> frozenset[str]:
    """Returns the names of the cases that a device runs without TAPELINE_LONG."""
    able = [case for case in DEVICE_CASES if limit_of(case, device) is None]
    first: dict[str, Case] = {}
    for case in able:
        if case.op not in first or (case.dtype.name == "f32" and first[case.op].dtype.name != "f32"):
            first[case.op] = case
    target = TARGETS[device]
    faulty = {name for fault in FAULTS if target in fault.targets for name in fault.cases}
    chosen = {case.name for case in first.values()} | {case.name for case in able if case.name in faulty}
    rest: dict[str, list[str]] = {}
    for case in able:
        if case.name not in chosen:
            rest.setdefault(_TABLES.get(case.name, case.dtype.name), []).append(case.name)
    rng = random.Random(f"{SEED} {target}")
    for kind, names in sorted(rest.items()):
        chosen.update(rng.sample(names, min(len(names), _DRAWN.get(kind, _DRAWN_ELSE))))
    return frozenset(chosen)


def is_sampled(case: Case, device: str) -> bool:
    """Returns whether a device runs the case: one of the sample, or with TAPELINE_LONG=1 any."""
    return bool(os.environ.get("TAPELINE_LONG")) or case.name in _default(device)
