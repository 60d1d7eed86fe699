"""Figures of a generation: times, bytes copied, calls."""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime import Counters
from tapeline.bundle import Bundle
from tapeline.running._generation import TokenStream


@dataclass(slots=True)
class GenerationStats:
    """Figures per token. Times are seconds since the start of the generation, when the session was open.

    Attributes:
        prompt_tokens: how many, of all prompts.
        token_times: when each new token was there.
        bytes_copied: between host and device (and copies that guard an argument), but for tokens, at each of those
            times.
        token_bytes: the ids of tokens that went to the device and came from it, and their places, at each of those
            times.
        calls: how many there were of entry points, at each of those times.
    """

    prompt_tokens: int
    started: float = field(default_factory=time.perf_counter)
    token_times: list[float] = field(default_factory=list)
    bytes_copied: list[int] = field(default_factory=list)
    token_bytes: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def token(self, counters: Counters, token_bytes: int) -> None:
        """Notes a new token and the bytes of tokens that were moved until then."""
        self.token_times.append(time.perf_counter() - self.started)
        self.bytes_copied.append(counters.bytes_copied - token_bytes)
        self.token_bytes.append(token_bytes)
        self.calls.append(counters.calls)

    def as_json(self, load_seconds: float, device: str, stream: TokenStream) -> dict[str, Any]:
        """Returns the figures as JSON values; tokens reused, drafted and accepted are those of a stream."""
        reused = stream.reused
        first, last = self.token_times[0], self.token_times[-1]
        tokens, steps = len(self.token_times) - 1, self.calls[-1] - self.calls[0] - stream.head_calls
        return {
            "device": device,
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_reused": reused,
            "new_tokens": len(self.token_times),
            "load_seconds": load_seconds,
            "time_to_first_token_seconds": first,
            "prompt_tokens_per_second": (self.prompt_tokens - reused) / first if first else None,
            "decode_tokens_per_second": tokens / (last - first) if tokens and last > first else None,
            "bytes_copied_per_step": _per_step(self.bytes_copied, steps),
            "token_bytes_per_step": _per_step(self.token_bytes, steps),
            "tokens_per_call": tokens / steps if steps else None,
            "drafted": stream.drafted,
            "accepted": stream.accepted,
            "head_calls": stream.head_calls,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def _per_step(totals: Sequence[int], steps: int) -> float:
    return (totals[-1] - totals[0]) / steps if steps else 0.0


def dispatches(bundle: Bundle, target: str) -> dict[str, int]:
    """Returns the number of kernels that a call of each entry point runs, as the export counted them for a target."""
    schedule = bundle.config.targets.get(target, {}).get("schedule", {})
    return {name: counts["dispatches"] for name, counts in schedule.items()}
