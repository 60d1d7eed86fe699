"""Small kernels, a tuner with a scripted clock, and a chain that keeps its events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune import ConfigCache, ConfigSelectorChain, Invocation, Kernel, Tuner


@dataclass(frozen=True)
class Blocks:
    """Configuration of a product: number of blocks of rows."""

    rows: int = 1
    mode: str = "plain"


class Matmul(Kernel[Blocks, np.ndarray]):
    """Product of [m, k] and [k, n], in blocks of rows."""

    op_id = "tests.matmul"
    version = "3"

    def run(self, a: Any, b: Any, *, cfg: Blocks) -> Any:
        """Returns [m, n]."""
        if cfg.mode == "broken":
            raise ValueError("no such mode\nand more")
        parts = [part @ b for part in np.array_split(a, cfg.rows)]
        return np.concatenate(parts) + (1 if cfg.mode == "wrong" else 0)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> Blocks:
        """Returns one block."""
        return Blocks()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[Blocks]:
        """Returns one that works, one that raises, one whose result is wrong, and two more that work."""
        return [Blocks(2), Blocks(1, "broken"), Blocks(1, "wrong"), Blocks(3), Blocks(1)]


class Clock(Tuner[Any]):
    """Tuner that takes durations from a function, and notes the candidates that it runs."""

    def __init__(self, seconds: Callable[[Any], float]) -> None:
        super().__init__(warmup=0, iters=1, rounds=1)
        self.seconds = seconds
        self.tuned: list[Any] = []

    def tune(self, make_fn: Any, args: Any, kwargs: Any, candidates: Any, **options: Any) -> Any:
        """Attaches its configuration to each function, for ``measure``."""

        def noted(cfg: Any) -> Any:
            self.tuned.append(cfg)
            function = make_fn(cfg)

            def call(*a: Any, **k: Any) -> Any:
                return function(*a, **k)

            call.cfg = cfg  # pyright: ignore[reportFunctionMemberAccess]
            return call

        return super().tune(noted, args, kwargs, candidates, **options)

    def measure(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        """Returns the scripted duration."""
        return self.seconds(fn.cfg)


def chain(
    seconds: Callable[[Any], float] = lambda cfg: 1.0 / cfg.rows, **options: Any
) -> tuple[ConfigSelectorChain[Any, Any], list[tuple[str, dict[str, Any]]], Clock]:
    """Returns a chain, its events, and its clock."""
    events: list[tuple[str, dict[str, Any]]] = []
    clock = Clock(seconds)
    made: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
        ConfigCache(), tuner=clock, on_event=lambda name, **data: events.append((name, data)), **options
    )
    return made, events, clock


def matrices(m: int = 4, k: int = 5, n: int = 3) -> tuple[Any, Any]:
    """Returns matrices [m, k] and [k, n]."""
    random = np.random.default_rng(m * 100 + k)
    return random.standard_normal((m, k)).astype(np.float32), random.standard_normal((k, n)).astype(np.float32)
