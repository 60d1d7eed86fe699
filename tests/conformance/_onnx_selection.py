"""Which cases run on which devices, and what devices cannot run."""

import os
import re
from collections.abc import Iterable
from typing import Final

from tests.conformance._onnx_cases import Case, expressible_cases
from tests.conformance._onnx_kinds import TRANSFORMER_OPS
from tests.emission._device_cases import Limit

# Every case on every device takes half an hour of two cores; TAPELINE_ONNX=all asks for it.
EVERYTHING: Final = os.environ.get("TAPELINE_ONNX") == "all"
# How many cases of an op run, spread over all of them in the order of their names: the devices differ in speed.
_OF_AN_OP: Final = {"local-task": 2, "local-sync": 2}
_OF_ATTENTION: Final = {"local-task": 20, "local-sync": 20}

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


def device_cases(device: str) -> list[Case]:
    """Some cases of each op that a transformer uses; or all that the device can run."""
    chosen = [case for case in expressible_cases() if limit_of(case, device) is None]
    if EVERYTHING:
        return chosen
    of_op: dict[str, list[Case]] = {}
    for case in chosen:
        if case.kind in TRANSFORMER_OPS and "_expanded" not in case.name:
            of_op.setdefault(case.kind, []).append(case)
    found: list[Case] = []
    for kind, cases in of_op.items():
        most = (_OF_ATTENTION if kind == "Attention" else _OF_AN_OP).get(device, 1)
        found += cases[:: -(-len(cases) // most)]
    return found


def limited_cases(limit: Limit, device: str, limits: Iterable[Limit] = LIMITS) -> list[Case]:
    """One case that the device cannot run for a limit's reason; or all of them."""
    chosen = [case for case in expressible_cases() if limit_of(case, device, limits) is limit]
    return chosen if EVERYTHING else chosen[:1]


def limit_of(case: Case, device: str, limits: Iterable[Limit] = LIMITS) -> Limit | None:
    """Why a device cannot run a case; None where it can."""
    return next((limit for limit in limits if device in limit.devices and re.fullmatch(limit.cases, case.name)), None)
