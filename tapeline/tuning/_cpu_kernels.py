"""CPU kernels of this machine: tuned once, and taken by every module that is compiled for it afterwards."""

import dataclasses
from typing import Any

from autotune import HEURISTIC, ConfigSelectorChain, PersistentCache, Tuner
from autotune.iree_compiler import CpuKernelsKernel, remembered_kernels, tune_kernels
from run_iree import Target, target_named
from tapeline import cli
from tapeline.tuning._explain import cfg_text, seconds_text
from tapeline.tuning._tune import TunedCall


def tuned_target(name: str, cache: PersistentCache[Any] | None = None) -> tuple[Target, dict[str, Any] | None]:
    """Returns a compile target with the CPU kernels that are stored for this machine, and their source.

    Args:
        name: name of the target, one of ``run_iree.TARGETS``.
        cache: cache of configurations; the user's own if None.

    Returns:
        The target, and the fields of its ``CpuKernels`` with ``from``: ``table``, ``tuned`` or ``pinned``; None for a
        target without kernels.
    """
    target = target_named(name)
    if target.kernels is None:
        return target, None
    selection = remembered_kernels(cache)
    origin = "table" if selection.provenance == HEURISTIC else selection.provenance
    return (
        dataclasses.replace(target, kernels=selection.cfg),
        {**dataclasses.asdict(selection.cfg), "from": origin},
    )


def tune_cpu(cache: PersistentCache[Any], rounds: int, products: CpuKernelsKernel | None = None) -> list[TunedCall]:
    """Times the kernels that this machine's CPU can run, and stores the best; reports the time of each candidate.

    Args:
        cache: cache that stores the result.
        rounds: samples of each candidate.
        products: products to time; those for which ``tuned_target`` looks if None.

    Raises:
        TuningError: the CPU lacks kernels to choose between.
    """

    def told(done: int, total: int, measurement: Any) -> None:
        took = seconds_text(measurement.seconds) if measurement.status == "ok" else measurement.detail
        cli.say(f"tuning CPU kernels, {done} of {total}: {cfg_text(measurement.cfg)}: {took}")

    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
        tuner=Tuner(rounds=rounds, on_measured=told), persistent=cache
    )
    selection = tune_kernels(chain, products)
    return [] if selection.entry is None else [TunedCall(selection.key.op, selection.entry)]
