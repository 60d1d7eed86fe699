"""Golden cases that are exported, compiled and run on a device, and how: plain data.

``tests/product/goldens_test.py`` runs them, and ``docs/models.md`` says so of their families. Prompts are shorter, as
long, and longer than a call takes, with the last piece full and not. Dynamic scalings take the prompt in one piece, as
transformers does.
"""

import itertools
from typing import Final, NamedTuple

from tests.goldens.cases import CASES


class DeviceCase(NamedTuple):
    """One case on a device.

    Attributes:
        name: the name of the golden case.
        chunk: the tokens per call of prefill.
        shards: the files of its checkpoint.
    """

    name: str
    chunk: int
    shards: int = 1


# On every device, vmvx and Vulkan among them, where a token takes up to a minute.
EVERYWHERE: Final = (DeviceCase("llama_gqa", 4),)
LONG_EVERYWHERE: Final = (DeviceCase("qwen3", 16, 3),)  # the same with TAPELINE_LONG=1
# On the CPU in the default run: kinds of layers that no other default test of a device has. The others have windows by
# layer (ragged_test, prompt_memory_test), experts, latent attention and delta rules (speculation_devices_test).
BY_DEFAULT: Final = (
    DeviceCase("gemma2", 3),
    DeviceCase("gpt2_4x", 5),
    DeviceCase("gpt_oss", 5),
    DeviceCase("gemma3n", 4),
    DeviceCase("mamba2_4x", 4, 2),
)
_CHOSEN: Final = (
    DeviceCase("llama_dynamic_crossing_4x", 11),
    DeviceCase("qwen3_next", 34, 2),
    DeviceCase("tinyllama_4x", 11, 2),
    DeviceCase("mistral_window", 8),
    DeviceCase("deepseek_v3", 5, 2),
    DeviceCase("gemma4", 4, 2),
    DeviceCase("gemma4_moe", 3),
    DeviceCase("qwen3_next_mixed_4x", 4),
    DeviceCase("phi3_longrope_partial", 18),
    DeviceCase("lfm2", 34),
    DeviceCase("lfm2_4x", 4, 2),
    DeviceCase("qwen2_moe", 4, 2),
    DeviceCase("minimax_m2", 16),
    DeviceCase("mamba2", 34),
    DeviceCase("mixtral_window_tied_4x", 4),
    DeviceCase("qwen2_window_layers", 3),
    DeviceCase("granite_hybrid", 16),
    DeviceCase("falcon_h1", 16, 2),
    DeviceCase("nemotron_h", 16),
)


def _one_of_each() -> tuple[DeviceCase, ...]:
    """Returns the first case of each architecture that none of the above has, with sizes of calls by turns."""
    walked = {
        CASES[case.name].config["architectures"][0] for case in (*EVERYWHERE, *LONG_EVERYWHERE, *BY_DEFAULT, *_CHOSEN)
    }
    first = {case.config["architectures"][0]: case.name for case in reversed(CASES.values())}
    rest = (name for architecture, name in first.items() if architecture not in walked)
    return tuple(map(DeviceCase, rest, itertools.cycle((4, 16, 5, 3)), itertools.cycle((1, 2))))


# On the CPU with TAPELINE_LONG=1: with the others, a case of every architecture.
LONG: Final = (*LONG_EVERYWHERE, *_CHOSEN, *_one_of_each())

# On XLA from the portable module (tests/engines/families_test.py), with TAPELINE_LONG=1 and without.
ON_JAX: Final = (*EVERYWHERE, *BY_DEFAULT, *LONG)
JAX_BY_DEFAULT: Final = tuple(plan for plan in ON_JAX if plan.name == "mamba2_4x")
