"""Kernels in place of a model's composites, and the configuration of each call."""

from collections.abc import Sequence
from typing import Any, Final

from autotune import (
    ConfigSelectorChain,
    Environment,
    Executor,
    Invocation,
    Kernel,
    Key,
    PersistentCache,
    Selection,
    as_line,
    call_of,
    to_json,
    with_kernels,
)
from autotune.iree_compiler import IreeCompiler
from autotune.supplied import composite_kernels
from lang_core import EntryPoint
from run_iree import target_named

KERNELS: Final = ("none", "tuned")


class ChosenKernels:
    """Kernels for entry points; a call's configuration is chosen once for all lowerings of an export.

    Nothing is measured: a call gets the configuration of the user's persistent cache, or the kernel's heuristic.

    Args:
        targets: of the export, one at most: configurations are those for its first device.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        self._environment: Final[Environment | None] = (
            IreeCompiler(target_named(targets[0]).devices[0]).environment() if targets else None
        )
        self._chain: Final = _NotingChain()
        self._executor: Final = Executor(self._chain)
        self._table: Final = composite_kernels()

    def of(self, entry_points: Sequence[EntryPoint]) -> tuple[EntryPoint, ...]:
        """Returns the entry points with kernels in them."""
        return tuple(
            with_kernels(entry_point, self._table, self._executor, self._environment) for entry_point in entry_points
        )

    def calls(self) -> list[dict[str, Any]]:
        """Returns the calls so far and the configuration of each, for ``kernel_config.json``."""
        return [
            {
                **as_line(call_of(key, kernel, inv.args, inv.kwargs, inv.method, inv.batch_axes)),
                "tier": chosen.tier,
                "provenance": chosen.provenance,
                "cfg": to_json(chosen.cfg),
            }
            for key, (inv, kernel, chosen) in self._chain.first.items()
        ]

    def summary(self) -> str:
        """Returns a line with the number of configurations per source."""
        tiers = [selection.tier for _, _, selection in self._chain.first.values()]
        guessed = tiers.count("heuristics")
        return f"kernels: {len(tiers)} calls, {len(tiers) - guessed} tuned or pinned, {guessed} by heuristics"


class _NotingChain(ConfigSelectorChain[Any, Any]):
    """Configuration selectors that note the first selection for each call."""

    def __init__(self) -> None:
        super().__init__(policy="heuristics", persistent=PersistentCache())
        self.first: Final[dict[Key, tuple[Invocation[Any, Any], Kernel[Any, Any], Selection]]] = {}

    def select(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Selection:
        """Selects the configuration for a call."""
        selection = super().select(inv, kernel)
        if selection.key not in self.first:
            args, kwargs = inv.specs()  # no values: they would keep their recording alive
            noted = Invocation(inv.op_id, args, kwargs, inv.batch_axes, None, inv.stamp, inv.method)
            self.first[selection.key] = noted, kernel, selection
        return selection
