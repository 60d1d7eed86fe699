"""What a generation cost."""

import resource
import time
from dataclasses import dataclass, field
from typing import Any

from compile_hlo.iree import Counters


@dataclass(slots=True)
class GenerationStats:
    """Times are seconds since the start of the generation, which is when the session was open.

    Attributes:
        prompt_tokens: how many, of all prompts.
        token_times: when each new token was there.
        bytes_copied: between host and device (and copies that guard an argument), at each of those times.
        calls: how many there were of entry points, at each of those times.
    """

    prompt_tokens: int
    started: float = field(default_factory=time.perf_counter)
    token_times: list[float] = field(default_factory=list)
    bytes_copied: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def token(self, counters: Counters) -> None:
        """A new token is there."""
        self.token_times.append(time.perf_counter() - self.started)
        self.bytes_copied.append(counters.bytes_in + counters.bytes_out + counters.bytes_guarded)
        self.calls.append(counters.calls)

    def as_json(self, load_seconds: float, device: str) -> dict[str, Any]:
        """For ``--stats``."""
        first, last = self.token_times[0], self.token_times[-1]
        tokens, steps = len(self.token_times) - 1, self.calls[-1] - self.calls[0]
        per_step = (self.bytes_copied[-1] - self.bytes_copied[0]) / steps if steps else 0.0
        return {
            "device": device,
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": len(self.token_times),
            "load_seconds": load_seconds,
            "time_to_first_token_seconds": first,
            "prompt_tokens_per_second": self.prompt_tokens / first if first else None,
            "decode_tokens_per_second": tokens / (last - first) if tokens and last > first else None,
            "bytes_copied_per_step": per_step,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
