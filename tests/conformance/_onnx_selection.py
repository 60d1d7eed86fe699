"""Which cases run on which devices, and what devices cannot run."""

import os
import re
from collections.abc import Iterable
from typing import Final

from tests.conformance._onnx_cases import Case, expressible_cases
from tests.conformance._onnx_kinds import TRANSFORMER_OPS
from tests.emission._device_cases import Limit

# Every case on every device takes half an hour of two cores, and every case in the interpreter half a minute.
EVERYTHING: Final = bool(os.environ.get("TAPELINE_LONG"))
# How many cases of an op are interpreted, spread over all of them in the order of their names.
_INTERPRETED: Final = 2
# Each op runs on one device, and attention with several cases on the CPU: each op of ours runs on each in
# tests/emission. Of four ops the CPU has two, and vmvx and the others one each.
_CPU: Final = ("local-task", "local-sync")
_OF_ATTENTION: Final = 3
_TURNS: Final = {"local-task": (0, 2), "local-sync": (0, 2), "vmvx": (1,)}
_OTHERS: Final = (3,)

# Of IREE 3.13: in each of these the compiler refuses the module.
LIMITS: Final = (
    Limit(("local-task", "local-sync"), r"test_mod_.*float64.*", "the linker finds no fmod of f64"),
    Limit(
        ("vulkan",),
        r"test_reduce_log_sum_exp_(.*(example|random).*|empty_set_expanded)",
        "SPIR-V has exp and log for 16 and 32 bits",
    ),
    Limit(("vulkan",), r"test_flexattention_double.*", "SPIR-V has exp and log for 16 and 32 bits"),
    Limit(("vulkan",), r"test_attention_local_window_gqa_rank4_mask_expanded", "SPIR-V has exp for 16 and 32 bits"),
    Limit(("vulkan",), r"test_attention_[34]d_causal_bf16_expanded", "a bf16 constant that is not one number"),
    Limit(
        ("vulkan",),
        r"test_(nllloss_NCd1d2d3d4d5_mean_weight|sce_NCd1d2d3d4d5_mean_weight.*)",
        "two sums of five axes are fused into one",
    ),
    Limit(("vmvx",), r"test_(?!range_.*_expanded).*(?<![bB])(float16|fp16|FLOAT16).*", "f16 can be moved only"),
    Limit(("vmvx",), r"test_attention_24_qk_matmul_output_mode3_softmax_precision.*", "f16 can be moved only"),
    Limit(("vmvx",), r"test_(cast|castlike)_DOUBLE_to_FLOAT.*", "f64 cannot be made anything else"),
    Limit(("vmvx",), r"test_attention_local_window_gqa_rank4_mask_expanded", "f64 cannot be made anything else"),
    Limit(("vmvx",), r"test_reduce_log_sum_exp_empty_set_expanded", "f64 cannot be made anything else"),
    Limit(("vmvx",), r"test_eyelike_with_dtype", "bool cannot be made f64"),
)


def _by_kind(cases: Iterable[Case]) -> dict[str, list[Case]]:
    by_kind: dict[str, list[Case]] = {}
    for case in cases:
        by_kind.setdefault(case.kind, []).append(case)
    return by_kind


def _spread(cases: list[Case], count: int) -> list[Case]:
    return cases[:: -(-len(cases) // count)]


def interpreted_cases() -> list[Case]:
    """Returns some cases of each op, or all under TAPELINE_LONG=1."""
    if EVERYTHING:
        return list(expressible_cases())
    return [case for cases in _by_kind(expressible_cases()).values() for case in _spread(cases, _INTERPRETED)]


def device_cases(device: str) -> list[Case]:
    """Returns some cases of the ops that a transformer uses, or under TAPELINE_LONG=1 all that the device can run."""
    runnable = [case for case in expressible_cases() if limit_of(case, device) is None]
    if EVERYTHING:
        return runnable
    by_kind = _by_kind(case for case in runnable if case.kind in TRANSFORMER_OPS and "_expanded" not in case.name)
    turns = _TURNS.get(device, _OTHERS)
    chosen = [cases[0] for i, cases in enumerate(by_kind.values()) if i % 4 in turns]
    return chosen + (_spread(by_kind["Attention"][1:], _OF_ATTENTION) if device in _CPU else [])


def limited_cases(limit: Limit, device: str, limits: Iterable[Limit] = LIMITS) -> list[Case]:
    """Returns one case that the device cannot run for a limit's reason, or all of them under TAPELINE_LONG=1."""
    chosen = [case for case in expressible_cases() if limit_of(case, device, limits) is limit]
    return chosen if EVERYTHING else chosen[:1]


def limit_of(case: Case, device: str, limits: Iterable[Limit] = LIMITS) -> Limit | None:
    """Returns why a device cannot run a case; None where it can."""
    return next((limit for limit in limits if device in limit.devices and re.fullmatch(limit.cases, case.name)), None)
